//! Texts. VPP does not promise any encoding, so they are bytes that are shown as UTF-8.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};
use thiserror::Error;

use super::{DecodeError, EncodeError, Reader, Wire, Writer};

/// A text does not fit into its field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// VPP wants a zero byte after the text.
    #[error("a text of {len} bytes in a field of {size}, which needs a zero byte at its end")]
    TooLong {
        /// The length of the text.
        len: usize,
        /// The size of the field.
        size: usize,
    },
    /// VPP would take the text to end there.
    #[error("a zero byte in a text, at {at}")]
    Zero {
        /// Where it is.
        at: usize,
    },
}

/// A text in a field of `N` bytes, filled up with zero bytes.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FixedText<const N: usize>(Box<[u8]>);

impl<const N: usize> FixedText<N> {
    /// A text that fits, with its zero byte.
    pub fn new(text: &str) -> Result<Self, TextError> {
        if text.len() >= N {
            return Err(TextError::TooLong {
                len: text.len(),
                size: N,
            });
        }
        if let Some(at) = text.bytes().position(|byte| byte == 0) {
            return Err(TextError::Zero { at });
        }
        Ok(Self(text.as_bytes().into()))
    }

    /// The text as VPP has it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, with what is not UTF-8 replaced.
    pub fn to_str(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<const N: usize> Wire for FixedText<N> {
    const MIN: usize = N;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        out.bytes(&self.0);
        out.zeros(N.saturating_sub(self.0.len()));
        Ok(())
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let field = input.take(N)?;
        let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self(text.into()))
    }

    fn unset() -> Self {
        Self::default()
    }
}

/// A text of any length, with its length before it.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarText(Vec<u8>);

impl VarText {
    /// A text.
    pub fn new(text: &str) -> Self {
        Self(text.as_bytes().into())
    }

    /// The text as VPP has it, without zero bytes at its end.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, with what is not UTF-8 replaced.
    pub fn to_str(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    /// Whether there is no text.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Wire for VarText {
    const MIN: usize = 4;

    fn put(&self, out: &mut Writer) -> Result<(), EncodeError> {
        out.count::<u32>(self.0.len())?;
        out.bytes(&self.0);
        Ok(())
    }

    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError> {
        input.count::<u32>()?;
        let count = input.take_count(1)?;
        let mut text = input.take(count)?;
        // Some handlers count the zero byte at the end, some do not.
        while let [rest @ .., 0] = text {
            text = rest;
        }
        Ok(Self(text.into()))
    }

    fn unset() -> Self {
        Self::default()
    }
}

macro_rules! text_traits {
    ($([$($generics:tt)*] $type:ty;)*) => {$(
        impl<$($generics)*> fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_str(), f)
            }
        }

        impl<$($generics)*> fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.to_str())
            }
        }

        impl<$($generics)*> PartialEq<str> for $type {
            fn eq(&self, other: &str) -> bool {
                self.as_bytes() == other.as_bytes()
            }
        }

        impl<$($generics)*> PartialEq<&str> for $type {
            fn eq(&self, other: &&str) -> bool {
                self.as_bytes() == other.as_bytes()
            }
        }

        impl<$($generics)*> Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.to_str())
            }
        }
    )*};
}

text_traits! {
    [const N: usize] FixedText<N>;
    [] VarText;
}

impl<const N: usize> TryFrom<&str> for FixedText<N> {
    type Error = TextError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        Self::new(text)
    }
}

impl From<&str> for VarText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;

    #[test]
    fn a_text_must_leave_room_for_its_zero_byte() {
        assert!(FixedText::<4>::new("abc").is_ok());
        assert_eq!(
            FixedText::<4>::new("abcd"),
            Err(TextError::TooLong { len: 4, size: 4 })
        );
        assert_eq!(FixedText::<8>::new("a\0b"), Err(TextError::Zero { at: 1 }));
    }

    #[test]
    fn a_field_without_a_zero_byte_is_read_whole() {
        let text: FixedText<4> = decode(b"abcd").unwrap();
        assert_eq!(text, "abcd");
        assert_eq!(encode(&text).unwrap(), b"abcd");
    }

    #[test]
    fn what_follows_the_zero_byte_is_no_text() {
        let text: FixedText<6> = decode(b"ab\0cd\0").unwrap();
        assert_eq!(text, "ab");
        assert_eq!(encode(&text).unwrap(), b"ab\0\0\0\0");
    }

    #[test]
    fn bytes_that_are_no_utf8_survive() {
        let text: VarText = decode(b"\0\0\0\x03a\xff\0").unwrap();
        assert_eq!(text.as_bytes(), b"a\xff");
        assert_eq!(text.to_string(), "a\u{fffd}");
    }

    #[test]
    fn a_length_beyond_the_message_is_refused_before_anything_is_allocated() {
        assert_eq!(
            decode::<VarText>(b"\xff\xff\xff\xffab"),
            Err(DecodeError::Count {
                count: 0xffff_ffff,
                left: 2
            })
        );
    }
}
