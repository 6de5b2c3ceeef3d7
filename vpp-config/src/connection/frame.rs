//! Frames: a header of 16 bytes with a length, and a message.

use bytes::{Buf, Bytes, BytesMut};

use super::CloseReason;
use crate::wire::{EncodeError, Wire, Writer};

/// The header's length. Besides the message's length it has two fields that matter inside VPP only.
const HEADER: usize = 16;
/// Where the header has the message's length.
const LENGTH_AT: usize = 8;
/// Where a request has its context: after the header, its number and the client's index.
const CONTEXT_AT: usize = HEADER + 2 + 4;

/// A request that lacks its context.
#[derive(Debug)]
pub(super) struct Frame(Vec<u8>);

impl Frame {
    /// A request.
    pub(super) fn new(
        number: u16,
        client_index: u32,
        body: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
    ) -> Result<Self, EncodeError> {
        Self::build(|out| {
            number.put(out)?;
            client_index.put(out)?;
            0u32.put(out)?;
            body(out)
        })
    }

    /// Any message.
    pub(super) fn build(
        message: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
    ) -> Result<Self, EncodeError> {
        let mut out = Writer::new();
        out.zeros(HEADER);
        message(&mut out)?;
        let mut bytes = out.into_bytes();
        let len = bytes.len() - HEADER;
        let field = u32::try_from(len).map_err(|_too_long| EncodeError::TooMany {
            count: len,
            max: u32::MAX as usize,
        })?;
        bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&field.to_be_bytes());
        Ok(Self(bytes))
    }

    /// Writes the context into a request.
    pub(super) fn set_context(&mut self, context: u32) {
        self.0[CONTEXT_AT..CONTEXT_AT + 4].copy_from_slice(&context.to_be_bytes());
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A message as it was received.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) number: u16,
    /// What comes after the number: in a reply and in details, the context; in an event, the
    /// client's index.
    pub(super) context: u32,
    pub(super) body: Bytes,
}

/// Takes the next message off the front of what was received, if it is complete.
pub(super) fn take(input: &mut BytesMut, max: usize) -> Result<Option<Received>, CloseReason> {
    let Some(length) = input.get(LENGTH_AT..LENGTH_AT + 4) else {
        return Ok(None);
    };
    let len = length
        .iter()
        .fold(0, |len, byte| len << 8 | u32::from(*byte));
    let size = match usize::try_from(len) {
        Ok(size) if size <= max => size,
        _ => return Err(CloseReason::FrameTooLong { len, max }),
    };
    if size < 6 {
        return Err(CloseReason::FrameTooShort { len: size });
    }
    if input.len() < HEADER + size {
        return Ok(None);
    }
    input.advance(HEADER);
    let mut message = input.split_to(size).freeze();
    let number = message.get_u16();
    let context = message.get_u32();
    Ok(Some(Received {
        number,
        context,
        body: message,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: &[u8]) -> BytesMut {
        bytes.into()
    }

    #[test]
    fn a_request_has_its_length_and_context_where_vpp_looks() {
        let mut frame = Frame::new(0x0102, 0x8000_0001, |out| 7u8.put(out)).unwrap();
        frame.set_context(0x0304_0506);
        assert_eq!(
            frame.into_bytes(),
            [
                0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 0, 0, 0, 0, 1, 2, 0x80, 0, 0, 1, 3, 4, 5, 6, 7
            ]
        );
    }

    #[test]
    fn a_message_is_taken_when_its_last_byte_is_there() {
        let whole = [
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 9,
        ];
        for end in 0..whole.len() {
            assert!(take(&mut input(&whole[..end]), 100).unwrap().is_none());
        }
        let received = take(&mut input(&whole), 100).unwrap().unwrap();
        assert_eq!(received.number, 0x0102);
        assert_eq!(received.context, 0x0304_0506);
        assert_eq!(&received.body[..], [9]);
    }

    #[test]
    fn a_length_out_of_bounds_is_refused_before_the_message_is_there() {
        let long = [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        assert_eq!(
            take(&mut input(&long), 1 << 20).unwrap_err(),
            CloseReason::FrameTooLong {
                len: u32::MAX,
                max: 1 << 20
            }
        );
        let short = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
        assert_eq!(
            take(&mut input(&short), 100).unwrap_err(),
            CloseReason::FrameTooShort { len: 5 }
        );
    }
}
