//! A keyed permutation of `0..2^width`, for any width up to 128 bits.

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128 as _, SipHasher24 as SipHasher24x128};

/// Rounds of the Feistel network. Four make a strong permutation of a wide block (Luby and
/// Rackoff); narrow blocks need more, and NIST SP 800-38G uses ten.
const ROUNDS: u8 = 10;

/// A node's secret from which the order of its addresses is derived: 16 random bytes, made once
/// and kept as long as the store, since with another key the order would begin anew.
#[derive(Clone, PartialEq, Eq)]
pub struct BlockKey([u8; 16]);

impl BlockKey {
    /// Takes 16 random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A number that tells this key from others and does not reveal it.
    pub(crate) fn fingerprint(&self) -> u128 {
        self.hash(b"causeway-ipam-fingerprint")
    }

    /// A key for one pool, so that two pools do not hand out their addresses in the same order.
    pub(crate) fn derive(&self, label: &[u8]) -> Self {
        Self(self.hash(label).to_le_bytes())
    }

    fn hash(&self, label: &[u8]) -> u128 {
        let mut hasher = SipHasher24x128::new_with_key(&self.0);
        hasher.write(label);
        hasher.finish128().into()
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockKey(..)")
    }
}

/// A bijection of the numbers of `width` bits, which nobody can continue from its past values
/// without the key: a Feistel network whose halves differ by a bit when the width is odd, so
/// that every width is met exactly and nothing has to be tried twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permutation {
    key: BlockKey,
    high_bits: u32,
    low_bits: u32,
}

impl Permutation {
    /// A permutation of the numbers of `width` bits, 0 to 128.
    pub(crate) fn new(key: BlockKey, width: u8) -> Self {
        let high_bits = u32::from(width) / 2;
        Self {
            key,
            high_bits,
            low_bits: u32::from(width) - high_bits,
        }
    }

    /// The place of `index`, which has no more bits than the permutation.
    pub(crate) fn forward(&self, index: u128) -> u128 {
        let (mut high, mut low) = self.split(index);
        for round in 0..ROUNDS {
            self.round(round, &mut high, &mut low);
        }
        self.join(high, low)
    }

    /// The index that [`Self::forward`] brings to `place`.
    pub(crate) fn backward(&self, place: u128) -> u128 {
        let (mut high, mut low) = self.split(place);
        for round in (0..ROUNDS).rev() {
            self.round(round, &mut high, &mut low);
        }
        self.join(high, low)
    }

    /// One half is changed by the other: which makes a round its own inverse.
    fn round(&self, round: u8, high: &mut u64, low: &mut u64) {
        if round.is_multiple_of(2) {
            *high ^= self.mix(round, *low) & ones(self.high_bits);
        } else {
            *low ^= self.mix(round, *high) & ones(self.low_bits);
        }
    }

    fn mix(&self, round: u8, half: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key.0);
        hasher.write_u8(round);
        hasher.write_u64(half);
        hasher.finish()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a half has at most 64 bits, and the mask keeps just those"
    )]
    fn split(&self, value: u128) -> (u64, u64) {
        let high = (value >> self.low_bits) as u64 & ones(self.high_bits);
        (high, value as u64 & ones(self.low_bits))
    }

    fn join(&self, high: u64, low: u64) -> u128 {
        (u128::from(high) << self.low_bits) | u128::from(low)
    }
}

/// The `bits` lowest bits, 0 to 64 of them.
fn ones(bits: u32) -> u64 {
    u64::MAX.checked_shr(64 - bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn permutation(seed: u128, width: u8) -> Permutation {
        Permutation::new(BlockKey::new(seed.to_le_bytes()), width)
    }

    #[test]
    fn every_small_width_is_a_bijection() {
        for width in 0..=12_u8 {
            let permutation = permutation(7, width);
            let size = 1_usize << width;
            let mut seen = vec![false; size];
            for index in 0..size {
                let place = permutation.forward(index as u128);
                let seen = &mut seen[usize::try_from(place).unwrap()];
                assert!(!*seen, "width {width}: {place} comes twice");
                *seen = true;
                assert_eq!(permutation.backward(place), index as u128);
            }
        }
    }

    #[test]
    fn neighbours_are_scattered() {
        // 4,096 consecutive numbers of a 64-bit block leave no pair next to each other.
        let permutation = permutation(1, 64);
        let mut places: Vec<u128> = (0..4096).map(|i| permutation.forward(i)).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] > 1 << 20));
    }

    #[test]
    fn keys_give_different_orders() {
        let first: Vec<u128> = (0..16).map(|i| permutation(1, 64).forward(i)).collect();
        let again: Vec<u128> = (0..16).map(|i| permutation(1, 64).forward(i)).collect();
        let other: Vec<u128> = (0..16).map(|i| permutation(2, 64).forward(i)).collect();
        assert_eq!(first, again);
        assert!(first.iter().zip(&other).all(|(a, b)| a != b));
    }

    #[test]
    fn a_key_is_not_shown() {
        let shown = format!("{:?}", BlockKey::new([0xab; 16]));
        assert_eq!(shown, "BlockKey(..)");
    }

    proptest! {
        #[test]
        fn every_width_goes_there_and_back(seed: u128, index: u128, width in 0..=128_u8) {
            let index = index & u128::MAX.checked_shr(128 - u32::from(width)).unwrap_or(0);
            let permutation = permutation(seed, width);
            let place = permutation.forward(index);
            prop_assert!(width == 128 || place >> width == 0);
            prop_assert_eq!(permutation.backward(place), index);
        }
    }
}
