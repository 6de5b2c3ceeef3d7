//! What VPP sends, and the memory that it shares.

use vpp_config::messages::declared;
use vpp_config::messages::memclnt::SockclntCreateReply;
use vpp_config::stats::{Segment, Value};
use vpp_config::table::MessageTable;
use vpp_config::wire::decode;

/// A message that is read is written in no more bytes, and is read from these as the same.
pub fn vpp_reply(data: &[u8]) {
    if let Ok(greeting) = decode::<SockclntCreateReply>(data) {
        let table = MessageTable::new(&greeting.message_table);
        assert!(table.len() <= data.len() / 66);
    }
    let Some((number, body)) = data.split_first_chunk() else {
        return;
    };
    let count = declared().count();
    let number = usize::from(u16::from_be_bytes(*number)) % count;
    let Some(message) = declared().nth(number) else {
        return;
    };
    let Ok(copied) = (message.copy)(body) else {
        return;
    };
    assert!(copied.bytes.len() <= body.len(), "{}", message.id);
    let again = (message.copy)(&copied.bytes).expect("what was written can be read");
    assert_eq!(again, copied, "{}", message.id);
}

/// Whatever the memory has in it, reading ends and takes no more memory than that.
pub fn vpp_stats(data: &[u8]) {
    let words: Vec<u64> = data
        .chunks_exact(8)
        .map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        .collect();
    let Ok(segment) = Segment::new(&words[..]) else {
        return;
    };
    let _epoch = segment.epoch();
    let Ok(directory) = segment.directory() else {
        return;
    };
    let mut budget = segment.budget();
    let mut read = 0;
    for entry in directory {
        let Ok(entry) = entry else { return };
        assert!(entry.name().len() <= 3 * 128);
        if let Ok(value) = segment.value(&entry, &mut budget) {
            read += size(&value);
        }
    }
    assert!(read <= words.len());
}

/// How many words a value was read from, at least.
fn size(value: &Value) -> usize {
    match value {
        Value::Scalar(_) | Value::Other { .. } => 0,
        Value::Simple(threads) | Value::Histogram(threads) => threads.iter().map(Vec::len).sum(),
        Value::Combined(threads) => threads.iter().map(|thread| 2 * thread.len()).sum(),
        Value::Names(names) => names.len(),
    }
}
