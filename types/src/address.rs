//! Which part of the address space an address lies in, in every spelling.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// The default gateway that every sandbox sees.
pub const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The resolver that every sandbox sees, on every node.
pub const RESOLVER: Ipv6Addr = Ipv6Addr::new(0xfd63, 0x6175, 0x7365, 0, 0, 0, 0, 0x53);

/// Causeway's own translation prefix (RFC 6052, 96 bits): the resolver answers with it for
/// names that have IPv4 addresses only, and the proxy dials the IPv4 address.
pub const NAT64_PREFIX: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0xfd63, 0x6175, 0x7365, 0x64, 0, 0, 0, 0), 96);

/// What kind of destination an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressClass {
    /// Globally reachable unicast.
    Public,
    /// This host: loopback and the unspecified address.
    Host,
    /// Link-local, which is where cloud metadata services live.
    LinkLocal,
    /// Private, shared or unique local.
    Private,
    /// Multicast and broadcast.
    Multicast,
    /// Documentation, benchmarking, reserved, or not allocated for global use.
    Special,
}

impl AddressClass {
    /// Whether a sandbox reaches it without a CIDR rule that names it.
    pub const fn is_public(self) -> bool {
        matches!(self, Self::Public)
    }
}

/// Classifies an address after the IANA special-purpose registries (RFC 6890). An IPv6
/// address that carries an IPv4 address in a standard form is as private as the address inside.
pub fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => match embedded_ipv4(v6) {
            Some(inner) => match classify_v4(inner) {
                AddressClass::Public => AddressClass::Public,
                other => other,
            },
            None => classify_v6(v6),
        },
    }
}

/// The IPv4 address inside `address`, where its prefix says that there is one: mapped and
/// compatible (RFC 4291), 6to4 (RFC 3056), Teredo (RFC 4380), ISATAP (RFC 5214), the
/// well-known and the local-use translation prefixes (RFC 6052, RFC 8215), and our own.
pub fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let low = || v4(segments[6], segments[7]);
    match segments {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Some(low()),
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(low()),
        [0x64, 0xff9b, 1, _, _, _, _, _] => Some(low()),
        [0x2002, a, b, ..] => Some(v4(a, b)),
        [0x2001, 0, _, _, _, _, a, b] => Some(v4(!a, !b)),
        [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => Some(low()),
        _ if NAT64_PREFIX.contains(&address) => Some(low()),
        _ => None,
    }
}

const fn v4(high: u16, low: u16) -> Ipv4Addr {
    let [a, b] = high.to_be_bytes();
    let [c, d] = low.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    const TABLE: &[(Ipv4Net, AddressClass)] = &[
        (net4(0, 0, 0, 0, 8), AddressClass::Host),
        (net4(127, 0, 0, 0, 8), AddressClass::Host),
        (net4(169, 254, 0, 0, 16), AddressClass::LinkLocal),
        (net4(10, 0, 0, 0, 8), AddressClass::Private),
        (net4(172, 16, 0, 0, 12), AddressClass::Private),
        (net4(192, 168, 0, 0, 16), AddressClass::Private),
        (net4(100, 64, 0, 0, 10), AddressClass::Private),
        (net4(224, 0, 0, 0, 4), AddressClass::Multicast),
        (net4(255, 255, 255, 255, 32), AddressClass::Multicast),
        (net4(192, 0, 0, 0, 24), AddressClass::Special),
        (net4(192, 0, 2, 0, 24), AddressClass::Special),
        (net4(192, 88, 99, 0, 24), AddressClass::Special),
        (net4(198, 18, 0, 0, 15), AddressClass::Special),
        (net4(198, 51, 100, 0, 24), AddressClass::Special),
        (net4(203, 0, 113, 0, 24), AddressClass::Special),
        (net4(240, 0, 0, 0, 4), AddressClass::Special),
    ];
    lookup(
        TABLE
            .iter()
            .map(|(net, class)| (net.contains(&address), *class)),
    )
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    const TABLE: &[(Ipv6Net, AddressClass)] = &[
        (net6([0, 0, 0, 0, 0, 0, 0, 0], 127), AddressClass::Host),
        (
            net6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
            AddressClass::LinkLocal,
        ),
        (
            net6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
            AddressClass::Private,
        ),
        (
            net6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
            AddressClass::Private,
        ),
        (
            net6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
            AddressClass::Multicast,
        ),
        (
            net6([0x100, 0, 0, 0, 0, 0, 0, 0], 64),
            AddressClass::Special,
        ),
        (
            net6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
            AddressClass::Special,
        ),
        (
            net6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
            AddressClass::Special,
        ),
        (
            net6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
            AddressClass::Special,
        ),
        (
            net6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16),
            AddressClass::Special,
        ),
        (net6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3), AddressClass::Public),
        (net6([0, 0, 0, 0, 0, 0, 0, 0], 0), AddressClass::Special),
    ];
    lookup(
        TABLE
            .iter()
            .map(|(net, class)| (net.contains(&address), *class)),
    )
}

/// The class of the first row that contains the address.
fn lookup(mut rows: impl Iterator<Item = (bool, AddressClass)>) -> AddressClass {
    rows.find(|(contains, _)| *contains)
        .map_or(AddressClass::Public, |(_, class)| class)
}

const fn net4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn net6(s: [u16; 8], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(
        Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]),
        length,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> AddressClass {
        classify(text.parse().unwrap())
    }

    #[test]
    fn metadata_is_link_local_in_every_spelling() {
        for spelling in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:a9fe:a9fe",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2001::5601:5601",
            "2001:db8:0:0:0:5efe:a9fe:a9fe",
            "fd63:6175:7365:64::a9fe:a9fe",
            "fe80::a9fe:a9fe",
        ] {
            assert_eq!(class(spelling), AddressClass::LinkLocal, "{spelling}");
        }
    }

    #[test]
    fn public_addresses_stay_public_inside_others() {
        for spelling in [
            "8.8.8.8",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
            "fd63:6175:7365:64::808:808",
            "2606:4700::1111",
        ] {
            assert_eq!(class(spelling), AddressClass::Public, "{spelling}");
        }
    }

    #[test]
    fn each_class_has_its_edges() {
        use AddressClass::{Host, Multicast, Private, Public, Special};
        for (text, expected) in [
            ("::", Host),
            ("::1", Host),
            ("0.1.2.3", Host),
            ("127.255.255.255", Host),
            ("9.255.255.255", Public),
            ("10.0.0.0", Private),
            ("172.15.255.255", Public),
            ("172.31.255.255", Private),
            ("100.127.255.255", Private),
            ("fc00::", Private),
            ("fdff:ffff::1", Private),
            ("fec0::1", Private),
            ("ff02::1", Multicast),
            ("2001:db8::1", Special),
            ("5f00::1", Special),
            ("4000::1", Special),
            ("2001:200::1", Public),
        ] {
            assert_eq!(class(text), expected, "{text}");
        }
    }
}
