//! The messages of `nf_tables` that we send and read (the kernel's `linux/netfilter/nf_tables.h`).

use causeway_types::Reason;

use super::ruleset::TABLE;
use super::set::{Entry, Field, Key, KeyReader, Set};
use super::wire::{Attributes, Message, WireError, Writer, u32_at};

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_DUMP_INTR: u16 = 0x10;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

/// The subsystem's number, in the high byte of a message's type.
const NFTABLES: u16 = 10;
const GETTABLE: u16 = NFTABLES << 8 | 1;
const DELTABLE: u16 = NFTABLES << 8 | 2;
const GETSET: u16 = NFTABLES << 8 | 0x0a;
const NEWSETELEM: u16 = NFTABLES << 8 | 0x0c;
const GETSETELEM: u16 = NFTABLES << 8 | 0x0d;
const DELSETELEM: u16 = NFTABLES << 8 | 0x0e;

const TABLE_NAME: u16 = 1;
const TABLE_USERDATA: u16 = 6;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_LEN: u16 = 5;
const SET_ELEM_LIST_TABLE: u16 = 1;
const SET_ELEM_LIST_SET: u16 = 2;
const SET_ELEM_LIST_ELEMENTS: u16 = 3;
const LIST_ELEM: u16 = 1;
const SET_ELEM_KEY: u16 = 1;
const SET_ELEM_DATA: u16 = 2;
const SET_ELEM_FLAGS: u16 = 3;
const SET_ELEM_EXPR: u16 = 7;
const SET_ELEM_KEY_END: u16 = 10;
const DATA_VALUE: u16 = 1;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
const COUNTER_BYTES: u16 = 1;
const COUNTER_PACKETS: u16 = 2;

const FLAG_INTERVAL_END: u32 = 1;
const SET_INTERVAL: u32 = 0x4;
const SET_MAP: u32 = 0x8;
/// The first kind of data that `nft` keeps with a table: its comment.
const UDATA_COMMENT: u8 = 0;

/// The families that have a table of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv6 and IPv4.
    Inet,
    /// ARP.
    Arp,
}

impl Family {
    const fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Arp => 3,
        }
    }
}

/// What is done to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Adds it; that it is there already is no error.
    Add,
    /// Deletes it.
    Delete,
    /// Deletes everything in its set; the entry itself does not matter. That there is nothing is
    /// no error.
    Empty,
}

/// The sequence number of a batch's first change; those of its begin and end lie around.
pub(super) const FIRST_CHANGE: u32 = 1;

/// A transaction of changes to our tables. Change `n` has the sequence number
/// `n` + 1, and the last one is acknowledged.
pub fn encode_batch(changes: &[(Action, Family, &Entry)]) -> Vec<u8> {
    let last = changes.len().saturating_sub(1);
    batch(changes.len(), |out, position, sequence| {
        if let Some((action, family, entry)) = changes.get(position) {
            let flags = if position == last { NLM_F_ACK } else { 0 };
            encode_change(out, (*action, *family, entry), flags, sequence);
        }
    })
}

/// A transaction that removes a table with everything in it.
pub fn encode_delete_table(family: Family) -> Vec<u8> {
    batch(1, |out, _, sequence| {
        let flags = NLM_F_REQUEST | NLM_F_ACK;
        out.message((DELTABLE, flags, sequence), (family.number(), 0), |out| {
            out.text(TABLE_NAME, TABLE);
        });
    })
}

fn batch(count: usize, mut body: impl FnMut(&mut Writer, usize, u32)) -> Vec<u8> {
    let mut out = Writer::default();
    let ends = (0, NFTABLES);
    out.message((BATCH_BEGIN, NLM_F_REQUEST, 0), ends, |_| ());
    let mut sequence = FIRST_CHANGE;
    for position in 0..count {
        body(&mut out, position, sequence);
        sequence = sequence.wrapping_add(1);
    }
    out.message((BATCH_END, NLM_F_REQUEST, sequence), ends, |_| ());
    out.bytes().to_vec()
}

fn encode_change(
    out: &mut Writer,
    (action, family, entry): (Action, Family, &Entry),
    flags: u16,
    sequence: u32,
) {
    let (kind, create) = match action {
        Action::Add => (NEWSETELEM, NLM_F_CREATE),
        Action::Delete | Action::Empty => (DELSETELEM, 0),
    };
    let flags = NLM_F_REQUEST | flags | create;
    out.message((kind, flags, sequence), (family.number(), 0), |out| {
        out.text(SET_ELEM_LIST_TABLE, TABLE);
        out.text(SET_ELEM_LIST_SET, entry.set.name());
        // Without a list it is about all of them.
        if action != Action::Empty {
            out.nested(SET_ELEM_LIST_ELEMENTS, |out| encode_entry(out, entry));
        }
    });
}

fn encode_entry(out: &mut Writer, entry: &Entry) {
    out.nested(LIST_ELEM, |out| {
        out.nested(SET_ELEM_KEY, |out| out.attribute(DATA_VALUE, &entry.first));
        if entry.set.interval() && !entry.set.split() {
            out.nested(SET_ELEM_KEY_END, |out| {
                out.attribute(DATA_VALUE, &entry.last);
            });
        }
        if let Some(mark) = entry.mark {
            out.nested(SET_ELEM_DATA, |out| {
                out.attribute(DATA_VALUE, &mark.to_ne_bytes());
            });
        }
    });
    if entry.set.split()
        && let Some(behind) = following(&entry.last)
    {
        out.nested(LIST_ELEM, |out| {
            out.attribute(SET_ELEM_FLAGS, &FLAG_INTERVAL_END.to_be_bytes());
            out.nested(SET_ELEM_KEY, |out| out.attribute(DATA_VALUE, &behind));
        });
    }
}

/// The address behind this one; none behind the last.
fn following(address: &[u8]) -> Option<Vec<u8>> {
    let bits = u128::from_be_bytes(address.try_into().ok()?);
    Some(bits.checked_add(1)?.to_be_bytes().to_vec())
}

fn preceding(address: &[u8]) -> Option<Vec<u8>> {
    let bits = u128::from_be_bytes(address.try_into().ok()?);
    Some(bits.checked_sub(1)?.to_be_bytes().to_vec())
}

/// Asks for a set's elements.
pub fn encode_dump(family: Family, set: Set, sequence: u32) -> Vec<u8> {
    let mut out = Writer::default();
    let flags = NLM_F_REQUEST | NLM_F_DUMP;
    out.message((GETSETELEM, flags, sequence), (family.number(), 0), |out| {
        out.text(SET_ELEM_LIST_TABLE, TABLE);
        out.text(SET_ELEM_LIST_SET, set.name());
    });
    out.bytes().to_vec()
}

/// Asks for a set's description.
pub fn encode_get_set(set: Set, sequence: u32) -> Vec<u8> {
    let mut out = Writer::default();
    let family = Family::Inet.number();
    out.message(
        (GETSET, NLM_F_REQUEST | NLM_F_ACK, sequence),
        (family, 0),
        |out| {
            out.text(TABLE_NAME, TABLE);
            out.text(SET_NAME, set.name());
        },
    );
    out.bytes().to_vec()
}

/// Asks for the description of a table.
pub fn encode_get_table(family: Family, sequence: u32) -> Vec<u8> {
    let mut out = Writer::default();
    let flags = NLM_F_REQUEST | NLM_F_ACK;
    out.message((GETTABLE, flags, sequence), (family.number(), 0), |out| {
        out.text(TABLE_NAME, TABLE);
    });
    out.bytes().to_vec()
}

/// What a received message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A request is done, or failed with an error number.
    Status {
        /// The request's sequence number.
        sequence: u32,
        /// 0, or a positive error number.
        errno: i32,
    },
    /// A dump is complete.
    Done {
        /// 0, or a positive error number.
        errno: i32,
        /// Something changed while it ran: it may have missed or repeated elements.
        interrupted: bool,
    },
    /// Part of what was asked for.
    Data {
        /// The attributes behind nfnetlink's header.
        payload: &'a [u8],
        /// As for `Done`.
        interrupted: bool,
    },
}

/// Reads one message.
pub fn decode_reply<'a>(message: &Message<'a>) -> Result<Reply<'a>, WireError> {
    let interrupted = message.flags & NLM_F_DUMP_INTR != 0;
    let errno = |least: usize| match message.payload.first_chunk() {
        Some(bytes) => Ok(i32::from_ne_bytes(*bytes).saturating_neg()),
        None if least == 0 => Ok(0),
        None => Err(WireError::Length {
            length: least,
            available: message.payload.len(),
        }),
    };
    match message.kind {
        NLMSG_ERROR => Ok(Reply::Status {
            sequence: message.sequence,
            errno: errno(4)?,
        }),
        NLMSG_DONE => Ok(Reply::Done {
            errno: errno(0)?,
            interrupted,
        }),
        _ => Ok(Reply::Data {
            payload: message.payload,
            interrupted,
        }),
    }
}

/// The comment of the table that a reply describes.
pub fn decode_table_comment(payload: &[u8]) -> Result<Option<String>, WireError> {
    for attribute in Attributes::of_message(payload)? {
        let (TABLE_USERDATA, mut data) = attribute? else {
            continue;
        };
        while let [kind, length, rest @ ..] = data {
            let (value, rest) =
                rest.split_at_checked(usize::from(*length))
                    .ok_or(WireError::Value {
                        attribute: "NFTA_TABLE_USERDATA",
                    })?;
            if *kind == UDATA_COMMENT {
                let value = value.strip_suffix(&[0]).unwrap_or(value);
                return Ok(Some(String::from_utf8_lossy(value).into_owned()));
            }
            data = rest;
        }
    }
    Ok(None)
}

/// Whether the set that a reply describes lays its elements out as we do.
pub fn decode_set_fits(payload: &[u8], set: Set) -> Result<bool, WireError> {
    let (mut flags, mut length) = (0, 0);
    for attribute in Attributes::of_message(payload)? {
        match attribute? {
            (SET_FLAGS, value) => flags = be32(value, "NFTA_SET_FLAGS")?,
            (SET_KEY_LEN, value) => length = be32(value, "NFTA_SET_KEY_LEN")?,
            _ => (),
        }
    }
    Ok(length as usize == set.key_length()
        && (flags & SET_INTERVAL != 0) == set.interval()
        && (flags & SET_MAP != 0) == set.map())
}

/// One element as it was dumped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawElement {
    /// The key, or the first of an interval.
    pub key: Vec<u8>,
    /// The last key of an interval with several parts.
    pub key_end: Option<Vec<u8>>,
    /// The data of a map.
    pub data: Option<Vec<u8>>,
    /// Whether the key is the first one behind an interval.
    pub interval_end: bool,
    /// Packets and bytes.
    pub counter: Option<(u64, u64)>,
}

/// The elements in one message of a dump.
pub fn decode_elements(payload: &[u8]) -> Result<Vec<RawElement>, WireError> {
    let mut elements = Vec::new();
    for attribute in Attributes::of_message(payload)? {
        if let (SET_ELEM_LIST_ELEMENTS, list) = attribute? {
            for element in Attributes::new(list) {
                elements.push(decode_element(element?.1)?);
            }
        }
    }
    Ok(elements)
}

fn decode_element(bytes: &[u8]) -> Result<RawElement, WireError> {
    let mut element = RawElement::default();
    for attribute in Attributes::new(bytes) {
        match attribute? {
            (SET_ELEM_KEY, value) => element.key = data_value(value)?,
            (SET_ELEM_KEY_END, value) => element.key_end = Some(data_value(value)?),
            (SET_ELEM_DATA, value) => element.data = Some(data_value(value)?),
            (SET_ELEM_FLAGS, value) => {
                let flags = be32(value, "NFTA_SET_ELEM_FLAGS")?;
                element.interval_end = flags & FLAG_INTERVAL_END != 0;
            }
            (SET_ELEM_EXPR, value) => element.counter = decode_counter(value)?,
            _ => (),
        }
    }
    Ok(element)
}

fn data_value(bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    for attribute in Attributes::new(bytes) {
        if let (DATA_VALUE, value) = attribute? {
            return Ok(value.to_vec());
        }
    }
    Err(WireError::Missing {
        attribute: "NFTA_DATA_VALUE",
    })
}

fn decode_counter(bytes: &[u8]) -> Result<Option<(u64, u64)>, WireError> {
    let (mut is_counter, mut packets, mut octets) = (false, 0, 0);
    for attribute in Attributes::new(bytes) {
        match attribute? {
            (EXPR_NAME, name) => is_counter = name.strip_suffix(&[0]) == Some(b"counter"),
            (EXPR_DATA, data) => {
                for attribute in Attributes::new(data) {
                    match attribute? {
                        (COUNTER_PACKETS, value) => packets = be64(value)?,
                        (COUNTER_BYTES, value) => octets = be64(value)?,
                        _ => (),
                    }
                }
            }
            _ => (),
        }
    }
    Ok(is_counter.then_some((packets, octets)))
}

fn be32(bytes: &[u8], attribute: &'static str) -> Result<u32, WireError> {
    let bytes = bytes
        .try_into()
        .ok()
        .ok_or(WireError::Value { attribute })?;
    Ok(u32::from_be_bytes(bytes))
}

fn be64(bytes: &[u8]) -> Result<u64, WireError> {
    let attribute = "NFTA_COUNTER";
    let bytes = bytes
        .try_into()
        .ok()
        .ok_or(WireError::Value { attribute })?;
    Ok(u64::from_be_bytes(bytes))
}

/// Puts the entries of a set together from a dump.
pub fn entries(set: Set, mut raw: Vec<RawElement>) -> Result<Vec<Entry>, WireError> {
    let bad = |attribute| WireError::Value { attribute };
    if set.split() {
        // Where one interval begins right behind another, its end comes first.
        raw.sort_by(|a, b| (&a.key, !a.interval_end).cmp(&(&b.key, !b.interval_end)));
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(raw.len());
    for element in raw {
        if element.key.len() != set.key_length() {
            return Err(bad("NFTA_SET_ELEM_KEY"));
        }
        if element.interval_end {
            // `nft` marks the space in front of the first interval with an end of its own.
            if let Some(open) = entries.last_mut() {
                open.last = preceding(&element.key).ok_or(bad("NFTA_SET_ELEM_KEY"))?;
            }
            continue;
        }
        let mark = match (set.map(), element.data) {
            (true, Some(data)) if data.len() == 4 => Some(u32_at(&data, 0)),
            (false, None) => None,
            _ => return Err(bad("NFTA_SET_ELEM_DATA")),
        };
        let last = match element.key_end {
            Some(end) if end.len() == set.key_length() => end,
            Some(_) => return Err(bad("NFTA_SET_ELEM_KEY_END")),
            // Until its end is seen.
            None if set.split() => vec![u8::MAX; set.key_length()],
            None => element.key.clone(),
        };
        entries.push(Entry {
            set,
            first: element.key,
            last,
            mark,
        });
    }
    Ok(entries)
}

/// The key of a counter of drops: interface index and reason. A code that names no reason,
/// from a later version, is passed over.
pub(super) fn drop_key(key: &[u8]) -> Option<(u32, Reason)> {
    let mut reader = KeyReader(key);
    let index = reader.number()?;
    let code = u16::try_from(reader.number()?).ok()?;
    Some((index, Reason::from_code(code)?))
}

/// The entry that counts drops.
pub(super) fn drop_entry(index: u32, code: u32) -> Entry {
    debug_assert_eq!(Set::Drops.fields(), [Field::Index, Field::Mark]);
    let key = Key::default().number(index).number(code).done();
    Entry {
        set: Set::Drops,
        last: key.clone(),
        first: key,
        mark: None,
    }
}

#[cfg(test)]
mod tests;
