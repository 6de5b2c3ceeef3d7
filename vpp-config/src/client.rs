//! A client that connects anew when its connection closes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{CallError, CloseReason, ConnectError, Connection, VppIdentity};
use crate::event::{Event, Events};
use crate::messages::{Dump, Get, Message, Request};
use crate::options::Options;
use crate::table::Needs;

/// A client of one VPP. Clones are the same client.
///
/// Calls fail at once while there is no connection, and when the connection closes under them; they
/// are never repeated by themselves, since what they rest on may be gone. Watch [`Client::status`],
/// and look everything up anew when the generation changes.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    status: watch::Receiver<Status>,
    current: watch::Receiver<Option<Connection>>,
    events: broadcast::Sender<Event>,
    task: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether a client is connected.
#[derive(Clone, Debug)]
pub enum Status {
    /// It is.
    Connected {
        /// Which connection it is: it grows with each.
        generation: u64,
        /// Which VPP it leads to.
        identity: VppIdentity,
        /// Whether this is another VPP than the last connection led to, so that everything that
        /// was configured is gone. The first is never another.
        restarted: bool,
    },
    /// It was, and tries to be again.
    Closed {
        /// The connection that closed.
        generation: u64,
        /// Why.
        reason: CloseReason,
    },
    /// It tried, and tries again.
    Failed {
        /// The last connection that there was. Zero is none.
        generation: u64,
        /// Why not.
        error: Arc<ConnectError>,
    },
    /// It has not tried yet.
    Starting,
}

impl Client {
    /// Connects. The first connection has to succeed.
    pub async fn connect(
        path: impl Into<PathBuf>,
        options: Options,
        needs: Needs,
    ) -> Result<Self, ConnectError> {
        let mut keeper = Keeper::new(path.into(), options, needs);
        let first = keeper.open().await?;
        Ok(keeper.start(Some(first)))
    }

    /// Connects as soon as there is a VPP that offers what is needed.
    pub fn start(path: impl Into<PathBuf>, options: Options, needs: Needs) -> Self {
        Keeper::new(path.into(), options, needs).start(None)
    }

    /// The present connection. What is asked through it is answered by one VPP.
    pub fn connection(&self) -> Option<Connection> {
        self.inner
            .current
            .borrow()
            .clone()
            .filter(|connection| connection.close_reason().is_none())
    }

    /// Waits for a connection.
    pub async fn connected(&self, deadline: Duration) -> Option<Connection> {
        let mut current = self.inner.current.clone();
        let open = |connection: &Option<Connection>| {
            connection
                .as_ref()
                .is_some_and(|connection| connection.close_reason().is_none())
        };
        match timeout(deadline, current.wait_for(open)).await {
            Ok(Ok(connection)) => connection.clone(),
            _ => None,
        }
    }

    /// Whether there is a connection, and why not. To be watched.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.inner.status.clone()
    }

    /// Which connection there is, or was last. Zero is none.
    pub fn generation(&self) -> u64 {
        match &*self.inner.status.borrow() {
            Status::Connected { generation, .. }
            | Status::Closed { generation, .. }
            | Status::Failed { generation, .. } => *generation,
            Status::Starting => 0,
        }
    }

    /// Events, from now on.
    pub fn events(&self) -> Events {
        Events(self.inner.events.subscribe())
    }

    /// Whether VPP offers a message at present, with everything that answers it.
    pub fn has<M: Message>(&self) -> bool {
        self.connection()
            .is_some_and(|connection| connection.has::<M>())
    }

    /// [`Connection::call`] on the present connection.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Reply, CallError> {
        self.need(R::ID.name)?.call(request).await
    }

    /// [`Connection::call_within`] on the present connection.
    pub async fn call_within<R: Request>(
        &self,
        request: &R,
        deadline: Duration,
    ) -> Result<R::Reply, CallError> {
        self.need(R::ID.name)?.call_within(request, deadline).await
    }

    /// [`Connection::dump`] on the present connection.
    pub async fn dump<D: Dump>(&self, request: &D) -> Result<Vec<D::Details>, CallError> {
        self.need(D::ID.name)?.dump(request).await
    }

    /// [`Connection::get`] on the present connection.
    pub async fn get<G: Get>(&self, request: &G) -> Result<Vec<G::Details>, CallError> {
        self.need(G::ID.name)?.get(request).await
    }

    fn need(&self, message: &'static str) -> Result<Connection, CallError> {
        self.connection().ok_or(CallError::NotConnected { message })
    }
}

/// Makes the connections.
#[derive(Debug)]
struct Keeper {
    path: PathBuf,
    options: Arc<Options>,
    needs: Needs,
    generation: u64,
    last: Option<VppIdentity>,
    events: broadcast::Sender<Event>,
}

impl Keeper {
    fn new(path: PathBuf, options: Options, needs: Needs) -> Self {
        let (events, _) = broadcast::channel(options.event_queue.max(1));
        Self {
            path,
            options: Arc::new(options),
            needs,
            generation: 0,
            last: None,
            events,
        }
    }

    async fn open(&mut self) -> Result<Connection, ConnectError> {
        let connection = Connection::open(
            &self.path,
            self.options.clone(),
            &self.needs,
            self.generation + 1,
            self.events.clone(),
        )
        .await?;
        self.generation += 1;
        Ok(connection)
    }

    fn start(mut self, first: Option<Connection>) -> Client {
        let events = self.events.clone();
        let status = watch::Sender::new(match &first {
            Some(connection) => self.connected(connection),
            None => Status::Starting,
        });
        let current = watch::Sender::new(first);
        let (status_receiver, current_receiver) = (status.subscribe(), current.subscribe());
        let task = tokio::spawn(self.run(status, current)).abort_handle();
        Client {
            inner: Arc::new(Inner {
                status: status_receiver,
                current: current_receiver,
                events,
                task,
            }),
        }
    }

    fn connected(&mut self, connection: &Connection) -> Status {
        let identity = connection.identity();
        let restarted = self.last.is_some_and(|last| last != identity);
        self.last = Some(identity);
        Status::Connected {
            generation: connection.generation(),
            identity,
            restarted,
        }
    }

    fn longer(&self, wait: Duration) -> Duration {
        (wait * 2).min(self.options.reconnect_longest)
    }

    async fn run(
        mut self,
        status: watch::Sender<Status>,
        current: watch::Sender<Option<Connection>>,
    ) {
        let mut wait = self.options.reconnect_first;
        loop {
            let connection = current.borrow().clone();
            if let Some(connection) = connection {
                let since = Instant::now();
                let reason = connection.closed().await;
                current.send_replace(None);
                status.send_replace(Status::Closed {
                    generation: self.generation,
                    reason,
                });
                // A VPP that closes each connection soon after is not asked again and again.
                if since.elapsed() > self.options.reconnect_longest {
                    wait = self.options.reconnect_first;
                }
                sleep(wait).await;
                wait = self.longer(wait);
            }
            match self.open().await {
                Ok(connection) => {
                    let connected = self.connected(&connection);
                    current.send_replace(Some(connection));
                    status.send_replace(connected);
                }
                Err(error) => {
                    log(&self.path, &error);
                    status.send_replace(Status::Failed {
                        generation: self.generation,
                        error: Arc::new(error),
                    });
                    sleep(wait).await;
                    wait = self.longer(wait);
                }
            }
        }
    }
}

fn log(path: &Path, error: &ConnectError) {
    tracing::debug!(path = %path.display(), %error, "no connection to VPP");
}
