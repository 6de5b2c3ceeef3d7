//! From elements to entries of the kernel's sets and back.
//!
//! An element that is about services becomes an entry of the set with ports and, where it is
//! meant for protocols that have none, a second one without. The group of a sandbox is written
//! twice, for either end of a flow. Reading back, the first says what the element is and the
//! second must be there as well.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use super::set::{Entry, Key, KeyReader, Set};
use crate::elements::{Element, GroupId, PortIndexes, ServiceBlock};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The entries of an element; none when its port has no index.
pub(super) fn lower(element: &Element, indexes: &PortIndexes) -> Option<Vec<Entry>> {
    let entries = match *element {
        Element::Source { port, address } => {
            let index = indexes.resolve(port)?;
            vec![single(
                Set::Sources,
                Key::default().number(index).address(address),
                None,
            )]
        }
        Element::Group { address, group } => {
            let entry = |set| single(set, Key::default().address(address), Some(group.0));
            vec![entry(Set::Groups), entry(Set::GroupsTo)]
        }
        Element::GroupPrefix { prefix, group } => {
            let entry = |set| range(set, prefix, Some(group.0));
            vec![entry(Set::GroupPrefixes), entry(Set::GroupPrefixesTo)]
        }
        Element::Quarantine { prefix } => vec![range(Set::Quarantine, prefix, None)],
        Element::Reach { from, to } => vec![single(Set::Reach, pair(from, to), None)],
        Element::Shared { from, to } => vec![single(Set::Share, pair(from, to), None)],
        Element::ReachPorts { from, to, service } => services(
            (Set::ReachPorts, Set::ReachPortless),
            || (ordered(from, to), ordered(from, to)),
            service,
        ),
        Element::Egress {
            group,
            prefix,
            service,
        } => services(
            (Set::Egress, Set::EgressPortless),
            || span(group, prefix),
            service,
        ),
        Element::EgressReserved {
            group,
            prefix,
            service,
        } => services(
            (Set::EgressReserved, Set::EgressReservedPortless),
            || span(group, prefix),
            service,
        ),
        Element::EgressDeny {
            group,
            prefix,
            service,
        } => services(
            (Set::EgressDeny, Set::EgressDenyPortless),
            || span(group, prefix),
            service,
        ),
        Element::Inbound {
            group,
            prefix,
            service,
        } => services(
            (Set::Inbound, Set::InboundPortless),
            || span(group, prefix),
            service,
        ),
    };
    Some(entries)
}

fn single(set: Set, key: Key, mark: Option<u32>) -> Entry {
    let first = key.done();
    Entry {
        set,
        last: first.clone(),
        first,
        mark,
    }
}

fn range(set: Set, prefix: Ipv6Net, mark: Option<u32>) -> Entry {
    Entry {
        set,
        first: Key::default().address(prefix.network()).done(),
        last: Key::default().address(prefix.broadcast()).done(),
        mark,
    }
}

fn pair(from: GroupId, to: GroupId) -> Key {
    Key::default().number(from.0).number(to.0)
}

/// The same for sets of intervals.
fn ordered(from: GroupId, to: GroupId) -> Key {
    Key::default().ordered(from.0).ordered(to.0)
}

fn span(group: GroupId, prefix: Ipv6Net) -> (Key, Key) {
    let key = |address| Key::default().ordered(group.0).address(address);
    (key(prefix.network()), key(prefix.broadcast()))
}

fn services(
    (ports, portless): (Set, Set),
    keys: impl Fn() -> (Key, Key),
    service: ServiceBlock,
) -> Vec<Entry> {
    let (first, last) = keys();
    let (first, last) = (
        first.protocol(service.first_protocol),
        last.protocol(service.last_protocol),
    );
    let mut entries = vec![Entry {
        set: ports,
        first: first.port(service.first_port).done(),
        last: last.port(service.last_port).done(),
        mark: None,
    }];
    if for_portless(service) {
        let (first, last) = keys();
        entries.push(Entry {
            set: portless,
            first: first.protocol(service.first_protocol).done(),
            last: last.protocol(service.last_protocol).done(),
            mark: None,
        });
    }
    entries
}

/// Whether a block has protocols other than TCP and UDP inside, whose port counts as zero.
fn for_portless(service: ServiceBlock) -> bool {
    service.first_port == 0
        && (service.first_protocol..=service.last_protocol)
            .any(|protocol| protocol != TCP && protocol != UDP)
}

/// What the entries of all sets amount to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Raised {
    /// The elements that are completely there.
    pub elements: BTreeSet<Element>,
    /// Entries that belong to no such element. They are nobody's, and must go.
    pub strays: Vec<Entry>,
}

/// Puts elements together from entries.
pub(super) fn raise(entries: Vec<Entry>, indexes: &PortIndexes) -> Raised {
    let mut raised = Raised::default();
    let mut left: BTreeMap<Entry, bool> = entries.into_iter().map(|entry| (entry, false)).collect();
    let elements: Vec<Element> = left
        .keys()
        .filter_map(|entry| element(entry, indexes))
        .collect();
    for element in elements {
        let parts = lower(&element, indexes).unwrap_or_default();
        if parts.iter().all(|part| left.contains_key(part)) {
            for part in &parts {
                if let Some(claimed) = left.get_mut(part) {
                    *claimed = true;
                }
            }
            raised.elements.insert(element);
        }
    }
    raised.strays = left
        .into_iter()
        .filter_map(|(entry, claimed)| (!claimed).then_some(entry))
        .collect();
    raised
}

/// The element that an entry is the main part of.
fn element(entry: &Entry, indexes: &PortIndexes) -> Option<Element> {
    let (mut first, mut last) = (KeyReader(&entry.first), KeyReader(&entry.last));
    let element = match entry.set {
        Set::Sources => Element::Source {
            port: indexes.port(first.number()?),
            address: first.address()?,
        },
        Set::Groups => Element::Group {
            address: first.address()?,
            group: GroupId(entry.mark?),
        },
        Set::GroupPrefixes => Element::GroupPrefix {
            prefix: prefix(first.address()?, last.address()?)?,
            group: GroupId(entry.mark?),
        },
        Set::Quarantine => Element::Quarantine {
            prefix: prefix(first.address()?, last.address()?)?,
        },
        Set::Reach => Element::Reach {
            from: GroupId(first.number()?),
            to: GroupId(first.number()?),
        },
        Set::Share => Element::Shared {
            from: GroupId(first.number()?),
            to: GroupId(first.number()?),
        },
        Set::ReachPorts => {
            let (from, to) = (GroupId(first.ordered()?), GroupId(first.ordered()?));
            last.ordered()?;
            last.ordered()?;
            let service = service(&mut first, &mut last)?;
            Element::ReachPorts { from, to, service }
        }
        Set::Egress | Set::EgressReserved | Set::EgressDeny | Set::Inbound => {
            let group = GroupId(first.ordered()?);
            last.ordered()?;
            let prefix = prefix(first.address()?, last.address()?)?;
            let service = service(&mut first, &mut last)?;
            outside(entry.set, group, prefix, service)?
        }
        Set::GroupsTo
        | Set::GroupPrefixesTo
        | Set::ReachPortless
        | Set::EgressPortless
        | Set::EgressReservedPortless
        | Set::EgressDenyPortless
        | Set::InboundPortless
        | Set::Drops
        | Set::Epoch
        | Set::Fresh => return None,
    };
    Some(element)
}

fn outside(set: Set, group: GroupId, prefix: Ipv6Net, service: ServiceBlock) -> Option<Element> {
    match set {
        Set::Egress => Some(Element::Egress {
            group,
            prefix,
            service,
        }),
        Set::EgressReserved => Some(Element::EgressReserved {
            group,
            prefix,
            service,
        }),
        Set::EgressDeny => Some(Element::EgressDeny {
            group,
            prefix,
            service,
        }),
        Set::Inbound => Some(Element::Inbound {
            group,
            prefix,
            service,
        }),
        _ => None,
    }
}

fn service(first: &mut KeyReader<'_>, last: &mut KeyReader<'_>) -> Option<ServiceBlock> {
    Some(ServiceBlock {
        first_protocol: first.protocol()?,
        last_protocol: last.protocol()?,
        first_port: first.port()?,
        last_port: last.port()?,
    })
}

/// The prefix that a range of addresses is; none when it is not one.
fn prefix(first: Ipv6Addr, last: Ipv6Addr) -> Option<Ipv6Net> {
    let differ = first.to_bits() ^ last.to_bits();
    let length = u8::try_from(differ.leading_zeros()).ok()?;
    let prefix = Ipv6Net::new(first, length).ok()?;
    (prefix.network() == first && prefix.broadcast() == last).then_some(prefix)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::elements::PortRef;

    fn group() -> impl Strategy<Value = GroupId> {
        any::<u32>().prop_map(GroupId)
    }

    fn net() -> impl Strategy<Value = Ipv6Net> {
        (any::<u128>(), 0_u8..=128)
            .prop_map(|(bits, length)| Ipv6Net::new(bits.into(), length).unwrap().trunc())
    }

    fn block() -> impl Strategy<Value = ServiceBlock> {
        let protocols = prop_oneof![
            Just((6, 6)),
            Just((17, 17)),
            Just((0, 255)),
            Just((58, 58)),
            Just((6, 17)),
        ];
        (protocols, any::<u16>(), any::<u16>()).prop_map(
            |((first_protocol, last_protocol), a, b)| {
                let ports = if first_protocol == last_protocol && [6, 17].contains(&first_protocol)
                {
                    (a.min(b), a.max(b))
                } else {
                    (0, u16::MAX)
                };
                ServiceBlock {
                    first_protocol,
                    last_protocol,
                    first_port: ports.0,
                    last_port: ports.1,
                }
            },
        )
    }

    fn any_element() -> impl Strategy<Value = Element> {
        prop_oneof![
            (any::<u32>(), any::<u128>()).prop_map(|(index, bits)| Element::Source {
                port: PortRef::Index(index),
                address: bits.into(),
            }),
            (any::<u128>(), group()).prop_map(|(bits, group)| Element::Group {
                address: bits.into(),
                group,
            }),
            (net(), group()).prop_map(|(prefix, group)| Element::GroupPrefix { prefix, group }),
            net().prop_map(|prefix| Element::Quarantine { prefix }),
            (group(), group()).prop_map(|(from, to)| Element::Reach { from, to }),
            (group(), group()).prop_map(|(from, to)| Element::Shared { from, to }),
            (group(), group(), block()).prop_map(|(from, to, service)| Element::ReachPorts {
                from,
                to,
                service
            }),
            (group(), net(), block()).prop_map(|(group, prefix, service)| Element::Egress {
                group,
                prefix,
                service,
            }),
            (group(), net(), block()).prop_map(|(group, prefix, service)| {
                Element::EgressReserved {
                    group,
                    prefix,
                    service,
                }
            }),
            (group(), net(), block()).prop_map(|(group, prefix, service)| Element::EgressDeny {
                group,
                prefix,
                service,
            }),
            (group(), net(), block()).prop_map(|(group, prefix, service)| Element::Inbound {
                group,
                prefix,
                service,
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_lowered_comes_back(elements in prop::collection::btree_set(any_element(), 0..20)) {
            let indexes = PortIndexes::default();
            let entries: Vec<Entry> = elements
                .iter()
                .flat_map(|element| lower(element, &indexes).unwrap())
                .collect();
            for entry in &entries {
                prop_assert_eq!(entry.first.len(), entry.set.key_length());
                prop_assert_eq!(entry.last.len(), entry.set.key_length());
                prop_assert_eq!(entry.mark.is_some(), entry.set.map());
                prop_assert!(entry.set.interval() || entry.first == entry.last);
            }
            let raised = raise(entries, &indexes);
            prop_assert_eq!(raised.elements, elements);
            prop_assert_eq!(raised.strays, Vec::new());
        }
    }

    #[test]
    fn half_an_element_is_a_stray() {
        let ports = Element::ReachPorts {
            from: GroupId(1),
            to: GroupId(2),
            service: ServiceBlock::ALL,
        };
        let group = Element::Group {
            address: Ipv6Addr::LOCALHOST,
            group: GroupId(1),
        };
        let indexes = PortIndexes::default();
        for element in [ports, group] {
            let entries = lower(&element, &indexes).unwrap();
            assert_eq!(entries.len(), 2);
            for entry in entries {
                let raised = raise(vec![entry.clone()], &indexes);
                assert_eq!(raised.elements, BTreeSet::new());
                assert_eq!(raised.strays, [entry]);
            }
        }
    }
}
