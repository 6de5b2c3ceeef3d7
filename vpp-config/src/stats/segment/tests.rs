use proptest::prelude::{Strategy, any, proptest};
use proptest::sample as prop_index;

use super::*;

const BASE: u64 = 0x1_3000_0000;

/// A segment that is written word by word.
struct Builder {
    words: Vec<u64>,
    entries: Vec<(u32, u64, &'static str)>,
}

impl Builder {
    fn new() -> Self {
        Self {
            words: vec![VERSION, BASE, 7, 0, 0, 0],
            entries: Vec::new(),
        }
    }

    /// A vector with its length before it. What it is at, as VPP would say.
    fn vector(&mut self, len: usize, words: &[u64]) -> u64 {
        self.words.push(len as u64 | 0xabcd_0000_0000);
        let pointer = BASE + (self.words.len() * WORD) as u64;
        self.words.extend_from_slice(words);
        pointer
    }

    fn text(&mut self, text: &str) -> u64 {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        let len = bytes.len();
        bytes.resize(len.next_multiple_of(WORD), 0);
        let words: Vec<_> = bytes
            .chunks(WORD)
            .map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap()))
            .collect();
        self.vector(len, &words)
    }

    fn entry(&mut self, kind: u32, value: u64, name: &'static str) {
        self.entries.push((kind, value, name));
    }

    fn finish(mut self) -> Vec<u64> {
        let mut words = Vec::new();
        for (kind, value, name) in &self.entries {
            words.extend([u64::from(*kind), *value]);
            let mut field = [0; 128];
            field[..name.len()].copy_from_slice(name.as_bytes());
            words.extend(
                field
                    .chunks(WORD)
                    .map(|chunk| u64::from_ne_bytes(chunk.try_into().unwrap())),
            );
        }
        let directory = self.vector(self.entries.len(), &words);
        self.words[4] = directory;
        self.words
    }
}

fn sample() -> Vec<u64> {
    let mut builder = Builder::new();
    let threads = [
        builder.vector(3, &[1, 2, 3]),
        builder.vector(2, &[10, 20]),
        0,
    ];
    let simple = builder.vector(3, &threads);
    let pairs = builder.vector(2, &[1, 100, 2, 200]);
    let combined = builder.vector(1, &[pairs]);
    let names = [builder.text("local0"), 0, builder.text("tap-17")];
    let names = builder.vector(3, &names);
    builder.entry(SCALAR, 42, "/sys/heartbeat");
    builder.entry(SIMPLE, simple, "/if/drops");
    builder.entry(COMBINED, combined, "/if/rx");
    builder.entry(NAMES, names, "/if/names");
    builder.entry(EMPTY, 3, "");
    builder.entry(LINK, 1 | 1 << 32, "/interfaces/tap/drops");
    builder.entry(LINK, 2 | 1 << 32, "/interfaces/tap/rx");
    builder.entry(GAUGE, 9, "/gauge");
    builder.entry(8, 0, "/ring");
    builder.finish()
}

fn all(words: &[u64]) -> Result<Vec<(String, Value)>, SegmentError> {
    let segment = Segment::new(words)?;
    let mut budget = segment.budget();
    segment
        .directory()?
        .map(|entry| {
            let entry = entry?;
            let value = segment.value(&entry, &mut budget)?;
            Ok((entry.name().into_owned(), value))
        })
        .collect()
}

#[test]
fn each_kind_of_value_is_read() {
    let words = sample();
    let values = all(&words).unwrap();
    let pair = |packets, bytes| Combined { packets, bytes };
    let expected = [
        ("/sys/heartbeat", Value::Scalar(42)),
        (
            "/if/drops",
            Value::Simple(vec![vec![1, 2, 3], vec![10, 20], vec![]]),
        ),
        (
            "/if/rx",
            Value::Combined(vec![vec![pair(1, 100), pair(2, 200)]]),
        ),
        (
            "/if/names",
            Value::Names(vec!["local0".into(), String::new(), "tap-17".into()]),
        ),
        ("", Value::Other { kind: EMPTY }),
        (
            "/interfaces/tap/drops",
            Value::Simple(vec![vec![2], vec![20], vec![0]]),
        ),
        (
            "/interfaces/tap/rx",
            Value::Combined(vec![vec![pair(2, 200)]]),
        ),
        ("/gauge", Value::Scalar(9)),
        ("/ring", Value::Other { kind: 8 }),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(values, expected);
    assert_eq!(values[1].1.total(1), 22);
    assert_eq!(values[2].1.total_combined(1), pair(2, 200));
}

#[test]
fn a_segment_that_is_being_changed_has_no_epoch() {
    let mut words = sample();
    assert_eq!(Segment::new(&words[..]).unwrap().epoch(), Some(7));
    words[3] = 1;
    assert_eq!(Segment::new(&words[..]).unwrap().epoch(), None);
}

#[test]
fn another_layout_is_refused() {
    let mut words = sample();
    words[0] = 3;
    assert_eq!(
        Segment::new(&words[..]).unwrap_err(),
        SegmentError::Version { version: 3 }
    );
    assert_eq!(
        Segment::new(&words[..4]).unwrap_err(),
        SegmentError::TooShort { bytes: 32 }
    );
}

#[test]
fn vectors_that_overlap_do_not_take_more_memory_than_the_segment() {
    let mut builder = Builder::new();
    let long = builder.vector(1000, &[0; 1000]);
    let threads = builder.vector(500, &[long; 500]);
    builder.entry(SIMPLE, threads, "/overlapping");
    assert_eq!(all(&builder.finish()), Err(SegmentError::TooLarge));
}

#[test]
fn a_link_to_a_link_is_refused() {
    let mut builder = Builder::new();
    builder.entry(LINK, 0, "/itself");
    assert_eq!(
        all(&builder.finish()),
        Err(SegmentError::LinkToLink { index: 0 })
    );
}

proptest! {
    #[test]
    fn no_change_of_a_word_makes_the_reader_panic(
        changes in proptest::collection::vec((any::<prop_index::Index>(), word()), 1..4),
        end in any::<prop_index::Index>(),
    ) {
        let mut words = sample();
        for (index, word) in changes {
            let at = index.index(words.len());
            words[at] = word;
        }
        let _result = all(&words);
        let end = end.index(words.len());
        let _result = all(&words[..end]);
    }
}

fn word() -> impl Strategy<Value = u64> {
    proptest::prop_oneof![
        any::<u64>(),
        0..64u64,
        (0..2000u64).prop_map(|offset| BASE + offset),
    ]
}
