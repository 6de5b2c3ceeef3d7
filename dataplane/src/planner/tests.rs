//! The planner against the plain reading of the rules.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::Arc;

use causeway_types::{Labels, NetworkName, Reason, SandboxId, SandboxName, SandboxUid, TenantName};
use proptest::prelude::*;

use super::*;
use crate::backend::{Observed, PortState};
use crate::desired::{
    Attachment, DesiredState, EgressRule, Firewall, Ingress, IngressPeer, IngressRule,
    InterfaceName, Mtu, PortRange, Ports, Protocol,
};
use crate::trace::{Packet, Verdict, trace};

fn network(n: u8) -> NetworkName {
    NetworkName::new(format!("n{n}")).unwrap()
}

fn labels(role: u8) -> Labels {
    let pairs = [("role", role & 1), ("zone", role >> 1)];
    Labels::new(pairs.map(|(key, value)| (key.to_owned(), value.to_string()))).unwrap()
}

fn any_ports() -> impl Strategy<Value = Ports> {
    prop_oneof![
        Just(Ports::All),
        Just(Ports::Only(vec![
            PortRange::new(Protocol::Tcp, 80, 90).unwrap()
        ])),
        Just(Ports::Only(vec![
            PortRange::new(Protocol::Tcp, 85, 95).unwrap(),
            PortRange::new(Protocol::Udp, 53, 53).unwrap(),
        ])),
        Just(Ports::Only(vec![PortRange::whole(Protocol::Icmpv6)])),
        Just(Ports::Only(Vec::new())),
    ]
}

fn any_ingress() -> impl Strategy<Value = Ingress> {
    let rule = (0_u8..3, 0_u8..6, any_ports()).prop_map(|(n, role, ports)| {
        let from = if role == 5 {
            let prefixes = vec!["2600::/16".parse().unwrap()];
            IngressPeer::Outside { prefixes }
        } else {
            let labels = if role == 4 {
                Labels::default()
            } else {
                labels(role)
            };
            IngressPeer::Network {
                network: network(n),
                labels,
            }
        };
        IngressRule { from, ports }
    });
    prop_oneof![
        Just(Ingress::SharedNetworks),
        prop::collection::vec(rule, 0..3).prop_map(Ingress::Rules),
    ]
}

fn any_egress() -> impl Strategy<Value = Vec<EgressRule>> {
    let prefixes = [
        "::/0",
        "2600::/16",
        "2600:1::/32",
        "fd00::/8",
        "2001:db8:1::2/127",
    ];
    let rule = (0..prefixes.len(), any_ports()).prop_map(move |(index, ports)| EgressRule {
        prefixes: vec![prefixes[index].parse().unwrap()],
        ports,
    });
    prop::collection::vec(rule, 0..3)
}

fn any_spec(n: u16) -> impl Strategy<Value = SandboxSpec> {
    (
        (0_u8..2, prop::collection::btree_set(0_u8..3, 0..3), 0_u8..4),
        (any_ingress(), any_egress(), any_egress()),
        (any::<bool>(), prop::bool::weighted(0.1)),
    )
        .prop_map(
            move |(
                (tenant, networks, role),
                (ingress, egress, egress_deny),
                (prefix, quarantined),
            )| {
                SandboxSpec {
                    uid: SandboxUid::from_random(u64::from(n)),
                    id: SandboxId::new(
                        TenantName::new(format!("t{tenant}")).unwrap(),
                        SandboxName::new(format!("s{n}")).unwrap(),
                    ),
                    address: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, n),
                    prefix: prefix.then(|| {
                        Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, 1, 1, n, 0, 0, 0), 80).unwrap()
                    }),
                    attachment: Attachment::Tap {
                        name: InterfaceName::default(),
                    },
                    mtu: Mtu::default(),
                    networks: networks.into_iter().map(network).collect(),
                    labels: labels(role),
                    firewall: Arc::new(Firewall {
                        ingress,
                        egress,
                        egress_deny,
                    }),
                    quarantined,
                }
            },
        )
}

fn any_specs() -> impl Strategy<Value = Vec<SandboxSpec>> {
    (1_u16..7).prop_flat_map(|count| (0..count).map(any_spec).collect::<Vec<_>>())
}

/// Operations on a node: attach or change, or detach.
fn any_history() -> impl Strategy<Value = Vec<(SandboxSpec, bool)>> {
    let operation = (0_u16..6).prop_flat_map(|n| (any_spec(n), prop::bool::weighted(0.7)));
    prop::collection::vec(operation, 1..25)
}

fn state(specs: &[SandboxSpec]) -> DesiredState {
    DesiredState {
        operator_prefixes: vec!["2001:db8:1::/48".parse().unwrap()],
        sandboxes: specs.iter().map(|spec| (spec.uid, spec.clone())).collect(),
        ..DesiredState::default()
    }
}

fn plan_all(specs: &[SandboxSpec]) -> BTreeSet<Element> {
    let mut planner = Planner::default();
    for spec in specs {
        planner.upsert(spec.clone());
    }
    planner.elements()
}

/// What the packet filter does with the elements, for a packet that is not intercepted.
fn filter(elements: &BTreeSet<Element>, from: Ipv6Addr, packet: &Packet) -> Result<(), Reason> {
    let to = packet.destination;
    let protocol = packet.protocol.number();
    let port = if packet.protocol.has_ports() {
        packet.port
    } else {
        0
    };
    let has = |test: &dyn Fn(&Element) -> bool| elements.iter().any(test);
    let quarantined = |address: Ipv6Addr| {
        has(&|e| matches!(e, Element::Quarantine { prefix } if prefix.contains(&address)))
    };
    let group = |wanted: Ipv6Addr| {
        let exact = elements.iter().find_map(|e| match e {
            Element::Group { address, group } if *address == wanted => Some(*group),
            _ => None,
        });
        exact.or_else(|| {
            elements.iter().find_map(|e| match e {
                Element::GroupPrefix { prefix, group } if prefix.contains(&wanted) => Some(*group),
                _ => None,
            })
        })
    };
    if quarantined(from) || quarantined(to) {
        return Err(Reason::Quarantined);
    }
    let own = group(from).unwrap();
    if has(&|e| {
        matches!(e, Element::EgressDeny { group, prefix, service }
        if *group == own && prefix.contains(&to) && service.contains(protocol, port))
    }) {
        return Err(Reason::EgressDenied);
    }
    if let Some(other) = group(to) {
        let pair = (own, other);
        if has(&|e| matches!(e, Element::Reach { from, to } if (*from, *to) == pair)) {
            return Ok(());
        }
        if !has(&|e| matches!(e, Element::Shared { from, to } if (*from, *to) == pair)) {
            return Err(Reason::NoSharedNetwork);
        }
        let open = has(&|e| {
            matches!(e, Element::ReachPorts { from, to, service }
            if (*from, *to) == pair && service.contains(protocol, port))
        });
        return open.then_some(()).ok_or(Reason::IngressDenied);
    }
    if crate::reserved::prefixes().any(|range| range.contains(&to)) {
        let open = has(&|e| {
            matches!(e, Element::EgressReserved { group, prefix, service }
            if *group == own && prefix.contains(&to) && service.contains(protocol, port))
        });
        return open.then_some(()).ok_or(Reason::ReservedDestination);
    }
    let open = has(&|e| {
        matches!(e, Element::Egress { group, prefix, service }
        if *group == own && prefix.contains(&to) && service.contains(protocol, port))
    });
    open.then_some(()).ok_or(Reason::EgressDenied)
}

fn packets(specs: &[SandboxSpec]) -> Vec<Packet> {
    let inside = specs.iter().flat_map(|spec| {
        let nested = spec.prefix.map(|prefix| prefix.addr());
        [Some(spec.address), nested].into_iter().flatten()
    });
    let outside = [
        "2600:1::1",
        "2600:2::1",
        "2a00::1",
        "fd00::1",
        "fd63:6175:7365:64::1",
    ];
    let outside = outside.into_iter().map(|text| text.parse().unwrap());
    let kinds = [
        (Protocol::Tcp, 80),
        (Protocol::Tcp, 92),
        (Protocol::Udp, 53),
        (Protocol::Udp, 54),
        (Protocol::Icmpv6, 0),
        (Protocol::Other(132), 0),
    ];
    inside
        .chain(outside)
        .flat_map(|destination| {
            kinds.map(|(protocol, port)| Packet {
                destination,
                protocol,
                port,
            })
        })
        .collect()
}

/// A world that is as the specs say.
fn realised(specs: &[SandboxSpec], elements: BTreeSet<Element>) -> Observed {
    Observed {
        ready: true,
        ports: specs
            .iter()
            .map(|spec| (spec.uid, PortState::desired(spec)))
            .collect(),
        elements,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn elements_decide_as_the_rules_read(specs in any_specs()) {
        let elements = plan_all(&specs);
        let desired = state(&specs);
        for spec in &specs {
            for packet in packets(&specs) {
                let expected = match trace(&desired, spec.uid, &packet).unwrap().verdict {
                    Verdict::Delivered { .. } | Verdict::Forwarded => Ok(()),
                    Verdict::Dropped { reason } => Err(reason),
                    Verdict::Proxy | Verdict::Resolver | Verdict::Router => continue,
                };
                let found = filter(&elements, spec.address, &packet);
                prop_assert_eq!(found, expected, "{} {:?}", spec.id, packet);
            }
        }
    }

    #[test]
    fn changes_add_up_to_the_whole(history in any_history()) {
        let mut planner = Planner::default();
        let mut written = BTreeSet::new();
        for (spec, present) in history {
            let changes = if present { planner.upsert(spec) } else { planner.remove(spec.uid) };
            for element in &changes.remove {
                prop_assert!(written.remove(element), "{:?} was not there", element);
            }
            for element in &changes.add {
                prop_assert!(written.insert(*element), "{:?} was there", element);
            }
            prop_assert_eq!(&written, &planner.elements());
        }
        let specs: Vec<_> = planner.sandboxes().cloned().collect();
        prop_assert_eq!(Planner::load(&specs, &written).elements(), written.clone());
        let last: Vec<_> = planner.sandboxes().map(|spec| spec.uid).collect();
        for uid in last {
            for element in planner.remove(uid).remove {
                written.remove(&element);
            }
        }
        prop_assert!(written.is_empty() && planner.group_count() == 0);
    }

    #[test]
    fn a_second_plan_is_empty(before in any_specs(), after in any_specs()) {
        let observed = realised(&before, plan_all(&before));
        let first = plan(&state(&after), &observed);
        let mut elements = observed.elements.clone();
        for step in &first.steps {
            if let Step::Apply(changes) = step {
                for element in &changes.remove {
                    prop_assert!(elements.remove(element));
                }
                for element in &changes.add {
                    prop_assert!(elements.insert(*element));
                }
            }
        }
        prop_assert_eq!(&elements, &first.planner.elements());
        let second = plan(&state(&after), &realised(&after, elements));
        prop_assert!(second.steps.is_empty(), "{:?}", second.steps);
    }
}

#[test]
fn joining_a_group_costs_the_same_on_any_node() {
    let mut planner = Planner::default();
    let spec = |n: u16| SandboxSpec {
        uid: SandboxUid::from_random(u64::from(n)),
        id: SandboxId::new(
            TenantName::new("t").unwrap(),
            SandboxName::new(format!("s{n}")).unwrap(),
        ),
        address: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, n),
        prefix: None,
        attachment: Attachment::Tap {
            name: InterfaceName::default(),
        },
        mtu: Mtu::default(),
        networks: [network(0)].into(),
        labels: labels(0),
        firewall: Arc::default(),
        quarantined: false,
    };
    planner.upsert(spec(0));
    for n in 1..1500 {
        assert_eq!(planner.upsert(spec(n)).len(), 3);
    }
    assert_eq!(planner.group_count(), 1);
    // A label that no rule looks at makes no difference.
    let mut other = spec(7);
    other.labels = labels(1);
    assert!(planner.upsert(other).is_empty());
}
