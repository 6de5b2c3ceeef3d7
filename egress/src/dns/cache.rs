//! What the upstream resolvers said, for as long as they said it holds. Pure: the time is an
//! argument.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use causeway_types::DomainName;
use hickory_proto::rr::RecordType;
use lru::LruCache;

use super::resolver::ResolveError;

/// A question that the upstream is asked: a name, and A or AAAA.
pub(super) type Key = (DomainName, RecordType);

/// The addresses of a name, of one family. None means that the name exists without any.
pub(super) type Outcome = Result<Vec<IpAddr>, ResolveError>;

/// The bounds on how long something is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) shortest: Duration,
    pub(super) longest: Duration,
    pub(super) longest_negative: Duration,
    pub(super) failure: Duration,
}

impl Times {
    /// How long this outcome is kept, if the upstream said `ttl`.
    pub(super) fn clamp(&self, outcome: &Outcome, ttl: Duration) -> Duration {
        match outcome {
            Ok(addresses) if !addresses.is_empty() => ttl.clamp(self.shortest, self.longest),
            Ok(_) | Err(ResolveError::NoSuchName { .. }) => {
                ttl.clamp(self.shortest, self.longest_negative)
            }
            // A broken upstream is not asked again for every packet (RFC 9520).
            Err(_failed) => self.failure,
        }
    }
}

#[derive(Debug)]
pub(super) struct Cache {
    entries: LruCache<Key, Entry>,
}

#[derive(Debug)]
struct Entry {
    outcome: Outcome,
    expires: Instant,
}

impl Cache {
    pub(super) fn new(entries: NonZeroUsize) -> Self {
        Self {
            entries: LruCache::new(entries),
        }
    }

    /// What is known at `now`, and for how much longer.
    pub(super) fn get(&mut self, key: &Key, now: Instant) -> Option<(Outcome, Duration)> {
        let entry = self.entries.get(key)?;
        let left = entry.expires.saturating_duration_since(now);
        if left.is_zero() {
            self.entries.pop(key);
            return None;
        }
        Some((entry.outcome.clone(), left))
    }

    pub(super) fn insert(&mut self, key: Key, outcome: Outcome, keep: Duration, now: Instant) {
        let expires = now + keep;
        self.entries.put(key, Entry { outcome, expires });
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}
