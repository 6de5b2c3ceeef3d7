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
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    /// Where each name was in the directory.
    places: Mutex<HashMap<String, usize>>,
    patience: Duration,
}

/// How many entries of the directory are read at a time.
const PIECE: usize = 256;

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
            places: Mutex::default(),
            patience: Duration::from_secs(1),
        };
        Segment::new(stats.map.words())?;
        Ok(stats)
    }

    /// Everything in the directory whose name is wanted. Each value is from one moment; two values
    /// may be from two, so that reading gets on while VPP adds interfaces all the time.
    pub fn read(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, Value)>, StatsError> {
        let mut values = Vec::new();
        let mut budget = self.map.words().len();
        for (at, name) in self.scan(wanted)? {
            let left = budget;
            let value = self.at_rest(|segment| {
                budget = left;
                let entry = segment.entry(at)?;
                // It may have gone, and its place may have been taken.
                if entry.is_named(&name) {
                    segment.value(&entry, &mut budget).map(Some)
                } else {
                    Ok(None)
                }
            })?;
            values.extend(value.map(|value| (name, value)));
        }
        Ok(values)
    }

    /// One value by its name.
    pub fn get(&self, name: &str) -> Result<Option<Value>, StatsError> {
        let known = self.places().get(name).copied();
        if let Some(at) = known
            && let Some(value) = self.get_at(at, name)?
        {
            return Ok(Some(value));
        }
        // It is not where it was, or was not there.
        let places: HashMap<_, _> = self
            .scan(|_| true)?
            .into_iter()
            .map(|(at, name)| (name, at))
            .collect();
        let at = places.get(name).copied();
        *self.places() = places;
        at.map_or(Ok(None), |at| self.get_at(at, name))
    }

    fn get_at(&self, at: usize, name: &str) -> Result<Option<Value>, StatsError> {
        self.at_rest(|segment| match segment.entry(at) {
            Ok(entry) if entry.is_named(name) => {
                segment.value(&entry, &mut segment.budget()).map(Some)
            }
            Ok(_) | Err(SegmentError::NoEntry { .. }) => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn places(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of all values.
    pub fn names(&self) -> Result<Vec<String>, StatsError> {
        let all = self.scan(|_| true)?;
        Ok(all.into_iter().map(|(_, name)| name).collect())
    }

    /// The places of the wanted names. The directory is read piece by piece, each from one moment.
    fn scan(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<(usize, String)>, StatsError> {
        let mut found = Vec::new();
        let mut start = 0;
        loop {
            let piece = self.at_rest(|segment| {
                let len = segment.directory_len()?;
                let end = len.min(start + PIECE);
                let mut piece = Vec::new();
                for at in start..end {
                    let entry = segment.entry(at)?;
                    if !entry.is_empty() && wanted(&entry.name()) {
                        piece.push((at, entry.name().into_owned()));
                    }
                }
                Ok((piece, end == len || start >= len))
            })?;
            let (mut piece, is_last) = piece;
            found.append(&mut piece);
            if is_last {
                return Ok(found);
            }
            start += PIECE;
        }
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
        mut read: impl FnMut(&Segment<'_, [AtomicU64]>) -> Result<T, SegmentError>,
    ) -> Result<T, StatsError> {
        let end = Instant::now() + self.patience;
        loop {
            let segment = Segment::new(self.map.words())?;
            if let Some(epoch) = segment.epoch() {
                let result = read(&segment);
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
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}
