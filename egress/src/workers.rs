//! The threads that carry traffic.
//!
//! Each has a runtime of its own, and a connection stays on the thread that got it with all that
//! belongs to it: its upstream connections, its requests, its timers. What one of these tells
//! another then costs a place in that thread's queue, and no system call, no sleeping thread that
//! has to be woken, no other core's cache.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::intercept::Intercepted;
use crate::session;
use crate::state::Shared;

/// Connections that wait for one thread. Beyond, they wait in the listener's backlog.
const QUEUE: usize = 256;

/// The threads, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct Workers(Vec<Worker>);

#[derive(Debug)]
struct Worker {
    queue: mpsc::Sender<Intercepted>,
    /// The connections that it has.
    load: Arc<AtomicUsize>,
}

impl Workers {
    /// Starts `count` threads, at least one.
    pub(crate) fn start(shared: &Arc<Shared>, count: usize) -> io::Result<Self> {
        (0..count.max(1))
            .map(|index| Worker::start(Arc::clone(shared), index))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// Hands a connection to the thread that has the fewest, of those that take some.
    pub(crate) async fn serve(&self, intercepted: Intercepted) {
        let load = |worker: &&Worker| {
            let full = worker.queue.capacity() == 0;
            (full, worker.load.load(Ordering::Relaxed))
        };
        let Some(worker) = self.0.iter().min_by_key(load) else {
            return;
        };
        worker.load.fetch_add(1, Ordering::Relaxed);
        // A thread ends only with this value.
        let _ended = worker.queue.send(intercepted).await;
    }
}

impl Worker {
    fn start(shared: Arc<Shared>, index: usize) -> io::Result<Self> {
        let (queue, connections) = mpsc::channel(QUEUE);
        let load = Arc::new(AtomicUsize::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let counted = Arc::clone(&load);
        std::thread::Builder::new()
            .name(format!("egress-{index}"))
            .spawn(move || runtime.block_on(work(shared, connections, counted)))?;
        Ok(Self { queue, load })
    }
}

async fn work(
    shared: Arc<Shared>,
    mut connections: mpsc::Receiver<Intercepted>,
    load: Arc<AtomicUsize>,
) {
    while let Some(intercepted) = connections.recv().await {
        let (shared, load) = (Arc::clone(&shared), Load(Arc::clone(&load)));
        drop(tokio::spawn(async move {
            match intercepted.accepted() {
                Ok((accepted, place)) => {
                    session::serve(shared, accepted).await;
                    drop(place);
                }
                Err(error) => tracing::warn!(%error, "a connection could not be watched"),
            }
            drop(load);
        }));
    }
}

/// One connection's part of a thread's load, however its task ends.
struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
