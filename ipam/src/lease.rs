//! Leases and who holds them.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use causeway_types::Generation;
use ipnet::Ipv6Net;

/// Why text is not the name of an owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnerError {
    /// There is no text.
    #[error("the owner of a lease has an empty name")]
    Empty,
    /// Longer than [`Owner::MAX`].
    #[error("the owner's name has {length} characters, and {max} is the most", max = Owner::MAX)]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A character other than visible ASCII.
    #[error("the owner's name has {found:?} at character {position}: use visible ASCII")]
    BadCharacter {
        /// The character.
        found: char,
        /// Its position, counted from 1.
        position: usize,
    },
}

/// Whoever holds a lease: 1 to 200 visible ASCII characters, chosen by the caller. One owner
/// holds one lease at a time.
///
/// Use a name that is never given twice, such as a sandbox's identifier, where late messages
/// about an earlier holder are possible.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The longest name, in bytes.
    pub const MAX: usize = 200;

    /// Checks `name` and takes it.
    pub fn new(name: &str) -> Result<Self, OwnerError> {
        if name.is_empty() {
            return Err(OwnerError::Empty);
        }
        if name.len() > Self::MAX {
            return Err(OwnerError::TooLong { length: name.len() });
        }
        match name
            .chars()
            .enumerate()
            .find(|(_, c)| !c.is_ascii_graphic())
        {
            Some((index, found)) => Err(OwnerError::BadCharacter {
                found,
                position: index + 1,
            }),
            None => Ok(Self(name.into())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Owner {
    type Err = OwnerError;

    fn from_str(name: &str) -> Result<Self, OwnerError> {
        Self::new(name)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// A point in time: milliseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The time `duration` later, or the last one there is.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Where a lease is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// Set aside for its owner, who is not known to use it yet.
    Reserved,
    /// In use.
    Bound,
    /// Given back. Nobody gets the address before `until`.
    Quarantined {
        /// The first instant at which the address is free.
        until: UnixMillis,
    },
}

impl LeaseState {
    /// Whether an owner holds the lease, which is so until it is given back.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Reserved | Self::Bound)
    }
}

/// An address, perhaps with a prefix, that belongs to one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The sandbox's own address.
    pub address: Ipv6Addr,
    /// A prefix routed to the sandbox, for containers inside it: /64 to /127.
    pub prefix: Option<Ipv6Net>,
    /// Who holds it, or held it last.
    pub owner: Owner,
    /// Larger than that of every lease made before, so that it tells this lease from an earlier
    /// one of the same owner or address.
    pub generation: Generation,
    /// Where it is in its life.
    pub state: LeaseState,
    /// When it was made.
    pub created: UnixMillis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_visible_ascii() {
        for good in ["a", "acme/web", "00ff00ff00ff", &"x".repeat(200)] {
            assert!(Owner::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a\n", "ä", &"x".repeat(201)] {
            assert!(Owner::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            Owner::new("a b").unwrap_err().to_string(),
            "the owner's name has ' ' at character 2: use visible ASCII"
        );
    }

    #[test]
    fn time_stops_at_its_end() {
        let end = UnixMillis(u64::MAX);
        assert_eq!(end.saturating_add(Duration::from_secs(1)), end);
        assert_eq!(UnixMillis(1).saturating_add(Duration::MAX), end);
        assert_eq!(UnixMillis(12_345).to_string(), "12.345");
    }
}
