//! Keeps the egress proxy running and its state equal to the agent's.
//!
//! The proxy outlives the agent. At the start a running one of the same build is adopted; any
//! other is ended and replaced. While there is none, the dataplane drops what it would judge.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_egress::control::{FromProxy, Stats, ToProxy};
use causeway_types::Generation;
use tokio::sync::{mpsc, oneshot, watch};

mod process;
mod supervise;

pub use process::ProcessError;

/// Changes beyond this wait before they are accepted.
const QUEUE: usize = 1024;
/// A proxy that takes longer to commit is ended: then nothing passes, which is safe.
const COMMIT_DEADLINE: Duration = Duration::from_secs(5);
const STATS_DEADLINE: Duration = Duration::from_secs(2);

/// How the proxy is started.
#[derive(Debug, Clone)]
pub(super) struct ProxyConfig {
    /// Where it listens for the agent.
    pub(super) control_socket: PathBuf,
    /// The router's namespace.
    pub(super) namespace: PathBuf,
    /// Where it writes its audit log.
    pub(super) audit_path: PathBuf,
    /// Where its own log goes.
    pub(super) log_path: PathBuf,
    /// The build that agent and proxy share.
    pub(super) build: String,
}

/// A change for the proxy, which takes effect as a whole.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) generation: Generation,
    pub(super) messages: Vec<ToProxy>,
}

#[derive(Debug)]
enum Command {
    Change(Batch),
    Stats(oneshot::Sender<Stats>),
}

/// Where a full state comes from when a proxy has just been connected.
pub(super) trait StateSource: Send + Sync + 'static {
    /// The whole state and its generation, and the messages that describe it, without `Begin`
    /// and `Commit`. Called with no lock held.
    fn full_state(&self) -> (Generation, Vec<ToProxy>);
    /// Something that the proxy decided.
    fn event(&self, message: FromProxy);
    /// The proxy came, went or was refused.
    fn changed(&self, what: &'static str, detail: String);
}

/// How the proxy is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Link {
    /// No process: nothing is let through.
    #[default]
    Down,
    /// A process may be there, and its state is not known.
    Unknown,
    /// Connected.
    Up,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ProxyState {
    pub(super) link: Link,
    pub(super) pid: Option<u32>,
    pub(super) committed: Generation,
    pub(super) starts: u64,
    pub(super) problem: Option<String>,
    /// Whether the proxy sends its decisions as events.
    pub(super) following: bool,
}

/// The agent's handle on the proxy.
#[derive(Debug)]
pub(super) struct Proxy {
    commands: mpsc::Sender<Command>,
    state: watch::Receiver<ProxyState>,
    kill: Arc<tokio::sync::Notify>,
    begin: Arc<tokio::sync::Notify>,
}

/// A place in the queue, taken before the state is locked, so that changes are queued in the
/// order of their generations.
pub(super) struct Slot<'a>(mpsc::Permit<'a, Command>);

impl Slot<'_> {
    pub(super) fn send(self, generation: Generation, messages: Vec<ToProxy>) {
        self.0.send(Command::Change(Batch {
            generation,
            messages,
        }));
    }
}

/// The supervising task is gone.
#[derive(Debug, thiserror::Error)]
#[error("the egress proxy is no longer supervised: the agent is stopping")]
pub struct Stopped;

impl Proxy {
    /// Prepares to supervise, which begins with [`Proxy::begin`]. The task ends with the handle,
    /// and leaves the proxy running.
    /// Decisions come as events while `followers` is not zero.
    pub(super) fn start(
        config: ProxyConfig,
        source: std::sync::Weak<dyn StateSource>,
        followers: watch::Receiver<usize>,
    ) -> Self {
        let (commands, queue) = mpsc::channel(QUEUE);
        let (publish, state) = watch::channel(ProxyState {
            link: Link::Unknown,
            ..ProxyState::default()
        });
        let kill = Arc::new(tokio::sync::Notify::new());
        let supervisor = supervise::Supervisor {
            config,
            source,
            queue,
            publish,
            kill: Arc::clone(&kill),
            followers,
        };
        let begin = Arc::new(tokio::sync::Notify::new());
        let begun = Arc::clone(&begin);
        drop(tokio::spawn(async move {
            begun.notified().await;
            supervisor.run().await;
        }));
        Self {
            commands,
            state,
            kill,
            begin,
        }
    }

    /// Begins to supervise. Called once the source of the state can be reached: the handle is
    /// made while its owner is still being built.
    pub(super) fn begin(&self) {
        self.begin.notify_one();
    }

    /// No proxy at all: changes have nowhere to go, and all egress is denied.
    pub(super) fn none() -> Self {
        let (commands, mut queue) = mpsc::channel(QUEUE);
        let (publish, state) = watch::channel(ProxyState::default());
        drop(tokio::spawn(async move {
            while queue.recv().await.is_some() {}
            drop(publish);
        }));
        Self {
            commands,
            state,
            kill: Arc::default(),
            begin: Arc::default(),
        }
    }

    pub(super) async fn reserve(&self) -> Result<Slot<'_>, Stopped> {
        match self.commands.reserve().await {
            Ok(permit) => Ok(Slot(permit)),
            Err(_closed) => Err(Stopped),
        }
    }

    /// Waits until no flow is judged by a state older than `generation`: the proxy committed
    /// it, or there is no proxy.
    pub(super) async fn settled(&self, generation: Generation) -> Result<(), Stopped> {
        let mut state = self.state.clone();
        let settled = |state: &ProxyState| {
            state.link == Link::Down || (state.link == Link::Up && state.committed >= generation)
        };
        loop {
            let waited = tokio::time::timeout(COMMIT_DEADLINE, state.wait_for(settled)).await;
            match waited {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(_closed)) => return Err(Stopped),
                // While none is connected, the supervisor is busy making that so.
                Err(_late) if self.state().link != Link::Up => {}
                Err(_late) => {
                    tracing::error!(%generation, "the egress proxy does not answer: ending it");
                    self.kill.notify_one();
                }
            }
        }
    }

    /// How it is now.
    pub(super) fn state(&self) -> ProxyState {
        self.state.borrow().clone()
    }

    /// Waits until a proxy is connected and has a state, or could not be started, at most
    /// `limit`. True when there is one.
    pub(super) async fn ready(&self, limit: Duration) -> bool {
        let mut state = self.state.clone();
        let known = |state: &ProxyState| {
            state.problem.is_some() || (state.link == Link::Up && state.committed.0 > 0)
        };
        match tokio::time::timeout(limit, state.wait_for(known)).await {
            Ok(Ok(state)) => state.link == Link::Up,
            _ => false,
        }
    }

    /// Waits until decisions come as events, or no proxy is connected that could send any.
    pub(super) async fn following(&self) {
        let mut state = self.state.clone();
        let following = |state: &ProxyState| state.following || state.link != Link::Up;
        // One that does not answer is replaced, and its successor is asked the same.
        let _late = tokio::time::timeout(STATS_DEADLINE, state.wait_for(following)).await;
    }

    /// Its counters; none when it does not answer.
    pub(super) async fn stats(&self) -> Option<Stats> {
        if self.state().link != Link::Up {
            return None;
        }
        let (reply, stats) = oneshot::channel();
        let ask = async {
            self.commands.send(Command::Stats(reply)).await.ok()?;
            stats.await.ok()
        };
        tokio::time::timeout(STATS_DEADLINE, ask).await.ok()?
    }
}

/// Ends the proxy that listens on `socket`, if any, and waits until it is gone.
pub async fn end(socket: &std::path::Path) -> Result<bool, ProcessError> {
    process::end(socket).await
}
