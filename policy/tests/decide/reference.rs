//! The compiled form against the same meaning written as plainly as it can be.

use std::net::IpAddr;
use std::sync::Arc;

use crate::common::{guardrail, name, policy};
use causeway_policy::model::{Action, Destination, EgressRule, Mode};
use causeway_policy::{
    CanonicalPath, Connect, Effective, Guardrail, Outcome, Policy, Protocol, Request, Reserved,
    explain,
};
use causeway_types::{DomainName, Labels, TenantName, classify};
use ipnet::IpNet;
use proptest::prelude::*;

/// What is asked.
#[derive(Debug, Clone)]
struct Asked {
    name: Option<DomainName>,
    address: IpAddr,
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
        if enforced || !classify(asked.address).is_public() {
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
    let place = match &rule.to {
        Destination::Names(patterns) => {
            let named = asked
                .name
                .as_ref()
                .is_some_and(|name| patterns.iter().any(|p| p.matches(name)));
            named && (rule.action == Action::Deny || classify(asked.address).is_public())
        }
        Destination::Prefixes(prefixes) => prefixes.iter().any(|prefix| {
            prefix.contains(&asked.address)
                && (rule.action == Action::Deny || opens(prefix, asked.address))
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
    place && rule.ports.contains(Protocol::Tcp, asked.port) && request
}

/// The only reserved range that these tests use is 10.0.0.0/8.
fn opens(prefix: &IpNet, address: IpAddr) -> bool {
    let private: IpNet = "10.0.0.0/8".parse().unwrap();
    classify(address).is_public() || (private.contains(&address) && private.contains(prefix))
}

const NAMES: [&str; 5] = ["t", "a.t", "b.t", "a.b.t", "c.a.b.t"];
const PATTERNS: [&str; 9] = [
    "t", "a.t", "*.t", "**.t", "*.b.t", "**.b.t", "**", "a.b.t", "u",
];
const PREFIXES: [&str; 6] = [
    "0.0.0.0/0",
    "8.0.0.0/7",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "9.9.9.9/32",
    "8.0.0.0/6",
];
const ADDRESSES: [&str; 4] = ["9.9.9.9", "8.8.8.8", "10.1.0.1", "10.2.0.1"];
const PORTS: [&str; 5] = ["443", "80", "'*'", "tcp/*", "1-100"];

fn rule() -> impl Strategy<Value = String> {
    let names = prop::sample::subsequence(PATTERNS.to_vec(), 1..4).prop_map(|names| {
        let quoted: Vec<_> = names.iter().map(|n| format!("'{n}'")).collect();
        format!("to: [{}]", quoted.join(","))
    });
    let prefixes = prop::sample::subsequence(PREFIXES.to_vec(), 1..3)
        .prop_map(|prefixes| format!("cidr: [{}]", prefixes.join(",")));
    let http = prop::option::of(prop::sample::select(vec![
        "http: [{methods: [GET], paths: ['/**']}]",
        "http: [{methods: ['*'], paths: ['/a/*']}]",
        "http: [{methods: [POST], paths: ['/a/**', /b]}]",
    ]));
    let to = prop_oneof![
        2 => (names, http).prop_map(|(to, http)| format!("{to}, {}", http.unwrap_or(""))),
        1 => prefixes,
    ];
    let action = prop_oneof![4 => Just("permit"), 1 => Just("deny")];
    let ports = prop::sample::select(PORTS.to_vec());
    (to, action, ports)
        .prop_map(|(to, action, ports)| format!("{{action: {action}, ports: [{ports}], {to}}}"))
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
    let ports = prop::sample::select(vec![443, 80, 22, 8443]);
    let methods = prop::sample::select(vec!["GET", "POST"]);
    let paths = prop::sample::select(vec!["/", "/a/x", "/a/x/y", "/b"]);
    let request = prop::option::of((methods, paths));
    (names, addresses, ports, request).prop_map(|(host, address, port, request)| Asked {
        name: host.map(name),
        address: address.parse().unwrap(),
        port,
        request: request
            .map(|(method, path)| (method.to_owned(), CanonicalPath::parse(path).unwrap())),
    })
}

fn compiled(effective: &Effective, asked: &Asked) -> Outcome {
    let connect = Connect {
        name: asked.name.as_ref(),
        address: asked.address,
        port: asked.port,
        protocol: Protocol::Tcp,
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
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

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
            // What a request may do, its connection may do; and names that pass resolve.
            let connection = Asked { request: None, ..asked.clone() };
            if expected != Outcome::Deny {
                prop_assert_ne!(compiled(&effective, &connection), Outcome::Deny);
                prop_assert!(effective.opens(asked.address));
            }
            let query = causeway_policy::Query {
                tenant: TenantName::new("acme").unwrap(),
                labels: Labels::default(),
                name: asked.name.clone(),
                address: Some(asked.address),
                port: asked.port,
                protocol: Protocol::Tcp,
                tls: true,
                method: asked.request.as_ref().map(|(method, _)| method.clone()),
                path: asked.request.as_ref().map(|(_, path)| path.to_string()),
            };
            let explained = explain(&policies, &guardrails, &reserved, &query);
            prop_assert_eq!(explained.outcome, expected, "{}", explained);
        }
    }
}
