//! The leases of a node and the indexes over them. Only [`State::apply`] changes them, and what
//! it did can be undone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv6Addr;

use causeway_types::Generation;
use ipnet::Ipv6Net;

use crate::index_set::IndexSet;
use crate::lease::{Lease, LeaseState, Owner, UnixMillis};
use crate::plan::Plan;
use crate::pool::{Pool, PoolId};

/// How far a pool has been handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Where the search for a free unit begins, in the pool's own order.
    pub next: u128,
    /// How often the pool was used up.
    pub pass: u64,
}

/// One step of a change, as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Remember which key the order of addresses comes from.
    Key {
        /// Tells this key from others.
        fingerprint: u128,
    },
    /// Remember the generation of the last lease that was made.
    Generation(Generation),
    /// Remember how far a pool has been handed out.
    Cursor {
        /// The pool.
        pool: PoolId,
        /// Its new cursor.
        cursor: Cursor,
    },
    /// Write a lease, in place of any that has the same address.
    Put(Lease),
    /// Remove the lease of an address.
    Delete {
        /// The address.
        address: Ipv6Addr,
    },
}

/// How to take a [`Change`] back.
#[derive(Debug)]
pub(crate) enum Undo {
    Key {
        recorded: bool,
    },
    Generation(Generation),
    Cursor {
        place: usize,
        cursor: Cursor,
    },
    Lease {
        address: Ipv6Addr,
        lease: Option<Lease>,
    },
}

/// What is known about one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PoolState {
    pub(crate) cursor: Cursor,
    /// The units that a lease occupies, by their place in the pool's order.
    pub(crate) taken: IndexSet,
    /// How many of them could be handed out, were they free.
    pub(crate) occupied: u128,
    pub(crate) reserved: u64,
    pub(crate) bound: u64,
    /// Leases in quarantine, the first to end first.
    pub(crate) resting: BTreeSet<(UnixMillis, Ipv6Addr)>,
}

/// Everything that the store keeps, with indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    /// One for each pool of the plan, in its order.
    pub(crate) pools: Vec<PoolState>,
    pub(crate) leases: BTreeMap<Ipv6Addr, Lease>,
    /// Who holds which address; a lease in quarantine is nobody's. Never walked: an ordered map
    /// would compare names at every step down, which gets slower as it fills.
    pub(crate) owners: HashMap<Owner, Ipv6Addr>,
    /// Leases in quarantine that lie in no pool, since the plan changed after they were made.
    pub(crate) strays: BTreeSet<(UnixMillis, Ipv6Addr)>,
    pub(crate) generation: Generation,
    pub(crate) key_recorded: bool,
}

impl State {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            pools: vec![PoolState::default(); plan.pools().len()],
            leases: BTreeMap::new(),
            owners: HashMap::new(),
            strays: BTreeSet::new(),
            generation: Generation::default(),
            key_recorded: false,
        }
    }

    /// Carries out one change.
    pub(crate) fn apply(&mut self, plan: &Plan, change: &Change) -> Undo {
        match change {
            Change::Key { .. } => Undo::Key {
                recorded: std::mem::replace(&mut self.key_recorded, true),
            },
            Change::Generation(generation) => {
                Undo::Generation(std::mem::replace(&mut self.generation, *generation))
            }
            Change::Cursor { pool, cursor } => self.set_cursor(plan, *pool, *cursor),
            Change::Put(lease) => Undo::Lease {
                address: lease.address,
                lease: self.put(plan, lease.clone()),
            },
            Change::Delete { address } => Undo::Lease {
                address: *address,
                lease: self.delete(plan, *address),
            },
        }
    }

    /// Takes one change back. Changes are taken back in the opposite order.
    pub(crate) fn undo(&mut self, plan: &Plan, undo: Undo) {
        match undo {
            Undo::Key { recorded } => self.key_recorded = recorded,
            Undo::Generation(generation) => self.generation = generation,
            Undo::Cursor { place, cursor } => {
                if let Some(pool) = self.pools.get_mut(place) {
                    pool.cursor = cursor;
                }
            }
            Undo::Lease { address, lease } => {
                self.delete(plan, address);
                if let Some(lease) = lease {
                    self.put(plan, lease);
                }
            }
        }
    }

    /// A cursor of a pool that the plan no longer has stays in the store alone.
    fn set_cursor(&mut self, plan: &Plan, id: PoolId, cursor: Cursor) -> Undo {
        let place = plan.pools().iter().position(|pool| pool.id() == id);
        match place.and_then(|place| Some((place, self.pools.get_mut(place)?))) {
            Some((place, pool)) => Undo::Cursor {
                place,
                cursor: std::mem::replace(&mut pool.cursor, cursor),
            },
            None => Undo::Cursor {
                place: usize::MAX,
                cursor,
            },
        }
    }

    fn put(&mut self, plan: &Plan, lease: Lease) -> Option<Lease> {
        let old = self.delete(plan, lease.address);
        let mut in_a_pool = false;
        for (pool, state) in plan.pools().iter().zip(&mut self.pools) {
            in_a_pool |= state.enter(pool, &lease);
        }
        if let LeaseState::Quarantined { until } = lease.state
            && !in_a_pool
        {
            self.strays.insert((until, lease.address));
        }
        if lease.state.is_held() {
            self.owners.insert(lease.owner.clone(), lease.address);
        }
        self.leases.insert(lease.address, lease);
        old
    }

    fn delete(&mut self, plan: &Plan, address: Ipv6Addr) -> Option<Lease> {
        let lease = self.leases.remove(&address)?;
        for (pool, state) in plan.pools().iter().zip(&mut self.pools) {
            state.leave(pool, &lease);
        }
        if let LeaseState::Quarantined { until } = lease.state {
            self.strays.remove(&(until, lease.address));
        }
        if lease.state.is_held() {
            self.owners.remove(&lease.owner);
        }
        Some(lease)
    }

    /// Whether the unit that the lease occupies in this pool could be handed out, were it free.
    pub(crate) fn is_usable(pool: &Pool, lease: &Lease) -> bool {
        place_in(pool, lease).is_some_and(|(_, usable)| usable)
    }

    /// The first free unit at or after the pool's cursor, going round at its end, and the cursor
    /// behind it. None when the pool is used up.
    ///
    /// Runs of taken units are passed in one step; of the rest, at most half is excluded.
    pub(crate) fn find_free(&self, plan: &Plan, place: usize) -> Option<(Ipv6Addr, Cursor)> {
        let (pool, state) = (plan.pools().get(place)?, self.pools.get(place)?);
        if state.occupied >= pool.capacity() {
            return None;
        }
        let last = pool.id().last();
        let mut cursor = state.cursor;
        loop {
            let free = state.taken.next_free(cursor.next);
            let Some(index) = free.filter(|index| *index <= last) else {
                cursor = next_pass(cursor);
                continue;
            };
            cursor = if index == last {
                next_pass(cursor)
            } else {
                Cursor {
                    next: index + 1,
                    ..cursor
                }
            };
            let unit = pool.unit_at(index);
            if pool.exclusion_of(unit).is_none() {
                return Some((unit, cursor));
            }
        }
    }
}

fn next_pass(cursor: Cursor) -> Cursor {
    Cursor {
        next: 0,
        pass: cursor.pass.saturating_add(1),
    }
}

impl PoolState {
    /// Counts the lease in. False when it is not in this pool.
    fn enter(&mut self, pool: &Pool, lease: &Lease) -> bool {
        let Some((index, usable)) = place_in(pool, lease) else {
            return false;
        };
        let added = self.taken.insert(index);
        debug_assert!(added, "two leases hold one unit of {}", pool.id());
        self.occupied += u128::from(usable);
        match lease.state {
            LeaseState::Reserved => self.reserved += 1,
            LeaseState::Bound => self.bound += 1,
            LeaseState::Quarantined { until } => {
                self.resting.insert((until, lease.address));
            }
        }
        true
    }

    fn leave(&mut self, pool: &Pool, lease: &Lease) {
        let Some((index, usable)) = place_in(pool, lease) else {
            return;
        };
        let removed = self.taken.remove(index);
        debug_assert!(removed, "a lease held no unit of {}", pool.id());
        self.occupied -= u128::from(usable);
        match lease.state {
            LeaseState::Reserved => self.reserved -= 1,
            LeaseState::Bound => self.bound -= 1,
            LeaseState::Quarantined { until } => {
                self.resting.remove(&(until, lease.address));
            }
        }
    }
}

/// The unit of this pool that the lease occupies, if it does, and whether it could be handed
/// out: it cannot when it was excluded after the lease was made.
fn place_in(pool: &Pool, lease: &Lease) -> Option<(u128, bool)> {
    let unit = unit_of(pool.id(), lease)?;
    let index = pool.index_of(unit)?;
    Some((index, pool.exclusion_of(unit).is_none()))
}

/// The first address of what the lease would occupy in a pool of this kind.
fn unit_of(id: PoolId, lease: &Lease) -> Option<Ipv6Addr> {
    if id.unit_length() == 128 {
        return Some(lease.address);
    }
    let prefix = lease.prefix?;
    (prefix.prefix_len() == id.unit_length()).then(|| prefix.network())
}

/// A pool that the lease reaches into without occupying one whole unit of it, which happens
/// when the plan was changed over the heads of those who hold leases.
pub(crate) fn misfit(plan: &Plan, lease: &Lease) -> Option<PoolId> {
    plan.pools().iter().map(Pool::id).find(|id| {
        let overlaps = |net: Ipv6Net| id.block().contains(&net) || net.contains(&id.block());
        let address = overlaps(Ipv6Net::from(lease.address)) && id.unit_length() != 128;
        let prefix = lease
            .prefix
            .is_some_and(|prefix| overlaps(prefix) && prefix.prefix_len() != id.unit_length());
        address || prefix
    })
}
