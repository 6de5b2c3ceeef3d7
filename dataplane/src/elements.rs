//! The contents of the packet filter's sets, as pure values. A planner computes them from the
//! desired state; a backend turns them into whatever its kernel takes.
//!
//! Elements of one set never overlap: rules that do are cut into disjoint pieces first, since
//! the kernel refuses overlapping intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv6Addr;

use causeway_types::SandboxUid;
use ipnet::Ipv6Net;

/// The number of a group: sandboxes that every rule treats alike. Zero is no group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The interface on the router that an element is keyed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortRef {
    /// A sandbox's port.
    Sandbox(SandboxUid),
    /// An interface index that is no sandbox's port (any more). Only observation yields it.
    Index(u32),
}

/// A rectangle of protocol numbers and ports, all ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceBlock {
    /// The first IANA protocol number.
    pub first_protocol: u8,
    /// The last IANA protocol number.
    pub last_protocol: u8,
    /// The first destination port; 0 for protocols other than TCP and UDP.
    pub first_port: u16,
    /// The last destination port.
    pub last_port: u16,
}

impl ServiceBlock {
    /// Every protocol and every port.
    pub const ALL: Self = Self {
        first_protocol: 0,
        last_protocol: u8::MAX,
        first_port: 0,
        last_port: u16::MAX,
    };

    /// Whether it has `protocol` and `port` inside.
    pub const fn contains(&self, protocol: u8, port: u16) -> bool {
        self.first_protocol <= protocol
            && protocol <= self.last_protocol
            && self.first_port <= port
            && port <= self.last_port
    }
}

/// One element of one set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// `sources`: packets from this port may carry this source address.
    Source {
        /// Where the packet comes in.
        port: PortRef,
        /// The source address.
        address: Ipv6Addr,
    },
    /// `groups`: the group of a sandbox's address.
    Group {
        /// The address.
        address: Ipv6Addr,
        /// Its group.
        group: GroupId,
    },
    /// `group_prefixes`: the group of a sandbox's prefix. These never overlap.
    GroupPrefix {
        /// The prefix.
        prefix: Ipv6Net,
        /// Its group.
        group: GroupId,
    },
    /// `quarantine`: everything from and to here is dropped. An interval set: a sandbox's
    /// address is a prefix of 128 bits.
    Quarantine {
        /// The addresses.
        prefix: Ipv6Net,
    },
    /// `reach`: members of one group may send everything to members of another.
    Reach {
        /// The sender's group.
        from: GroupId,
        /// The receiver's group.
        to: GroupId,
    },
    /// `share`: the groups share a network, and not everything is permitted from one to the
    /// other. What is not is dropped as [`Reason::IngressDenied`], and without this element as
    /// [`Reason::NoSharedNetwork`]. `ReachPorts` has no effect without it. Never beside `Reach`.
    ///
    /// [`Reason::IngressDenied`]: causeway_types::Reason::IngressDenied
    /// [`Reason::NoSharedNetwork`]: causeway_types::Reason::NoSharedNetwork
    Shared {
        /// The sender's group.
        from: GroupId,
        /// The receiver's group.
        to: GroupId,
    },
    /// `reach_ports`: members of one group may send some protocols and ports to another's.
    ReachPorts {
        /// The sender's group.
        from: GroupId,
        /// The receiver's group.
        to: GroupId,
        /// What may be sent.
        service: ServiceBlock,
    },
    /// `egress`: members may send this to the outside past the proxy (TCP never does).
    /// Looked up for destinations outside of [reserved ranges](crate::reserved).
    Egress {
        /// The sender's group.
        group: GroupId,
        /// The destination.
        prefix: Ipv6Net,
        /// What may be sent.
        service: ServiceBlock,
    },
    /// `egress_reserved`: the same, for destinations inside of
    /// [reserved ranges](crate::reserved). What it lacks is dropped as
    /// [`Reason::ReservedDestination`](causeway_types::Reason::ReservedDestination).
    EgressReserved {
        /// The sender's group.
        group: GroupId,
        /// The destination.
        prefix: Ipv6Net,
        /// What may be sent.
        service: ServiceBlock,
    },
    /// `egress_deny`: members may not send this, be the destination outside or a sandbox.
    /// Looked up before `reach`, `reach_ports` and `egress`.
    EgressDeny {
        /// The sender's group.
        group: GroupId,
        /// The destination.
        prefix: Ipv6Net,
        /// What may not be sent.
        service: ServiceBlock,
    },
    /// `inbound`: hosts outside may open this to members.
    Inbound {
        /// The receiver's group.
        group: GroupId,
        /// The sender's address.
        prefix: Ipv6Net,
        /// What may be sent.
        service: ServiceBlock,
    },
}

/// A change of set contents, to be made as one transaction. What is removed is removed before
/// anything is added, so that an element may give way to one that overlaps it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElementChanges {
    /// Elements that appear.
    pub add: Vec<Element>,
    /// Elements that go.
    pub remove: Vec<Element>,
}

impl ElementChanges {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }

    /// How many elements change.
    pub fn len(&self) -> usize {
        self.add.len() + self.remove.len()
    }

    /// Whether a flow that was permitted may not be any more. Adding a denial or a quarantine
    /// does that, and taking anything else away; adding a right does not.
    pub fn revokes(&self) -> bool {
        let denies = |element: &Element| {
            matches!(
                element,
                Element::EgressDeny { .. } | Element::Quarantine { .. }
            )
        };
        self.add.iter().any(denies) || !self.remove.iter().all(denies)
    }

    /// What leads from `from` to `to`.
    pub fn between(from: &BTreeSet<Element>, to: &BTreeSet<Element>) -> Self {
        Self {
            add: to.difference(from).copied().collect(),
            remove: from.difference(to).copied().collect(),
        }
    }

    /// The net effect of several changes made one after the other. Each must be exact:
    /// it adds only what is not there and removes only what is.
    pub fn merge<'a>(changes: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut net: BTreeMap<Element, i32> = BTreeMap::new();
        for change in changes {
            for element in &change.remove {
                *net.entry(*element).or_default() -= 1;
            }
            for element in &change.add {
                *net.entry(*element).or_default() += 1;
            }
        }
        let mut merged = Self::default();
        for (element, count) in net {
            if count > 0 {
                merged.add.push(element);
            } else if count < 0 {
                merged.remove.push(element);
            }
        }
        merged
    }

    /// The ports that the change mentions.
    pub fn ports(&self) -> impl Iterator<Item = SandboxUid> + '_ {
        self.add
            .iter()
            .chain(&self.remove)
            .filter_map(|element| match element {
                Element::Source {
                    port: PortRef::Sandbox(uid),
                    ..
                } => Some(*uid),
                _ => None,
            })
    }
}

/// The interface indexes of ports, and back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortIndexes {
    by_uid: BTreeMap<SandboxUid, u32>,
    by_index: BTreeMap<u32, SandboxUid>,
}

impl PortIndexes {
    /// Notes that the port of `uid` has this index.
    pub fn insert(&mut self, uid: SandboxUid, index: u32) {
        self.remove(uid);
        if let Some(stale) = self.by_index.insert(index, uid) {
            self.by_uid.remove(&stale);
        }
        self.by_uid.insert(uid, index);
    }

    /// Forgets the port of `uid`, and says which index it had.
    pub fn remove(&mut self, uid: SandboxUid) -> Option<u32> {
        let index = self.by_uid.remove(&uid)?;
        self.by_index.remove(&index);
        Some(index)
    }

    /// The index of a sandbox's port.
    pub fn index(&self, uid: SandboxUid) -> Option<u32> {
        self.by_uid.get(&uid).copied()
    }

    /// What an index belongs to.
    pub fn port(&self, index: u32) -> PortRef {
        self.by_index
            .get(&index)
            .map_or(PortRef::Index(index), |uid| PortRef::Sandbox(*uid))
    }

    /// The index that a reference stands for.
    pub fn resolve(&self, port: PortRef) -> Option<u32> {
        match port {
            PortRef::Sandbox(uid) => self.index(uid),
            PortRef::Index(index) => Some(index),
        }
    }
}

impl FromIterator<(SandboxUid, u32)> for PortIndexes {
    fn from_iter<I: IntoIterator<Item = (SandboxUid, u32)>>(pairs: I) -> Self {
        let mut indexes = Self::default();
        for (uid, index) in pairs {
            indexes.insert(uid, index);
        }
        indexes
    }
}
