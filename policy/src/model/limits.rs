//! Limits on what a sandbox uses, and rates with their units.

use std::fmt;

use serde::Serialize;

use super::serialize_display;

/// Limits on what one sandbox uses of the egress path. What is not given is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Connections open at one time, 1 to 1,000,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// HTTP requests in one second, 1 to 1,000,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// Bits in one second, each direction on its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<Bandwidth>,
}

impl Limits {
    /// The greatest value of `connections` and of `requests_per_second`.
    pub const MAX_COUNT: u32 = 1_000_000;

    /// Takes the stricter of the two, limit by limit.
    #[must_use]
    pub fn tightest(self, other: Self) -> Self {
        fn least<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, None) | (None, one) => one,
            }
        }
        Self {
            connections: least(self.connections, other.connections),
            requests_per_second: least(self.requests_per_second, other.requests_per_second),
            bandwidth: least(self.bandwidth, other.bandwidth),
        }
    }
}

/// Why text is not a bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BandwidthError {
    /// Not a whole number with a unit.
    #[error("not a bandwidth: a whole number and a unit are expected")]
    Malformed,
    /// A number without a unit.
    #[error("a bandwidth needs a unit")]
    NoUnit,
    /// The unit is not one of ours.
    #[error("not a unit of bandwidth")]
    UnknownUnit,
    /// Below 1 kbit or above 1,000 Gbit.
    #[error("a bandwidth is from 1kbit to 1000Gbit")]
    OutOfRange,
}

/// Bits in one second, from 1 kbit to 1,000 Gbit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(u64);

impl Bandwidth {
    const UNITS: [(&'static str, u64); 4] = [
        ("Gbit", 1_000_000_000),
        ("Mbit", 1_000_000),
        ("kbit", 1_000),
        ("bit", 1),
    ];

    /// Reads a whole number with one of the units `bit`, `kbit`, `Mbit` and `Gbit`, decimal and
    /// per second. Case does not matter.
    pub fn parse(text: &str) -> Result<Self, BandwidthError> {
        let end = text.find(|c: char| !c.is_ascii_digit());
        let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
        if digits.is_empty() {
            return Err(BandwidthError::Malformed);
        }
        if unit.is_empty() {
            return Err(BandwidthError::NoUnit);
        }
        let (_, factor) = Self::UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim_start()))
            .ok_or(BandwidthError::UnknownUnit)?;
        let number: u64 = digits
            .parse()
            .map_err(|_too_large| BandwidthError::OutOfRange)?;
        match number.checked_mul(*factor) {
            Some(bits @ 1_000..=1_000_000_000_000) => Ok(Self(bits)),
            _ => Err(BandwidthError::OutOfRange),
        }
    }

    /// Bits in one second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = Self::UNITS
            .iter()
            .find(|(_, factor)| self.0.is_multiple_of(*factor));
        let (unit, factor) = whole.unwrap_or(&("bit", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

serialize_display!(Bandwidth);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_decimal() {
        for (text, bits, shown) in [
            ("100Mbit", 100_000_000, "100Mbit"),
            ("1 gbit", 1_000_000_000, "1Gbit"),
            ("1500kbit", 1_500_000, "1500kbit"),
            ("1000bit", 1_000, "1kbit"),
            ("1000Gbit", 1_000_000_000_000, "1000Gbit"),
        ] {
            let bandwidth = Bandwidth::parse(text).unwrap();
            assert_eq!(bandwidth.bits_per_second(), bits, "{text}");
            assert_eq!(bandwidth.to_string(), shown);
        }
    }

    #[test]
    fn what_is_not_a_rate_is_refused() {
        for (text, error) in [
            ("", BandwidthError::Malformed),
            ("-1Mbit", BandwidthError::Malformed),
            ("100", BandwidthError::NoUnit),
            ("100MB", BandwidthError::UnknownUnit),
            ("1.5Gbit", BandwidthError::UnknownUnit),
            ("0Mbit", BandwidthError::OutOfRange),
            ("999bit", BandwidthError::OutOfRange),
            ("1001Gbit", BandwidthError::OutOfRange),
            ("99999999999999999999Gbit", BandwidthError::OutOfRange),
        ] {
            assert_eq!(Bandwidth::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_stricter_limit_holds() {
        let limits = |connections, requests_per_second| Limits {
            connections,
            requests_per_second,
            bandwidth: None,
        };
        assert_eq!(
            limits(Some(5), None).tightest(limits(Some(3), Some(9))),
            limits(Some(3), Some(9))
        );
    }
}
