//! The ranges that no rule reaches unless it names them.

use std::net::{IpAddr, Ipv6Addr};

use causeway_types::{
    AddressClass, NAT64_PREFIX, RESOLVER, classify, embedded_ipv4, special_ranges,
};
use ipnet::{IpNet, Ipv6Net};

use crate::model::Protocol;

/// The ranges that a node keeps for itself, beside those that the Internet's registries
/// reserve: its own addresses, the operator's prefixes, tunnel endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    own: Vec<IpNet>,
}

impl Reserved {
    /// Takes the node's own ranges. Causeway's fixed one is always among them.
    pub fn new(own: impl IntoIterator<Item = IpNet>) -> Self {
        let fixed = Ipv6Net::new_assert(RESOLVER, 48).trunc();
        let mut own: Vec<_> = own.into_iter().map(|net| net.trunc()).collect();
        own.push(fixed.into());
        own.sort_unstable();
        own.dedup();
        Self { own }
    }

    /// Whether an address is reached only through a rule that names its range.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = canonical(address);
        !classify(address).is_public()
            || spellings(address).any(|a| self.own.iter().any(|net| net.contains(&a)))
    }

    /// Whether a permit for `prefix` reaches `address`, which lies in it: every reserved range
    /// around the address has to contain the whole prefix.
    pub(crate) fn opened_by(&self, prefix: &IpNet, address: IpAddr) -> bool {
        let address = canonical(address);
        if is_closed(classify(address)) {
            return false;
        }
        if !self.contains(address) {
            return true;
        }
        // An address that hides a reserved one inside is named in full or not at all.
        let hidden = spellings(address).nth(1).is_some();
        if hidden {
            return prefix.prefix_len() == prefix.max_prefix_len();
        }
        self.ranges()
            .filter(|(range, _)| range.contains(&address))
            .all(|(range, _)| range.contains(prefix))
    }

    /// Whether a permit for `prefix` reaches `address` by this protocol: the proxy, which carries
    /// TCP, looks at each address; the dataplane knows prefixes only.
    pub(crate) fn permits(&self, prefix: &IpNet, address: IpAddr, protocol: Protocol) -> bool {
        match (protocol, prefix, address) {
            (Protocol::Tcp, ..) => self.opened_by(prefix, address),
            (_, IpNet::V6(prefix), IpAddr::V6(address)) => {
                self.cut(*prefix).iter().any(|left| left.contains(&address))
            }
            _ => false,
        }
    }

    /// What the dataplane forwards of `prefix`: without the reserved ranges that it does not
    /// name, and without addresses that hide an IPv4 address, unless it is such an address
    /// itself. What those lead to cannot be told from a prefix.
    pub(crate) fn cut(&self, prefix: Ipv6Net) -> Vec<Ipv6Net> {
        let whole = IpNet::V6(prefix);
        let within = |range: &Ipv6Net| range.contains(&prefix);
        if HIDING.iter().any(within) && prefix.prefix_len() < prefix.max_prefix_len() {
            return Vec::new();
        }
        let mut holes: Vec<_> = HIDING
            .iter()
            .filter(|h| prefix.contains(*h))
            .copied()
            .collect();
        for (range, class) in self.ranges() {
            let IpNet::V6(hole) = range else { continue };
            if range.contains(&whole) {
                if is_closed(class) {
                    return Vec::new();
                }
            } else if whole.contains(&range) {
                holes.push(hole);
            }
        }
        let mut left = Vec::new();
        without(prefix, &holes, &mut left);
        left
    }

    /// Every reserved range: those of the registries, space that nobody has, transition
    /// mechanisms that hide IPv4 addresses, and the node's own.
    fn ranges(&self) -> impl Iterator<Item = (IpNet, AddressClass)> {
        let v6 = |s: [u16; 2], length| {
            let address = Ipv6Addr::new(s[0], s[1], 0, 0, 0, 0, 0, 0);
            (
                IpNet::V6(Ipv6Net::new_assert(address, length)),
                AddressClass::Special,
            )
        };
        let rest = [
            v6([0, 0], 3),
            v6([0x4000, 0], 2),
            v6([0x8000, 0], 1),
            v6([0x2002, 0], 16),
            v6([0x64, 0xff9b], 96),
        ];
        let own = self.own.iter().map(|net| (*net, AddressClass::Private));
        special_ranges().chain(rest).chain(own)
    }
}

/// Ranges whose addresses have IPv4 addresses inside ([`embedded_ipv4`]): what is sent there is
/// translated, or taken out of a tunnel, somewhere else.
const HIDING: [Ipv6Net; 8] = [
    Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
    Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32),
    Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    NAT64_PREFIX,
];

/// Whether every address of the prefix hides an IPv4 address.
pub(crate) fn hides(prefix: &Ipv6Net) -> bool {
    HIDING.iter().any(|range| range.contains(prefix))
}

impl Default for Reserved {
    /// A node without ranges of its own.
    fn default() -> Self {
        Self::new([])
    }
}

/// The address that is dialled: the IPv4 address itself where it is mapped, or where our own
/// translation prefix carries it.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if NAT64_PREFIX.contains(&v6) || v6.to_ipv4_mapped().is_some() => {
            embedded_ipv4(v6).map_or(address, IpAddr::V4)
        }
        _ => address,
    }
}

/// The address, and after it the IPv4 address that it hides.
pub(crate) fn spellings(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let hidden = match address {
        IpAddr::V6(v6) => embedded_ipv4(v6).map(IpAddr::V4),
        IpAddr::V4(_) => None,
    };
    std::iter::once(address).chain(hidden)
}

/// No rule opens these.
fn is_closed(class: AddressClass) -> bool {
    matches!(class, AddressClass::Host | AddressClass::Multicast)
}

fn without(prefix: Ipv6Net, holes: &[Ipv6Net], left: &mut Vec<Ipv6Net>) {
    if holes.iter().any(|hole| hole.contains(&prefix)) {
        return;
    }
    let inside: Vec<_> = holes
        .iter()
        .filter(|hole| prefix.contains(*hole))
        .copied()
        .collect();
    if inside.is_empty() {
        left.push(prefix);
        return;
    }
    if let Ok(halves) = prefix.subnets(prefix.prefix_len() + 1) {
        for half in halves {
            without(half, &inside, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_is_opened_from_inside_only() {
        let reserved = Reserved::new([net("2001:470:1::/48"), net("fd00:1::/32")]);
        for (prefix, address, opened) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.1.0.0/16", "10.1.2.3", true),
            ("0.0.0.0/0", "10.1.2.3", false),
            ("8.0.0.0/6", "10.1.2.3", false),
            ("0.0.0.0/0", "9.1.2.3", true),
            ("169.254.169.254/32", "169.254.169.254", true),
            ("168.63.129.16/32", "168.63.129.16", true),
            ("168.63.0.0/16", "168.63.129.16", false),
            ("127.0.0.1/32", "127.0.0.1", false),
            ("::1/128", "::1", false),
            ("224.0.0.0/4", "224.0.0.1", false),
            ("::/0", "fd12::1", false),
            ("::/0", "2001:470:2::1", true),
            ("::/0", "2001:470:1::1", false),
            ("2001:470:1::/48", "2001:470:1::1", true),
            ("2001:470::/32", "2001:470:1::1", false),
            ("fc00::/7", "fd12::1", true),
            ("fc00::/7", "fd00:1::1", false),
            ("fd00:1::/32", "fd00:1::1", true),
            ("::/0", "2002:808:808::1", true),
            ("::/0", "2002:a00:1::1", false),
            ("2002::/16", "2002:a00:1::1", false),
            ("2002:a00:1::1/128", "2002:a00:1::1", true),
            ("10.0.0.0/8", "fd63:6175:7365:64::a00:1", true),
            ("::/0", "4000::1", false),
            ("4000::/8", "4000::1", true),
        ] {
            let result = reserved.opened_by(&net(prefix), ip(address));
            assert_eq!(result, opened, "{prefix} for {address}");
        }
    }

    #[test]
    fn what_is_cut_leaves_the_public_part() {
        let reserved = Reserved::new([net("2001:470:1::/48")]);
        let cut = |text: &str| reserved.cut(text.parse().unwrap());
        assert_eq!(cut("2600::/12"), ["2600::/12".parse().unwrap()]);
        assert_eq!(cut("fd12::/16"), ["fd12::/16".parse().unwrap()]);
        assert_eq!(cut("ff02::/16"), []);
        assert_eq!(cut("2001:470::/47"), ["2001:470::/48".parse().unwrap()]);
        for hiding in [
            "64:ff9b::/96",
            "2002:808::/32",
            "2001::/32",
            "64:ff9b:1::/48",
            "::/96",
        ] {
            assert_eq!(cut(hiding), [], "{hiding}");
        }
        for named in ["64:ff9b::808:808/128", "2002:a00:1::1/128"] {
            assert_eq!(cut(named), [named.parse().unwrap()]);
        }
        let low = cut("::/3");
        let inside = |address: &str| {
            let address: Ipv6Addr = address.parse().unwrap();
            low.iter().any(|net| net.contains(&address))
        };
        assert!(inside("1000::1") && !inside("::ffff:8.8.8.8") && !inside("64:ff9b::808:808"));
        let all = cut("::/0");
        for (address, inside) in [
            ("2600::1", true),
            ("2001:470:2::1", true),
            ("2001:470:1::1", false),
            ("2001:db8::1", false),
            ("fe80::1", false),
            ("fd00::1", false),
            ("::1", false),
            ("2002:808:808::1", false),
        ] {
            let address: Ipv6Addr = address.parse().unwrap();
            let found = all.iter().any(|net| net.contains(&address));
            assert_eq!(found, inside, "{address}");
        }
        assert!(all.len() < 200, "{}", all.len());
    }

    proptest! {
        #[test]
        fn what_is_reserved_lies_in_a_range(bits: u128, small: u32) {
            let reserved = Reserved::default();
            let addresses = [IpAddr::from(bits.to_be_bytes()), IpAddr::from(small.to_be_bytes())];
            for address in addresses {
                let hidden = spellings(address).nth(1).is_some();
                let in_range = reserved.ranges().any(|(range, _)| range.contains(&address));
                prop_assert!(hidden || reserved.contains(address) == in_range, "{}", address);
            }
        }
    }
}
