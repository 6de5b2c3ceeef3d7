//! The proxy's end of the control connection.

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use causeway_types::Generation;
use nix::sys::stat::{Mode, umask};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::codec::{FrameError, FrameReader, encode, write};
use super::{FromProxy, PROTOCOL, Stats, ToProxy, Welcome};
use crate::audit::AuditRecord;

/// Answers that wait to be sent to the agent.
const REPLIES: usize = 64;

/// After events were sent, others gather for this long: under load one write carries many, and
/// the agent wakes up once for them.
const EVENTS_PAUSE: Duration = Duration::from_millis(5);
/// They are written together up to this many bytes.
const EVENTS_BATCH: usize = 64 * 1024;

/// Connections to the control socket at one time, those included that have not greeted.
const CONNECTIONS: usize = 16;

/// What the control socket controls.
pub(crate) trait Controlled: Send + Sync + 'static {
    /// How to introduce the proxy.
    fn welcome(&self) -> Welcome;
    /// Takes a change whole, or refuses it and stays as it was.
    fn commit(
        &self,
        change: Change,
        generation: Generation,
    ) -> Result<(), Box<dyn Error + Send + Sync>>;
    /// The counters.
    fn stats(&self) -> Stats;
    /// What is decided from now on.
    fn events(&self) -> broadcast::Receiver<Arc<AuditRecord>>;
    /// Counts events that the agent missed.
    fn events_lost(&self, count: u64);
}

/// What the agent sent since the last commit.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Whether this is a whole state and not an addition to the present one.
    pub(crate) whole: bool,
    /// The messages that change state, in order.
    pub(crate) messages: Vec<ToProxy>,
}

/// Why the control socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ControlSocketError {
    /// Another proxy answers on it.
    #[error("another egress proxy listens on {path}", path = path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket has the name.
    #[error("{path} exists and is not a socket", path = path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("could not listen on {path}", path = path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// The listening socket. Its file is removed on drop, unless it is no longer ours.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: StdListener,
}

impl ControlSocket {
    /// Listens on `path`, which only the owner may open. A socket that nobody answers on is
    /// replaced. `owner` becomes the owner, when given.
    pub(crate) fn bind(path: &Path, owner: Option<(u32, u32)>) -> Result<Self, ControlSocketError> {
        let io = |source| ControlSocketError::Io {
            path: path.to_owned(),
            source,
        };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io(error)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(ControlSocketError::NotASocket {
                    path: path.to_owned(),
                });
            }
            Ok(_socket) if StdStream::connect(path).is_ok() => {
                return Err(ControlSocketError::InUse {
                    path: path.to_owned(),
                });
            }
            Ok(_stale) => fs::remove_file(path).map_err(io)?,
        }
        // Nobody else may connect in the moment before the mode is set.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = StdListener::bind(path);
        umask(before);
        let listener = bound.map_err(io)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(io)?;
        if let Some((uid, gid)) = owner {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).map_err(io)?;
        }
        listener.set_nonblocking(true).map_err(io)?;
        Ok(Self { listener })
    }
}

/// The agent that is obeyed: a later one that greets takes its place.
#[derive(Debug, Default)]
struct Current(Mutex<CancellationToken>);

impl Current {
    /// Makes the connection behind `agent` the current one, and ends the one before.
    fn replace(&self, agent: &CancellationToken) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, agent.clone()).cancel();
    }
}

/// Serves agents, one at a time: a new one that greets replaces the one before. Returns when an
/// agent asked for the end, or when `stop` is cancelled.
pub(crate) async fn serve<C: Controlled>(
    socket: ControlSocket,
    controlled: Arc<C>,
    stop: CancellationToken,
) -> io::Result<()> {
    let listener = UnixListener::from_std(socket.listener)?;
    let current = Arc::new(Current::default());
    let mut agents = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Some(_ended) = agents.join_next(), if !agents.is_empty() => {}
            accepted = listener.accept(), if agents.len() < CONNECTIONS => match accepted {
                Ok((stream, _unnamed)) if permitted(&stream) => {
                    let (controlled, stop) = (Arc::clone(&controlled), stop.clone());
                    agents.spawn(serve_agent(stream, controlled, Arc::clone(&current), stop));
                }
                Ok((stream, _unnamed)) => {
                    tracing::warn!(peer = ?stream.peer_cred(), "refused a control connection");
                }
                Err(error) => {
                    tracing::warn!(%error, "a control connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}

/// Only root and the proxy's own user.
fn permitted(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    stream
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

async fn serve_agent<C: Controlled>(
    stream: UnixStream,
    controlled: Arc<C>,
    current: Arc<Current>,
    stop: CancellationToken,
) {
    let replaced = CancellationToken::new();
    let (read, write) = stream.into_split();
    let (replies, queue) = mpsc::channel(REPLIES);
    let sending = send_all(write, queue, Arc::clone(&controlled));
    let take_over = || current.replace(&replaced);
    let receiving = obey(read, replies, Arc::clone(&controlled), take_over, stop);
    let result = tokio::select! {
        () = replaced.cancelled() => {
            tracing::info!("another agent took over");
            return;
        }
        result = sending => result,
        result = receiving => result,
    };
    match result {
        Ok(()) => tracing::info!("the agent disconnected"),
        Err(error) => tracing::warn!(error = &error as &dyn Error, "the agent was disconnected"),
    }
}

/// Reads and obeys messages until the connection ends.
async fn obey<C: Controlled>(
    read: OwnedReadHalf,
    replies: mpsc::Sender<FromProxy>,
    controlled: Arc<C>,
    take_over: impl Fn(),
    stop: CancellationToken,
) -> Result<(), FrameError> {
    let mut frames = FrameReader::new(read);
    let mut change = Change::default();
    let mut understood = false;
    while let Some(message) = frames.next::<ToProxy>().await? {
        let reply = match message {
            ToProxy::Hello { protocol, build } => {
                if !understood && protocol == PROTOCOL {
                    understood = true;
                    take_over();
                }
                tracing::info!(protocol, build, understood, "an agent connected");
                Some(FromProxy::Welcome(controlled.welcome()))
            }
            ToProxy::Shutdown => {
                stop.cancel();
                return Ok(());
            }
            _ if !understood => {
                tracing::warn!("the agent did not greet in a known protocol");
                return Ok(());
            }
            ToProxy::GetStats => Some(FromProxy::Stats(controlled.stats())),
            ToProxy::Follow { events } => Some(FromProxy::Following { events }),
            ToProxy::Begin => {
                change = Change {
                    whole: true,
                    messages: Vec::new(),
                };
                None
            }
            ToProxy::Commit { generation } => {
                let change = std::mem::take(&mut change);
                Some(commit(&controlled, change, generation).await)
            }
            changing => {
                change.messages.push(changing);
                None
            }
        };
        if let Some(reply) = reply
            && replies.send(reply).await.is_err()
        {
            return Ok(());
        }
    }
    Ok(())
}

/// Compiling policies may take long, so it happens off the threads that carry traffic.
async fn commit<C: Controlled>(
    controlled: &Arc<C>,
    change: Change,
    generation: Generation,
) -> FromProxy {
    let controlled = Arc::clone(controlled);
    let work = tokio::task::spawn_blocking(move || controlled.commit(change, generation));
    let refused = match work.await {
        Ok(Ok(())) => return FromProxy::Committed { generation },
        Ok(Err(error)) => crate::text::error_chain(&*error),
        Err(error) => error.to_string(),
    };
    FromProxy::Rejected {
        generation,
        message: refused,
    }
}

/// Sends replies, and between them events while the agent follows.
async fn send_all<C: Controlled>(
    mut write_half: OwnedWriteHalf,
    mut replies: mpsc::Receiver<FromProxy>,
    controlled: Arc<C>,
) -> Result<(), FrameError> {
    // The first message out is the welcome, whatever happens meanwhile.
    let Some(first) = replies.recv().await else {
        return Ok(());
    };
    write(&mut write_half, &first, 512).await?;
    let mut followed = None;
    let mut next_events = Instant::now();
    loop {
        let event = tokio::select! {
            biased;
            reply = replies.recv() => {
                let Some(reply) = reply else { return Ok(()) };
                // Before the reply: what is decided after it is an event.
                match reply {
                    FromProxy::Following { events: true } if followed.is_none() => {
                        followed = Some(controlled.events());
                    }
                    FromProxy::Following { events: false } => followed = None,
                    _ => {}
                }
                write(&mut write_half, &reply, 512).await?;
                continue;
            }
            event = next_event(followed.as_mut(), next_events) => event,
        };
        match (event, &mut followed) {
            (Ok(first), Some(events)) => {
                let batch = gather(&first, events, |count| controlled.events_lost(count))?;
                write_half.write_all(&batch).await?;
                next_events = Instant::now() + EVENTS_PAUSE;
            }
            (Err(RecvError::Lagged(count)), _) => controlled.events_lost(count),
            (Err(RecvError::Closed), _) => return Ok(()),
            (Ok(_unfollowed), None) => {}
        }
    }
}

/// The next event, not before `at`. Never any when nobody follows.
async fn next_event(
    events: Option<&mut broadcast::Receiver<Arc<AuditRecord>>>,
    at: Instant,
) -> Result<Arc<AuditRecord>, RecvError> {
    let Some(events) = events else {
        return std::future::pending().await;
    };
    sleep_until(at).await;
    events.recv().await
}

/// The frames of an event and of those that wait behind it.
fn gather(
    first: &AuditRecord,
    events: &mut broadcast::Receiver<Arc<AuditRecord>>,
    lost: impl Fn(u64),
) -> Result<Vec<u8>, FrameError> {
    let frame = |record: &AuditRecord| encode(&FromProxy::Event(Box::new(record.clone())), 512);
    let mut batch = frame(first)?.to_vec();
    while batch.len() < EVENTS_BATCH {
        match events.try_recv() {
            Ok(next) => batch.extend_from_slice(&frame(&next)?),
            Err(TryRecvError::Lagged(count)) => lost(count),
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    Ok(batch)
}
