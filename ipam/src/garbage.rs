//! Giving back the leases of owners that are gone.

use std::collections::{BTreeMap, BTreeSet};

use causeway_types::Generation;

use crate::lease::{Lease, Owner};

/// Leases that a listing did not have, by owner.
pub(crate) type Suspects = BTreeMap<Owner, Generation>;

/// A listing has nobody in it. That is far more often a failure of whoever made it than the
/// truth, so that it is not believed: see [`Listing::nobody`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a listing of owners is empty, which is not taken as proof that all of them are gone")]
pub struct EmptyListing;

/// Who is alive, according to a listing that succeeded. It is used up by one collection, so
/// that two collections need two listings.
#[derive(Debug)]
pub struct Listing {
    began: Generation,
    owners: BTreeSet<Owner>,
}

/// What a collection did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// The leases that were given back; they are in quarantine now.
    pub released: Vec<Lease>,
    /// How many more will be given back if the next listing does not have their owners either.
    pub suspected: usize,
}

impl Listing {
    /// Takes the owners that were found alive. `began` is [`crate::Ipam::generation`], noted
    /// before the listing began: leases made later are not judged by it.
    pub fn new(
        began: Generation,
        owners: impl IntoIterator<Item = Owner>,
    ) -> Result<Self, EmptyListing> {
        let owners: BTreeSet<Owner> = owners.into_iter().collect();
        if owners.is_empty() {
            return Err(EmptyListing);
        }
        Ok(Self { began, owners })
    }

    /// States that nobody is alive: for an operator who confirms it, or a caller that has other
    /// proof, and not as a way to use an empty listing.
    pub fn nobody(began: Generation) -> Self {
        Self {
            began,
            owners: BTreeSet::new(),
        }
    }

    /// Those of the leases whose owners are gone, and those that are suspected to be.
    pub(crate) fn judge<'a>(
        &self,
        leases: impl Iterator<Item = &'a Lease>,
        before: &Suspects,
    ) -> (Suspects, Suspects) {
        leases
            .filter(|lease| lease.state.is_held())
            .filter(|lease| lease.generation <= self.began && !self.owners.contains(&lease.owner))
            .map(|lease| (lease.owner.clone(), lease.generation))
            .partition(|(owner, generation)| before.get(owner) == Some(generation))
    }
}
