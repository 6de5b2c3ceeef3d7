//! Leases in a redb file: alone, or in a file and a transaction of the caller's.

use std::fs::{self, File};
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use causeway_types::Generation;
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase as _, ReadableTable, StorageError,
    TableDefinition, TableError, WriteTransaction,
};

use super::{FORMAT, Store, StoreError, record};
use crate::pool::PoolId;
use crate::snapshot::Snapshot;
use crate::state::{Change, Cursor};

/// Leases by address.
const LEASES: TableDefinition<'_, u128, &[u8]> = TableDefinition::new("ipam_leases");
/// Cursors, next and pass, by pool.
const CURSORS: TableDefinition<'_, &[u8], (u128, u64)> = TableDefinition::new("ipam_cursors");
/// Single numbers by name.
const META: TableDefinition<'_, &str, u128> = TableDefinition::new("ipam_meta");

const META_FORMAT: &str = "format";
const META_KEY: &str = "key";
const META_GENERATION: &str = "generation";

/// How much of the file is kept in memory.
const CACHE_BYTES: usize = 16 << 20;

/// Keeps leases in a redb file of their own.
#[derive(Debug)]
pub struct RedbStore {
    database: Database,
}

impl RedbStore {
    /// Opens the file, and makes it when there is none.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let database = open_database(path)?;
        Ok(Self { database })
    }
}

impl Store for RedbStore {
    fn load(&self) -> Result<Snapshot, StoreError> {
        load(&self.database.begin_read().map_err(database_error)?)
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let transaction = self.database.begin_write().map_err(database_error)?;
        stage(&transaction, changes)?;
        transaction.commit().map_err(database_error)
    }
}

/// Opens a redb file after checking the whole of it, and makes it when there is none.
///
/// A file that is there is never taken for a new one, not even when it is empty: its leases
/// would be forgotten and their addresses handed out again. A new file gets its name only when
/// it is complete.
pub fn open_database(path: &Path) -> Result<Database, StoreError> {
    match fs::metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path)?,
        Err(source) => return Err(open_error(path, source)),
    }
    Database::builder()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .open(path)
        .map_err(|error| classify(path, error))
}

/// Reads the leases that a file holds; without any table of ours, that is nothing.
pub fn load(transaction: &ReadTransaction) -> Result<Snapshot, StoreError> {
    let Some(meta) = present(transaction.open_table(META))? else {
        let empty = present(transaction.open_table(LEASES))?.is_none()
            && present(transaction.open_table(CURSORS))?.is_none();
        return if empty {
            Ok(Snapshot::default())
        } else {
            Err(bad_record("ipam_meta", META_FORMAT))
        };
    };
    let number = |name: &'static str| -> Result<Option<u128>, StoreError> {
        let value = meta.get(name).map_err(database_error)?;
        Ok(value.map(|value| value.value()))
    };
    let format = number(META_FORMAT)?.ok_or_else(|| bad_record("ipam_meta", META_FORMAT))?;
    if format > u128::from(FORMAT) {
        return Err(StoreError::NewerFormat { found: format });
    }
    let generation = number(META_GENERATION)?.unwrap_or(0);
    let generation =
        u64::try_from(generation).map_err(|_large| bad_record("ipam_meta", META_GENERATION))?;
    let mut snapshot = Snapshot {
        key: number(META_KEY)?,
        generation: Generation(generation),
        ..Snapshot::default()
    };
    load_cursors(transaction, &mut snapshot)?;
    load_leases(transaction, &mut snapshot)?;
    Ok(snapshot)
}

/// Writes changes into the caller's transaction, which makes them durable with whatever else is
/// in it. Call it with [`crate::Transaction::changes`], commit, then apply.
pub fn stage(transaction: &WriteTransaction, changes: &[Change]) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut meta = transaction.open_table(META).map_err(database_error)?;
    let mut cursors = transaction.open_table(CURSORS).map_err(database_error)?;
    let mut leases = transaction.open_table(LEASES).map_err(database_error)?;
    for change in changes {
        match change {
            Change::Key { fingerprint } => {
                meta.insert(META_FORMAT, u128::from(FORMAT))
                    .map_err(database_error)?;
                meta.insert(META_KEY, fingerprint).map_err(database_error)?;
            }
            Change::Generation(generation) => {
                meta.insert(META_GENERATION, u128::from(generation.0))
                    .map_err(database_error)?;
            }
            Change::Cursor { pool, cursor } => {
                cursors
                    .insert(pool.to_bytes().as_slice(), (cursor.next, cursor.pass))
                    .map_err(database_error)?;
            }
            Change::Put(lease) => {
                let value = record::encode(lease).map_err(|source| StoreError::BadRecord {
                    table: "ipam_leases",
                    key: lease.address.to_string(),
                    source: Some(source),
                })?;
                leases
                    .insert(lease.address.to_bits(), value.as_slice())
                    .map_err(database_error)?;
            }
            Change::Delete { address } => {
                leases.remove(address.to_bits()).map_err(database_error)?;
            }
        }
    }
    Ok(())
}

fn load_cursors(transaction: &ReadTransaction, snapshot: &mut Snapshot) -> Result<(), StoreError> {
    let Some(cursors) = present(transaction.open_table(CURSORS))? else {
        return Ok(());
    };
    for entry in cursors.iter().map_err(database_error)? {
        let (key, value) = entry.map_err(database_error)?;
        let pool = PoolId::from_bytes(key.value())
            .ok_or_else(|| bad_record("ipam_cursors", format!("{:02x?}", key.value())))?;
        let (next, pass) = value.value();
        snapshot.cursors.insert(pool, Cursor { next, pass });
    }
    Ok(())
}

fn load_leases(transaction: &ReadTransaction, snapshot: &mut Snapshot) -> Result<(), StoreError> {
    let Some(leases) = present(transaction.open_table(LEASES))? else {
        return Ok(());
    };
    for entry in leases.iter().map_err(database_error)? {
        let (key, value) = entry.map_err(database_error)?;
        let address = Ipv6Addr::from_bits(key.value());
        let lease =
            record::decode(address, value.value()).map_err(|source| StoreError::BadRecord {
                table: "ipam_leases",
                key: address.to_string(),
                source: Some(source),
            })?;
        snapshot.leases.insert(address, lease);
    }
    Ok(())
}

/// Makes an empty file and gives it its name when all of it is on disk.
fn create(path: &Path) -> Result<(), StoreError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(open_error(&unfinished, error));
        }
        _ => {}
    }
    let database = Database::create(&unfinished).map_err(|error| classify(&unfinished, error))?;
    drop(database);
    let rename = || -> io::Result<()> {
        File::open(&unfinished)?.sync_all()?;
        fs::rename(&unfinished, path)?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    rename().map_err(|source| open_error(path, source))
}

/// The table, if it was ever made.
fn present<T>(table: Result<T, TableError>) -> Result<Option<T>, StoreError> {
    match table {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(database_error(error)),
    }
}

fn classify(path: &Path, error: DatabaseError) -> StoreError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path },
        DatabaseError::UpgradeRequired(found) => StoreError::FileLayout { path, found },
        DatabaseError::Storage(StorageError::Io(source))
            if !matches!(
                source.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            ) =>
        {
            StoreError::Open { path, source }
        }
        error => StoreError::Damaged {
            path,
            source: Box::new(error.into()),
        },
    }
}

fn open_error(path: &Path, source: io::Error) -> StoreError {
    StoreError::Open {
        path: path.to_owned(),
        source,
    }
}

fn bad_record(table: &'static str, key: impl Into<String>) -> StoreError {
    StoreError::BadRecord {
        table,
        key: key.into(),
        source: None,
    }
}

fn database_error(error: impl Into<redb::Error>) -> StoreError {
    StoreError::Database(Box::new(error.into()))
}
