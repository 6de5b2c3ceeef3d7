//! The sets of the table, and how an element lies in the kernel's registers.

use std::fmt::Write;
use std::net::Ipv6Addr;

/// A set that elements are put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// Source addresses by port.
    Sources,
    /// Group by address.
    Groups,
    /// Group by prefix.
    GroupPrefixes,
    /// Group by address, of the end that a flow goes to.
    GroupsTo,
    /// Group by prefix, of the end that a flow goes to.
    GroupPrefixesTo,
    /// Pairs of groups without restriction.
    Reach,
    /// Pairs of groups with a network in common.
    Share,
    /// Services between groups.
    ReachPorts,
    /// Protocols without ports between groups.
    ReachPortless,
    /// Services outside.
    Egress,
    /// Protocols without ports outside.
    EgressPortless,
    /// Services in reserved ranges.
    EgressReserved,
    /// Protocols without ports in reserved ranges.
    EgressReservedPortless,
    /// Denied services.
    EgressDeny,
    /// Denied protocols without ports.
    EgressDenyPortless,
    /// Services offered to the outside.
    Inbound,
    /// Protocols without ports offered to the outside.
    InboundPortless,
    /// Sandboxes in quarantine.
    Quarantine,
    /// Counters of drops.
    Drops,
    /// The epoch that flows are stamped with. Not in [`Set::ALL`]: it holds no element.
    Epoch,
    /// The epoch whose stamps count. Not in [`Set::ALL`] either.
    Fresh,
}

/// What one part of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// An interface index, in the machine's byte order.
    Index,
    /// A mark, in the machine's byte order.
    Mark,
    /// The number of a group where it travels in a packet's priority, in the machine's byte
    /// order. `nft` takes it for a traffic class and writes it in two parts.
    Class,
    /// The same in network order, for the reason below.
    OrderedClass,
    /// A mark in network order: intervals are compared byte by byte, and `nft` turns marks
    /// around before it looks them up among intervals.
    OrderedMark,
    /// An IPv6 address.
    Address,
    /// A protocol number.
    Protocol,
    /// A port, in network order.
    Port,
}

impl Field {
    /// Bytes in a register, padded.
    const fn length(self) -> usize {
        match self {
            Self::Address => 16,
            Self::Index
            | Self::Mark
            | Self::OrderedMark
            | Self::Class
            | Self::OrderedClass
            | Self::Protocol
            | Self::Port => 4,
        }
    }

    fn text(self, bytes: &[u8]) -> String {
        match (self, bytes) {
            (Self::Index | Self::Mark, &[a, b, c, d]) => {
                u32::from_ne_bytes([a, b, c, d]).to_string()
            }
            (Self::OrderedMark, &[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]).to_string(),
            (Self::Class, &[a, b, c, d]) => class_text(u32::from_ne_bytes([a, b, c, d])),
            (Self::OrderedClass, &[a, b, c, d]) => class_text(u32::from_be_bytes([a, b, c, d])),
            (Self::Protocol, &[a, ..]) => a.to_string(),
            (Self::Port, &[a, b, ..]) => u16::from_be_bytes([a, b]).to_string(),
            (Self::Address, bytes) => <[u8; 16]>::try_from(bytes)
                .map(|octets| Ipv6Addr::from(octets).to_string())
                .unwrap_or_default(),
            _ => String::new(),
        }
    }
}

/// A traffic class as `nft` writes it: two numbers of 16 bits in hexadecimal.
fn class_text(value: u32) -> String {
    format!("{:x}:{:x}", value >> 16, value & 0xffff)
}

use Field::{Address, Class, Index, Mark, OrderedClass, OrderedMark, Port, Protocol};

const GROUP_SERVICE: &[Field] = &[OrderedMark, OrderedClass, Protocol, Port];
const GROUP_PROTOCOL: &[Field] = &[OrderedMark, OrderedClass, Protocol];
const PREFIX_SERVICE: &[Field] = &[OrderedMark, Address, Protocol, Port];
const PREFIX_PROTOCOL: &[Field] = &[OrderedMark, Address, Protocol];

impl Set {
    /// Every set whose contents are read back, and kept when the structure is replaced.
    pub const ALL: &'static [Self] = &[
        Self::Sources,
        Self::Groups,
        Self::GroupPrefixes,
        Self::GroupsTo,
        Self::GroupPrefixesTo,
        Self::Reach,
        Self::Share,
        Self::ReachPorts,
        Self::ReachPortless,
        Self::Egress,
        Self::EgressPortless,
        Self::EgressReserved,
        Self::EgressReservedPortless,
        Self::EgressDeny,
        Self::EgressDenyPortless,
        Self::Inbound,
        Self::InboundPortless,
        Self::Quarantine,
        Self::Drops,
    ];

    /// Its name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sources => "sources",
            Self::Groups => "groups",
            Self::GroupPrefixes => "group_prefixes",
            Self::GroupsTo => "groups_to",
            Self::GroupPrefixesTo => "group_prefixes_to",
            Self::Reach => "reach",
            Self::Share => "share",
            Self::ReachPorts => "reach_ports",
            Self::ReachPortless => "reach_portless",
            Self::Egress => "egress",
            Self::EgressPortless => "egress_portless",
            Self::EgressReserved => "egress_reserved",
            Self::EgressReservedPortless => "egress_reserved_portless",
            Self::EgressDeny => "egress_deny",
            Self::EgressDenyPortless => "egress_deny_portless",
            Self::Inbound => "inbound",
            Self::InboundPortless => "inbound_portless",
            Self::Quarantine => "quarantine",
            Self::Drops => "drops",
            Self::Epoch => "epoch",
            Self::Fresh => "fresh",
        }
    }

    /// The parts of its key.
    pub const fn fields(self) -> &'static [Field] {
        match self {
            Self::Sources => &[Index, Address],
            Self::Groups
            | Self::GroupPrefixes
            | Self::GroupsTo
            | Self::GroupPrefixesTo
            | Self::Quarantine => &[Address],
            Self::Reach | Self::Share => &[Mark, Class],
            Self::ReachPorts => GROUP_SERVICE,
            Self::ReachPortless => GROUP_PROTOCOL,
            Self::Egress | Self::EgressReserved | Self::EgressDeny | Self::Inbound => {
                PREFIX_SERVICE
            }
            Self::EgressPortless
            | Self::EgressReservedPortless
            | Self::EgressDenyPortless
            | Self::InboundPortless => PREFIX_PROTOCOL,
            Self::Drops => &[Index, Mark],
            Self::Epoch => &[Class],
            Self::Fresh => &[Mark],
        }
    }

    /// Whether its keys are intervals.
    pub const fn interval(self) -> bool {
        !matches!(
            self,
            Self::Sources
                | Self::Groups
                | Self::GroupsTo
                | Self::Reach
                | Self::Share
                | Self::Drops
                | Self::Epoch
                | Self::Fresh
        )
    }

    /// Whether its elements carry a number: a mark or a class.
    pub const fn map(self) -> bool {
        matches!(
            self,
            Self::Groups
                | Self::GroupPrefixes
                | Self::GroupsTo
                | Self::GroupPrefixesTo
                | Self::Epoch
        )
    }

    /// Whether its intervals are kept as two elements, the first address and the one behind
    /// the last. The kernel does so for keys of one part; others have both ends in one element.
    pub const fn split(self) -> bool {
        self.interval() && self.fields().len() == 1
    }

    /// The bytes of a key.
    pub fn key_length(self) -> usize {
        self.fields().iter().map(|field| field.length()).sum()
    }
}

/// An element as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// The set that it is in.
    pub set: Set,
    /// The key; of an interval the first.
    pub first: Vec<u8>,
    /// The last key of an interval, itself included; of a single key the same.
    pub last: Vec<u8>,
    /// The number, in maps.
    pub mark: Option<u32>,
}

impl Entry {
    /// As `nft` writes it, for when the whole table is written anew.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut at = 0;
        for (position, field) in self.set.fields().iter().enumerate() {
            let range = at..at + field.length();
            at = range.end;
            let part = |key: &[u8]| field.text(key.get(range.clone()).unwrap_or_default());
            let (first, last) = (part(&self.first), part(&self.last));
            if position > 0 {
                text.push_str(" . ");
            }
            text.push_str(&first);
            if first != last {
                text.push('-');
                text.push_str(&last);
            }
        }
        if let Some(mark) = self.mark {
            // Writing to a string cannot fail.
            let _ = match self.set {
                Set::GroupsTo | Set::GroupPrefixesTo => write!(text, " : {}", class_text(mark)),
                _ => write!(text, " : {mark}"),
            };
        }
        text
    }
}

/// Builds a key.
#[derive(Debug, Default)]
pub(super) struct Key(Vec<u8>);

impl Key {
    /// A number in the machine's order: a mark or an interface index.
    pub(super) fn number(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    /// A mark in network order.
    pub(super) fn ordered(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn address(mut self, value: Ipv6Addr) -> Self {
        self.0.extend_from_slice(&value.octets());
        self
    }

    pub(super) fn protocol(mut self, value: u8) -> Self {
        self.0.extend_from_slice(&[value, 0, 0, 0]);
        self
    }

    pub(super) fn port(mut self, value: u16) -> Self {
        let [high, low] = value.to_be_bytes();
        self.0.extend_from_slice(&[high, low, 0, 0]);
        self
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Takes a key apart again.
#[derive(Debug)]
pub(super) struct KeyReader<'a>(pub(super) &'a [u8]);

impl KeyReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(super) fn ordered(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn address(&mut self) -> Option<Ipv6Addr> {
        self.take::<16>().map(Ipv6Addr::from)
    }

    pub(super) fn protocol(&mut self) -> Option<u8> {
        self.take::<4>().map(|[value, ..]| value)
    }

    pub(super) fn port(&mut self) -> Option<u16> {
        self.take::<4>()
            .map(|[high, low, ..]| u16::from_be_bytes([high, low]))
    }
}
