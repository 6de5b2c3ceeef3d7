//! Which address was handed out for which name: the resolver pins each answer before it is
//! sent, and a connection to an address that no pin explains is refused.
//!
//! Pins are kept per sandbox, so what one sandbox resolves opens nothing to another. One
//! address may carry several names, as the addresses of content networks do.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_types::{DomainName, NAT64_PREFIX, SandboxUid};
use lru::LruCache;

/// The bounds of [`Pins`]. What is used least goes first when a bound is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinLimits {
    /// Sandboxes with pins.
    pub sandboxes: NonZeroUsize,
    /// Addresses pinned for one sandbox.
    pub addresses: NonZeroUsize,
    /// Names pinned to one address of one sandbox.
    pub names: NonZeroUsize,
    /// How long a pin outlives the answer's time to live: clients keep answers for longer than
    /// they are told, and pools reconnect to the address that they know. A connection renews it.
    pub hold: Duration,
    /// How long a pin lives at most after its answer, however often it is used: an address that
    /// moves on to somebody else is not reached under the old name for ever.
    pub longest: Duration,
}

impl Default for PinLimits {
    fn default() -> Self {
        const SANDBOXES: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
        const ADDRESSES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
        const NAMES: NonZeroUsize = NonZeroUsize::new(16).unwrap();
        Self {
            sandboxes: SANDBOXES,
            addresses: ADDRESSES,
            names: NAMES,
            hold: Duration::from_secs(3600),
            longest: Duration::from_secs(24 * 3600),
        }
    }
}

/// The upstream address that stands behind an address in an answer: the IPv4 address for one
/// of [`NAT64_PREFIX`], and the address itself otherwise.
pub fn upstream(answer: Ipv6Addr) -> IpAddr {
    if NAT64_PREFIX.contains(&answer) {
        let [.., a, b, c, d] = answer.octets();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    } else {
        IpAddr::V6(answer)
    }
}

/// The address that an answer carries for an IPv4 address: the inverse of [`upstream`].
pub fn synthesise(address: Ipv4Addr) -> Ipv6Addr {
    let bits = NAT64_PREFIX.network().to_bits() | u128::from(address.to_bits());
    Ipv6Addr::from_bits(bits)
}

/// What is known about a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The address to dial.
    pub upstream: IpAddr,
    /// The names for which the sandbox was given this address, the latest answer first.
    /// Never empty.
    pub names: Vec<DomainName>,
}

impl Pinned {
    /// Whether the address was handed out for this name.
    pub fn carries(&self, name: &DomainName) -> bool {
        self.names.contains(name)
    }
}

/// Answers by sandbox. Shared between the resolver, which inserts, and the proxy, which looks up.
pub struct Pins {
    limits: PinLimits,
    sandboxes: Mutex<LruCache<SandboxUid, Arc<Mutex<Sandbox>>>>,
}

type Sandbox = LruCache<Ipv6Addr, VecDeque<Entry>>;

struct Entry {
    name: DomainName,
    expires: Instant,
    /// The last instant to which a connection can push `expires`.
    latest: Instant,
}

impl Pins {
    /// No pins yet.
    pub fn new(limits: PinLimits) -> Self {
        Self {
            limits,
            sandboxes: Mutex::new(LruCache::new(limits.sandboxes)),
        }
    }

    /// Notes that `sandbox` is being told at `now` that `name` has the address `answer` for `ttl`.
    pub fn insert(
        &self,
        sandbox: SandboxUid,
        answer: Ipv6Addr,
        name: &DomainName,
        ttl: Duration,
        now: Instant,
    ) {
        let pins = {
            let mut sandboxes = self
                .sandboxes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let fresh = || Arc::new(Mutex::new(LruCache::new(self.limits.addresses)));
            Arc::clone(sandboxes.get_or_insert(sandbox, fresh))
        };
        let mut pins = pins.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = pins.get_or_insert_mut(answer, VecDeque::new);
        entries.retain(|entry| entry.name != *name && entry.expires > now);
        entries.truncate(self.limits.names.get() - 1);
        let ttl = ttl.min(self.limits.longest);
        let latest = now + ttl + self.limits.longest;
        entries.push_front(Entry {
            name: name.clone(),
            expires: (now + ttl + self.limits.hold).min(latest),
            latest,
        });
    }

    /// What `sandbox` was told about `destination`, if a pin is alive at `now`. Called for a
    /// connection that the sandbox opens, so it renews the pin.
    pub fn lookup(
        &self,
        sandbox: SandboxUid,
        destination: Ipv6Addr,
        now: Instant,
    ) -> Option<Pinned> {
        let pins = {
            let mut sandboxes = self
                .sandboxes
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(sandboxes.get(&sandbox)?)
        };
        let mut pins = pins.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = pins.get_mut(&destination)?;
        entries.retain(|entry| entry.expires > now);
        if entries.is_empty() {
            pins.pop(&destination);
            return None;
        }
        for entry in entries.iter_mut() {
            entry.expires = entry
                .expires
                .max((now + self.limits.hold).min(entry.latest));
        }
        Some(Pinned {
            upstream: upstream(destination),
            names: entries.iter().map(|entry| entry.name.clone()).collect(),
        })
    }

    /// Drops everything known about a sandbox that is gone.
    pub fn forget_sandbox(&self, sandbox: SandboxUid) {
        let mut sandboxes = self
            .sandboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        sandboxes.pop(&sandbox);
    }
}

impl Default for Pins {
    fn default() -> Self {
        Self::new(PinLimits::default())
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pins")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
