//! A store that lasts as long as the process.

use super::{Store, StoreError};
use crate::snapshot::Snapshot;
use crate::state::Change;

/// Keeps leases in memory: for tests, and for nodes whose leases need not outlive them.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    snapshot: Snapshot,
}

impl Store for MemoryStore {
    fn load(&self) -> Result<Snapshot, StoreError> {
        Ok(self.snapshot.clone())
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        for change in changes {
            self.snapshot.apply(change);
        }
        Ok(())
    }
}
