//! The upstream side: addresses of names, from the configured resolvers, with a cache.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use causeway_types::DomainName;
use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RecordType};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::cache::{Cache, Key, Outcome, Times};
use super::chain::{self, MAX_ALIASES, Reading};
use super::exchange;

/// How the upstream resolvers are asked. The times and sizes have working defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolverConfig {
    /// How long one resolver has for one question.
    pub attempt: Duration,
    /// How often a question is asked in all; each time the next resolver.
    pub attempts: usize,
    /// How long a question may take with all its aliases and attempts. Stub resolvers give up
    /// after five seconds.
    pub deadline: Duration,
    /// Questions asked upstream at the same time, for all sandboxes together.
    pub in_flight: usize,
    /// Answers kept.
    pub cached: NonZeroUsize,
    /// The shortest time that an answer is kept, whatever it says.
    pub shortest: Duration,
    /// The longest time that an answer is kept, whatever it says.
    pub longest: Duration,
    /// The longest time that the absence of a name or of addresses is kept.
    pub longest_negative: Duration,
    /// How long a failure is kept.
    pub failure: Duration,
}

impl Default for ResolverConfig {
    fn default() -> Self {
        const CACHED: NonZeroUsize = NonZeroUsize::new(16_384).unwrap();
        Self {
            attempt: Duration::from_millis(1500),
            attempts: 3,
            deadline: Duration::from_millis(4500),
            in_flight: 1024,
            cached: CACHED,
            shortest: Duration::from_secs(1),
            longest: Duration::from_secs(5 * 60),
            longest_negative: Duration::from_secs(30),
            failure: Duration::from_secs(1),
        }
    }
}

/// The addresses of a name. Both lists may be empty: the name exists and has no addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// From AAAA records, in the order of the answer, unfiltered.
    pub v6: Vec<Ipv6Addr>,
    /// From A records, in the order of the answer, unfiltered.
    pub v4: Vec<Ipv4Addr>,
    /// How much longer they hold.
    pub ttl: Duration,
}

/// Why a name has no addresses. Shared between all that wait for the same question.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// There is no such name.
    #[error("the name `{name}` does not exist")]
    NoSuchName {
        /// The name asked for.
        name: DomainName,
    },
    /// No upstream resolver is configured.
    #[error("`{name}` was not resolved: no upstream resolver is configured")]
    NoUpstream {
        /// The name asked for.
        name: DomainName,
    },
    /// No upstream resolver answered in time.
    #[error("`{name}` was not resolved: no upstream resolver answered")]
    Unreachable {
        /// The name asked for.
        name: DomainName,
    },
    /// The upstream resolvers answered with a failure.
    #[error("`{name}` was not resolved: the upstream resolver answered with error {code}")]
    Failed {
        /// The name asked for.
        name: DomainName,
        /// The response code (RFC 1035, section 4.1.1).
        code: u16,
    },
    /// The name's aliases lead in a circle, or are too many.
    #[error("`{name}` was not resolved: its aliases do not end")]
    Endless {
        /// The name asked for.
        name: DomainName,
    },
    /// Too many questions are in flight.
    #[error("`{name}` was not resolved: too many names are being resolved at this moment")]
    Busy {
        /// The name asked for.
        name: DomainName,
    },
}

/// Asks the configured resolvers for addresses. Cheap to clone; clones share everything.
#[derive(Debug, Clone)]
pub struct Resolver {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: ResolverConfig,
    times: Times,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    /// Which resolver answered last: a dead first one does not slow every question down.
    preferred: AtomicUsize,
}

#[derive(Debug)]
struct State {
    servers: Arc<[SocketAddr]>,
    /// Grows when the servers change: answers of the old ones are not kept then.
    epoch: u64,
    cache: Cache,
    flights: HashMap<Key, watch::Receiver<Option<Landed>>>,
}

/// What came of a question, and for how long it holds.
type Landed = (Outcome, Duration);

impl Resolver {
    /// A resolver without upstream resolvers; see [`Resolver::configure`].
    pub fn new(config: ResolverConfig) -> Self {
        let state = State {
            servers: Arc::new([]),
            epoch: 0,
            cache: Cache::new(config.cached),
            flights: HashMap::new(),
        };
        Self {
            inner: Arc::new(Inner {
                times: Times {
                    shortest: config.shortest,
                    longest: config.longest,
                    longest_negative: config.longest_negative,
                    failure: config.failure,
                },
                permits: Arc::new(Semaphore::new(config.in_flight)),
                state: Mutex::new(state),
                preferred: AtomicUsize::new(0),
                config,
            }),
        }
    }

    /// Sets the upstream resolvers, in order of preference. When they differ from the ones
    /// before, nothing that those said is used any more.
    pub fn configure(&self, servers: &[SocketAddr]) {
        let mut state = self.inner.state();
        if *state.servers == *servers {
            return;
        }
        state.servers = servers.into();
        state.epoch += 1;
        state.cache.clear();
        state.flights.clear();
        self.inner.preferred.store(0, Ordering::Relaxed);
    }

    /// The addresses of a name: A and AAAA are asked for at the same time. When only one of
    /// the two can be had, that one is given, but not kept for long by whoever uses the
    /// [`Resolved::ttl`].
    pub async fn resolve(&self, name: &DomainName) -> Result<Resolved, ResolveError> {
        let (v6, v4) = tokio::join!(
            self.question((name.clone(), RecordType::AAAA)),
            self.question((name.clone(), RecordType::A)),
        );
        join(v6, v4, self.inner.config.shortest)
    }

    /// Answers from the cache, or joins whoever asks the same at this moment, or asks.
    async fn question(&self, key: Key) -> Landed {
        let mut landing = {
            let mut state = self.inner.state();
            if let Some(known) = state.cache.get(&key, Instant::now()) {
                return known;
            }
            match state.flights.get(&key) {
                Some(flight) => flight.clone(),
                None => match self.depart(&mut state, &key) {
                    Ok(flight) => flight,
                    Err(error) => return (Err(error), Duration::ZERO),
                },
            }
        };
        match landing.wait_for(Option::is_some).await {
            Ok(landed) => landed.clone(),
            Err(_gone) => None,
        }
        .unwrap_or_else(|| {
            let (name, _) = key;
            (Err(ResolveError::Unreachable { name }), Duration::ZERO)
        })
    }

    /// Starts to ask upstream, in a task of its own: one who stops waiting does not stop it
    /// for the others.
    fn depart(
        &self,
        state: &mut State,
        key: &Key,
    ) -> Result<watch::Receiver<Option<Landed>>, ResolveError> {
        let name = || key.0.clone();
        if state.servers.is_empty() {
            return Err(ResolveError::NoUpstream { name: name() });
        }
        let permit = Arc::clone(&self.inner.permits)
            .try_acquire_owned()
            .map_err(|_none_left| ResolveError::Busy { name: name() })?;
        let (sender, receiver) = watch::channel(None);
        state.flights.insert(key.clone(), receiver.clone());
        let flight = Flight {
            inner: Arc::clone(&self.inner),
            key: key.clone(),
            epoch: state.epoch,
        };
        let servers = Arc::clone(&state.servers);
        tokio::spawn(async move {
            let _permit = permit;
            let (outcome, ttl) = flight.inner.ask(&flight.key, &servers).await;
            let keep = flight.inner.times.clamp(&outcome, ttl);
            flight.land(outcome.clone(), keep);
            // Nobody may be waiting any more.
            sender.send_replace(Some((outcome, keep)));
        });
        Ok(receiver)
    }
}

/// Takes a question off the list when it is done, also when the task ends by a panic.
struct Flight {
    inner: Arc<Inner>,
    key: Key,
    epoch: u64,
}

impl Flight {
    fn land(&self, outcome: Outcome, keep: Duration) {
        let mut state = self.inner.state();
        if state.epoch == self.epoch {
            let now = Instant::now();
            state.cache.insert(self.key.clone(), outcome, keep, now);
            state.flights.remove(&self.key);
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        // After landing there may be a newer flight for the key: not ours to remove.
        let ours = state.epoch == self.epoch
            && state
                .flights
                .get(&self.key)
                .is_some_and(|flight| flight.has_changed().is_err());
        if ours {
            state.flights.remove(&self.key);
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, key: &Key, servers: &[SocketAddr]) -> (Outcome, Duration) {
        let name = key.0.clone();
        match timeout(self.config.deadline, self.follow(key, servers)).await {
            Ok(answer) => answer,
            Err(_elapsed) => (Err(ResolveError::Unreachable { name }), Duration::ZERO),
        }
    }

    /// Asks for the name, and for what it is an alias of, until addresses come.
    async fn follow(&self, key: &Key, servers: &[SocketAddr]) -> (Outcome, Duration) {
        let (name, kind) = key;
        let failed = |error| (Err(error), Duration::ZERO);
        let unreachable = || failed(ResolveError::Unreachable { name: name.clone() });
        let Ok(mut target) = Name::from_labels(name.as_str().split('.').map(str::as_bytes)) else {
            return unreachable();
        };
        let default = self.config.longest_negative;
        let (mut longest, mut aliases) = (Duration::MAX, 0);
        while aliases <= MAX_ALIASES {
            let query = Query::query(target, *kind);
            let cut = |ttl: Option<Duration>| ttl.unwrap_or(default).min(longest);
            match self.exchange(&query, servers).await {
                Some(Reading::Addresses(addresses, ttl)) => {
                    return (Ok(addresses), ttl.min(longest));
                }
                Some(Reading::NoData(ttl)) => return (Ok(Vec::new()), cut(ttl)),
                Some(Reading::NoSuchName(ttl)) => {
                    let name = name.clone();
                    return (Err(ResolveError::NoSuchName { name }), cut(ttl));
                }
                Some(Reading::Alias {
                    target: next,
                    steps,
                    ttl,
                }) => {
                    longest = longest.min(ttl);
                    aliases += steps;
                    target = next;
                }
                Some(Reading::Endless) => break,
                Some(Reading::Failed(code)) => {
                    let (name, code) = (name.clone(), code.into());
                    return failed(ResolveError::Failed { name, code });
                }
                None => return unreachable(),
            }
        }
        failed(ResolveError::Endless { name: name.clone() })
    }

    /// What the first server says that says anything useful; otherwise the last failure.
    async fn exchange(&self, query: &Query, servers: &[SocketAddr]) -> Option<Reading> {
        let preferred = self.preferred.load(Ordering::Relaxed);
        let mut failure = None;
        for attempt in 0..self.config.attempts.max(1) {
            let index = (preferred + attempt) % servers.len().max(1);
            let server = *servers.get(index)?;
            let reading = match exchange::ask(server, query, self.config.attempt).await {
                Ok(response) => chain::read(query, &response),
                Err(error) => {
                    tracing::debug!(%server, name = %query.name(), %error, "no answer");
                    continue;
                }
            };
            if let Reading::Failed(_) = reading {
                failure = Some(reading);
                continue;
            }
            self.preferred.store(index, Ordering::Relaxed);
            return Some(reading);
        }
        failure
    }
}

/// Puts the two families together. A name that exists in one family exists.
fn join(
    (v6, v6_ttl): Landed,
    (v4, v4_ttl): Landed,
    partial: Duration,
) -> Result<Resolved, ResolveError> {
    let only_v6 = |address| match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    };
    let only_v4 = |address| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    };
    let (v6, v4, ttl) = match (v6, v4) {
        // Addresses of one family are as good as their own time; an empty list does not shorten it.
        (Ok(v6), Ok(v4)) if v4.is_empty() && !v6.is_empty() => (v6, v4, v6_ttl),
        (Ok(v6), Ok(v4)) if v6.is_empty() && !v4.is_empty() => (v6, v4, v4_ttl.min(v6_ttl)),
        (Ok(v6), Ok(v4)) => (v6, v4, v6_ttl.min(v4_ttl)),
        // Some servers fail, or deny the name, for the type that they do not know.
        (Ok(v6), Err(_)) if !v6.is_empty() => (v6, Vec::new(), v6_ttl.min(partial)),
        (Err(_), Ok(v4)) if !v4.is_empty() => (Vec::new(), v4, v4_ttl.min(partial)),
        (Err(ResolveError::NoSuchName { .. }), Ok(v4)) => (Vec::new(), v4, v4_ttl.min(partial)),
        (Ok(v6), Err(ResolveError::NoSuchName { .. })) => (v6, Vec::new(), v6_ttl.min(partial)),
        // A failure says less than it seems, and is tried again; so it outweighs a denial.
        (Err(ResolveError::NoSuchName { .. }) | Ok(_), Err(error)) | (Err(error), _) => {
            return Err(error);
        }
    };
    Ok(Resolved {
        v6: v6.into_iter().filter_map(only_v6).collect(),
        v4: v4.into_iter().filter_map(only_v4).collect(),
        ttl,
    })
}
