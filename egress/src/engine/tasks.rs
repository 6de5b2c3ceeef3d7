//! Tasks that end with the connection that they work for.

use std::future::Future;

use hyper::rt::Executor;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Starts tasks, which are dropped when the connection's guard is.
#[derive(Debug, Clone)]
pub(super) struct Tasks {
    end: CancellationToken,
    tunnels: TaskTracker,
}

impl Tasks {
    /// No tasks yet.
    pub(super) fn new() -> Self {
        Self {
            end: CancellationToken::new(),
            tunnels: TaskTracker::new(),
        }
    }

    /// Ends every task when the guard is dropped.
    pub(super) fn end_on_drop(&self) -> DropGuard {
        self.end.clone().drop_guard()
    }

    /// Starts one that the connection waits for after its HTTP part is over.
    pub(super) fn spawn_tunnel<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(self.tunnels.track_future(task));
    }

    /// Waits for the tunnels.
    pub(super) async fn tunnels(&self) {
        self.tunnels.close();
        self.tunnels.wait().await;
    }

    /// Starts one.
    pub(super) fn spawn<F>(&self, task: F)
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let end = self.end.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                _output = task => {}
            }
        });
    }
}

impl<F> Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}
