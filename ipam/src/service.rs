//! An address book together with its store.

use causeway_types::Generation;

use crate::garbage::{Collected, Listing};
use crate::ipam::{Ipam, RestoreError};
use crate::lease::{Lease, Owner, UnixMillis};
use crate::plan::Plan;
use crate::request::{AllocateError, BindError, Request};
use crate::store::{Store, StoreError};
use crate::transaction::Transaction;

/// Why an address book cannot be opened. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store cannot be read.
    #[error("the leases cannot be read")]
    Store(#[from] StoreError),
    /// What it holds contradicts itself or the plan.
    #[error("the leases cannot be taken up")]
    Restore(#[from] RestoreError),
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError<E: std::error::Error + 'static> {
    /// It is not possible. Nothing was changed.
    #[error(transparent)]
    Refused(E),
    /// The store did not keep it, or cannot say whether it did. Nothing is handed out.
    #[error("the change was not made durable")]
    Store(#[source] StoreError),
    /// After such a failure, the store was read again, and what it holds cannot be taken up.
    #[error("the leases cannot be read again after a failure of the store")]
    Reopen(#[source] OpenError),
}

/// A change that cannot be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Never {}

/// An address book together with its store: each change is durable when it returns.
#[derive(Debug)]
pub struct Service<S> {
    ipam: Ipam,
    store: S,
    /// A commit failed, so that only the store knows what holds.
    in_doubt: bool,
}

impl<S: Store> Service<S> {
    /// Takes up what the store holds.
    pub fn open(plan: Plan, store: S) -> Result<Self, OpenError> {
        let ipam = Ipam::restore(plan, &store.load()?)?;
        Ok(Self {
            ipam,
            store,
            in_doubt: false,
        })
    }

    /// The address book, to read.
    pub fn ipam(&self) -> &Ipam {
        &self.ipam
    }

    /// The store, to read.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// See [`Transaction::allocate`].
    pub fn allocate(
        &mut self,
        owner: &Owner,
        request: Request,
        now: UnixMillis,
    ) -> Result<Lease, ServiceError<AllocateError>> {
        self.change(|transaction| transaction.allocate(owner, request, now))
    }

    /// See [`Transaction::bind`].
    pub fn bind(
        &mut self,
        owner: &Owner,
        generation: Generation,
    ) -> Result<Lease, ServiceError<BindError>> {
        self.change(|transaction| transaction.bind(owner, generation))
    }

    /// See [`Transaction::release`].
    pub fn release(
        &mut self,
        owner: &Owner,
        generation: Option<Generation>,
        now: UnixMillis,
    ) -> Result<Option<Lease>, ServiceError<Never>> {
        self.change(|transaction| Ok(transaction.release(owner, generation, now)))
    }

    /// See [`Transaction::sweep`].
    pub fn sweep(&mut self, now: UnixMillis, limit: usize) -> Result<usize, ServiceError<Never>> {
        self.change(|transaction| Ok(transaction.sweep(now, limit)))
    }

    /// See [`Transaction::collect_garbage`].
    pub fn collect_garbage(
        &mut self,
        listing: Listing,
        now: UnixMillis,
    ) -> Result<Collected, ServiceError<Never>> {
        self.change(|transaction| Ok(transaction.collect_garbage(listing, now)))
    }

    /// Makes several changes that become durable together, or none of them.
    pub fn change<T, E: std::error::Error>(
        &mut self,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, ServiceError<E>> {
        if self.in_doubt {
            self.reopen().map_err(ServiceError::Reopen)?;
        }
        let mut transaction = self.ipam.begin();
        let result = change(&mut transaction).map_err(ServiceError::Refused)?;
        if !transaction.changes().is_empty()
            && let Err(error) = self.store.commit(transaction.changes())
        {
            drop(transaction);
            self.in_doubt = true;
            return Err(ServiceError::Store(error));
        }
        transaction.apply();
        Ok(result)
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        let snapshot = self.store.load()?;
        self.ipam = Ipam::restore(self.ipam.plan().clone(), &snapshot)?;
        self.in_doubt = false;
        Ok(())
    }
}
