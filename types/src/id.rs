//! Identifiers that Causeway chooses itself.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{PolicyName, TenantName};

/// Why text is not a sandbox identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a sandbox identifier: twelve hexadecimal digits are expected")]
pub struct SandboxUidError {
    /// The text, as given.
    pub text: String,
}

/// A sandbox's identifier: 48 random bits, never given to a second sandbox on one node while
/// the first one lives. It names the sandbox's interface on the router's side, so that
/// a leftover can be told from a neighbour even after its name was taken again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxUid(u64);

impl SandboxUid {
    /// Takes the low 48 bits of `random`.
    pub const fn from_random(random: u64) -> Self {
        Self(random & 0xffff_ffff_ffff)
    }

    /// The 48 bits.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl FromStr for SandboxUid {
    type Err = SandboxUidError;

    fn from_str(text: &str) -> Result<Self, SandboxUidError> {
        let well_formed = text.len() == 12
            && text
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match u64::from_str_radix(text, 16) {
            Ok(value) if well_formed => Ok(Self(value)),
            _ => Err(SandboxUidError {
                text: text.to_owned(),
            }),
        }
    }
}

impl TryFrom<String> for SandboxUid {
    type Error = SandboxUidError;

    fn try_from(text: String) -> Result<Self, SandboxUidError> {
        text.parse()
    }
}

impl From<SandboxUid> for String {
    fn from(uid: SandboxUid) -> String {
        uid.to_string()
    }
}

impl fmt::Display for SandboxUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0)
    }
}

impl fmt::Debug for SandboxUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A number that grows with every accepted change of the desired state.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The generation after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A policy's full name. Guardrails have no tenant: they are the operator's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicyRef {
    /// The owner; none for a guardrail.
    pub tenant: Option<TenantName>,
    /// The policy's name.
    pub name: PolicyName,
}

impl fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tenant {
            Some(tenant) => write!(f, "{tenant}/{}", self.name),
            None => write!(f, "guardrail/{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_twelve_lower_case_digits() {
        let uid = SandboxUid::from_random(u64::MAX);
        assert_eq!(uid.to_string(), "ffffffffffff");
        assert_eq!(uid.to_string().parse::<SandboxUid>().unwrap(), uid);
        for bad in [
            "",
            "fffffffffff",
            "fffffffffffff",
            "FFFFFFFFFFFF",
            "+fffffffffff",
        ] {
            assert!(bad.parse::<SandboxUid>().is_err(), "{bad}");
        }
    }
}
