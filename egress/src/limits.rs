//! What one sandbox may use at a time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Connections of one sandbox when its policies set no limit.
pub(crate) const DEFAULT_CONNECTIONS: u32 = 4096;

/// Counts connections. A slot is given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Slots(AtomicU32);

/// One connection's place.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Slots>);

impl Slots {
    /// Takes a place if fewer than `most` are taken.
    pub(crate) fn take(self: &Arc<Self>, most: u32) -> Option<Slot> {
        let grow = |taken| (taken < most).then_some(taken + 1);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow)
            .ok()
            .map(|_before| Slot(Arc::clone(self)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A token bucket that holds one second's worth.
#[derive(Debug, Default)]
pub(crate) struct Rate(Mutex<Option<Bucket>>);

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Rate {
    /// Takes one token, at `per_second`. None is no limit.
    pub(crate) fn take(&self, per_second: Option<u32>, now: Instant) -> bool {
        let Some(per_second) = per_second else {
            return true;
        };
        let capacity = f64::from(per_second);
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = bucket.unwrap_or(Bucket {
            tokens: capacity,
            filled: now,
        });
        let passed = now.saturating_duration_since(before.filled).as_secs_f64();
        let tokens = (before.tokens + passed * capacity).min(capacity);
        let taken = tokens >= 1.0;
        *bucket = Some(Bucket {
            tokens: if taken { tokens - 1.0 } else { tokens },
            filled: now.max(before.filled),
        });
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn slots_are_bounded_and_come_back() {
        let slots = Arc::new(Slots::default());
        let held: Vec<_> = (0..3).map_while(|_| slots.take(3)).collect();
        assert_eq!(held.len(), 3);
        assert!(slots.take(3).is_none());
        drop(held);
        assert!(slots.take(3).is_some());
    }

    #[test]
    fn a_second_brings_a_seconds_worth() {
        let (rate, start) = (Rate::default(), Instant::now());
        let burst = (0..10).filter(|_| rate.take(Some(5), start)).count();
        assert_eq!(burst, 5);
        let later = start + Duration::from_millis(400);
        let more = (0..10).filter(|_| rate.take(Some(5), later)).count();
        assert_eq!(more, 2);
        assert!((0..100).all(|_| rate.take(None, start)));
    }
}
