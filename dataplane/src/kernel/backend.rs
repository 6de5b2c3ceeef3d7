//! The kernel as a [`Backend`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use causeway_types::{Reason, SandboxUid};
use tokio::sync::oneshot;

use super::nft::{Epochs, Filter, Raised};
use super::port::{self, Indexes};
use super::router::{self, Router};
use super::worker::{Pool, Worker};
use super::{KernelConfig, observe};
use crate::backend::{AttachedPort, Backend, BackendError, BackendFuture, Counters, Observed};
use crate::desired::SandboxSpec;
use crate::elements::{ElementChanges, PortIndexes};

/// Changes of up to this many elements are written where they are asked for: they take less
/// time than going to another thread and back.
const SMALL: usize = 64;

/// The Linux kernel as the forwarder.
#[derive(Debug)]
pub struct KernelBackend {
    config: KernelConfig,
    running: Mutex<Option<Arc<Running>>>,
}

/// What exists while the router does.
#[derive(Debug)]
struct Running {
    pool: Pool,
    new_indexes: Indexes,
    ports: Mutex<PortIndexes>,
    filter: Arc<Mutex<Filter>>,
    epochs: Epochs,
}

impl Running {
    fn ports(&self) -> MutexGuard<'_, PortIndexes> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn filter(&self) -> MutexGuard<'_, Filter> {
        self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KernelBackend {
    /// Takes the configuration. Nothing happens before [`Backend::setup`].
    pub fn new(config: KernelConfig) -> Self {
        Self {
            config,
            running: Mutex::new(None),
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> Result<Arc<Running>, BackendError> {
        self.slot().clone().ok_or(BackendError::NotSetUp)
    }

    /// Makes a port in another way than [`Backend::attach`] does, and notes its index.
    pub(crate) async fn attach_with<T: Send + 'static>(
        &self,
        uid: SandboxUid,
        make: impl FnOnce(&mut Worker, &Indexes) -> Result<(u32, T), BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        self.job(move |running, worker| {
            let (index, made) = make(worker, &running.new_indexes)?;
            running.ports().insert(uid, index);
            Ok(made)
        })
        .await
    }

    /// Takes a port away in another way than [`Backend::detach`] does.
    pub(crate) async fn detach_with(
        &self,
        uid: SandboxUid,
        remove: impl FnOnce(&mut Worker) -> Result<(), BackendError> + Send + 'static,
    ) -> Result<(), BackendError> {
        self.job(move |running, worker| {
            remove(worker)?;
            let index = running.ports().remove(uid);
            if let Some(index) = index {
                running.filter().forget_drops(index)?;
            }
            Ok(())
        })
        .await
    }

    /// Runs something on a thread in the router's namespace.
    pub(crate) async fn inside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        self.job(move |_, worker| work(worker)).await
    }

    /// Runs a job with the running router on one of its threads.
    async fn job<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Running, &mut Worker) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let running = self.running()?;
        let owner = Arc::clone(&running);
        running.pool.run(move |worker| work(&owner, worker)).await
    }
}

/// Runs something on a thread of its own, whose namespace it may change.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    let (sender, receiver) = oneshot::channel();
    let thread = thread::Builder::new().name("causeway-setup".to_owned());
    thread
        // A caller that went away does not need its answer.
        .spawn(move || drop(sender.send(work())))
        .map_err(|source| BackendError::Io {
            operation: "start a thread for",
            path: "/run/netns".into(),
            source,
        })?;
    receiver.await.unwrap_or(Err(BackendError::Stopped))
}

fn start(config: &KernelConfig) -> Result<Running, BackendError> {
    let Router {
        namespace,
        host,
        highest_index,
        mut filter,
    } = router::setup(config)?;
    let mut routes = super::route::RouteSocket::open()?;
    let ports = observe::ports(&mut routes)?.indexes;
    let Raised { strays, .. } = filter.elements(&ports)?;
    filter.remove_strays(strays)?;
    let filter = Arc::new(Mutex::new(filter));
    let epochs = Epochs::start(&filter).map_err(|source| BackendError::Io {
        operation: "start a thread for",
        path: "/run/netns".into(),
        source,
    })?;
    Ok(Running {
        epochs,
        pool: Pool::start(namespace, host)?,
        new_indexes: Indexes::above(highest_index),
        ports: Mutex::new(ports),
        filter,
    })
}

fn look(
    config: &KernelConfig,
    running: &Running,
    worker: &mut Worker,
) -> Result<Observed, BackendError> {
    let found = observe::ports(&mut worker.routes)?;
    let mut filter = running.filter();
    // What somebody else removed is set up anew; until then there are no elements to read.
    if !filter.is_current(&router::ruleset(config))? {
        return Ok(Observed {
            ready: false,
            ports: found.states,
            ..Observed::default()
        });
    }
    let Raised { elements, strays } = filter.elements(&found.indexes)?;
    *running.ports() = found.indexes;
    Ok(Observed {
        ready: strays.is_empty(),
        ports: found.states,
        elements,
    })
}

fn write(running: &Running, changes: &ElementChanges) -> Result<(), BackendError> {
    let indexes = {
        let ports = running.ports();
        let pairs = changes.ports();
        let known = pairs.filter_map(|uid| Some((uid, ports.index(uid)?)));
        known.collect::<PortIndexes>()
    };
    let applied = running.filter().apply(changes, &indexes);
    // Also after a failure: part of a large change may have been made.
    if changes.revokes() {
        running.epochs.ended();
    }
    Ok(applied?)
}

fn count(running: &Running, worker: &mut Worker) -> Result<Counters, BackendError> {
    let mut traffic = observe::traffic(&mut worker.routes)?;
    let drops = running.filter().drops()?;
    let mut other_drops: BTreeMap<Reason, u64> = BTreeMap::new();
    for ((index, reason), packets) in drops {
        match traffic.get_mut(&index) {
            Some((_, port)) => *port.drops.entry(reason).or_default() += packets,
            None => *other_drops.entry(reason).or_default() += packets,
        }
    }
    Ok(Counters {
        sandboxes: traffic.into_values().collect(),
        other_drops,
    })
}

impl Backend for KernelBackend {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn setup(&self) -> BackendFuture<'_, ()> {
        let config = self.config.clone();
        Box::pin(async move {
            let running = apart(move || start(&config)).await?;
            *self.slot() = Some(Arc::new(running));
            Ok(())
        })
    }

    fn attach<'a>(&'a self, spec: &'a SandboxSpec) -> BackendFuture<'a, AttachedPort> {
        let spec = spec.clone();
        Box::pin(self.attach_with(spec.uid, move |worker, indexes| {
            port::attach(worker, indexes, &spec)
        }))
    }

    fn detach(&self, uid: SandboxUid) -> BackendFuture<'_, ()> {
        Box::pin(self.detach_with(uid, move |worker| port::detach(worker, uid)))
    }

    fn apply<'a>(&'a self, changes: &'a ElementChanges) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            if changes.len() <= SMALL {
                return write(&*self.running()?, changes);
            }
            let changes = changes.clone();
            self.job(move |running, _| write(running, &changes)).await
        })
    }

    fn observe(&self) -> BackendFuture<'_, Observed> {
        let config = self.config.clone();
        Box::pin(self.job(move |running, worker| look(&config, running, worker)))
    }

    fn counters(&self) -> BackendFuture<'_, Counters> {
        Box::pin(self.job(count))
    }

    fn teardown(&self) -> BackendFuture<'_, ()> {
        let config = self.config.clone();
        Box::pin(async move {
            // The threads hold the namespace open: they go first.
            self.slot().take();
            apart(move || router::teardown(&config)).await
        })
    }
}
