//! The token that stands for a secret inside a sandbox.

use std::fmt;
use std::hash::Hasher as _;

use causeway_types::{SandboxUid, SecretName};
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use zeroize::Zeroizing;

use crate::control::SecretValue;

/// The key that placeholders are derived under. Whoever has it can tell placeholders, and
/// nothing of secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct PlaceholderKey(Zeroizing<[u8; 16]>);

impl PlaceholderKey {
    /// Its length in bytes.
    pub const LENGTH: usize = 16;

    /// Takes 16 random bytes.
    pub fn new(bytes: [u8; Self::LENGTH]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The placeholder of a secret in one sandbox. It comes from the two names by a keyed hash,
    /// so it stays the same as long as the sandbox lives, and tells nothing of any other.
    pub fn placeholder(&self, uid: SandboxUid, secret: &SecretName) -> Placeholder {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&uid.as_u64().to_be_bytes());
        hasher.write(secret.as_str().as_bytes());
        let mut text = *b"causeway_secret_00000000000000000000000000000000";
        let digits = format!("{:032x}", hasher.finish128().as_u128());
        for (place, digit) in text[Placeholder::PREFIX.len()..]
            .iter_mut()
            .zip(digits.bytes())
        {
            *place = digit;
        }
        Placeholder(text)
    }
}

/// Bytes are no key of placeholders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key has {expected} bytes, not {length}", expected = PlaceholderKey::LENGTH)]
pub struct PlaceholderKeyError {
    /// How many there are.
    pub length: usize,
}

impl TryFrom<&SecretValue> for PlaceholderKey {
    type Error = PlaceholderKeyError;

    fn try_from(value: &SecretValue) -> Result<Self, PlaceholderKeyError> {
        let bytes = value.expose();
        match bytes.try_into() {
            Ok(key) => Ok(Self::new(key)),
            Err(_length) => Err(PlaceholderKeyError {
                length: bytes.len(),
            }),
        }
    }
}

impl fmt::Debug for PlaceholderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlaceholderKey(redacted)")
    }
}

/// `causeway_secret_` and 32 hexadecimal digits in lower case: characters that no syntax
/// needs to escape.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placeholder([u8; Self::LENGTH]);

impl Placeholder {
    /// What every placeholder begins with.
    pub const PREFIX: &'static [u8; 16] = b"causeway_secret_";
    /// The length of a placeholder in bytes.
    pub const LENGTH: usize = 48;

    /// Reads a placeholder.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: [u8; Self::LENGTH] = text.try_into().ok()?;
        let fits = text
            .iter()
            .enumerate()
            .all(|(at, byte)| Self::fits(at, *byte));
        fits.then_some(Self(text))
    }

    /// Whether a placeholder can have this byte at this place.
    pub(super) fn fits(at: usize, byte: u8) -> bool {
        match Self::PREFIX.get(at) {
            Some(letter) => *letter == byte,
            None => at < Self::LENGTH && matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        }
    }

    /// The placeholder as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_for_each_sandbox_and_secret() {
        let key = PlaceholderKey::new([7; 16]);
        let of = |key: &PlaceholderKey, uid, name: &str| {
            key.placeholder(SandboxUid::from_random(uid), &name.parse().unwrap())
        };
        let one = of(&key, 1, "TOKEN");
        assert_eq!(one, of(&key, 1, "TOKEN"));
        assert_ne!(one, of(&key, 2, "TOKEN"));
        assert_ne!(one, of(&key, 1, "OTHER"));
        assert_ne!(one, of(&PlaceholderKey::new([8; 16]), 1, "TOKEN"));
        assert_eq!(Placeholder::parse(one.as_str().as_bytes()), Some(one));
        assert!(!format!("{key:?}").contains('7'));
    }

    #[test]
    fn nothing_else_is_one() {
        let good = format!("causeway_secret_{:032x}", 10);
        assert!(Placeholder::parse(good.as_bytes()).is_some());
        for bad in [
            &good[1..],
            &good[..47],
            &format!("{good}0"),
            &good.replace('a', "A"),
            &good.replace("00a", "00g"),
        ] {
            assert_eq!(Placeholder::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
