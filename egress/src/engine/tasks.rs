//! Tasks that end with the connection that they work for.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::rt::Executor;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

/// Starts tasks, which are dropped when the connection's guard is.
#[derive(Debug, Clone)]
pub(super) struct Tasks {
    /// None when the connection is over: then nothing is started any more.
    running: Arc<Mutex<Option<JoinSet<()>>>>,
    tunnels: TaskTracker,
}

/// Ends the tasks when it is dropped.
#[derive(Debug)]
pub(super) struct End(Tasks);

impl Drop for End {
    fn drop(&mut self) {
        // Tasks hold clones of what holds them, so they are dropped without the lock.
        let ended = self.0.running().take();
        drop(ended);
    }
}

impl Tasks {
    /// No tasks yet.
    pub(super) fn new() -> Self {
        Self {
            running: Arc::new(Mutex::new(Some(JoinSet::new()))),
            tunnels: TaskTracker::new(),
        }
    }

    /// Ends every task when the guard is dropped.
    pub(super) fn end_on_drop(&self) -> End {
        End(self.clone())
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
        if let Some(running) = &mut *self.running() {
            // Those that are over leave nothing behind.
            while running.try_join_next().is_some() {}
            running.spawn(async move {
                let _output = task.await;
            });
        }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<JoinSet<()>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Alive(Arc<AtomicUsize>);

    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn tasks_end_with_the_connection() {
        let alive = Arc::new(AtomicUsize::new(0));
        let (tasks, go) = (Tasks::new(), Arc::new(tokio::sync::Notify::new()));
        let end = tasks.end_on_drop();
        let spawn = |go: Option<Arc<tokio::sync::Notify>>| {
            alive.fetch_add(1, Ordering::Relaxed);
            let own = (Alive(Arc::clone(&alive)), tasks.clone());
            tasks.spawn(async move {
                match go {
                    Some(go) => go.notified().await,
                    None => std::future::pending().await,
                }
                drop(own);
            });
        };
        spawn(None);
        spawn(Some(Arc::clone(&go)));
        go.notify_one();
        while alive.load(Ordering::Relaxed) > 1 {
            tokio::task::yield_now().await;
        }
        drop(end);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(alive.load(Ordering::Relaxed), 0);
        spawn(None);
        assert_eq!(
            alive.load(Ordering::Relaxed),
            0,
            "nothing is started any more"
        );
    }
}
