//! Everything that a store holds.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use causeway_types::Generation;

use crate::lease::Lease;
use crate::pool::PoolId;
use crate::state::{Change, Cursor};

/// Everything that a store holds, as [`crate::Ipam::restore`] takes it up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Tells the key from which the order of addresses comes from others.
    pub key: Option<u128>,
    /// The generation of the last lease that was made.
    pub generation: Generation,
    /// How far each pool has been handed out.
    pub cursors: BTreeMap<PoolId, Cursor>,
    /// The leases by their address.
    pub leases: BTreeMap<Ipv6Addr, Lease>,
}

impl Snapshot {
    /// Carries out one change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Key { fingerprint } => self.key = Some(*fingerprint),
            Change::Generation(generation) => self.generation = *generation,
            Change::Cursor { pool, cursor } => {
                self.cursors.insert(*pool, *cursor);
            }
            Change::Put(lease) => {
                self.leases.insert(lease.address, lease.clone());
            }
            Change::Delete { address } => {
                self.leases.remove(address);
            }
        }
    }
}
