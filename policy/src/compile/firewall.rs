//! The part that the dataplane enforces by itself.

use std::collections::BTreeMap;
use std::net::IpAddr;

use causeway_types::{Labels, embedded_ipv4};
use ipnet::{IpNet, Ipv6Net};

use crate::l4::{L4Egress, L4Ingress, L4Rules};
use crate::model::{
    Action, Destination, EgressRule, Guardrail, IngressPeer, IngressRule, Mode, NetworkChoice,
    Policy, PortSet, Protocol, RuleName,
};
use crate::reserved::{Reserved, hides};

/// Rules for one sandbox, from the policies that select it and from all guardrails.
pub(super) fn rules(
    policies: &[&Policy],
    guardrails: &[&Guardrail],
    reserved: &Reserved,
) -> L4Rules {
    let egress = permits(policies, guardrails, reserved);
    L4Rules {
        ingress: ingress(policies, guardrails),
        egress_deny: denials(policies, guardrails, &egress),
        egress,
    }
}

fn ingress(policies: &[&Policy], guardrails: &[&Guardrail]) -> L4Ingress {
    let stated = policies
        .iter()
        .any(|p| p.mode == Mode::Enforce && p.ingress.is_some());
    let mut rules: Vec<_> = policies
        .iter()
        .flat_map(|p| p.ingress.iter().flatten())
        .cloned()
        .collect();
    if !stated {
        // Nobody is shut out; what policies in audit mode open to the outside stays open.
        rules.retain(|rule| matches!(rule.from, IngressPeer::Outside(_)));
        rules.push(every_member());
    }
    let bounded = guardrails
        .iter()
        .any(|g| g.mode == Mode::Enforce && g.ingress.is_some());
    if bounded {
        let bounds = guardrails.iter().flat_map(|g| g.ingress.iter().flatten());
        let bounds: Vec<_> = bounds.collect();
        rules = rules
            .iter()
            .flat_map(|rule| bounds.iter().filter_map(|bound| narrowed(rule, bound)))
            .collect();
    }
    rules.sort();
    rules.dedup();
    if !stated && !bounded && rules.len() == 1 {
        return L4Ingress::SharedNetworks;
    }
    L4Ingress::Rules(rules)
}

fn every_member() -> IngressRule {
    IngressRule {
        name: RuleName::numbered("shared", 0),
        from: IngressPeer::Network {
            network: NetworkChoice::AnyShared,
            labels: Labels::default(),
        },
        ports: PortSet::Every,
    }
}

/// What both rules let in.
fn narrowed(rule: &IngressRule, bound: &IngressRule) -> Option<IngressRule> {
    use IngressPeer::{Network, Outside};
    let from = match (&rule.from, &bound.from) {
        (
            Network { network, labels },
            Network {
                network: bound_network,
                labels: bound_labels,
            },
        ) => Network {
            network: same_network(network, bound_network)?,
            labels: both_labels(labels, bound_labels)?,
        },
        (Outside(prefixes), Outside(bounds)) => {
            let both: Vec<_> = prefixes
                .iter()
                .flat_map(|a| bounds.iter().filter_map(|b| inner(*a, *b)))
                .collect();
            if both.is_empty() {
                return None;
            }
            Outside(both)
        }
        _ => return None,
    };
    Some(IngressRule {
        name: rule.name.clone(),
        from,
        ports: rule.ports.intersection(&bound.ports)?,
    })
}

fn same_network(a: &NetworkChoice, b: &NetworkChoice) -> Option<NetworkChoice> {
    match (a, b) {
        (NetworkChoice::AnyShared, one) | (one, NetworkChoice::AnyShared) => Some(one.clone()),
        (a, b) => (a == b).then(|| a.clone()),
    }
}

/// The labels that satisfy both; none when they ask for two values of one key, or for more
/// labels than a sandbox carries.
fn both_labels(a: &Labels, b: &Labels) -> Option<Labels> {
    let conflict = b
        .iter()
        .any(|(key, value)| a.get(key).is_some_and(|other| other != value));
    let all = a.iter().chain(b.iter());
    let all = all.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Labels::new(all).ok().filter(|_| !conflict)
}

/// The longer of two prefixes, if it lies in the shorter one.
fn inner(a: Ipv6Net, b: Ipv6Net) -> Option<Ipv6Net> {
    match (a.contains(&b), b.contains(&a)) {
        (true, _) => Some(b),
        (_, true) => Some(a),
        _ => None,
    }
}

/// Prefixes with their ports, each prefix once.
type Open = BTreeMap<Ipv6Net, PortSet>;

fn permits(policies: &[&Policy], guardrails: &[&Guardrail], reserved: &Reserved) -> Vec<L4Egress> {
    let own = entries(
        policies.iter().flat_map(|p| p.egress.iter().flatten()),
        Action::Permit,
    );
    let mut open = cut(&own, reserved);
    if guardrails
        .iter()
        .any(|g| g.mode == Mode::Enforce && g.egress.is_some())
    {
        let rules = guardrails.iter().flat_map(|g| g.egress.iter().flatten());
        open = both(&open, &cut(&entries(rules, Action::Permit), reserved));
    }
    listed(open)
}

fn listed(open: Open) -> Vec<L4Egress> {
    let entry = |(prefix, ports)| L4Egress { prefix, ports };
    open.into_iter().map(entry).collect()
}

fn add(open: &mut Open, prefix: Ipv6Net, ports: &PortSet) {
    let known = match open.remove(&prefix) {
        None => ports.clone(),
        Some(known) => known.union(ports.clone()),
    };
    open.insert(prefix, known);
}

/// What lies in both. Of two prefixes one contains the other, or they have nothing in common, so
/// each is looked up with its own length and with each shorter one.
fn both(a: &Open, b: &Open) -> Open {
    let mut found = Open::new();
    for (inner, outer) in [(a, b), (b, a)] {
        for (prefix, ports) in inner {
            for length in 0..=prefix.prefix_len() {
                let around = Ipv6Net::new_assert(prefix.network(), length).trunc();
                let Some(bound) = outer.get(&around) else {
                    continue;
                };
                if let Some(ports) = ports.intersection(bound) {
                    add(&mut found, *prefix, &ports);
                }
            }
        }
    }
    found
}

fn denials(policies: &[&Policy], guardrails: &[&Guardrail], open: &[L4Egress]) -> Vec<L4Egress> {
    let policies = policies
        .iter()
        .filter(|p| p.mode == Mode::Enforce)
        .flat_map(|p| p.egress.iter().flatten());
    let guardrails = guardrails
        .iter()
        .filter(|g| g.mode == Mode::Enforce)
        .flat_map(|g| g.egress.iter().flatten());
    let rules: Vec<_> = policies.chain(guardrails).collect();
    let mut denied = entries(rules.iter().copied(), Action::Deny);
    for L4Egress { prefix, ports } in hidden_denials(&rules, open) {
        add(&mut denied, prefix, &ports);
    }
    listed(denied)
}

/// Denied IPv4 prefixes, in the IPv6 forms that are open: those are single addresses
/// ([`Reserved::cut`]).
fn hidden_denials(rules: &[&EgressRule], open: &[L4Egress]) -> Vec<L4Egress> {
    let hidden = open
        .iter()
        .filter(|entry| hides(&entry.prefix))
        .filter_map(|entry| Some((entry.prefix, embedded_ipv4(entry.prefix.network())?)));
    let hidden: Vec<_> = hidden.collect();
    let mut found = Vec::new();
    for rule in rules.iter().filter(|rule| rule.action == Action::Deny) {
        let (Destination::Prefixes(prefixes), Some(ports)) = (&rule.to, without_tcp(&rule.ports))
        else {
            continue;
        };
        let denies = |address| prefixes.iter().any(|p| p.contains(&IpAddr::V4(address)));
        for (prefix, _) in hidden.iter().filter(|(_, address)| denies(*address)) {
            let ports = ports.clone();
            found.push(L4Egress {
                prefix: *prefix,
                ports,
            });
        }
    }
    found
}

/// The IPv6 prefixes of all rules with this action, without TCP.
fn entries<'a>(rules: impl Iterator<Item = &'a EgressRule>, action: Action) -> Open {
    let mut found = Open::new();
    for rule in rules.filter(|rule| rule.action == action) {
        let (Destination::Prefixes(prefixes), Some(ports)) = (&rule.to, without_tcp(&rule.ports))
        else {
            continue;
        };
        for prefix in prefixes {
            if let IpNet::V6(prefix) = *prefix {
                add(&mut found, prefix, &ports);
            }
        }
    }
    found
}

fn without_tcp(ports: &PortSet) -> Option<PortSet> {
    let PortSet::Ranges(ranges) = ports else {
        return Some(PortSet::Every);
    };
    let mut rest: Vec<_> = ranges
        .iter()
        .filter(|range| range.protocol() != Protocol::Tcp)
        .copied()
        .collect();
    rest.sort_unstable();
    rest.dedup();
    (!rest.is_empty()).then_some(PortSet::Ranges(rest))
}

fn cut(entries: &Open, reserved: &Reserved) -> Open {
    let mut open = Open::new();
    for (prefix, ports) in entries {
        for piece in reserved.cut(*prefix) {
            add(&mut open, piece, ports);
        }
    }
    open
}
