//! The one thread that writes, and the queue in front of it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use causeway_types::{Generation, NetworkId, PolicyRef, SandboxId, SecretName, TenantName};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use super::record::{LoadError, NetworkRecord, PolicyRecord, SandboxRecord, SealedRecord};
use super::{META, NETWORKS, OpenError, POLICIES, SANDBOXES, SECRETS};

/// Callers beyond this wait before they queue.
const QUEUE: usize = 1024;
/// The most changes in one transaction.
const BATCH: usize = 512;
const GENERATION_KEY: &str = "generation";

/// Why a change is not on disk. Nothing of it is.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The database failed; every change in the same transaction did.
    #[error("the store could not be written")]
    Database(#[source] Arc<redb::Error>),
    /// The address plan's changes could not be written; nothing in the same transaction was.
    #[error("the leases could not be written")]
    Ipam(#[source] Arc<causeway_ipam::StoreError>),
    /// A record could not be put into its form for the disk.
    #[error("a record could not be encoded")]
    Encode(#[source] Arc<serde_json::Error>),
    /// An earlier write failed, and the store could not be opened again since.
    #[error("the store could not be opened again after an earlier failure")]
    Reopen(#[source] Arc<OpenError>),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// One row to write or remove.
#[derive(Debug)]
pub enum Write {
    /// Sets a value about the node.
    Meta(&'static str, Vec<u8>),
    /// Raises the generation. Changes may be queued out of order, so it never falls.
    Generation(Generation),
    /// Writes a sandbox.
    Sandbox(Box<SandboxRecord>),
    /// Removes a sandbox.
    SandboxGone(SandboxId),
    /// Writes what the address plan changed.
    Ipam(Vec<causeway_ipam::Change>),
    /// Writes a network.
    Network(NetworkRecord),
    /// Removes a network.
    NetworkGone(NetworkId),
    /// Writes a policy or guardrail.
    Policy(PolicyRef, PolicyRecord),
    /// Removes a policy or guardrail.
    PolicyGone(PolicyRef),
    /// Writes a secret.
    Secret(SealedRecord),
    /// Removes a secret.
    SecretGone(TenantName, SecretName),
}

#[derive(Debug)]
struct Job {
    writes: Vec<Write>,
    done: oneshot::Sender<Result<(), WriteError>>,
}

/// A place in the queue.
#[derive(Debug)]
pub struct QueueSlot<'a>(mpsc::Permit<'a, Job>);

impl QueueSlot<'_> {
    /// Queues `writes` as one change.
    pub fn send(self, writes: Vec<Write>) -> Pending {
        let (done, outcome) = oneshot::channel();
        self.0.send(Job { writes, done });
        Pending(outcome)
    }
}

/// A change that is on its way to the disk.
#[derive(Debug)]
pub struct Pending(oneshot::Receiver<Result<(), WriteError>>);

impl Pending {
    /// Waits until it is there.
    pub async fn done(self) -> Result<(), WriteError> {
        self.0.await.unwrap_or(Err(WriteError::Closed))
    }
}

/// The database. After a failure it takes no more writes until it is opened anew, which is done
/// by the next one who needs it: a disk that was full for a while is no reason to restart.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    open: Mutex<Option<Arc<Database>>>,
}

impl Held {
    fn get(&self) -> Result<Arc<Database>, OpenError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(database) = open.as_ref() {
            return Ok(Arc::clone(database));
        }
        let database = Arc::new(super::open_database(&self.path)?);
        tracing::info!(path = %self.path.display(), "opened the store again");
        Ok(Arc::clone(open.insert(database)))
    }

    fn close(&self) {
        drop(
            self.open
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}

/// The open store.
#[derive(Debug)]
pub struct Store {
    database: Arc<Held>,
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    pub(super) fn start(path: PathBuf, database: Database) -> Self {
        let database = Arc::new(Held {
            path,
            open: Mutex::new(Some(Arc::new(database))),
        });
        let (queue, jobs) = mpsc::channel(QUEUE);
        let shared = Arc::clone(&database);
        let thread = std::thread::spawn(move || work(&shared, jobs));
        Self {
            database,
            queue: Some(queue),
            thread: Some(thread),
        }
    }

    /// Writes all of `writes` in one transaction. It is on disk when this returns. When the
    /// caller goes away while it waits, the writes happen all the same.
    pub async fn write(&self, writes: Vec<Write>) -> Result<(), WriteError> {
        self.reserve().await?.send(writes).done().await
    }

    /// Takes a place in the queue, for callers that must queue while they hold a lock: writes
    /// reach the disk in the order in which they are queued.
    pub async fn reserve(&self) -> Result<QueueSlot<'_>, WriteError> {
        let queue = self.queue.as_ref().ok_or(WriteError::Closed)?;
        match queue.reserve().await {
            Ok(permit) => Ok(QueueSlot(permit)),
            Err(_closed) => Err(WriteError::Closed),
        }
    }

    /// The same for callers outside the runtime, at the start.
    pub fn write_blocking(&self, writes: &[Write]) -> Result<(), WriteError> {
        commit(&self.database, [writes].into_iter())
    }

    /// The database, for what the address plan reads and writes itself at the start.
    pub fn database(&self) -> Result<Arc<Database>, LoadError> {
        self.database
            .get()
            .map_err(|error| LoadError::Reopen(Box::new(error)))
    }

    /// A value about the node.
    pub fn meta(&self, key: &str) -> Result<Option<Vec<u8>>, LoadError> {
        let database = self.database()?;
        let read = || -> Result<Option<Vec<u8>>, redb::Error> {
            let table = database.begin_read()?.open_table(META)?;
            Ok(table.get(key)?.map(|value| value.value().to_vec()))
        };
        read().map_err(|error| LoadError::Database(Box::new(error)))
    }

    /// The last generation that was written.
    pub fn generation(&self) -> Result<Generation, LoadError> {
        let bytes = self.meta(GENERATION_KEY)?.unwrap_or_default();
        Ok(Generation(
            <[u8; 8]>::try_from(bytes).map_or(0, u64::from_be_bytes),
        ))
    }

    /// Every sandbox.
    pub fn sandboxes(&self) -> Result<Vec<SandboxRecord>, LoadError> {
        self.rows(SANDBOXES)
    }

    /// Every network.
    pub fn networks(&self) -> Result<Vec<NetworkRecord>, LoadError> {
        self.rows(NETWORKS)
    }

    /// Every policy and guardrail.
    pub fn policies(&self) -> Result<Vec<PolicyRecord>, LoadError> {
        self.rows(POLICIES)
    }

    /// Every secret, encrypted.
    pub fn secrets(&self) -> Result<Vec<SealedRecord>, LoadError> {
        self.rows(SECRETS)
    }

    fn rows<T: DeserializeOwned>(
        &self,
        definition: TableDefinition<'_, &str, &[u8]>,
    ) -> Result<Vec<T>, LoadError> {
        let failed = |error: redb::Error| LoadError::Database(Box::new(error));
        let table = self
            .database()?
            .begin_read()
            .map_err(|error| failed(error.into()))?
            .open_table(definition)
            .map_err(|error| failed(error.into()))?;
        let mut rows = Vec::new();
        for row in table.iter().map_err(|error| failed(error.into()))? {
            let (key, value) = row.map_err(|error| failed(error.into()))?;
            let row = serde_json::from_slice(value.value()).map_err(|source| LoadError::Row {
                table: definition.to_string(),
                key: key.value().to_owned(),
                source,
            })?;
            rows.push(row);
        }
        Ok(rows)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Closing the queue lets the thread finish what is in it.
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's writer ended in a panic");
        }
    }
}

fn work(database: &Held, mut jobs: mpsc::Receiver<Job>) {
    let mut batch = Vec::with_capacity(BATCH);
    while let Some(first) = jobs.blocking_recv() {
        batch.push(first);
        while batch.len() < BATCH
            && let Ok(job) = jobs.try_recv()
        {
            batch.push(job);
        }
        let outcome = commit(database, batch.iter().map(|job| job.writes.as_slice()));
        if let Err(error) = &outcome {
            tracing::error!(error = %crate::chain(error), jobs = batch.len(), "the store failed");
            database.close();
        }
        for job in batch.drain(..) {
            // A caller that no longer waits needs no answer.
            drop(job.done.send(outcome.clone()));
        }
    }
}

fn commit<'a>(database: &Held, jobs: impl Iterator<Item = &'a [Write]>) -> Result<(), WriteError> {
    let failed = |error: redb::Error| WriteError::Database(Arc::new(error));
    let transaction = database
        .get()
        .map_err(|error| WriteError::Reopen(Arc::new(error)))?
        .begin_write()
        .map_err(|error| failed(error.into()))?;
    for write in jobs.flatten() {
        stage(&transaction, write)?;
    }
    transaction.commit().map_err(|error| failed(error.into()))
}

fn stage(transaction: &WriteTransaction, write: &Write) -> Result<(), WriteError> {
    match write {
        Write::Meta(key, value) => put(transaction, META, key, value),
        Write::Generation(generation) => raise(transaction, *generation),
        Write::Sandbox(record) => encode(transaction, SANDBOXES, &record.id.to_string(), record),
        Write::SandboxGone(id) => remove(transaction, SANDBOXES, &id.to_string()),
        Write::Ipam(changes) => causeway_ipam::redb_store::stage(transaction, changes)
            .map_err(|error| WriteError::Ipam(Arc::new(error))),
        Write::Network(record) => encode(transaction, NETWORKS, &record.id.to_string(), record),
        Write::NetworkGone(id) => remove(transaction, NETWORKS, &id.to_string()),
        Write::Policy(reference, record) => {
            encode(transaction, POLICIES, &policy_key(reference), record)
        }
        Write::PolicyGone(reference) => remove(transaction, POLICIES, &policy_key(reference)),
        Write::Secret(record) => encode(
            transaction,
            SECRETS,
            &format!("{}/{}", record.tenant, record.name),
            record,
        ),
        Write::SecretGone(tenant, name) => {
            remove(transaction, SECRETS, &format!("{tenant}/{name}"))
        }
    }
}

/// A guardrail's key has one slash less than a policy's, so that the two never meet.
fn policy_key(reference: &PolicyRef) -> String {
    match &reference.tenant {
        Some(tenant) => format!("policy/{tenant}/{}", reference.name),
        None => format!("guardrail/{}", reference.name),
    }
}

fn raise(transaction: &WriteTransaction, generation: Generation) -> Result<(), WriteError> {
    let raise = || -> Result<(), redb::Error> {
        let mut table = transaction.open_table(META)?;
        let stored = table
            .get(GENERATION_KEY)?
            .and_then(|value| <[u8; 8]>::try_from(value.value()).ok())
            .map_or(0, u64::from_be_bytes);
        if stored < generation.0 {
            table.insert(GENERATION_KEY, generation.0.to_be_bytes().as_slice())?;
        }
        Ok(())
    };
    raise().map_err(|error| WriteError::Database(Arc::new(error)))
}

fn encode<T: Serialize>(
    transaction: &WriteTransaction,
    table: TableDefinition<'_, &str, &[u8]>,
    key: &str,
    record: &T,
) -> Result<(), WriteError> {
    let bytes = serde_json::to_vec(record).map_err(|error| WriteError::Encode(Arc::new(error)))?;
    put(transaction, table, key, &bytes)
}

fn put(
    transaction: &WriteTransaction,
    table: TableDefinition<'_, &str, &[u8]>,
    key: &str,
    bytes: &[u8],
) -> Result<(), WriteError> {
    let insert = || -> Result<(), redb::Error> {
        transaction.open_table(table)?.insert(key, bytes)?;
        Ok(())
    };
    insert().map_err(|error| WriteError::Database(Arc::new(error)))
}

fn remove(
    transaction: &WriteTransaction,
    table: TableDefinition<'_, &str, &[u8]>,
    key: &str,
) -> Result<(), WriteError> {
    let remove = || -> Result<(), redb::Error> {
        transaction.open_table(table)?.remove(key)?;
        Ok(())
    };
    remove().map_err(|error| WriteError::Database(Arc::new(error)))
}
