//! Who gets in: the compiled form against the same meaning written as plainly as it can be.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::Arc;

use causeway_policy::model::{IngressPeer, IngressRule, Mode, NetworkChoice};
use causeway_policy::{Effective, Guardrail, L4Ingress, Policy, Protocol, Reserved};
use causeway_types::Labels;
use proptest::prelude::*;

use crate::common::{guardrail, policy};

/// A packet that asks to come in.
#[derive(Debug, Clone)]
struct Packet {
    from: From,
    protocol: Protocol,
    port: u16,
}

#[derive(Debug, Clone)]
enum From {
    /// A sandbox: the networks that it shares with the destination, and its labels.
    Sandbox(BTreeSet<&'static str>, Labels),
    Outside(Ipv6Addr),
}

fn rule_admits(rule: &IngressRule, packet: &Packet) -> bool {
    let from = match (&rule.from, &packet.from) {
        (IngressPeer::Network { network, labels }, From::Sandbox(shared, carried)) => {
            let on_network = match network {
                NetworkChoice::AnyShared => !shared.is_empty(),
                NetworkChoice::Named(name) => shared.contains(name.as_str()),
            };
            on_network
                && labels
                    .iter()
                    .all(|(key, value)| carried.get(key) == Some(value))
        }
        (IngressPeer::Outside(prefixes), From::Outside(address)) => {
            prefixes.iter().any(|prefix| prefix.contains(address))
        }
        _ => false,
    };
    from && rule.ports.contains(packet.protocol, packet.port)
}

fn reference(policies: &[Arc<Policy>], guardrails: &[Arc<Guardrail>], packet: &Packet) -> bool {
    let admits = |rules: &Option<Vec<IngressRule>>| {
        rules.iter().flatten().any(|rule| rule_admits(rule, packet))
    };
    let stated = policies
        .iter()
        .any(|p| p.mode == Mode::Enforce && p.ingress.is_some());
    let member = matches!(&packet.from, From::Sandbox(shared, _) if !shared.is_empty());
    let admitted = policies.iter().any(|p| admits(&p.ingress)) || (!stated && member);
    let bounded = guardrails
        .iter()
        .any(|g| g.mode == Mode::Enforce && g.ingress.is_some());
    admitted && (!bounded || guardrails.iter().any(|g| admits(&g.ingress)))
}

fn compiled(effective: &Effective, packet: &Packet) -> bool {
    match &effective.firewall().ingress {
        L4Ingress::SharedNetworks => {
            matches!(&packet.from, From::Sandbox(shared, _) if !shared.is_empty())
        }
        L4Ingress::Rules(rules) => rules.iter().any(|rule| rule_admits(rule, packet)),
    }
}

fn rule(networks: Vec<&'static str>) -> impl Strategy<Value = String> {
    let labels = prop::sample::select(vec!["", ", labels: {a: x}", ", labels: {a: y, b: x}"]);
    let sandboxes = (prop::sample::select(networks), labels)
        .prop_map(|(network, labels)| format!("{{network: {network}{labels}}}"));
    let prefixes = vec!["2600::/16", "2600::/32", "::/0", "2601::1/128"];
    let outside = prop::sample::subsequence(prefixes, 1..3)
        .prop_map(|prefixes| format!("{{cidr: [{}]}}", prefixes.join(",")));
    let from = prop_oneof![2 => sandboxes, 1 => outside];
    let ports = vec!["'*'", "80", "udp/53, icmpv6", "tcp/*", "50-100"];
    (from, prop::sample::select(ports))
        .prop_map(|(from, ports)| format!("{{from: {from}, ports: [{ports}]}}"))
}

fn spec(networks: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    let mode = prop_oneof![3 => Just("enforce"), 1 => Just("audit")];
    let rules = prop::option::of(prop::collection::vec(rule(networks.to_vec()), 0..4));
    (mode, rules).prop_map(|(mode, rules)| match rules {
        None => format!("mode: {mode}"),
        Some(rules) => format!("mode: {mode}, ingress: [{}]", rules.join(", ")),
    })
}

fn packet() -> impl Strategy<Value = Packet> {
    let shared = prop::sample::subsequence(vec!["n", "m"], 0..3);
    let labels = prop::sample::select(vec![vec![], vec![("a", "x")], vec![("a", "y"), ("b", "x")]]);
    let sandbox = (shared, labels).prop_map(|(shared, labels)| {
        let labels = labels
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()));
        From::Sandbox(shared.into_iter().collect(), Labels::new(labels).unwrap())
    });
    let addresses = ["2600::1", "2600:1::1", "2601::1", "2602::1"];
    let outside = prop::sample::select(addresses.to_vec())
        .prop_map(|address| From::Outside(address.parse().unwrap()));
    let ports = vec![
        (Protocol::Tcp, 80),
        (Protocol::Tcp, 443),
        (Protocol::Udp, 53),
        (Protocol::Icmpv6, 0),
    ];
    (
        prop_oneof![2 => sandbox, 1 => outside],
        prop::sample::select(ports),
    )
        .prop_map(|(from, (protocol, port))| Packet {
            from,
            protocol,
            port,
        })
}

proptest! {
    // PROPTEST_CASES asks for more: each case asks eight questions.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        ..ProptestConfig::default()
    })]

    #[test]
    fn compiled_and_plain_admit_the_same(
        policies in prop::collection::vec(spec(&["n", "m", "'*'"]), 0..4),
        guardrails in prop::collection::vec(spec(&["'*'"]), 0..3),
        packets in prop::collection::vec(packet(), 8),
    ) {
        let policies: Vec<_> = policies.iter().enumerate()
            .map(|(i, s)| policy(&format!("p{i}"), s)).collect();
        let guardrails: Vec<_> = guardrails.iter().enumerate()
            .map(|(i, s)| guardrail(&format!("g{i}"), s)).collect();
        let effective = Effective::compile(&policies, &guardrails, &Reserved::default());
        for packet in &packets {
            let expected = reference(&policies, &guardrails, packet);
            prop_assert_eq!(compiled(&effective, packet), expected, "{:?}", packet);
        }
    }
}
