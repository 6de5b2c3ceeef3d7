//! The layout of the segment: a header, and a directory of entries that point to vectors.
//!
//! Pointers are addresses in VPP. A vector's length comes eight bytes before its first element. The
//! layout has been the same in all releases from 24.10 to 26.06; kinds of entries were added.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use thiserror::Error;

use super::value::{Combined, Value};

/// Words of memory that may change while they are read.
pub trait Words {
    /// How many there are.
    fn len(&self) -> usize;

    /// One of them.
    fn get(&self, index: usize) -> Option<u64>;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory that VPP writes.
impl Words for [AtomicU64] {
    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, index: usize) -> Option<u64> {
        // Relaxed, since only relaxed loads are defined on memory that cannot be written here. Fences
        // keep the epoch's loads before and after the others.
        self.get(index).map(|word| word.load(Ordering::Relaxed))
    }
}

/// Memory that nobody writes.
impl Words for [u64] {
    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, index: usize) -> Option<u64> {
        self.get(index).copied()
    }
}

/// The segment is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// It is too short for its header.
    #[error("it has {bytes} bytes only")]
    TooShort {
        /// Its length.
        bytes: usize,
    },
    /// The layout has another version.
    #[error("its layout has version {version}, and only 2 is known")]
    Version {
        /// The version.
        version: u64,
    },
    /// A pointer or a length leads out of it.
    #[error("a vector of {len} elements at {pointer:#x} is not within it")]
    Bounds {
        /// The pointer, as VPP has it.
        pointer: u64,
        /// The number of elements.
        len: usize,
    },
    /// The directory has no such entry.
    #[error("its directory has no entry {index}")]
    NoEntry {
        /// The number of the entry.
        index: usize,
    },
    /// A link leads to another link.
    #[error("a link leads to the link {index}")]
    LinkToLink {
        /// The number of the second.
        index: usize,
    },
    /// The values together are larger than the segment, so that some vectors overlap.
    #[error("its values are larger than itself")]
    TooLarge,
}

/// A segment.
#[derive(Debug)]
pub struct Segment<'a, W: Words + ?Sized> {
    words: &'a W,
    base: u64,
}

/// Bytes in a word.
const WORD: usize = 8;
/// Words in the header.
const HEADER: usize = 5;
/// Words in an entry: its kind, its value, and its name of 128 bytes.
const ENTRY: usize = 18;
/// Bytes in a name.
const NAME: usize = 128;

const VERSION: u64 = 2;

const SCALAR: u32 = 1;
const SIMPLE: u32 = 2;
const COMBINED: u32 = 3;
const NAMES: u32 = 4;
const EMPTY: u32 = 5;
const LINK: u32 = 6;
const HISTOGRAM: u32 = 7;
const GAUGE: u32 = 9;

/// An entry of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    kind: u32,
    value: u64,
    name: [u8; NAME],
}

impl Entry {
    /// Its name.
    pub fn name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.name_bytes())
    }

    /// Whether it has this name, and is used.
    pub fn is_named(&self, name: &str) -> bool {
        !self.is_empty() && self.name() == name
    }

    fn name_bytes(&self) -> &[u8] {
        self.name
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default()
    }

    /// Whether it is not used.
    pub fn is_empty(&self) -> bool {
        self.kind == EMPTY || self.kind == 0
    }
}

/// A vector within the segment.
#[derive(Clone, Copy, Debug)]
struct Vector {
    /// The word that it starts with.
    start: usize,
    /// How many elements it has.
    len: usize,
}

impl<'a, W: Words + ?Sized> Segment<'a, W> {
    /// A segment whose header can be read.
    pub fn new(words: &'a W) -> Result<Self, SegmentError> {
        if words.len() < HEADER {
            return Err(SegmentError::TooShort {
                bytes: words.len() * WORD,
            });
        }
        let segment = Self {
            words,
            base: words.get(1).unwrap_or_default(),
        };
        match words.get(0) {
            Some(VERSION) => Ok(segment),
            version => Err(SegmentError::Version {
                version: version.unwrap_or_default(),
            }),
        }
    }

    /// A number that changes with the directory, unless that is changing at present.
    pub fn epoch(&self) -> Option<u64> {
        // What was read before this stays before it, and what is read after it stays after it.
        fence(Ordering::Acquire);
        let in_progress = self.words.get(3)?;
        fence(Ordering::Acquire);
        let epoch = self.words.get(2)?;
        fence(Ordering::Acquire);
        (in_progress == 0).then_some(epoch)
    }

    /// How many words the values of one read may have together: no more than there are.
    pub fn budget(&self) -> usize {
        self.words.len()
    }

    /// The entries of the directory.
    pub fn directory(
        &self,
    ) -> Result<impl Iterator<Item = Result<Entry, SegmentError>> + '_, SegmentError> {
        let directory = self.directory_vector()?;
        Ok((0..directory.len).map(move |index| self.entry_of(directory, index)))
    }

    /// How many entries the directory has.
    pub fn directory_len(&self) -> Result<usize, SegmentError> {
        Ok(self.directory_vector()?.len)
    }

    /// One entry of the directory.
    pub fn entry(&self, index: usize) -> Result<Entry, SegmentError> {
        self.entry_of(self.directory_vector()?, index)
    }

    fn directory_vector(&self) -> Result<Vector, SegmentError> {
        self.vector(self.word(4)?, ENTRY * WORD)
    }

    fn entry_of(&self, directory: Vector, index: usize) -> Result<Entry, SegmentError> {
        if index >= directory.len {
            return Err(SegmentError::NoEntry { index });
        }
        let start = directory.start + index * ENTRY;
        let kind = low(self.word(start)?);
        let value = self.word(start + 1)?;
        let mut name = [0; NAME];
        for (index, part) in name.chunks_exact_mut(WORD).enumerate() {
            part.copy_from_slice(&self.word(start + 2 + index)?.to_ne_bytes());
        }
        Ok(Entry { kind, value, name })
    }

    /// The value of an entry. The budget is lowered by what it takes.
    pub fn value(&self, entry: &Entry, budget: &mut usize) -> Result<Value, SegmentError> {
        match entry.kind {
            LINK => self.link(entry.value, budget),
            SCALAR | GAUGE => Ok(Value::Scalar(entry.value)),
            SIMPLE => Ok(Value::Simple(self.numbers(entry.value, budget)?)),
            HISTOGRAM => Ok(Value::Histogram(self.numbers(entry.value, budget)?)),
            COMBINED => self.combined(entry.value, budget),
            NAMES => self.names(entry.value, budget),
            kind => Ok(Value::Other { kind }),
        }
    }

    /// One index of another entry, for each thread: the entry's number, then the index.
    fn link(&self, value: u64, budget: &mut usize) -> Result<Value, SegmentError> {
        let (index, column) = (low(value) as usize, low(value >> 32) as usize);
        let target = self.entry(index)?;
        let pick = |vector: Vector, element: usize| {
            // A thread that has not counted there has a shorter vector.
            (column < vector.len).then_some(vector.start + column * element)
        };
        match target.kind {
            LINK => Err(SegmentError::LinkToLink { index }),
            SIMPLE => self
                .threads(target.value, 1, budget, |segment, vector, budget| {
                    take(budget, 1)?;
                    let word = pick(vector, 1).map(|at| segment.word(at)).transpose()?;
                    Ok(vec![word.unwrap_or_default()])
                })
                .map(Value::Simple),
            COMBINED => self
                .threads(target.value, 2, budget, |segment, vector, budget| {
                    take(budget, 2)?;
                    let pair = pick(vector, 2).map(|at| segment.pair(at)).transpose()?;
                    Ok(vec![pair.unwrap_or_default()])
                })
                .map(Value::Combined),
            kind => Ok(Value::Other { kind }),
        }
    }

    fn numbers(&self, pointer: u64, budget: &mut usize) -> Result<Vec<Vec<u64>>, SegmentError> {
        self.threads(pointer, 1, budget, |segment, vector, budget| {
            take(budget, vector.len)?;
            (0..vector.len)
                .map(|index| segment.word(vector.start + index))
                .collect()
        })
    }

    fn combined(&self, pointer: u64, budget: &mut usize) -> Result<Value, SegmentError> {
        self.threads(pointer, 2, budget, |segment, vector, budget| {
            take(budget, 2 * vector.len)?;
            (0..vector.len)
                .map(|index| segment.pair(vector.start + 2 * index))
                .collect()
        })
        .map(Value::Combined)
    }

    /// The vectors that a vector of pointers leads to, one for each thread.
    fn threads<T>(
        &self,
        pointer: u64,
        element: usize,
        budget: &mut usize,
        read: impl Fn(&Self, Vector, &mut usize) -> Result<T, SegmentError>,
    ) -> Result<Vec<T>, SegmentError> {
        let threads = self.vector(pointer, WORD)?;
        take(budget, threads.len)?;
        (0..threads.len)
            .map(|thread| {
                let vector = self.vector(self.word(threads.start + thread)?, element * WORD)?;
                read(self, vector, budget)
            })
            .collect()
    }

    fn names(&self, pointer: u64, budget: &mut usize) -> Result<Value, SegmentError> {
        let names = self.vector(pointer, WORD)?;
        take(budget, names.len)?;
        (0..names.len)
            .map(|index| {
                let name = self.vector(self.word(names.start + index)?, 1)?;
                take(budget, name.len.div_ceil(WORD))?;
                self.text(name.start, name.len)
            })
            .collect::<Result<_, _>>()
            .map(Value::Names)
    }

    /// A vector, with its length checked. A null pointer is an empty one.
    fn vector(&self, pointer: u64, element_bytes: usize) -> Result<Vector, SegmentError> {
        if pointer == 0 {
            return Ok(Vector { start: 0, len: 0 });
        }
        let bounds = |len| SegmentError::Bounds { pointer, len };
        let offset = pointer
            .checked_sub(self.base)
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| offset % WORD == 0)
            .ok_or(bounds(0))?;
        let start = offset / WORD;
        // The length is behind the header.
        if start <= HEADER || start > self.words.len() {
            return Err(bounds(0));
        }
        let len = low(self.word(start - 1)?) as usize;
        let left = (self.words.len() - start) * WORD;
        if len.saturating_mul(element_bytes) > left {
            return Err(bounds(len));
        }
        Ok(Vector { start, len })
    }

    fn word(&self, index: usize) -> Result<u64, SegmentError> {
        self.words.get(index).ok_or(SegmentError::Bounds {
            pointer: self.base.wrapping_add(index as u64 * WORD as u64),
            len: 1,
        })
    }

    fn pair(&self, index: usize) -> Result<Combined, SegmentError> {
        Ok(Combined {
            packets: self.word(index)?,
            bytes: self.word(index + 1)?,
        })
    }

    /// A text, up to its zero byte.
    fn text(&self, start: usize, len: usize) -> Result<String, SegmentError> {
        let mut bytes = Vec::with_capacity(len);
        for index in 0..len.div_ceil(WORD) {
            bytes.extend_from_slice(&self.word(start + index)?.to_ne_bytes());
            if bytes.ends_with(&[0]) {
                break;
            }
        }
        bytes.truncate(len);
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.unwrap_or(len));
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn take(budget: &mut usize, words: usize) -> Result<(), SegmentError> {
    *budget = budget.checked_sub(words).ok_or(SegmentError::TooLarge)?;
    Ok(())
}

/// The first half of a word, which is the lower on every machine that VPP runs on.
fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests;
