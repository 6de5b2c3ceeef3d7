//! What kinds of message there are.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

use crate::retval::Retval;
use crate::wire::{DecodeError, EncodeError, Reader, Wire, Writer};

/// The name and the CRC that a message is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    /// The name.
    pub name: &'static str,
    /// The CRC of the definition.
    pub crc: u32,
}

/// As in VPP's message table.
impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{:08x}", self.name, self.crc)
    }
}

/// What comes after a message's header.
pub trait Body: Wire + Clone + fmt::Debug + PartialEq + Serialize + Send + 'static {}

impl<T: Wire + Clone + fmt::Debug + PartialEq + Serialize + Send + 'static> Body for T {}

/// A message that can be needed: sent, or received unasked.
pub trait Message: Body {
    /// What it is known by, and what its answers are known by.
    const IDS: &'static [MessageId];
}

/// A message that is answered by one reply.
pub trait Request: Message + Sync {
    /// What it is known by.
    const ID: MessageId;
    /// What its reply is known by.
    const REPLY_ID: MessageId;
    /// What the reply says.
    type Reply: Reply;
}

/// A message that is answered by details, and by nothing at the end.
pub trait Dump: Message + Sync {
    /// What it is known by.
    const ID: MessageId;
    /// What its details are known by.
    const DETAILS_ID: MessageId;
    /// What each of the details says.
    type Details: Body;
}

/// A message that is answered by details and a reply with a cursor.
pub trait Get: Message + Sync {
    /// What it is known by.
    const ID: MessageId;
    /// What its details are known by.
    const DETAILS_ID: MessageId;
    /// What its reply is known by.
    const REPLY_ID: MessageId;
    /// What each of the details says.
    type Details: Body;
}

/// A message that VPP sends by itself.
pub trait EventMessage: Message {
    /// What it is known by.
    const ID: MessageId;
}

/// Where a reply has its return value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetvalPlace {
    /// Before all other fields.
    First,
    /// After all other fields.
    Last,
    /// Nowhere: the request always succeeds.
    Absent,
}

/// What a reply says besides its return value.
pub trait Reply: Body {
    /// Where the return value is.
    const RETVAL: RetvalPlace = RetvalPlace::First;

    /// Reads a reply. One that refuses is not read beyond its return value.
    fn read(bytes: &[u8]) -> Result<Self, ReplyError> {
        let mut input = Reader::new(bytes);
        match Self::RETVAL {
            RetvalPlace::First => {
                Retval(i32::get(&mut input)?).check()?;
                Ok(Self::get(&mut input)?)
            }
            RetvalPlace::Last => {
                let reply = Self::get(&mut input)?;
                Retval(i32::get(&mut input)?).check()?;
                Ok(reply)
            }
            RetvalPlace::Absent => Ok(Self::get(&mut input)?),
        }
    }

    /// Writes a reply that does not refuse.
    fn write(&self, out: &mut Writer) -> Result<(), EncodeError> {
        match Self::RETVAL {
            RetvalPlace::First => {
                0i32.put(out)?;
                self.put(out)
            }
            RetvalPlace::Last => {
                self.put(out)?;
                0i32.put(out)
            }
            RetvalPlace::Absent => self.put(out),
        }
    }
}

/// A reply refuses, or is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplyError {
    /// VPP refused.
    #[error("VPP answered {0}")]
    Refused(Retval),
    /// The bytes are no such reply.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl From<Retval> for ReplyError {
    fn from(retval: Retval) -> Self {
        Self::Refused(retval)
    }
}

/// What a declared message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To VPP, for one reply.
    Request,
    /// From VPP.
    Reply,
    /// To VPP, for any number of details.
    Dump,
    /// From VPP, one of many.
    Details,
    /// To VPP, for details and a reply.
    Get,
    /// From VPP, unasked.
    Event,
}

/// Answers that have the client's index before their context, where all others have none.
const INDEX_FIRST: &[&str] = &[
    "feature_is_enabled_reply",
    "sw_interface_rx_placement_details",
];

impl Declared {
    /// Whether it has the client's index before its context.
    pub fn has_index(&self) -> bool {
        match self.role {
            Role::Request | Role::Dump | Role::Get => true,
            Role::Reply | Role::Details => INDEX_FIRST.contains(&self.id.name),
            // It has an index, and no context.
            Role::Event => false,
        }
    }

    /// How many bytes of number, index and context come before the body.
    pub fn header_len(&self) -> usize {
        if self.has_index() { 10 } else { 6 }
    }
}

/// A message that is declared in this crate, and how to read it without knowing its type.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// What it is known by.
    pub id: MessageId,
    /// What it is for.
    pub role: Role,
    /// Reads a body, and writes it again.
    pub copy: fn(&[u8]) -> Result<Copied, CopyError>,
    /// An arbitrary body.
    #[cfg(test)]
    pub(crate) sample: fn(u64) -> Vec<u8>,
}

/// A body that was read and written again.
#[derive(Clone, Debug, PartialEq)]
pub struct Copied {
    /// As it was written.
    pub bytes: Vec<u8>,
    /// What it says, as JSON.
    pub value: serde_json::Value,
}

/// A body could not be read, or not be written again.
#[derive(Debug, Error)]
pub enum CopyError {
    /// It refuses, or is no such body.
    #[error(transparent)]
    Reply(#[from] ReplyError),
    /// It cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// It cannot be shown.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

pub(crate) fn copy_body<T: Body>(bytes: &[u8]) -> Result<Copied, CopyError> {
    let value: T = crate::wire::decode(bytes).map_err(ReplyError::from)?;
    let mut out = Writer::new();
    value.put(&mut out)?;
    Ok(Copied {
        bytes: out.into_bytes(),
        value: serde_json::to_value(&value)?,
    })
}

pub(crate) fn copy_reply<T: Reply>(bytes: &[u8]) -> Result<Copied, CopyError> {
    let value = T::read(bytes)?;
    let mut out = Writer::new();
    value.write(&mut out)?;
    Ok(Copied {
        bytes: out.into_bytes(),
        value: serde_json::to_value(&value)?,
    })
}

/// A cursor, and the fields of the message.
pub(crate) fn copy_get<T: Body>(bytes: &[u8]) -> Result<Copied, CopyError> {
    let mut input = Reader::new(bytes);
    let cursor = u32::get(&mut input).map_err(ReplyError::from)?;
    let value = T::get(&mut input).map_err(ReplyError::from)?;
    let mut out = Writer::new();
    cursor.put(&mut out)?;
    value.put(&mut out)?;
    Ok(Copied {
        bytes: out.into_bytes(),
        value: serde_json::to_value(&value)?,
    })
}

#[cfg(test)]
pub(crate) mod sample {
    //! Arbitrary bodies, which follow from a seed.

    use super::{Body, Reply, Writer};
    use crate::wire::Wire;
    use crate::wire::sample::{Random, Sample};

    pub(crate) fn copy_body<T: Body + Sample>(seed: u64) -> Vec<u8> {
        crate::wire::encode(&T::sample(&mut Random::new(seed))).unwrap()
    }

    pub(crate) fn copy_reply<T: Reply + Sample>(seed: u64) -> Vec<u8> {
        let mut out = Writer::new();
        T::sample(&mut Random::new(seed)).write(&mut out).unwrap();
        out.into_bytes()
    }

    pub(crate) fn copy_get<T: Body + Sample>(seed: u64) -> Vec<u8> {
        let mut out = Writer::new();
        7u32.put(&mut out).unwrap();
        T::sample(&mut Random::new(seed)).put(&mut out).unwrap();
        out.into_bytes()
    }
}
