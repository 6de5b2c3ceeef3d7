//! The compiled form against the same meaning written as plainly as it can be.

use std::net::IpAddr;
use std::sync::Arc;

use crate::common::{guardrail, name, policy};
use causeway_policy::model::{Action, Destination, EgressRule, Mode, PortSet};
use causeway_policy::{
    CanonicalPath, Connect, Effective, Guardrail, L4Egress, L4Rules, Outcome, Policy, Protocol,
    Request, Reserved, explain,
};
use causeway_types::{DomainName, Labels, TenantName};
use ipnet::IpNet;
use proptest::prelude::*;

/// What is asked.
#[derive(Debug, Clone)]
struct Asked {
    name: Option<DomainName>,
    address: IpAddr,
    protocol: Protocol,
    port: u16,
    request: Option<(String, CanonicalPath)>,
}

/// Whether something passes, and whether it is marked.
fn reference(policies: &[Arc<Policy>], guardrails: &[Arc<Guardrail>], asked: &Asked) -> Outcome {
    let rules = |enforced: bool| {
        let mode = if enforced { Mode::Enforce } else { Mode::Audit };
        let policies = policies
            .iter()
            .filter(move |p| p.mode == mode)
            .flat_map(|p| p.egress.iter().flatten());
        let guardrails = guardrails
            .iter()
            .filter(move |g| g.mode == mode)
            .flat_map(|g| g.egress.iter().flatten());
        policies.chain(guardrails).collect::<Vec<_>>()
    };
    let denies = |rule: &&EgressRule| rule.action == Action::Deny && matches(rule, asked);
    let permits = |rule: &EgressRule| rule.action == Action::Permit && matches(rule, asked);
    if policies.is_empty() || rules(true).iter().any(denies) {
        return Outcome::Deny;
    }
    let mut marked = rules(false).iter().any(denies);
    if !policies
        .iter()
        .flat_map(|p| p.egress.iter().flatten())
        .any(permits)
    {
        let enforced = policies.iter().any(|p| p.mode == Mode::Enforce);
        // Audit mode opens nothing that the dataplane forwards by itself.
        if enforced || asked.protocol != Protocol::Tcp || !is_public(asked.address) {
            return Outcome::Deny;
        }
        marked = true;
    }
    let bounds: Vec<_> = guardrails.iter().filter(|g| g.egress.is_some()).collect();
    let in_bounds = bounds
        .iter()
        .flat_map(|g| g.egress.iter().flatten())
        .any(permits);
    if !bounds.is_empty() && !in_bounds {
        if bounds.iter().any(|g| g.mode == Mode::Enforce) {
            return Outcome::Deny;
        }
        marked = true;
    }
    if marked {
        Outcome::Audit
    } else {
        Outcome::Permit
    }
}

fn matches(rule: &EgressRule, asked: &Asked) -> bool {
    let tcp = asked.protocol == Protocol::Tcp;
    let place = match &rule.to {
        Destination::Names(patterns) => {
            let named = asked
                .name
                .as_ref()
                .is_some_and(|name| patterns.iter().any(|p| p.matches(name)));
            tcp && named && (rule.action == Action::Deny || is_public(asked.address))
        }
        Destination::Prefixes(prefixes) => prefixes.iter().any(|prefix| match rule.action {
            Action::Deny => spellings(asked.address).any(|a| prefix.contains(&a)),
            Action::Permit => {
                prefix.contains(&asked.address) && opens(prefix, asked.address, asked.protocol)
            }
        }),
    };
    let request = match (&rule.http, &asked.request) {
        (None, _) => true,
        (Some(_), None) => rule.action == Action::Permit,
        (Some(http), Some((method, path))) => http.iter().any(|http| {
            http.methods.iter().any(|m| m.matches(method))
                && http.paths.iter().any(|glob| glob.matches(path))
        }),
    };
    place && rule.ports.contains(asked.protocol, asked.port) && request
}

/// The addresses in these tests that hide another one lie here.
const NAT64: &str = "64:ff9b::/96";

fn hidden(address: IpAddr) -> Option<IpAddr> {
    let IpAddr::V6(v6) = address else { return None };
    let net: IpNet = NAT64.parse().unwrap();
    let [.., a, b, c, d] = v6.octets();
    net.contains(&address).then(|| IpAddr::from([a, b, c, d]))
}

fn spellings(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    std::iter::once(address).chain(hidden(address))
}

/// The only reserved ranges that these tests use.
fn private(address: IpAddr) -> Option<IpNet> {
    let ranges = ["10.0.0.0/8", "fc00::/7"].map(|net| net.parse::<IpNet>().unwrap());
    ranges.into_iter().find(|range| range.contains(&address))
}

fn is_public(address: IpAddr) -> bool {
    spellings(address).all(|address| private(address).is_none())
}

fn opens(prefix: &IpNet, address: IpAddr, protocol: Protocol) -> bool {
    let exact = prefix.prefix_len() == prefix.max_prefix_len();
    let named = private(address).is_none_or(|range| range.contains(prefix));
    match protocol {
        Protocol::Tcp => named && (exact || hidden(address).is_none_or(is_public)),
        Protocol::Udp | Protocol::Icmpv6 => {
            address.is_ipv6() && named && (exact || hidden(address).is_none())
        }
    }
}

/// Whether the resolver answers: some policy permits the name on some port, guardrails do not
/// rule it out, and no rule denies all of it.
fn resolves(policies: &[Arc<Policy>], guardrails: &[Arc<Guardrail>], name: &DomainName) -> bool {
    let named = |rule: &EgressRule| match &rule.to {
        Destination::Names(patterns) => patterns.iter().any(|p| p.matches(name)),
        Destination::Prefixes(_) => false,
    };
    let permits = |rule: &EgressRule| rule.action == Action::Permit && named(rule);
    let denies = |rule: &EgressRule| {
        rule.action == Action::Deny
            && named(rule)
            && rule.http.is_none()
            && rule.ports == PortSet::Every
    };
    let of = |p: &Arc<Policy>| p.egress.clone().unwrap_or_default();
    let bound = |g: &Arc<Guardrail>| g.egress.clone().unwrap_or_default();
    let watching = !policies.is_empty() && policies.iter().all(|p| p.mode == Mode::Audit);
    let permitted = watching || policies.iter().flat_map(of).any(|rule| permits(&rule));
    let bounded = guardrails
        .iter()
        .any(|g| g.mode == Mode::Enforce && g.egress.is_some());
    let by_address = |rule: &EgressRule| matches!(rule.to, Destination::Prefixes(_));
    let in_bounds = !bounded
        || guardrails
            .iter()
            .flat_map(bound)
            .any(|rule| permits(&rule) || by_address(&rule));
    let enforced = policies
        .iter()
        .filter(|p| p.mode == Mode::Enforce)
        .flat_map(of);
    let enforced = enforced.chain(
        guardrails
            .iter()
            .filter(|g| g.mode == Mode::Enforce)
            .flat_map(bound),
    );
    permitted && in_bounds && !enforced.into_iter().any(|rule| denies(&rule))
}

const NAMES: [&str; 5] = ["t", "a.t", "b.t", "a.b.t", "c.a.b.t"];
const PATTERNS: [&str; 9] = [
    "t", "a.t", "*.t", "**.t", "*.b.t", "**.b.t", "**", "a.b.t", "u",
];
const PREFIXES: [&str; 14] = [
    "0.0.0.0/0",
    "8.0.0.0/7",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "9.9.9.9/32",
    "8.0.0.0/6",
    "::/0",
    "2600::/16",
    "2600::1/128",
    "fc00::/6",
    "fd12::/16",
    "64:ff9b::/96",
    "64:ff9b::808:808/128",
    "64:ff9b::a01:1/128",
];
const ADDRESSES: [&str; 9] = [
    "9.9.9.9",
    "8.8.8.8",
    "10.1.0.1",
    "10.2.0.1",
    "2600::1",
    "2600::2",
    "fd12::1",
    "64:ff9b::808:808",
    "64:ff9b::a01:1",
];
const PORTS: [&str; 5] = ["443", "80", "'*'", "tcp/*", "1-100"];
/// Only beside prefixes that a permit reaches by these protocols.
const OTHER_PORTS: [&str; 4] = ["udp/53", "icmpv6", "udp/*, tcp/443", "udp/50-60, icmpv6"];

fn rule() -> impl Strategy<Value = String> {
    let names = prop::sample::subsequence(PATTERNS.to_vec(), 1..4).prop_map(|names| {
        let quoted: Vec<_> = names.iter().map(|n| format!("'{n}'")).collect();
        format!("to: [{}]", quoted.join(","))
    });
    let http = prop::option::of(prop::sample::select(vec![
        "http: [{methods: [GET], paths: ['/**']}]",
        "http: [{methods: ['*'], paths: ['/a/*']}]",
        "http: [{methods: [POST], paths: ['/a/**', /b]}]",
    ]));
    let ports = prop::sample::select(PORTS.to_vec());
    let named = (names, http, ports)
        .prop_map(|(to, http, ports)| format!("{to}, ports: [{ports}], {}", http.unwrap_or("")));
    let prefixes = prop::sample::subsequence(PREFIXES.to_vec(), 1..3);
    let all_ports = [&PORTS[..], &OTHER_PORTS[..]].concat();
    let addressed = (prefixes, prop::sample::select(all_ports)).prop_map(|(prefixes, ports)| {
        let unreachable = |p: &&str| p.contains('.') || *p == NAT64;
        let other = OTHER_PORTS.contains(&ports);
        let ports = if other && prefixes.iter().any(unreachable) {
            "'*'"
        } else {
            ports
        };
        format!("cidr: [{}], ports: [{ports}]", prefixes.join(","))
    });
    let to = prop_oneof![1 => named, 1 => addressed];
    let action = prop_oneof![4 => Just("permit"), 1 => Just("deny")];
    (to, action).prop_map(|(to, action)| format!("{{action: {action}, {to}}}"))
}

fn spec() -> impl Strategy<Value = String> {
    let mode = prop_oneof![3 => Just("enforce"), 1 => Just("audit")];
    let rules = prop::option::of(prop::collection::vec(rule(), 0..5));
    (mode, rules).prop_map(|(mode, rules)| match rules {
        None => format!("mode: {mode}"),
        Some(rules) => format!("mode: {mode}, egress: [{}]", rules.join(", ")),
    })
}

fn asked() -> impl Strategy<Value = Asked> {
    let names = prop::option::of(prop::sample::select(NAMES.to_vec()));
    let addresses = prop::sample::select(ADDRESSES.to_vec());
    let ports = prop::sample::select(vec![
        (Protocol::Tcp, 443),
        (Protocol::Tcp, 80),
        (Protocol::Tcp, 22),
        (Protocol::Tcp, 8443),
        (Protocol::Udp, 53),
        (Protocol::Udp, 443),
        (Protocol::Icmpv6, 0),
    ]);
    let methods = prop::sample::select(vec!["GET", "POST"]);
    let paths = prop::sample::select(vec!["/", "/a/x", "/a/x/y", "/b"]);
    let request = prop::option::of((methods, paths));
    (names, addresses, ports, request).prop_map(|(host, address, (protocol, port), request)| {
        let tcp = protocol == Protocol::Tcp;
        Asked {
            name: host.filter(|_| tcp).map(name),
            address: address.parse().unwrap(),
            protocol,
            port,
            request: request
                .filter(|_| tcp)
                .map(|(method, path)| (method.to_owned(), CanonicalPath::parse(path).unwrap())),
        }
    })
}

/// What the dataplane does with a packet that the proxy does not carry.
fn forwarded(firewall: &L4Rules, asked: &Asked) -> bool {
    let IpAddr::V6(address) = asked.address else {
        return false;
    };
    let speaks = |entry: &&L4Egress| {
        entry.prefix.contains(&address) && entry.ports.contains(asked.protocol, asked.port)
    };
    firewall.egress.iter().any(|entry| speaks(&entry))
        && !firewall.egress_deny.iter().any(|entry| speaks(&entry))
}

fn compiled(effective: &Effective, asked: &Asked) -> Outcome {
    let connect = Connect {
        name: asked.name.as_ref(),
        address: asked.address,
        port: asked.port,
        protocol: asked.protocol,
        tls: true,
    };
    let audit = match &asked.request {
        None => effective.connect(&connect).map(|permit| permit.audit),
        Some((method, path)) => {
            let request = Request {
                connect,
                method,
                path,
            };
            effective.request(&request).map(|permit| permit.audit)
        }
    };
    match audit {
        Ok(None) => Outcome::Permit,
        Ok(Some(_)) => Outcome::Audit,
        Err(_) => Outcome::Deny,
    }
}

proptest! {
    // PROPTEST_CASES asks for more: each case asks eight questions.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        ..ProptestConfig::default()
    })]

    #[test]
    fn compiled_and_plain_agree(
        policies in prop::collection::vec(spec(), 0..4),
        guardrails in prop::collection::vec(spec(), 0..3),
        asked in prop::collection::vec(asked(), 8),
    ) {
        let named = |specs: &[String]| -> Vec<(String, String)> {
            specs.iter().enumerate().map(|(i, s)| (format!("d{i}"), s.clone())).collect()
        };
        let policies: Vec<_> = named(&policies).iter().map(|(n, s)| policy(n, s)).collect();
        let guardrails: Vec<_> = named(&guardrails).iter().map(|(n, s)| guardrail(n, s)).collect();
        let reserved = Reserved::default();
        let effective = Effective::compile(&policies, &guardrails, &reserved);
        let mut reversed = policies.clone();
        reversed.reverse();
        let other_order = Effective::compile(&reversed, &guardrails, &reserved);
        for asked in &asked {
            let expected = reference(&policies, &guardrails, asked);
            prop_assert_eq!(compiled(&effective, asked), expected, "{:?}", asked);
            prop_assert_eq!(compiled(&other_order, asked), expected);
            if asked.protocol != Protocol::Tcp {
                let passes = forwarded(effective.firewall(), asked);
                prop_assert_eq!(passes, expected != Outcome::Deny, "{:?}", asked);
            }
            if let Some(name) = &asked.name {
                let expected = resolves(&policies, &guardrails, name);
                prop_assert_eq!(effective.resolves(name), expected, "{}", name);
            }
            // What a request may do, its connection may do; and names that pass resolve.
            let connection = Asked { request: None, ..asked.clone() };
            if expected != Outcome::Deny {
                prop_assert_ne!(compiled(&effective, &connection), Outcome::Deny);
                prop_assert!(effective.opens(asked.address) || asked.protocol != Protocol::Tcp);
            }
            let query = causeway_policy::Query {
                tenant: TenantName::new("acme").unwrap(),
                labels: Labels::default(),
                name: asked.name.clone(),
                address: Some(asked.address),
                port: asked.port,
                protocol: asked.protocol,
                tls: true,
                method: asked.request.as_ref().map(|(method, _)| method.clone()),
                path: asked.request.as_ref().map(|(_, path)| path.to_string()),
            };
            let explained = explain(&policies, &guardrails, &reserved, &query);
            prop_assert_eq!(explained.outcome, expected, "{}", explained);
        }
    }
}
