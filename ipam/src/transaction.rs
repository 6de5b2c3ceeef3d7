//! Changes that are kept only when they are durable.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;

use causeway_types::Generation;
use ipnet::Ipv6Net;

use crate::garbage::{Collected, Listing};
use crate::ipam::Ipam;
use crate::lease::{Lease, LeaseState, Owner, UnixMillis};
use crate::pool::Pool;
use crate::request::{AllocateError, BindError, Request};
use crate::state::{Change, Undo};

/// How many leases whose quarantine is over an allocation removes from each pool that it uses.
/// Each release adds one, so two keep the rest from growing.
const SWEPT_BY_ALLOCATION: usize = 2;

/// One or several changes of an [`Ipam`] that become durable together.
///
/// 1. Call [`Transaction::allocate`] and the like, as often as wanted.
/// 2. Make [`Transaction::changes`] durable, alone or together with other records.
/// 3. Call [`Transaction::apply`], and only now hand out what was allocated.
///
/// Dropped without [`Transaction::apply`], everything is as before. When the store cannot say
/// whether it kept the changes, restore the [`Ipam`] from it.
#[derive(Debug)]
pub struct Transaction<'a> {
    ipam: &'a mut Ipam,
    changes: Vec<Change>,
    undo: Vec<Undo>,
    suspects: Option<crate::garbage::Suspects>,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(ipam: &'a mut Ipam) -> Self {
        let mut transaction = Self {
            ipam,
            changes: Vec::new(),
            undo: Vec::new(),
            suspects: None,
        };
        if !transaction.ipam.state.key_recorded {
            let fingerprint = transaction.ipam.plan.key().fingerprint();
            transaction.change(Change::Key { fingerprint });
        }
        transaction
    }

    /// Reserves an address, and a prefix where one is asked for. An owner that asks for what it
    /// holds gets it again, whatever its state.
    ///
    /// Takes the same time however full the pools are.
    pub fn allocate(
        &mut self,
        owner: &Owner,
        request: Request,
        now: UnixMillis,
    ) -> Result<Lease, AllocateError> {
        if let Some(lease) = self.ipam.lease_of(owner) {
            return repeated(lease, request);
        }
        let mark = self.undo.len();
        let result = self.reserve(owner, request, now);
        if result.is_err() {
            self.roll_back_to(mark);
        }
        result
    }

    /// Says that the owner's lease is in use. Binding twice changes nothing.
    pub fn bind(&mut self, owner: &Owner, generation: Generation) -> Result<Lease, BindError> {
        let Some(lease) = self.ipam.lease_of(owner) else {
            return Err(BindError::NotHeld {
                owner: owner.clone(),
            });
        };
        if lease.generation != generation {
            return Err(BindError::Replaced {
                owner: owner.clone(),
                address: lease.address,
                current: lease.generation,
                meant: generation,
            });
        }
        let mut lease = lease.clone();
        if lease.state != LeaseState::Bound {
            lease.state = LeaseState::Bound;
            self.change(Change::Put(lease.clone()));
        }
        Ok(lease)
    }

    /// Gives the owner's lease back: it rests until its quarantine is over. None when the owner
    /// holds no lease, so that giving back twice does no harm, or when it is not of the
    /// `generation` that is meant, so that a late message leaves a newer lease alone.
    pub fn release(
        &mut self,
        owner: &Owner,
        generation: Option<Generation>,
        now: UnixMillis,
    ) -> Option<Lease> {
        let lease = self.ipam.lease_of(owner)?;
        if generation.is_some_and(|meant| meant != lease.generation) {
            return None;
        }
        let mut lease = lease.clone();
        lease.state = LeaseState::Quarantined {
            until: now.saturating_add(self.ipam.plan.quarantine()),
        };
        self.change(Change::Put(lease.clone()));
        Some(lease)
    }

    /// Takes an owner's lease back without quarantine, and returns it. Only for an address that
    /// nobody was told of and no packet carried: a failed attach would otherwise use up a small
    /// pool.
    pub fn cancel(&mut self, owner: &Owner) -> Option<Lease> {
        let lease = self.ipam.lease_of(owner)?.clone();
        self.change(Change::Delete {
            address: lease.address,
        });
        Some(lease)
    }

    /// Removes at most `limit` leases whose quarantine is over, and says how many. Allocation
    /// does so by itself, a few at a time: call this now and then on an idle node.
    pub fn sweep(&mut self, now: UnixMillis, limit: usize) -> usize {
        let strays = over(&self.ipam.state.strays, now, limit);
        let mut left = limit - self.delete_all(&strays);
        for place in 0..self.ipam.plan.pools().len() {
            left -= self.sweep_pool(place, now, left);
        }
        limit - left
    }

    /// Gives back leases whose owners are gone. A lease is given back when two listings in a row
    /// do not have its owner, both begun after the lease was made.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a listing is used up, so that two collections need two listings"
    )]
    pub fn collect_garbage(&mut self, listing: Listing, now: UnixMillis) -> Collected {
        let before = self.suspects.take();
        let before = before.as_ref().unwrap_or(&self.ipam.suspects);
        let held = self.ipam.state.leases.values();
        let (gone, suspects) = listing.judge(held, before);
        let suspected = suspects.len();
        self.suspects = Some(suspects);
        let released = gone
            .iter()
            .filter_map(|(owner, generation)| self.release(owner, Some(*generation), now))
            .collect();
        Collected {
            released,
            suspected,
        }
    }

    /// The address book as it is with the changes so far.
    pub fn view(&self) -> &Ipam {
        self.ipam
    }

    /// What a store must make durable, all or nothing, in this order. Empty when nothing changed.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Keeps the changes. Call it only after they are durable.
    pub fn apply(mut self) {
        self.undo.clear();
        if let Some(suspects) = self.suspects.take() {
            self.ipam.suspects = suspects;
        }
    }

    fn reserve(
        &mut self,
        owner: &Owner,
        request: Request,
        now: UnixMillis,
    ) -> Result<Lease, AllocateError> {
        let address = match request.address {
            Some(address) => self.claim(owner, address, now)?,
            None => self.take(0, owner, now)?,
        };
        let prefix = match request.prefix_length {
            Some(length) => Some(self.take_prefix(length, owner, now)?),
            None => None,
        };
        let generation = self.ipam.state.generation.next();
        self.change(Change::Generation(generation));
        let lease = Lease {
            address,
            prefix,
            owner: owner.clone(),
            generation,
            state: LeaseState::Reserved,
            created: now,
        };
        self.change(Change::Put(lease.clone()));
        Ok(lease)
    }

    /// The next free unit of a pool.
    fn take(
        &mut self,
        place: usize,
        owner: &Owner,
        now: UnixMillis,
    ) -> Result<Ipv6Addr, AllocateError> {
        self.sweep_pool(place, now, SWEPT_BY_ALLOCATION);
        let Ipam { plan, state, .. } = &*self.ipam;
        let pool = plan.pools()[place].id();
        let Some((unit, cursor)) = state.find_free(plan, place) else {
            let state = &state.pools[place];
            return Err(AllocateError::Exhausted {
                pool,
                owner: owner.clone(),
                held: state.reserved + state.bound,
                quarantined: state.resting.len() as u64,
                next_free: state.resting.first().map(|(until, _)| *until),
            });
        };
        self.change(Change::Cursor { pool, cursor });
        Ok(unit)
    }

    fn take_prefix(
        &mut self,
        length: u8,
        owner: &Owner,
        now: UnixMillis,
    ) -> Result<Ipv6Net, AllocateError> {
        let error = || AllocateError::NoSuchPool {
            length,
            owner: owner.clone(),
        };
        // Pools of one length are used up one after the other.
        let mut result = Err(error());
        for place in 1..self.ipam.plan.pools().len() {
            if self.ipam.plan.pools()[place].id().unit_length() != length {
                continue;
            }
            result = self.take(place, owner, now).and_then(|network| {
                Ipv6Net::new(network, length).map_err(|_length_is_a_pools| error())
            });
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Checks that an address asked for can be had.
    fn claim(
        &mut self,
        owner: &Owner,
        address: Ipv6Addr,
        now: UnixMillis,
    ) -> Result<Ipv6Addr, AllocateError> {
        let pool: &Pool = &self.ipam.plan.pools()[0];
        let block = pool.id().block();
        let owner = owner.clone();
        if !block.contains(&address) {
            return Err(AllocateError::OutsideBlock {
                address,
                block,
                owner,
            });
        }
        if let Some(exclusion) = pool.exclusion_of(address) {
            return Err(AllocateError::Excluded {
                address,
                exclusion,
                block,
                owner,
            });
        }
        let Some(lease) = self.ipam.lease_at(address) else {
            return Ok(address);
        };
        match lease.state {
            LeaseState::Quarantined { until } if until <= now => {
                self.change(Change::Delete { address });
                Ok(address)
            }
            LeaseState::Quarantined { until } => Err(AllocateError::Quarantined {
                address,
                block,
                owner,
                until,
            }),
            LeaseState::Reserved | LeaseState::Bound => Err(AllocateError::Taken {
                address,
                block,
                owner,
                holder: lease.owner.clone(),
            }),
        }
    }

    fn sweep_pool(&mut self, place: usize, now: UnixMillis, limit: usize) -> usize {
        let addresses = over(&self.ipam.state.pools[place].resting, now, limit);
        self.delete_all(&addresses)
    }

    fn delete_all(&mut self, addresses: &[Ipv6Addr]) -> usize {
        for address in addresses {
            self.change(Change::Delete { address: *address });
        }
        addresses.len()
    }

    fn change(&mut self, change: Change) {
        let Ipam { plan, state, .. } = &mut *self.ipam;
        self.undo.push(state.apply(plan, &change));
        self.changes.push(change);
    }

    fn roll_back_to(&mut self, mark: usize) {
        let Ipam { plan, state, .. } = &mut *self.ipam;
        while self.undo.len() > mark {
            if let Some(undo) = self.undo.pop() {
                state.undo(plan, undo);
            }
        }
        self.changes.truncate(mark);
    }
}

impl Drop for Transaction<'_> {
    /// Takes back what was not applied.
    fn drop(&mut self) {
        self.roll_back_to(0);
    }
}

/// At most `limit` leases whose quarantine is over.
fn over(
    resting: &BTreeSet<(UnixMillis, Ipv6Addr)>,
    now: UnixMillis,
    limit: usize,
) -> Vec<Ipv6Addr> {
    let over = resting.iter().take_while(|(until, _)| *until <= now);
    over.take(limit).map(|(_, address)| *address).collect()
}

/// An owner that asks again for what it holds gets it.
fn repeated(lease: &Lease, request: Request) -> Result<Lease, AllocateError> {
    let same_address = request.address.is_none_or(|asked| asked == lease.address);
    let held_length = lease.prefix.map(|prefix| prefix.prefix_len());
    if same_address && held_length == request.prefix_length {
        Ok(lease.clone())
    } else {
        Err(AllocateError::OwnerHolds {
            owner: lease.owner.clone(),
            address: lease.address,
            prefix: lease.prefix,
        })
    }
}
