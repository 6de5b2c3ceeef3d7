//! Netlink's framing: messages and attributes, as pure functions over bytes (RFC 3549; the
//! layout of nfnetlink is in the kernel's `linux/netfilter/nfnetlink.h`).
//!
//! The decoders take bytes from anywhere: each step checks its length and moves forward, so
//! they end, and they allocate in proportion to the input.

/// Bytes of a netlink header.
const HEADER: usize = 16;
/// Bytes of the header that nfnetlink puts behind it.
const NF_HEADER: usize = 4;
/// Bytes of an attribute's header.
const ATTRIBUTE: usize = 4;
/// Length and type of an attribute are sixteen bits; two of the type's are flags.
const TYPE_MASK: u16 = 0x3fff;
const NESTED: u16 = 0x8000;

/// The bytes are not what netlink sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A message or attribute is cut off, or its length is less than its header.
    #[error("a length of {length} does not fit into the {available} bytes that are there")]
    Length {
        /// The length that the header states.
        length: usize,
        /// What is left of the input.
        available: usize,
    },
    /// An attribute that must be there is missing.
    #[error("the attribute {attribute} is missing")]
    Missing {
        /// Its name in the kernel's headers.
        attribute: &'static str,
    },
    /// An attribute has an impossible value.
    #[error("the attribute {attribute} has an impossible value")]
    Value {
        /// Its name in the kernel's headers.
        attribute: &'static str,
    },
}

/// One netlink message, without its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The message's type.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// The sequence number of the request that it belongs to.
    pub sequence: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// Splits what was received into messages.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    /// Reads the messages in `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut self.rest);
        let cut = WireError::Length {
            length: HEADER,
            available: whole.len(),
        };
        let Some((header, _)) = whole.split_at_checked(HEADER) else {
            return Some(Err(cut));
        };
        let length = u32_at(header, 0) as usize;
        let Some((message, rest)) = split_aligned(whole, length, HEADER) else {
            return Some(Err(WireError::Length {
                length,
                available: whole.len(),
            }));
        };
        self.rest = rest;
        Some(Ok(Message {
            kind: u16_at(header, 4),
            flags: u16_at(header, 6),
            sequence: u32_at(header, 8),
            payload: message.get(HEADER..).unwrap_or_default(),
        }))
    }
}

/// The attributes of a message or of another attribute.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Reads a row of attributes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads the attributes of an nfnetlink message, behind its second header.
    pub fn of_message(payload: &'a [u8]) -> Result<Self, WireError> {
        match payload.split_at_checked(NF_HEADER) {
            Some((_, rest)) => Ok(Self::new(rest)),
            None => Err(WireError::Length {
                length: NF_HEADER,
                available: payload.len(),
            }),
        }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut self.rest);
        let error = |length| {
            Some(Err(WireError::Length {
                length,
                available: whole.len(),
            }))
        };
        if whole.len() < ATTRIBUTE {
            return error(ATTRIBUTE);
        }
        let length = usize::from(u16_at(whole, 0));
        let Some((attribute, rest)) = split_aligned(whole, length, ATTRIBUTE) else {
            return error(length);
        };
        self.rest = rest;
        let kind = u16_at(whole, 2) & TYPE_MASK;
        Some(Ok((kind, attribute.get(ATTRIBUTE..).unwrap_or_default())))
    }
}

/// Cuts off the first `length` bytes, and the padding behind them, of which the last may lack.
fn split_aligned(bytes: &[u8], length: usize, least: usize) -> Option<(&[u8], &[u8])> {
    if length < least {
        return None;
    }
    let (item, _) = bytes.split_at_checked(length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((item, rest))
}

/// The four bytes at `at` in the machine's order; zero where there are fewer.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u16::from_ne_bytes)
}

/// Writes messages one behind the other.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// What was written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes a message of nfnetlink; `body` writes its attributes.
    pub fn message(
        &mut self,
        (kind, flags, sequence): (u16, u16, u32),
        (family, resource): (u8, u16),
        body: impl FnOnce(&mut Self),
    ) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&[family, 0]);
        self.bytes.extend_from_slice(&resource.to_be_bytes());
        body(self);
        // Nobody writes four gigabytes: batches are bounded.
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.patch(start, &length.to_ne_bytes());
    }

    /// Writes an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.open(kind, |out| out.bytes.extend_from_slice(value));
    }

    /// Writes a text attribute, which ends with a zero byte.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.open(kind, |out| {
            out.bytes.extend_from_slice(value.as_bytes());
            out.bytes.push(0);
        });
    }

    /// Writes an attribute that holds others.
    pub fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        self.open(kind | NESTED, body);
    }

    fn open(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        body(self);
        let length = self.bytes.len() - start;
        debug_assert!(u16::try_from(length).is_ok(), "attributes are small");
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        self.patch(start, &length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn patch(&mut self, at: usize, value: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_and_attributes_round_trip(
            items in prop::collection::vec(
                (any::<u16>(), any::<u32>(), 0..TYPE_MASK, prop::collection::vec(any::<u8>(), 0..40)),
                0..6,
            ),
        ) {
            let mut writer = Writer::default();
            for (kind, sequence, attribute, value) in &items {
                writer.message((*kind, 1, *sequence), (1, 2), |out| {
                    out.nested(*attribute, |out| out.attribute(*attribute, value));
                    out.text(7, "a");
                });
            }
            let read: Vec<_> = Messages::new(writer.bytes()).map(Result::unwrap).collect();
            prop_assert_eq!(read.len(), items.len());
            for (message, (kind, sequence, attribute, value)) in read.iter().zip(&items) {
                prop_assert_eq!((message.kind, message.sequence), (*kind, *sequence));
                let outer: Vec<_> = Attributes::of_message(message.payload)
                    .unwrap()
                    .map(Result::unwrap)
                    .collect();
                prop_assert_eq!(outer[0].0, *attribute);
                prop_assert_eq!(outer[1], (7, &b"a\0"[..]));
                let inner = Attributes::new(outer[0].1).next().unwrap().unwrap();
                prop_assert_eq!(inner, (*attribute, value.as_slice()));
            }
        }

        #[test]
        fn any_bytes_are_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for message in Messages::new(&bytes).flatten() {
                if let Ok(attributes) = Attributes::of_message(message.payload) {
                    prop_assert!(attributes.count() <= bytes.len());
                }
            }
            prop_assert!(Messages::new(&bytes).count() <= bytes.len());
        }
    }
}
