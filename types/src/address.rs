//! Which part of the address space an address lies in, in every spelling.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The default gateway that every sandbox sees.
pub const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The resolver that every sandbox sees, on every node.
pub const RESOLVER: Ipv6Addr = Ipv6Addr::new(0xfd63, 0x6175, 0x7365, 0, 0, 0, 0, 0x53);

/// The TCP ports at [`RESOLVER`] where clients find the egress proxy that know of it: one that is
/// usual for HTTP proxies, and one that is usual for SOCKS.
pub const PROXY_PORTS: [u16; 2] = [3128, 1080];

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

/// The ranges that [`classify`] knows by name and that are not public, a more specific one before
/// one that contains it. Space that is not allocated is in none of them.
pub fn special_ranges() -> impl Iterator<Item = (IpNet, AddressClass)> {
    let v4 = SPECIAL_V4
        .iter()
        .map(|(net, class)| (IpNet::V4(*net), *class));
    let v6 = TABLE_V6
        .iter()
        .map(|(net, class)| (IpNet::V6(*net), *class));
    v4.chain(v6)
        .filter(|(net, class)| !class.is_public() && net.prefix_len() > 0)
}

const SPECIAL_V4: &[(Ipv4Net, AddressClass)] = &[
    (net4(0, 0, 0, 0, 8), AddressClass::Host),
    (net4(127, 0, 0, 0, 8), AddressClass::Host),
    (net4(169, 254, 0, 0, 16), AddressClass::LinkLocal),
    // The host's own service in one public cloud: metadata, though of public form.
    (net4(168, 63, 129, 16, 32), AddressClass::LinkLocal),
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

const TABLE_V6: &[(Ipv6Net, AddressClass)] = &[
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
    (LOCAL_TRANSLATION, AddressClass::Private),
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

/// Classifies an address after the IANA special-purpose registries (RFC 6890). An IPv6
/// address that carries an IPv4 address in a standard form is as private as the address inside.
pub fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => {
            let inner = embedded_ipv4(v6).map(classify_v4);
            match inner {
                Some(AddressClass::Public) if inner_decides(v6) => AddressClass::Public,
                Some(AddressClass::Public) | None => classify_v6(v6),
                Some(private) => private,
            }
        }
    }
}

/// The IPv4 address inside `address`, where its prefix says that there is one: mapped and
/// compatible (RFC 4291), 6to4 (RFC 3056), Teredo (RFC 4380), ISATAP (RFC 5214), the
/// well-known and the local-use translation prefixes (RFC 6052, RFC 8215), and our own.
///
/// An address can have two such forms, one in the prefix and one in the interface identifier:
/// then it is the one that is not public, if there is one.
pub fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match (by_prefix(address), by_identifier(address)) {
        (Some(outer), Some(inner)) if classify_v4(outer).is_public() => Some(inner),
        (outer, inner) => outer.or(inner),
    }
}

fn by_prefix(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let low = || v4(segments[6], segments[7]);
    match segments {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _] => Some(low()),
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Some(low()),
        [0x64, 0xff9b, 1, ..] => Some(local_translation(address)),
        [0x2002, a, b, ..] => Some(v4(a, b)),
        [0x2001, 0, _, _, _, _, a, b] => Some(v4(!a, !b)),
        _ if NAT64_PREFIX.contains(&address) => Some(low()),
        _ => None,
    }
}

/// ISATAP puts the IPv4 address behind any prefix.
fn by_identifier(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(v4(high, low)),
        _ => None,
    }
}

/// Whether an address with a public IPv4 address inside is public because of that: its own
/// prefix stands for translation or tunnelling to the IPv4 internet. Not so for ISATAP, where
/// the prefix counts too, and for the local-use prefix, which is never globally reachable.
fn inner_decides(address: Ipv6Addr) -> bool {
    by_prefix(address).is_some() && !LOCAL_TRANSLATION.contains(&address)
}

/// The prefix for translation inside one network (RFC 8215).
const LOCAL_TRANSLATION: Ipv6Net = net6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48);

/// The IPv4 address behind the local-use prefix. A network chooses a prefix of 48, 56, 64 or 96
/// bits inside it, which the address does not tell: the first reading is taken that leaves
/// nothing over (RFC 6052, section 2.2: octet 8 and the suffix are zero), otherwise the last
/// four octets.
fn local_translation(address: Ipv6Addr) -> Ipv4Addr {
    let o = address.octets();
    let readings = [
        ([o[6], o[7], o[9], o[10]], 11),
        ([o[7], o[9], o[10], o[11]], 12),
        ([o[9], o[10], o[11], o[12]], 13),
    ];
    let fitting = readings.into_iter().find(|(inner, suffix)| {
        o[8] == 0 && *inner != [0; 4] && o[*suffix..].iter().all(|octet| *octet == 0)
    });
    fitting
        .map_or([o[12], o[13], o[14], o[15]], |(inner, _)| inner)
        .into()
}

const fn v4(high: u16, low: u16) -> Ipv4Addr {
    let [a, b] = high.to_be_bytes();
    let [c, d] = low.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    lookup(
        SPECIAL_V4
            .iter()
            .map(|(net, class)| (net.contains(&address), *class)),
    )
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    lookup(
        TABLE_V6
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

    /// An address of a translation prefix of this length (RFC 6052, section 2.2).
    fn translate(prefix: Ipv6Addr, length: usize, inner: Ipv4Addr) -> Ipv6Addr {
        let mut octets = prefix.octets();
        let mut position = length / 8;
        for octet in inner.octets() {
            if position == 8 {
                position += 1;
            }
            octets[position] = octet;
            position += 1;
        }
        octets.into()
    }

    #[test]
    fn the_local_translation_prefix_is_read_at_each_length() {
        let metadata = Ipv4Addr::new(169, 254, 169, 254);
        let prefix = "64:ff9b:1::".parse().unwrap();
        for length in [48, 56, 64, 96] {
            let address = translate(prefix, length, metadata);
            assert_eq!(embedded_ipv4(address), Some(metadata), "{address}");
            assert_eq!(classify(address.into()), AddressClass::LinkLocal);
            // Not public whatever is inside, as it is not globally reachable (RFC 8215).
            let public = translate(prefix, length, Ipv4Addr::new(8, 8, 8, 8));
            assert_eq!(classify(public.into()), AddressClass::Private, "{public}");
        }
        // A subnet inside the prefix, and a suffix that should be zero and is not.
        for spelling in ["64:ff9b:1:ab:cd::808:808", "64:ff9b:1:808:8:800::1"] {
            assert!(!class(spelling).is_public(), "{spelling}");
        }
        // The control: the well-known prefix with a public address.
        assert!(class("64:ff9b::808:808").is_public());
    }

    #[test]
    fn an_interface_identifier_does_not_make_a_prefix_public() {
        for (text, expected) in [
            ("fd00::5efe:808:808", AddressClass::Private),
            ("fe80::200:5efe:808:808", AddressClass::LinkLocal),
            ("2001:db8::5efe:808:808", AddressClass::Special),
            ("2002:808:808::5efe:a9fe:a9fe", AddressClass::LinkLocal),
            ("2002:a9fe:a9fe::5efe:808:808", AddressClass::LinkLocal),
            ("2606:4700::5efe:808:808", AddressClass::Public),
        ] {
            assert_eq!(class(text), expected, "{text}");
        }
    }

    #[test]
    fn metadata_services_of_clouds_are_not_public() {
        for text in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::ffff:168.63.129.16",
        ] {
            assert!(!class(text).is_public(), "{text}");
        }
        assert!(class("168.63.129.17").is_public());
    }

    #[test]
    fn the_registries_row_by_row() {
        // What IANA lists as not globally reachable: first and last address of each.
        for text in [
            "192.0.0.0",
            "192.0.0.255",
            "192.0.2.1",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "240.0.0.0",
            "255.255.255.255",
            "100::1",
            "100:0:0:1::1",
            "2001:1ff:ffff::1",
            "2001:2::1",
            "2001:10::1",
            "3fff:fff::1",
            "fbff::1",
            "febf::1",
        ] {
            assert!(!class(text).is_public(), "{text}");
        }
        for text in [
            "192.0.1.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::",
            "3fff:1000::1",
            "2a00::1",
        ] {
            assert!(class(text).is_public(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn an_address_inside_is_never_more_public_than_alone(inner: u32) {
            let inner = Ipv4Addr::from_bits(inner);
            let [a, b, c, d] = inner.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let forms = [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 1, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 1, 2, 0, 0, !high, !low),
                Ipv6Addr::new(0xfd63, 0x6175, 0x7365, 0x64, 0, 0, high, low),
            ];
            for form in forms {
                proptest::prop_assert_eq!(embedded_ipv4(form), Some(inner));
                proptest::prop_assert_eq!(classify(form.into()), classify(inner.into()));
            }
        }
    }
}
