//! Where leases outlive the process.

mod memory;
mod record;
pub mod redb;

use std::path::PathBuf;

pub use memory::MemoryStore;
pub use redb::RedbStore;

use crate::snapshot::Snapshot;
use crate::state::Change;

/// The version of what this crate writes.
pub const FORMAT: u64 = 1;

/// Why a store cannot be read or written. What it holds is as before, except for a failed
/// [`Store::commit`], of which it is only known that all or nothing was kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened.
    #[error("the store {} cannot be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Another process has the file open.
    #[error("the store {} is in use by another process: is a second agent running?", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged, or no store at all.
    #[error("the store {} is damaged or no store: restore it from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        source: Box<::redb::Error>,
    },
    /// The file was written by a version of the database with another layout.
    #[error("the store {} has the file layout {found}, which this version does not read", path.display())]
    FileLayout {
        /// The file.
        path: PathBuf,
        /// The layout's number.
        found: u8,
    },
    /// The records were written by a later version.
    #[error(
        "the store has format {found}, and this version reads up to {FORMAT}: use the version that wrote it, or a later one"
    )]
    NewerFormat {
        /// The format found.
        found: u128,
    },
    /// A record cannot be understood.
    #[error("the store's table {table} has a damaged record, {key}")]
    BadRecord {
        /// The table.
        table: &'static str,
        /// The record's key, as text.
        key: String,
        /// What is wrong, where a parser said so.
        source: Option<serde_json::Error>,
    },
    /// The database failed.
    #[error("the store failed")]
    Database(#[source] Box<::redb::Error>),
    /// A store other than redb failed.
    #[error("the store failed")]
    Other(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Keeps leases.
pub trait Store {
    /// Reads everything; nothing at all is an empty snapshot.
    fn load(&self) -> Result<Snapshot, StoreError>;

    /// Makes the changes durable before it returns, all or nothing.
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;
}
