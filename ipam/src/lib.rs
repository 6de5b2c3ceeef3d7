//! The address plan of a node, and the leases that sandboxes hold in it.
//!
//! [`Plan`] says what is handed out from where, [`Ipam`] is the address book, and a
//! [`Transaction`] changes it: what was decided is first made durable by a [`Store`] and only
//! then handed out. [`Service`] does these steps in order.
//!
//! Nothing here looks at a clock or draws a random number, and only the stores do I/O.

mod garbage;
mod index_set;
mod ipam;
mod lease;
mod permutation;
mod plan;
mod pool;
mod request;
mod service;
mod snapshot;
mod state;
mod store;
mod transaction;

pub use garbage::{Collected, EmptyListing, Listing};
pub use ipam::{Ipam, MAX_PAGE, Page, PoolUsage, RestoreError};
pub use lease::{Lease, LeaseState, Owner, OwnerError, UnixMillis};
pub use permutation::BlockKey;
pub use plan::{
    DEFAULT_NODE_BLOCK_LENGTH, DEFAULT_QUARANTINE, MAX_EXCLUSIONS, MAX_PREFIX_POOLS,
    NodeBlockError, PREFIX_LENGTHS, Plan, PlanError, PlanSettings, PrefixPool, node_block,
};
pub use pool::PoolId;
pub use request::{AllocateError, BindError, Request};
pub use service::{Never, OpenError, Service, ServiceError};
pub use snapshot::Snapshot;
pub use state::{Change, Cursor};
pub use store::{FORMAT, MemoryStore, RedbStore, Store, StoreError, redb as redb_store};
pub use transaction::Transaction;
