//! A value that must not be seen.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroizing;

/// Why bytes are not taken as a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretValueError {
    /// Longer than [`SecretValue::MAX`].
    #[error("a secret of {length} bytes is too long: {max} is the most", max = SecretValue::MAX)]
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// Not pairs of hexadecimal digits.
    #[error("a secret is not in hexadecimal")]
    NotHexadecimal,
}

/// A secret's bytes, at most 64 KiB. It is wiped when dropped, and `Debug` shows nothing of it.
///
/// It travels in hexadecimal, so that no decoder needs to copy it to undo escapes.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// The longest secret, in bytes.
    pub const MAX: usize = 64 * 1024;

    /// Takes `bytes`, which stay where they are in memory.
    pub fn new(bytes: Vec<u8>) -> Result<Self, SecretValueError> {
        let bytes = Zeroizing::new(bytes);
        if bytes.len() > Self::MAX {
            return Err(SecretValueError::TooLong {
                length: bytes.len(),
            });
        }
        Ok(Self(bytes))
    }

    /// The bytes themselves. What is made of them must be wiped too.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    fn from_hexadecimal(text: &str) -> Result<Self, SecretValueError> {
        if text.len() > 2 * Self::MAX {
            return Err(SecretValueError::TooLong {
                length: text.len() / 2,
            });
        }
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return Err(SecretValueError::NotHexadecimal);
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
        for [high, low] in pairs {
            let digit = |c: u8| {
                char::from(c)
                    .to_digit(16)
                    .and_then(|d| u8::try_from(d).ok())
            };
            match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => bytes.push(high << 4 | low),
                _ => return Err(SecretValueError::NotHexadecimal),
            }
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(redacted)")
    }
}

impl Serialize for SecretValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = Zeroizing::new(String::with_capacity(2 * self.0.len()));
        for byte in self.0.iter() {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hexadecimal;
        impl Visitor<'_> for Hexadecimal {
            type Value = SecretValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a secret in hexadecimal")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<SecretValue, E> {
                SecretValue::from_hexadecimal(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Hexadecimal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_travels_whole_and_is_never_shown() {
        let secret = SecretValue::new(b"s3cr3t\x00\xff".to_vec()).unwrap();
        let json = serde_json::to_string(&secret).unwrap();
        assert_eq!(json, "\"73336372337400ff\"");
        assert_eq!(serde_json::from_str::<SecretValue>(&json).unwrap(), secret);
        assert_eq!(format!("{secret:?}"), "SecretValue(redacted)");
    }

    #[test]
    fn what_is_not_hexadecimal_is_refused_without_being_quoted() {
        for bad in ["\"7\"", "\"zz\"", "\"+1\""] {
            let error = serde_json::from_str::<SecretValue>(bad).unwrap_err();
            assert!(error.to_string().contains("not in hexadecimal"), "{error}");
            assert!(!error.to_string().contains("zz"), "{error}");
        }
        assert!(SecretValue::new(vec![0; SecretValue::MAX]).is_ok());
        assert!(SecretValue::new(vec![0; SecretValue::MAX + 1]).is_err());
    }
}
