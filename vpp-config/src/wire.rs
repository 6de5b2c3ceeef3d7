//! How values are laid out in VPP's messages: packed, integers big-endian, without padding.
//!
//! [`Wire`] is implemented for integers, addresses, texts, arrays and the types of
//! [`crate::types`]. Decoding checks every length against what is left of the input before it
//! reads or allocates, and never panics.

mod address;
#[macro_use]
pub(crate) mod macros;
mod number;
mod sequence;
mod text;

#[cfg(test)]
pub(crate) mod sample;

use thiserror::Error;

pub use text::{FixedText, TextError, VarText};

/// A value that has a place in a message.
pub trait Wire: Sized {
    /// The fewest bytes that a value takes. Counts are checked against it before anything is
    /// allocated.
    const MIN: usize;

    /// Appends the value.
    fn put(&self, out: &mut Writer) -> Result<(), EncodeError>;

    /// Takes a value from the front of the input.
    fn get(input: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// What a field holds that was not given: zero, except where VPP's default is another.
    fn unset() -> Self;
}

/// A value cannot be written as a message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// An array has more elements than its length field, or its fixed place, can hold.
    #[error("{count} elements where at most {max} fit")]
    TooMany {
        /// How many elements there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
}

/// Bytes are not the message that they are said to be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The message ends too early.
    #[error("ends {missing} bytes early")]
    Truncated {
        /// How many more bytes are needed at least.
        missing: usize,
    },
    /// A length field counts more elements than the rest of the message can hold.
    #[error("counts {count} elements, with {left} bytes left")]
    Count {
        /// What the length field says.
        count: usize,
        /// How many bytes are left.
        left: usize,
    },
    /// A tag says which member of a union follows, and there is no such member.
    #[error("no member of the union {union} has the tag {tag}")]
    Tag {
        /// The union.
        union: &'static str,
        /// The tag.
        tag: u32,
    },
    /// An array came without its length field. Only a wrong declaration leads here.
    #[error("an array without a length")]
    NoCount,
}

/// The end of a message that is being written.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends zero bytes.
    pub fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Appends the length field of an array.
    pub fn count<C: Count>(&mut self, count: usize) -> Result<(), EncodeError> {
        C::from_len(count)
            .ok_or(EncodeError::TooMany {
                count,
                max: C::MAX_LEN,
            })?
            .put(self)
    }

    /// How much is written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is written so far.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The rest of a message that is being read.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The length of the array to come, which need not follow its length field at once.
    count: Option<usize>,
}

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            count: None,
        }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Takes some bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(DecodeError::Truncated {
                missing: count - self.rest.len(),
            }),
        }
    }

    /// Takes a fixed number of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(DecodeError::Truncated {
                missing: N - self.rest.len(),
            }),
        }
    }

    /// Takes the length field of the next array.
    pub fn count<C: Count>(&mut self) -> Result<(), DecodeError> {
        let count = C::get(self)?.to_len();
        self.count = Some(count);
        Ok(())
    }

    fn take_count(&mut self, element: usize) -> Result<usize, DecodeError> {
        let count = self.count.take().ok_or(DecodeError::NoCount)?;
        if count.saturating_mul(element.max(1)) > self.left() {
            return Err(DecodeError::Count {
                count,
                left: self.left(),
            });
        }
        Ok(count)
    }
}

/// An integer that serves as a length field.
pub trait Count: Wire {
    /// The greatest length.
    const MAX_LEN: usize;

    /// The length field for a length, if it fits.
    fn from_len(len: usize) -> Option<Self>;

    /// The length that the field says.
    fn to_len(&self) -> usize;
}

/// Writes a value alone.
pub fn encode<T: Wire>(value: &T) -> Result<Vec<u8>, EncodeError> {
    let mut out = Writer::new();
    value.put(&mut out)?;
    Ok(out.into_bytes())
}

/// Reads a value from the front of the bytes.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, DecodeError> {
    T::get(&mut Reader::new(bytes))
}
