//! The address book of a node: restored from a store, read, and changed by transactions.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use causeway_types::Generation;
use ipnet::Ipv6Net;

use crate::lease::{Lease, Owner, UnixMillis};
use crate::plan::Plan;
use crate::pool::PoolId;
use crate::snapshot::Snapshot;
use crate::state::{Change, Cursor, State, misfit};
use crate::transaction::Transaction;

/// The most leases in one [`Page`].
pub const MAX_PAGE: usize = 1000;

/// Why what a store holds cannot be taken up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The store was written with another key, so the order of addresses would begin anew.
    #[error(
        "the leases were made with another node key: restore the key file that belongs to them"
    )]
    OtherKey,
    /// There are leases but no key is recorded.
    #[error("the store holds {leases} leases and does not say which key they were made with")]
    NoKey {
        /// How many leases there are.
        leases: usize,
    },
    /// Two leases are held by one owner.
    #[error("the owner {owner} holds two leases, {first} and {second}")]
    OwnerTwice {
        /// The owner.
        owner: Owner,
        /// One address.
        first: Ipv6Addr,
        /// The other.
        second: Ipv6Addr,
    },
    /// One prefix belongs to two leases.
    #[error("the prefix {prefix} belongs to two leases, {first} and {second}")]
    PrefixTwice {
        /// The prefix.
        prefix: Ipv6Net,
        /// One lease's address.
        first: Ipv6Addr,
        /// The other's.
        second: Ipv6Addr,
    },
    /// A lease is younger than the last one that was made.
    #[error("the lease {address} has generation {found}, and {last} is the last that was made")]
    FutureGeneration {
        /// The lease's address.
        address: Ipv6Addr,
        /// Its generation.
        found: Generation,
        /// The last one.
        last: Generation,
    },
    /// A cursor lies outside of its pool.
    #[error("the cursor of the pool {pool} is {next}, which lies outside of it")]
    BadCursor {
        /// The pool.
        pool: PoolId,
        /// The cursor.
        next: u128,
    },
    /// A lease reaches into a pool of the plan without being one of its units, so that the pool
    /// could give the same addresses to another sandbox.
    #[error(
        "the lease {address} of {owner} does not fit the pool {pool}: release it under the plan that it was made with"
    )]
    PlanConflict {
        /// The lease's address.
        address: Ipv6Addr,
        /// Who holds it.
        owner: Owner,
        /// The pool.
        pool: PoolId,
    },
}

/// The address book of a node. It does no I/O: see [`Transaction`] for how a change is made
/// durable, and [`crate::Service`] for both in one.
#[derive(Debug)]
pub struct Ipam {
    pub(crate) plan: Plan,
    pub(crate) state: State,
    /// Leases that the last listing did not have, by owner.
    pub(crate) suspects: BTreeMap<Owner, Generation>,
}

/// Some leases, in order of address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The leases.
    pub leases: Vec<Lease>,
    /// Where the next page begins: pass it as `after`. None at the end.
    pub next: Option<Ipv6Addr>,
}

/// How much of a pool is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolUsage {
    /// The pool.
    pub pool: PoolId,
    /// How many units it can hand out in all; 2^128 is shown as one less.
    pub capacity: u128,
    /// Set aside, not known to be in use.
    pub reserved: u64,
    /// In use.
    pub bound: u64,
    /// Given back, and not free yet.
    pub quarantined: u64,
    /// What could be handed out now.
    pub free: u128,
    /// How often the pool was used up.
    pub pass: u64,
}

impl Ipam {
    /// Takes up what a store holds; an empty snapshot is a node that never handed out anything.
    pub fn restore(plan: Plan, snapshot: &Snapshot) -> Result<Self, RestoreError> {
        check_key(&plan, snapshot)?;
        check_leases(&plan, snapshot)?;
        let mut state = State::new(&plan);
        state.key_recorded = snapshot.key.is_some();
        state.generation = snapshot.generation;
        for (pool, state) in plan.pools().iter().zip(&mut state.pools) {
            state.cursor = cursor_of(snapshot, pool.id())?;
        }
        for lease in snapshot.leases.values() {
            state.apply(&plan, &Change::Put(lease.clone()));
        }
        Ok(Self {
            plan,
            state,
            suspects: BTreeMap::new(),
        })
    }

    /// Begins a change. It holds the address book until it is applied or dropped.
    pub fn begin(&mut self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// What is handed out from where.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The generation of the last lease that was made. Note it before listing what is alive:
    /// see [`crate::Listing`].
    pub fn generation(&self) -> Generation {
        self.state.generation
    }

    /// The lease that the owner holds.
    pub fn lease_of(&self, owner: &Owner) -> Option<&Lease> {
        self.state.leases.get(self.state.owners.get(owner)?)
    }

    /// The lease of the address, also when it is in quarantine.
    pub fn lease_at(&self, address: Ipv6Addr) -> Option<&Lease> {
        self.state.leases.get(&address)
    }

    /// At most `limit` (1 to [`MAX_PAGE`]) leases in order of address, those in quarantine too,
    /// from behind the address `after` on.
    pub fn list(&self, after: Option<Ipv6Addr>, limit: usize) -> Page {
        let limit = limit.clamp(1, MAX_PAGE);
        let begin = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut rest = self
            .state
            .leases
            .range((begin, std::ops::Bound::Unbounded))
            .map(|(_, lease)| lease);
        let leases: Vec<Lease> = rest.by_ref().take(limit).cloned().collect();
        let more = rest.next().is_some();
        let next = leases.last().filter(|_| more).map(|lease| lease.address);
        Page { leases, next }
    }

    /// How much of each pool is in use at the time `now`: the addresses first.
    pub fn usage(&self, now: UnixMillis) -> Vec<PoolUsage> {
        let pools = self.plan.pools().iter().zip(&self.state.pools);
        pools
            .map(|(pool, state)| {
                let over = state.resting.range(..=(now, LAST_ADDRESS));
                let usable_units = over.clone().filter(|(_, address)| {
                    let lease = self.state.leases.get(address);
                    lease.is_some_and(|lease| State::is_usable(pool, lease))
                });
                PoolUsage {
                    pool: pool.id(),
                    capacity: pool.capacity(),
                    reserved: state.reserved,
                    bound: state.bound,
                    quarantined: (state.resting.len() - over.count()) as u64,
                    free: pool.capacity() - state.occupied + usable_units.count() as u128,
                    pass: state.cursor.pass,
                }
            })
            .collect()
    }
}

const LAST_ADDRESS: Ipv6Addr = Ipv6Addr::from_bits(u128::MAX);

fn check_key(plan: &Plan, snapshot: &Snapshot) -> Result<(), RestoreError> {
    match snapshot.key {
        Some(fingerprint) if fingerprint != plan.key().fingerprint() => Err(RestoreError::OtherKey),
        None if !snapshot.leases.is_empty() => Err(RestoreError::NoKey {
            leases: snapshot.leases.len(),
        }),
        _ => Ok(()),
    }
}

fn check_leases(plan: &Plan, snapshot: &Snapshot) -> Result<(), RestoreError> {
    let mut owners = BTreeMap::new();
    let mut prefixes = BTreeMap::new();
    for lease in snapshot.leases.values() {
        let address = lease.address;
        if lease.generation > snapshot.generation {
            return Err(RestoreError::FutureGeneration {
                address,
                found: lease.generation,
                last: snapshot.generation,
            });
        }
        if let Some(pool) = misfit(plan, lease) {
            return Err(RestoreError::PlanConflict {
                address,
                owner: lease.owner.clone(),
                pool,
            });
        }
        let held = lease.state.is_held();
        if let Some(first) = held.then(|| owners.insert(&lease.owner, address)).flatten() {
            return Err(RestoreError::OwnerTwice {
                owner: lease.owner.clone(),
                first,
                second: address,
            });
        }
        let Some(prefix) = lease.prefix else { continue };
        if let Some(first) = prefixes.insert(prefix, address) {
            return Err(RestoreError::PrefixTwice {
                prefix,
                first,
                second: address,
            });
        }
    }
    Ok(())
}

fn cursor_of(snapshot: &Snapshot, pool: PoolId) -> Result<Cursor, RestoreError> {
    let cursor = snapshot.cursors.get(&pool).copied().unwrap_or_default();
    if cursor.next > pool.last() {
        return Err(RestoreError::BadCursor {
            pool,
            next: cursor.next,
        });
    }
    Ok(cursor)
}
