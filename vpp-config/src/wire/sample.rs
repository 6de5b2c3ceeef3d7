//! Arbitrary values of every declared type, for tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{FixedText, VarText, Wire};

/// A sequence of numbers that follows from its seed alone.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `SplitMix64`: each output depends on every bit of the seed.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

pub(crate) trait Sample: Sized {
    fn sample(random: &mut Random) -> Self;
}

macro_rules! sample_numbers {
    ($($type:ident)*) => {$(
        impl Sample for $type {
            fn sample(random: &mut Random) -> Self {
                let bytes = random.next().to_be_bytes();
                // Extremes and small numbers come often, since that is where mistakes show.
                match bytes[0] % 4 {
                    0 => <$type>::MAX,
                    1 => <$type>::from(bytes[1].min(3)),
                    _ => <$type>::from_be_bytes(*bytes.last_chunk().unwrap()),
                }
            }
        }
    )*};
}

sample_numbers!(u8 u16 u32 u64 i32);

impl Sample for i16 {
    fn sample(random: &mut Random) -> Self {
        u16::sample(random).cast_signed()
    }
}

impl Sample for f64 {
    fn sample(random: &mut Random) -> Self {
        f64::from(u32::sample(random)) / 8.0
    }
}

impl Sample for bool {
    fn sample(random: &mut Random) -> Self {
        random.next().is_multiple_of(2)
    }
}

impl Sample for Ipv4Addr {
    fn sample(random: &mut Random) -> Self {
        Self::from_bits(u32::sample(random))
    }
}

impl Sample for Ipv6Addr {
    fn sample(random: &mut Random) -> Self {
        Self::from_bits(u128::from(random.next()) << 64 | u128::from(random.next()))
    }
}

impl Sample for IpAddr {
    fn sample(random: &mut Random) -> Self {
        if bool::sample(random) {
            Self::V4(Ipv4Addr::sample(random))
        } else {
            Self::V6(Ipv6Addr::sample(random))
        }
    }
}

fn text(random: &mut Random, end: usize) -> String {
    (0..random.below(end))
        .map(|_| char::from(b'!' + u8::try_from(random.below(90)).unwrap()))
        .collect()
}

impl<const N: usize> Sample for FixedText<N> {
    fn sample(random: &mut Random) -> Self {
        Self::new(&text(random, N)).unwrap()
    }
}

impl Sample for VarText {
    fn sample(random: &mut Random) -> Self {
        Self::new(&text(random, 300))
    }
}

impl<T: Sample, const N: usize> Sample for [T; N] {
    fn sample(random: &mut Random) -> Self {
        std::array::from_fn(|_| T::sample(random))
    }
}

impl<T: Sample + Wire> Sample for Vec<T> {
    fn sample(random: &mut Random) -> Self {
        (0..random.below(5)).map(|_| T::sample(random)).collect()
    }
}
