//! The classifier of a port: which frames leave the bridge and are routed by VPP. Pure.
//!
//! A frame does when it is sent to the gateway's link-layer address, from the sandbox's own
//! address, to an address of the operator's, and carries TCP, UDP, or ICMPv6 of a type that is
//! no neighbour discovery. Everything else stays in the bridge and comes to the border as it is:
//! forged sources, extension headers, fragments, discovery, multicast, other protocols.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use causeway_types::MacAddress;
use ipnet::Ipv6Net;

/// Blocks of 16 bytes that are looked at: Ethernet, IPv6, and the first ten bytes behind.
pub(super) const BLOCKS: u32 = 4;
/// Bytes of the Ethernet header, which a frame loses on its way out of the bridge.
pub(super) const ETHERNET: i32 = 14;
/// The arc from a bridge's classifier to IPv6 routing.
pub(super) const TO_ROUTING: u32 = 3;

const DESTINATION_MAC: usize = 0;
const ETHERTYPE: usize = 12;
const VERSION: usize = 14;
const NEXT_HEADER: usize = 20;
const SOURCE: usize = 22;
const DESTINATION: usize = 38;
const ICMP_TYPE: usize = 54;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Errors, and echo.
const ICMP_TYPES: [u8; 6] = [1, 2, 3, 4, 128, 129];

type Bytes = [u8; 16 * BLOCKS as usize];

/// A classifier table and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) mask: Bytes,
    pub(super) matches: Vec<Bytes>,
}

/// The two tables of a port: by protocol, and for ICMPv6 by type. None without prefixes.
pub(super) fn tables(address: Ipv6Addr, operator: &[Ipv6Net]) -> Option<[Table; 2]> {
    let length = operator.iter().map(Ipv6Net::prefix_len).min()?;
    let prefixes: BTreeSet<Ipv6Net> = operator
        .iter()
        .filter_map(|prefix| Ipv6Net::new(prefix.addr(), length).ok())
        .map(|prefix| prefix.trunc())
        .collect();
    // Too wide a mask would let multicast out of the bridge.
    if prefixes
        .iter()
        .any(|prefix| prefix.contains(&Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)))
    {
        return None;
    }
    let frame = |prefix: &Ipv6Net, next: u8| {
        let mut bytes = EMPTY;
        put(&mut bytes, DESTINATION_MAC, &MacAddress::GATEWAY.octets());
        put(&mut bytes, ETHERTYPE, &[0x86, 0xdd]);
        put(&mut bytes, VERSION, &[0x60]);
        put(&mut bytes, NEXT_HEADER, &[next]);
        put(&mut bytes, SOURCE, &address.octets());
        put(&mut bytes, DESTINATION, &prefix.addr().octets());
        bytes
    };
    let mut mask = EMPTY;
    put(&mut mask, DESTINATION_MAC, &[0xff; 6]);
    put(&mut mask, ETHERTYPE, &[0xff; 2]);
    put(&mut mask, VERSION, &[0xf0]);
    put(&mut mask, NEXT_HEADER, &[0xff]);
    put(&mut mask, SOURCE, &[0xff; 16]);
    let network = Ipv6Net::new(Ipv6Addr::from(u128::MAX), length)
        .ok()?
        .trunc();
    put(&mut mask, DESTINATION, &network.addr().octets());
    let mut with_type = mask;
    put(&mut with_type, ICMP_TYPE, &[0xff]);
    let mut plain = Vec::new();
    let mut typed = Vec::new();
    for prefix in &prefixes {
        plain.extend([TCP, UDP].map(|next| frame(prefix, next)));
        typed.extend(ICMP_TYPES.map(|kind| {
            let mut bytes = frame(prefix, ICMPV6);
            put(&mut bytes, ICMP_TYPE, &[kind]);
            bytes
        }));
    }
    Some([
        Table {
            mask,
            matches: plain,
        },
        Table {
            mask: with_type,
            matches: typed,
        },
    ])
}

/// Whether a table with this mask is one of ours, whatever the operator's prefixes were.
pub(super) fn is_ours(mask: &[u8]) -> bool {
    let Some([table, _]) = tables(Ipv6Addr::UNSPECIFIED, &[Ipv6Net::new_assert(OWN, 128)]) else {
        return false;
    };
    mask.get(..DESTINATION) == table.mask.get(..DESTINATION)
}

const OWN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

const EMPTY: Bytes = [0; 16 * BLOCKS as usize];

fn put(bytes: &mut Bytes, at: usize, value: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(value) {
        *byte = *new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(tables: &[Table; 2], frame: &[u8]) -> bool {
        tables.iter().any(|table| {
            let masked: Vec<u8> = table.mask.iter().zip(frame).map(|(m, b)| m & b).collect();
            table.matches.iter().any(|wanted| wanted[..] == masked[..])
        })
    }

    fn frame(source: &str, destination: &str, next: u8, kind: u8) -> Vec<u8> {
        let mut bytes = vec![0x55; 64];
        bytes[..6].copy_from_slice(&MacAddress::GATEWAY.octets());
        bytes[12..15].copy_from_slice(&[0x86, 0xdd, 0x6a]);
        bytes[20] = next;
        bytes[22..38].copy_from_slice(&source.parse::<Ipv6Addr>().unwrap().octets());
        bytes[38..54].copy_from_slice(&destination.parse::<Ipv6Addr>().unwrap().octets());
        bytes[54] = kind;
        bytes
    }

    #[test]
    fn only_plain_packets_of_the_sandbox_to_sandboxes_leave_the_bridge() {
        let own = "2001:db8:1::7";
        let operator = ["2001:db8:1::/48".parse().unwrap()];
        let tables = tables(own.parse().unwrap(), &operator).unwrap();
        let peer = "2001:db8:1::8";
        for (next, kind) in [(6, 0x55), (17, 0x55), (58, 128), (58, 129), (58, 2)] {
            assert!(
                hits(&tables, &frame(own, peer, next, kind)),
                "{next} {kind}"
            );
        }
        for (source, destination, next, kind) in [
            ("2001:db8:1::8", peer, 17, 0),
            ("fe80::7", peer, 17, 0),
            (own, "fe80::1", 58, 128),
            (own, "ff02::1", 17, 0),
            (own, "2600::1", 6, 0),
            (own, peer, 0, 0),
            (own, peer, 43, 0),
            (own, peer, 44, 0),
            (own, peer, 50, 0),
            (own, peer, 58, 134),
            (own, peer, 58, 135),
            (own, peer, 58, 137),
        ] {
            assert!(
                !hits(&tables, &frame(source, destination, next, kind)),
                "{source} {destination} {next} {kind}"
            );
        }
        let mut other = frame(own, peer, 17, 0);
        other[5] ^= 1;
        assert!(!hits(&tables, &other), "another link-layer address");
        let mut other = frame(own, peer, 17, 0);
        other[14] = 0x45;
        assert!(!hits(&tables, &other), "another version");
        assert!(is_ours(&tables[0].mask) && is_ours(&tables[1].mask));
        assert!(!is_ours(&[0xff; 64]));
    }

    #[test]
    fn no_table_lets_multicast_out_of_the_bridge() {
        let own = "2001:db8::1".parse().unwrap();
        assert!(tables(own, &[]).is_none());
        assert!(tables(own, &["::/0".parse().unwrap()]).is_none());
        let two = [
            "2001:db8::/32".parse().unwrap(),
            "fd00:1::/48".parse().unwrap(),
        ];
        assert_eq!(tables(own, &two).unwrap()[0].matches.len(), 4);
    }
}
