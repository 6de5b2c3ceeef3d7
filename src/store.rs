//! The store: one file that holds everything that must survive a crash.
//!
//! Reads happen once, at the start. Writes go through one thread, which commits whatever is
//! queued in one transaction: a hundred attaches at once cost a few syncs of the disk and not a
//! hundred. A change is on disk when its call returns.

use std::path::{Path, PathBuf};

use redb::{Database, TableDefinition};

mod record;
mod writer;

pub use record::{
    AttachmentRecord, LoadError, NetworkRecord, Phase, PolicyRecord, SandboxRecord, SealedRecord,
};
pub use writer::{Pending, QueueSlot, Store, Write, WriteError};

/// The version of what is in the tables. It grows when an older Causeway would misread it.
const FORMAT: u32 = 1;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const SANDBOXES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sandboxes");
const NETWORKS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("networks");
const POLICIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("policies");
const SECRETS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("secrets");

const FORMAT_KEY: &str = "format";
/// How much of the file is kept in memory: it is read once, at the start.
const CACHE_BYTES: usize = 16 << 20;

/// Why the store cannot be opened. The file is left as it is in every case.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be made or read.
    #[error("the state directory {} cannot be used", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process has it open.
    #[error("the store {} is in use by another process", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A later Causeway wrote it.
    #[error("the store {} has format {found}, and this Causeway reads up to {FORMAT}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// It is not a store, or damaged.
    #[error("the store {} is damaged or not a Causeway store: {detail}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The database failed otherwise.
    #[error("the store {} cannot be opened", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What the database said.
        #[source]
        source: Box<redb::Error>,
    },
}

impl OpenError {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Directory { .. } => "make it, or name another with `state_dir`",
            Self::InUse { .. } => "stop the other agent, or give this one its own `state_dir`",
            Self::Newer { .. } => "run the newer Causeway that wrote it; nothing was changed",
            Self::Corrupt { .. } => {
                "restore it from a backup, or move it away to start empty; nothing was changed"
            }
            Self::Database { .. } => "check the disk; nothing was changed",
        }
    }
}

/// Opens the store at `path`, or makes an empty one. Also says whether it is new.
pub fn open(path: &Path) -> Result<(Store, bool), OpenError> {
    let fresh = !path.exists();
    if fresh {
        create(path)?;
    }
    let database = open_database(path)?;
    check_format(path, &database)?;
    Ok((Store::start(path.to_owned(), database), fresh))
}

/// A new store gets its name only when it is whole: a crash leaves no half of one behind.
fn create(path: &Path) -> Result<(), OpenError> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let io = |source| OpenError::Directory {
        path: directory.to_owned(),
        source,
    };
    let partial = path.with_extension("redb.new");
    match std::fs::remove_file(&partial) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    let database = Database::create(&partial).map_err(|error| explain(path, error))?;
    initialise(&database).map_err(|error| OpenError::Database {
        path: path.to_owned(),
        source: Box::new(error),
    })?;
    drop(database);
    std::fs::rename(&partial, path).map_err(io)?;
    std::fs::File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(io)
}

fn initialise(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction
        .open_table(META)?
        .insert(FORMAT_KEY, FORMAT.to_be_bytes().as_slice())?;
    for table in [SANDBOXES, NETWORKS, POLICIES, SECRETS] {
        transaction.open_table(table)?;
    }
    transaction.commit()?;
    Ok(())
}

fn open_database(path: &Path) -> Result<Database, OpenError> {
    // A file that is too short to be one would otherwise be taken for a new one.
    let length = std::fs::metadata(path)
        .map_err(|source| OpenError::Directory {
            path: path.to_owned(),
            source,
        })?
        .len();
    if length == 0 {
        return Err(OpenError::Corrupt {
            path: path.to_owned(),
            detail: "it is empty".to_owned(),
        });
    }
    Database::builder()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .open(path)
        .map_err(|error| explain(path, error))
}

fn explain(path: &Path, error: redb::DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        redb::DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { path },
        redb::DatabaseError::Storage(redb::StorageError::Corrupted(detail)) => {
            OpenError::Corrupt { path, detail }
        }
        redb::DatabaseError::Storage(redb::StorageError::Io(source))
            if matches!(
                source.kind(),
                std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof
            ) =>
        {
            OpenError::Corrupt {
                path,
                detail: source.to_string(),
            }
        }
        redb::DatabaseError::UpgradeRequired(version) => OpenError::Corrupt {
            path,
            detail: format!("database file format {version} is not one of ours"),
        },
        other => OpenError::Database {
            path,
            source: Box::new(other.into()),
        },
    }
}

fn check_format(path: &Path, database: &Database) -> Result<(), OpenError> {
    let corrupt = |detail: String| OpenError::Corrupt {
        path: path.to_owned(),
        detail,
    };
    let read = || -> Result<Option<Vec<u8>>, redb::Error> {
        use redb::ReadableDatabase;
        let table = database.begin_read()?.open_table(META)?;
        Ok(table.get(FORMAT_KEY)?.map(|value| value.value().to_vec()))
    };
    let bytes = read()
        .map_err(|error| corrupt(error.to_string()))?
        .ok_or_else(|| corrupt("it names no format".to_owned()))?;
    let Ok(bytes) = <[u8; 4]>::try_from(bytes.as_slice()) else {
        return Err(corrupt("its format is not a number".to_owned()));
    };
    match u32::from_be_bytes(bytes) {
        FORMAT => Ok(()),
        found if found > FORMAT => Err(OpenError::Newer {
            path: path.to_owned(),
            found,
        }),
        found => Err(corrupt(format!("there never was a format {found}"))),
    }
}

#[cfg(test)]
mod tests;
