//! Threads that live in the router's namespace and visit others.
//!
//! A thread's network namespace is its own, so that the runtime's threads must never change
//! theirs. Netlink answers before `send` returns: blocking threads lose nothing here, and few
//! are enough, since the kernel serialises link changes anyway.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use super::namespace::Namespace;
use super::route::RouteSocket;
use crate::backend::BackendError;

/// How many threads there are.
const THREADS: usize = 4;
/// How many jobs wait at most before a caller's `submit` waits as well. The facade lets no
/// more than 64 attaches in, and everything else comes one at a time.
const WAITING: usize = 256;

type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// One thread's belongings.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) router: Arc<Namespace>,
    pub(crate) host: Arc<Namespace>,
    /// A socket in the router's namespace.
    pub(crate) routes: RouteSocket,
    /// The thread could not return to the router's namespace, and must not be used again.
    lost: bool,
}

impl Worker {
    fn new(router: Arc<Namespace>, host: Arc<Namespace>) -> Result<Self, BackendError> {
        router.enter()?;
        Ok(Self {
            routes: RouteSocket::open()?,
            router,
            host,
            lost: false,
        })
    }

    /// Does something inside another namespace.
    pub(crate) fn inside<T>(
        &mut self,
        namespace: &Namespace,
        work: impl FnOnce(&mut Self) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        namespace.enter()?;
        let result = work(self);
        if let Err(error) = self.router.enter() {
            self.lost = true;
            return result.and(Err(error));
        }
        result
    }

    /// Visits another namespace from the host's, and comes back to the host's.
    pub(crate) fn inside_then_host<T>(
        &mut self,
        namespace: &Namespace,
        work: impl FnOnce() -> T,
    ) -> Result<T, BackendError> {
        namespace.enter()?;
        let result = work();
        if let Err(error) = self.host.enter() {
            self.lost = true;
            return Err(error);
        }
        Ok(result)
    }
}

/// The threads, and the queue of jobs for them.
#[derive(Debug)]
pub(crate) struct Pool {
    jobs: SyncSender<Job>,
}

impl Pool {
    /// Starts the threads.
    pub(crate) fn start(router: Namespace, host: Namespace) -> Result<Self, BackendError> {
        let (router, host) = (Arc::new(router), Arc::new(host));
        let (jobs, queue) = sync_channel::<Job>(WAITING);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..THREADS {
            spawn(Arc::clone(&router), Arc::clone(&host), Arc::clone(&queue))?;
        }
        Ok(Self { jobs })
    }

    /// Runs a job on one of the threads and waits for its result.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |worker| {
            // A caller that went away does not need its answer.
            drop(sender.send(work(worker)));
        });
        self.jobs
            .try_send(job)
            .map_err(|_full| BackendError::Stopped)?;
        receiver.await.unwrap_or(Err(BackendError::Stopped))
    }
}

/// Starts a thread, and waits until it is in the router's namespace.
fn spawn(
    router: Arc<Namespace>,
    host: Arc<Namespace>,
    queue: Arc<Mutex<Receiver<Job>>>,
) -> Result<(), BackendError> {
    let (ready, started) = sync_channel(1);
    let thread = thread::Builder::new().name("causeway-netns".to_owned());
    let spawned = thread.spawn(move || {
        let worker = Worker::new(Arc::clone(&router), Arc::clone(&host));
        match worker {
            Ok(mut worker) => {
                drop(ready.send(Ok(())));
                serve(&mut worker, &queue);
                if worker.lost {
                    tracing::error!("a thread could not return to the router: it is replaced");
                    if let Err(error) = spawn(router, host, queue) {
                        tracing::error!(%error, "and the new one did not start");
                    }
                }
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    });
    spawned.map_err(|source| BackendError::Io {
        operation: "start a thread for",
        path: "/run/netns".into(),
        source,
    })?;
    started.recv().unwrap_or(Err(BackendError::Stopped))
}

fn serve(worker: &mut Worker, queue: &Mutex<Receiver<Job>>) {
    while !worker.lost {
        let job = {
            let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.recv()
        };
        match job {
            Ok(job) => job(worker),
            // The pool is gone.
            Err(_) => return,
        }
    }
}
