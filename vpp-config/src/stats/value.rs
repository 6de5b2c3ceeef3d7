//! What counters say.

use serde::Serialize;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Combined {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A value of the stats segment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Value {
    /// One number.
    Scalar(u64),
    /// Numbers by index, for each thread.
    Simple(Vec<Column<u64>>),
    /// Packets and bytes by index, for each thread.
    Combined(Vec<Column<Combined>>),
    /// Names by index. One that is not set is empty.
    Names(Vec<String>),
    /// Counts by powers of two, for each thread.
    Histogram(Vec<Column<u64>>),
    /// A kind of value that this version does not read.
    Other {
        /// The number of the kind.
        kind: u32,
    },
}

/// The counters of one thread, by index.
pub type Column<T> = Vec<T>;

impl Value {
    /// The number, or the sum of one index over all threads.
    pub fn total(&self, index: usize) -> u64 {
        match self {
            Value::Scalar(value) => *value,
            Value::Simple(threads) | Value::Histogram(threads) => threads
                .iter()
                .filter_map(|column| column.get(index))
                .fold(0, |sum, value| sum.wrapping_add(*value)),
            Value::Combined(_) | Value::Names(_) | Value::Other { .. } => 0,
        }
    }

    /// The sum of one index over all threads, where packets and bytes are counted.
    pub fn total_combined(&self, index: usize) -> Combined {
        let Value::Combined(threads) = self else {
            return Combined::default();
        };
        threads.iter().filter_map(|column| column.get(index)).fold(
            Combined::default(),
            |sum, value| Combined {
                packets: sum.packets.wrapping_add(value.packets),
                bytes: sum.bytes.wrapping_add(value.bytes),
            },
        )
    }
}
