//! How much one sandbox may ask. Pure: the time is an argument.

use std::hash::Hash;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::{Duration, Instant};

use lru::LruCache;

/// Who has been told how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Go ahead, and call [`Limits::release`] when done.
    Granted,
    /// Too much. `note` is set at most once a second, so that a flood is noted and its record is
    /// none.
    Refused { note: bool },
}

/// A rate, a burst and a number of queries at once, for each key.
#[derive(Debug)]
pub(super) struct Limits<K: Hash + Eq> {
    interval: Duration,
    tolerance: Duration,
    concurrent: u32,
    keys: LruCache<K, State>,
}

#[derive(Debug)]
struct State {
    /// When the bucket is full again (the theoretical arrival time of the generic cell rate
    /// algorithm): one moment instead of a count and a moment.
    full: Instant,
    running: u32,
    noted: Option<Instant>,
}

const NOTE_EVERY: Duration = Duration::from_secs(1);

impl<K: Hash + Eq> Limits<K> {
    pub(super) fn new(
        per_second: NonZeroU32,
        burst: NonZeroU32,
        concurrent: u32,
        keys: NonZeroUsize,
    ) -> Self {
        let interval = Duration::from_secs(1) / per_second.get();
        Self {
            interval,
            tolerance: interval * (burst.get() - 1),
            concurrent,
            keys: LruCache::new(keys),
        }
    }

    pub(super) fn admit(&mut self, key: K, now: Instant) -> Admission {
        let state = self.keys.get_or_insert_mut(key, || State {
            full: now,
            running: 0,
            noted: None,
        });
        if state.running >= self.concurrent || state.full > now + self.tolerance {
            let note = state.noted.is_none_or(|noted| now >= noted + NOTE_EVERY);
            if note {
                state.noted = Some(now);
            }
            return Admission::Refused { note };
        }
        state.full = state.full.max(now) + self.interval;
        state.running += 1;
        Admission::Granted
    }

    pub(super) fn release(&mut self, key: &K) {
        if let Some(state) = self.keys.peek_mut(key) {
            state.running = state.running.saturating_sub(1);
        }
    }
}
