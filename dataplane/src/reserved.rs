//! Destinations that a wide rule does not open: host, link-local, private, metadata and
//! special ranges, in IPv6 and in every form of IPv4 inside IPv6.
//!
//! A rule opens such a range only when its prefix lies inside it, so that `::/0` means
//! "the Internet" and not "and the host's metadata service".

use std::net::Ipv6Addr;

use causeway_types::special_ranges;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Forms of IPv4 inside IPv6 that no packet on a wire has, reserved whatever is inside: compatible
/// and mapped addresses (RFC 4291) and those of stateless translators (RFC 2765).
const FORMS: &[Ipv6Net] = &[
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
    v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96),
];

/// The well-known prefix of translators (RFC 6052): as reserved as the address inside.
const TRANSLATED: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
/// 6to4 (RFC 3056): likewise.
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);
/// What is allocated for global unicast (RFC 4291); everything else is reserved.
const GLOBAL: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

/// Ranges of IPv4 that are not globally reachable.
fn ipv4() -> impl Iterator<Item = Ipv4Net> {
    special_ranges().filter_map(|(range, _)| match range {
        IpNet::V4(range) => Some(range),
        IpNet::V6(_) => None,
    })
}

/// Ranges of IPv6 that have a name and are not globally reachable.
fn ipv6() -> impl Iterator<Item = Ipv6Net> {
    let special = special_ranges().filter_map(|(range, _)| match range {
        IpNet::V6(range) => Some(range),
        IpNet::V4(_) => None,
    });
    FORMS.iter().copied().chain(special)
}

const fn v6(s: [u16; 8], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(
        Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]),
        length,
    )
}

/// Whether a rule with this prefix opens a reserved range: it lies inside one.
pub fn opens(prefix: Ipv6Net) -> bool {
    named().any(|range| range.contains(&prefix))
}

/// Every reserved prefix. Some contain others.
pub fn prefixes() -> impl Iterator<Item = Ipv6Net> {
    named()
        .chain(siblings(TRANSLATED, 3))
        .chain(siblings(GLOBAL, 0).filter(|range| range.prefix_len() < GLOBAL.prefix_len()))
}

/// Reserved IPv4 ranges as the low 32 bits of an IPv6 address: ISATAP addresses (RFC 5214)
/// carry them behind a fixed interface identifier and any prefix.
pub fn ipv4_suffixes() -> impl Iterator<Item = Ipv6Net> {
    ipv4().map(|range| embed(v6([0; 8], 96), range))
}

fn named() -> impl Iterator<Item = Ipv6Net> {
    let embedded = [TRANSLATED, SIX_TO_FOUR]
        .into_iter()
        .flat_map(|prefix| ipv4().map(move |range| embed(prefix, range)));
    ipv6().chain(embedded)
}

/// The addresses of `outer` whose bits behind the prefix begin with those of `inner`.
fn embed(outer: Ipv6Net, inner: Ipv4Net) -> Ipv6Net {
    let length = outer.prefix_len();
    let bits = u128::from(inner.network().to_bits()) << (96 - u32::from(length));
    let address = Ipv6Addr::from_bits(outer.network().to_bits() | bits);
    // At most 96 + 32 bits.
    Ipv6Net::new(address, length + inner.prefix_len()).unwrap_or(outer)
}

/// The prefixes that fill the space around `hole`, up to the prefix of `length` bits that
/// contains it.
fn siblings(hole: Ipv6Net, length: u8) -> impl Iterator<Item = Ipv6Net> {
    (length + 1..=hole.prefix_len()).filter_map(move |bits| {
        let flipped = hole.network().to_bits() ^ (1 << (128 - u32::from(bits)));
        Ipv6Net::new(Ipv6Addr::from_bits(flipped), bits)
            .ok()
            .map(|net| net.trunc())
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use causeway_types::{AddressClass, classify};
    use proptest::prelude::*;

    use super::*;

    fn reserved(address: Ipv6Addr) -> bool {
        prefixes().any(|prefix| prefix.contains(&address))
    }

    #[test]
    fn every_spelling_of_metadata_and_private_addresses_is_reserved() {
        for text in [
            "fe80::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b::10.1.2.3",
            "64:ff9b::168.63.129.16",
            "2002:a83f:8110::1",
            "64:ff9b:1::1",
            "2002:a9fe:a9fe::1",
            "2002:c0a8:101::1",
            "2001:0:1::1",
            "fd63:6175:7365:64::8.8.8.8",
            "fd00:ec2::254",
            "::1",
            "::",
            "5f00::1",
            "4000::1",
        ] {
            assert!(reserved(text.parse().unwrap()), "{text}");
        }
        for text in [
            "2606:4700::1111",
            "64:ff9b::8.8.8.8",
            "64:ff9b::168.63.129.17",
            "2002:808:808::1",
            "2600::",
        ] {
            assert!(!reserved(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn only_a_prefix_inside_a_range_opens_it() {
        for (text, expected) in [
            ("::/0", false),
            ("8000::/1", false),
            ("2000::/3", false),
            ("64:ff9b::/96", false),
            ("64:ff9b::a00:0/104", true),
            ("64:ff9b::808:808/128", false),
            ("fc00::/7", true),
            ("fd00:1::/48", true),
            ("fc00::/6", false),
            ("2001:db8:1::/48", true),
            ("2606:4700::/32", false),
        ] {
            assert_eq!(opens(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn global_space_has_its_edges() {
        for (text, expected) in [
            ("1fff:ffff::", true),
            ("2001:200::", false),
            ("3fff:1000::", false),
            ("3fff:fff::1", true),
            ("4000::", true),
            ("64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", true),
            ("64:ff9b::1:0:0", true),
        ] {
            assert_eq!(reserved(text.parse().unwrap()), expected, "{text}");
        }
    }

    proptest! {
        /// What the packet filter holds for open, the common classification does too.
        #[test]
        fn agrees_with_the_common_classification(
            base in prop_oneof![
                Just(0_u128), Just(0x64_ff9b << 96), Just(0x2002 << 112), Just(0x2001 << 112),
                Just(0x2606 << 112), Just(0xfd << 120), any::<u128>(),
            ],
            low in any::<u32>(), middle in any::<u32>(),
        ) {
            let address = Ipv6Addr::from_bits(base | u128::from(middle) << 80 | u128::from(low));
            let public = classify(IpAddr::V6(address)) == AddressClass::Public;
            let isatap = matches!(address.segments(), [_, _, _, _, 0 | 0x200, 0x5efe, _, _]);
            if !reserved(address) && !isatap {
                prop_assert!(public, "{address}");
            }
        }
    }
}
