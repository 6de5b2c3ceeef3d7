//! Sets of protocols and ports, and rules cut into disjoint pieces.

use std::collections::BTreeMap;

use ipnet::Ipv6Net;

use crate::desired::{Ports, Protocol};
use crate::elements::ServiceBlock;

const TCP: u8 = Protocol::Tcp.number();
const UDP: u8 = Protocol::Udp.number();
const EVERY_PORT: (u16, u16) = (0, u16::MAX);

/// Port numbers, as ranges that are sorted and neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RangeSet(Vec<(u16, u16)>);

impl RangeSet {
    fn add(&mut self, first: u16, last: u16) {
        self.0.push((first, last));
        self.0.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(self.0.len());
        for &(first, last) in &self.0 {
            match merged.last_mut() {
                Some(open) if first <= open.1.saturating_add(1) => open.1 = open.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        self.0 = merged;
    }

    fn union(&mut self, other: &Self) {
        for &(first, last) in &other.0 {
            self.add(first, last);
        }
    }

    fn subtract(&mut self, other: &Self) {
        for &(cut_first, cut_last) in &other.0 {
            let mut left = Vec::with_capacity(self.0.len() + 1);
            for &(first, last) in &self.0 {
                if cut_last < first || last < cut_first {
                    left.push((first, last));
                    continue;
                }
                if first < cut_first {
                    left.push((first, cut_first - 1));
                }
                if cut_last < last {
                    left.push((cut_last + 1, last));
                }
            }
            self.0 = left;
        }
    }
}

/// Protocols and ports. Only TCP and UDP have ports; another protocol is in or out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PortSet {
    tcp: RangeSet,
    udp: RangeSet,
    others: [u64; 4],
}

impl PortSet {
    pub(super) fn add(&mut self, ports: &Ports) {
        match ports {
            Ports::All => {
                self.tcp.add(EVERY_PORT.0, EVERY_PORT.1);
                self.udp.add(EVERY_PORT.0, EVERY_PORT.1);
                self.others = [u64::MAX; 4];
            }
            Ports::Only(ranges) => {
                for range in ranges {
                    match range.protocol().number() {
                        TCP => self.tcp.add(range.first(), range.last()),
                        UDP => self.udp.add(range.first(), range.last()),
                        other => self.set_other(other),
                    }
                }
            }
        }
    }

    /// Takes TCP out: the proxy judges it.
    pub(super) fn without_tcp(mut self) -> Self {
        self.tcp = RangeSet::default();
        self
    }

    pub(super) fn is_everything(&self) -> bool {
        self.blocks() == [ServiceBlock::ALL]
    }

    fn set_other(&mut self, protocol: u8) {
        if let Some(word) = self.others.get_mut(usize::from(protocol >> 6)) {
            *word |= 1 << (protocol & 63);
        }
    }

    fn union(&mut self, other: &Self) {
        self.tcp.union(&other.tcp);
        self.udp.union(&other.udp);
        for (word, more) in self.others.iter_mut().zip(other.others) {
            *word |= more;
        }
    }

    fn subtract(&mut self, other: &Self) {
        self.tcp.subtract(&other.tcp);
        self.udp.subtract(&other.udp);
        for (word, less) in self.others.iter_mut().zip(other.others) {
            *word &= !less;
        }
    }

    fn ranges(&self, protocol: u8) -> &[(u16, u16)] {
        match protocol {
            TCP => &self.tcp.0,
            UDP => &self.udp.0,
            other => {
                let word = self.others.get(usize::from(other >> 6)).copied();
                if word.unwrap_or(0) >> (other & 63) & 1 == 1 {
                    &[EVERY_PORT]
                } else {
                    &[]
                }
            }
        }
    }

    /// The same as rectangles: neighbouring protocols with the same ports share one.
    pub(super) fn blocks(&self) -> Vec<ServiceBlock> {
        let mut blocks = Vec::new();
        let mut first = 0_u8;
        loop {
            let ranges = self.ranges(first);
            let mut last = first;
            while last < u8::MAX && self.ranges(last + 1) == ranges {
                last += 1;
            }
            blocks.extend(ranges.iter().map(|&(first_port, last_port)| ServiceBlock {
                first_protocol: first,
                last_protocol: last,
                first_port,
                last_port,
            }));
            match last.checked_add(1) {
                Some(next) => first = next,
                None => return blocks,
            }
        }
    }
}

/// Rules by prefix, as pieces that do not overlap and together cover the same packets: each
/// prefix keeps only what no wider prefix already covers.
#[derive(Debug, Default)]
pub(super) struct Cutter(BTreeMap<Ipv6Net, PortSet>);

impl Cutter {
    pub(super) fn add(&mut self, prefix: Ipv6Net, ports: &PortSet) {
        self.0.entry(prefix.trunc()).or_default().union(ports);
    }

    pub(super) fn pieces(&self) -> Vec<(Ipv6Net, ServiceBlock)> {
        let mut pieces = Vec::new();
        // In order of address, then of length, a prefix comes after all that contain it.
        let mut around: Vec<(Ipv6Net, PortSet)> = Vec::new();
        for (prefix, ports) in &self.0 {
            while around
                .last()
                .is_some_and(|(wider, _)| !wider.contains(prefix))
            {
                around.pop();
            }
            let mut own = ports.clone();
            let mut covered = PortSet::default();
            if let Some((_, wider)) = around.last() {
                own.subtract(wider);
                covered = wider.clone();
            }
            pieces.extend(own.blocks().into_iter().map(|block| (*prefix, block)));
            covered.union(&own);
            around.push((*prefix, covered));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::desired::PortRange;

    fn any_ports() -> impl Strategy<Value = Ports> {
        let range = (0_u8..4, any::<u16>(), any::<u16>()).prop_map(|(kind, a, b)| {
            let protocol = match kind {
                0 => Protocol::Tcp,
                1 => Protocol::Udp,
                2 => Protocol::Icmpv6,
                _ => Protocol::Other(200),
            };
            PortRange::new(protocol, a.min(b), a.max(b)).unwrap()
        });
        prop_oneof![
            1 => Just(Ports::All),
            6 => prop::collection::vec(range, 0..4).prop_map(Ports::Only),
        ]
    }

    fn any_prefix() -> impl Strategy<Value = Ipv6Net> {
        (0_u8..4, 0_u8..=3).prop_map(|(bits, length)| {
            Ipv6Net::new(u128::from(bits).rotate_right(2).into(), length)
                .unwrap()
                .trunc()
        })
    }

    proptest! {
        #[test]
        fn pieces_are_disjoint_and_cover_the_rules(
            rules in prop::collection::vec((any_prefix(), any_ports()), 0..6),
            probes in prop::collection::vec((0_u8..8, 0_u8..4, any::<u16>()), 1..40),
        ) {
            let mut cutter = Cutter::default();
            for (prefix, ports) in &rules {
                let mut set = PortSet::default();
                set.add(ports);
                cutter.add(*prefix, &set);
            }
            let pieces = cutter.pieces();
            for (top, kind, port) in probes {
                let address = Ipv6Addr::from(u128::from(top).rotate_right(3));
                let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Icmpv6, Protocol::Other(9)]
                    [usize::from(kind)];
                let port = if protocol.has_ports() { port } else { 0 };
                let wanted = rules
                    .iter()
                    .any(|(prefix, ports)| prefix.contains(&address) && ports.contains(protocol, port));
                let hits = pieces
                    .iter()
                    .filter(|(prefix, block)| {
                        prefix.contains(&address) && block.contains(protocol.number(), port)
                    })
                    .count();
                prop_assert_eq!(hits, usize::from(wanted));
            }
        }
    }

    #[test]
    fn everything_is_one_block() {
        let mut set = PortSet::default();
        set.add(&Ports::All);
        assert!(set.is_everything());
        assert_eq!(set.clone().without_tcp().blocks().len(), 2);
        assert!(!set.without_tcp().is_everything());
        assert!(PortSet::default().blocks().is_empty());
    }
}
