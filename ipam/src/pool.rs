//! One range of addresses or prefixes, and the order in which they are handed out.

use std::fmt;
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;

use crate::permutation::{BlockKey, Permutation};

/// A range and the size of what is handed out from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId {
    block: Ipv6Net,
    unit_length: u8,
}

impl PoolId {
    /// The pool of the prefixes of `unit_length` bits in `block`; none when they would be
    /// larger than the block.
    pub fn new(block: Ipv6Net, unit_length: u8) -> Option<Self> {
        (block.prefix_len()..=128)
            .contains(&unit_length)
            .then(|| Self {
                block: block.trunc(),
                unit_length,
            })
    }

    /// The pool of the single addresses in `block`.
    pub fn addresses(block: Ipv6Net) -> Self {
        Self {
            block: block.trunc(),
            unit_length: 128,
        }
    }

    /// The range.
    pub fn block(&self) -> Ipv6Net {
        self.block
    }

    /// The prefix length of what is handed out: 128 for addresses.
    pub fn unit_length(&self) -> u8 {
        self.unit_length
    }

    /// How many bits number the units.
    pub fn width(&self) -> u8 {
        self.unit_length - self.block.prefix_len()
    }

    /// The number of the last unit, counted from 0: one less than how many there are.
    pub(crate) fn last(&self) -> u128 {
        u128::MAX
            .checked_shr(128 - u32::from(self.width()))
            .unwrap_or(0)
    }

    /// How far a unit's number stands from the right of an address.
    fn shift(&self) -> u32 {
        128 - u32::from(self.unit_length)
    }

    /// The name under which a store keeps this pool.
    pub(crate) fn to_bytes(self) -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[..16].copy_from_slice(&self.block.network().octets());
        bytes[16] = self.block.prefix_len();
        bytes[17] = self.unit_length;
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (network, lengths) = bytes.split_first_chunk::<16>()?;
        let &[block_length, unit_length] = lengths else {
            return None;
        };
        let block = Ipv6Net::new(Ipv6Addr::from(*network), block_length).ok()?;
        Self::new(block, unit_length).filter(|_| block == block.trunc())
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unit_length == 128 {
            self.block.fmt(f)
        } else {
            write!(f, "{} in /{}s", self.block, self.unit_length)
        }
    }
}

/// A pool with its order and what it keeps back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pool {
    id: PoolId,
    permutation: Permutation,
    /// What is never handed out: prefixes of whole units, in order, none overlapping.
    excluded: Vec<Ipv6Net>,
    capacity: u128,
}

impl Pool {
    /// Takes what of `exclusions` lies in the pool; a unit that is touched is excluded whole.
    /// None when more than half is excluded: finding a unit that is not would no longer be a
    /// matter of a few steps.
    pub(crate) fn new(id: PoolId, key: &BlockKey, exclusions: &[Ipv6Net]) -> Option<Self> {
        let clipped: Vec<Ipv6Net> = exclusions
            .iter()
            .filter_map(|exclusion| clip(*exclusion, id))
            .collect();
        let mut excluded = Ipv6Net::aggregate(&clipped);
        excluded.sort_unstable();
        let units = excluded.iter().try_fold(0_u128, |sum, net| {
            let units = 1_u128.checked_shl(u32::from(id.unit_length - net.prefix_len()))?;
            sum.checked_add(units)
        })?;
        if units > id.last() / 2 + u128::from(id.width() > 0) {
            return None;
        }
        let last_usable = id.last() - units;
        Some(Self {
            id,
            permutation: Permutation::new(key.derive(&id.to_bytes()), id.width()),
            excluded,
            capacity: last_usable.saturating_add(1),
        })
    }

    pub(crate) fn id(&self) -> PoolId {
        self.id
    }

    /// How many units can be handed out; one less than that when it is all 2^128 addresses.
    pub(crate) fn capacity(&self) -> u128 {
        self.capacity
    }

    /// The first address of the unit that comes at `index`.
    pub(crate) fn unit_at(&self, index: u128) -> Ipv6Addr {
        let number = self.permutation.forward(index);
        let offset = number.checked_shl(self.id.shift()).unwrap_or(0);
        Ipv6Addr::from_bits(self.id.block.network().to_bits() | offset)
    }

    /// When the unit with this first address comes; none when it is not a unit of this pool.
    pub(crate) fn index_of(&self, unit: Ipv6Addr) -> Option<u128> {
        if !self.id.block.contains(&unit) {
            return None;
        }
        let number = unit.to_bits().checked_shr(self.id.shift()).unwrap_or(0) & self.id.last();
        Some(self.permutation.backward(number))
    }

    /// The exclusion that keeps this unit back.
    pub(crate) fn exclusion_of(&self, unit: Ipv6Addr) -> Option<Ipv6Net> {
        let after = self.excluded.partition_point(|net| net.network() <= unit);
        let candidate = self.excluded.get(after.checked_sub(1)?)?;
        candidate.contains(&unit).then_some(*candidate)
    }
}

/// The part of `exclusion` that lies in the pool, widened to whole units.
fn clip(exclusion: Ipv6Net, id: PoolId) -> Option<Ipv6Net> {
    if exclusion.contains(&id.block) {
        return Some(id.block);
    }
    if !id.block.contains(&exclusion) {
        return None;
    }
    let length = exclusion.prefix_len().min(id.unit_length);
    let widened = Ipv6Net::new(exclusion.network(), length).ok()?;
    Some(widened.trunc())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn net(text: &str) -> Ipv6Net {
        text.parse().unwrap()
    }

    fn pool(block: &str, unit_length: u8, exclusions: &[&str]) -> Option<Pool> {
        let exclusions: Vec<Ipv6Net> = exclusions.iter().map(|text| net(text)).collect();
        let id = PoolId::new(net(block), unit_length)?;
        Pool::new(id, &BlockKey::new([3; 16]), &exclusions)
    }

    #[test]
    fn a_pool_of_exactly_two_to_the_64() {
        let pool = pool("2001:db8::/64", 128, &[]).unwrap();
        assert_eq!(pool.capacity(), 1 << 64);
        assert_eq!(pool.id().last(), u128::from(u64::MAX));
        let unit = pool.unit_at(pool.id().last());
        assert_eq!(pool.index_of(unit), Some(pool.id().last()));
    }

    #[test]
    fn the_whole_space_is_counted_without_overflow() {
        let whole = pool("::/0", 128, &["::/128"]).unwrap();
        assert_eq!(whole.capacity(), u128::MAX);
        assert_eq!(whole.id().last(), u128::MAX);
        assert_eq!(whole.index_of(whole.unit_at(u128::MAX)), Some(u128::MAX));
        assert_eq!(pool("::/0", 0, &[]).unwrap().capacity(), 1);
    }

    #[test]
    fn exclusions_are_whole_units_counted_once() {
        // Two addresses of one /80 and a /79 next to it: three units.
        let exclusions = ["2001:db8::1/128", "2001:db8::2/128", "2001:db8:0:0:2::/79"];
        let pool = pool("2001:db8::/64", 80, &exclusions).unwrap();
        assert_eq!(pool.capacity(), (1 << 16) - 3);
        for (unit, excluded) in [
            ("2001:db8::", true),
            ("2001:db8:0:0:1::", false),
            ("2001:db8:0:0:2::", true),
            ("2001:db8:0:0:3::", true),
            ("2001:db8:0:0:4::", false),
        ] {
            let found = pool.exclusion_of(unit.parse().unwrap());
            assert_eq!(found.is_some(), excluded, "{unit}");
        }
    }

    #[test]
    fn half_may_be_excluded_and_no_more() {
        assert!(pool("2001:db8::/64", 128, &["2001:db8::/65"]).is_some());
        assert!(
            pool(
                "2001:db8::/64",
                128,
                &["2001:db8::/65", "2001:db8::8000:0:0:1/128"]
            )
            .is_none()
        );
        assert!(pool("2001:db8::/64", 128, &["2001:db8::/32"]).is_none());
        assert!(pool("2001:db8::/64", 128, &["2001:db9::/32"]).is_some());
        assert!(pool("2001:db8::1/128", 128, &["2001:db8::1/128"]).is_none());
        assert!(pool("2001:db8::/127", 128, &["2001:db8::1/128"]).is_some());
    }

    #[test]
    fn a_unit_is_not_larger_than_its_block() {
        assert!(PoolId::new(net("2001:db8::/64"), 63).is_none());
        assert!(PoolId::new(net("2001:db8::/64"), 129).is_none());
        assert!(PoolId::new(net("2001:db8::/64"), 64).is_some());
    }

    proptest! {
        #[test]
        fn small_pools_hand_out_each_unit_once(base: u128, width in 0..=9_u8, unit_length in 9..=128_u8) {
            let block = Ipv6Net::new(Ipv6Addr::from_bits(base), unit_length - width).unwrap();
            let id = PoolId::new(block, unit_length).unwrap();
            let pool = Pool::new(id, &BlockKey::new([9; 16]), &[]).unwrap();
            let mut units = BTreeSet::new();
            for index in 0..=id.last() {
                let unit = pool.unit_at(index);
                prop_assert!(block.contains(&unit));
                prop_assert_eq!(pool.index_of(unit), Some(index));
                units.insert(unit);
            }
            prop_assert_eq!(units.len(), 1 << width);
            prop_assert_eq!(PoolId::from_bytes(&id.to_bytes()), Some(id));
        }

        #[test]
        fn every_length_works(base: u128, block_length in 0..=128_u8, extra in 0..=128_u8, index: u128) {
            let block = Ipv6Net::new(Ipv6Addr::from_bits(base), block_length).unwrap().trunc();
            let unit_length = block_length.saturating_add(extra).min(128);
            let id = PoolId::new(block, unit_length).unwrap();
            let pool = Pool::new(id, &BlockKey::new([9; 16]), &[]).unwrap();
            let index = index & id.last();
            let unit = pool.unit_at(index);
            prop_assert!(block.contains(&unit));
            prop_assert_eq!(pool.index_of(unit), Some(index));
            prop_assert_eq!(pool.capacity() - 1, id.last() - u128::from(id.width() == 128));
        }
    }
}
