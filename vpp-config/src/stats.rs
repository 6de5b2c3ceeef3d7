//! VPP's counters, read from its shared memory.
//!
//! Reading costs VPP nothing, and works while its API is busy. A reader sees what VPP is
//! writing, so it takes nothing on trust: each read is repeated when VPP has moved things meanwhile,
//! and every index and offset is checked against the segment.

mod map;
mod segment;
mod value;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;

use map::Map;

pub use segment::{Entry, Segment, SegmentError, Words};
pub use value::{Column, Combined, Value};

/// A reader of one VPP's counters. When that VPP ends, the last values stay; connect anew whenever
/// the API client does.
#[derive(Debug)]
pub struct Stats {
    map: Map,
    names: Mutex<Names>,
    patience: Duration,
}

/// Where each name was, at an epoch.
#[derive(Debug, Default)]
struct Names {
    epoch: u64,
    index: HashMap<String, usize>,
}

/// Counters cannot be read.
#[derive(Debug, Error)]
pub enum StatsError {
    /// The socket cannot be reached, or gives no memory. VPP does not run, or has its socket
    /// elsewhere or for others.
    #[error("cannot get VPP's counters from {path}", path = path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What came with the socket's message is no memory of a segment's size.
    #[error("the socket {path} gave no stats segment", path = path.display())]
    NoSegment {
        /// The socket.
        path: PathBuf,
    },
    /// The segment has another layout, or is broken.
    #[error("VPP's stats segment cannot be read")]
    Segment(#[from] SegmentError),
    /// VPP was changing the segment all the time, or ended while it did.
    #[error("VPP's stats segment was being changed for {after:?}")]
    Busy {
        /// How long.
        after: Duration,
    },
}

impl Stats {
    /// Connects, without waiting on the calling thread.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, StatsError> {
        let path = path.into();
        let socket = path.clone();
        match tokio::task::spawn_blocking(move || Self::connect(&socket)).await {
            Ok(result) => result,
            Err(error) => Err(StatsError::Socket {
                path,
                source: io::Error::other(error),
            }),
        }
    }

    /// Connects. It waits up to five seconds for VPP.
    pub fn connect(path: &Path) -> Result<Self, StatsError> {
        let stats = Self {
            map: map::receive(path)?,
            names: Mutex::default(),
            patience: Duration::from_secs(1),
        };
        Segment::new(stats.map.words())?;
        Ok(stats)
    }

    /// Everything in the directory whose name is wanted, from one moment.
    pub fn read(
        &self,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Result<Vec<(String, Value)>, StatsError> {
        self.at_rest(|segment, _epoch| {
            let mut values = Vec::new();
            let mut budget = segment.budget();
            for entry in segment.directory()? {
                let entry = entry?;
                if !entry.is_empty() && wanted(entry.name()) {
                    let value = segment.value(&entry, &mut budget)?;
                    values.push((entry.into_name(), value));
                }
            }
            Ok(values)
        })
    }

    /// One value by its name.
    pub fn get(&self, name: &str) -> Result<Option<Value>, StatsError> {
        self.at_rest(|segment, epoch| {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            if names.epoch != epoch || names.index.is_empty() {
                names.index.clear();
                for (at, entry) in segment.directory()?.enumerate() {
                    let entry = entry?;
                    if !entry.is_empty() {
                        names.index.insert(entry.into_name(), at);
                    }
                }
                names.epoch = epoch;
            }
            let Some(at) = names.index.get(name) else {
                return Ok(None);
            };
            let entry = segment.entry(*at)?;
            segment.value(&entry, &mut segment.budget()).map(Some)
        })
    }

    /// The names of all values.
    pub fn names(&self) -> Result<Vec<String>, StatsError> {
        self.at_rest(|segment, _epoch| {
            segment
                .directory()?
                .filter_map(|entry| match entry {
                    Ok(entry) => (!entry.is_empty()).then(|| Ok(entry.into_name())),
                    Err(error) => Some(Err(error)),
                })
                .collect()
        })
    }

    /// The names of interfaces, by their number.
    pub fn interface_names(&self) -> Result<Vec<String>, StatsError> {
        Ok(match self.get("/if/names")? {
            Some(Value::Names(names)) => names,
            _ => Vec::new(),
        })
    }

    /// Reads while VPP changes nothing in the directory, or anew.
    fn at_rest<T>(
        &self,
        mut read: impl FnMut(
            &Segment<'_, [std::sync::atomic::AtomicU64]>,
            u64,
        ) -> Result<T, SegmentError>,
    ) -> Result<T, StatsError> {
        let end = Instant::now() + self.patience;
        loop {
            let segment = Segment::new(self.map.words())?;
            let epoch = segment.epoch();
            if let Some(epoch) = epoch {
                let result = read(&segment, epoch);
                if segment.epoch() == Some(epoch) {
                    return Ok(result?);
                }
                // What was read may be broken because of the change.
            }
            if Instant::now() >= end {
                return Err(StatsError::Busy {
                    after: self.patience,
                });
            }
            // VPP holds the segment for microseconds.
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
