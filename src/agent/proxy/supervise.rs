//! The task that connects, starts, feeds and replaces the proxy.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_egress::control::{
    Client, ClientReceiver, ClientSender, FromProxy, PROTOCOL, Stats, ToProxy,
};
use causeway_types::Generation;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;

use super::process::{self, ProcessError, ProxyProcess};
use super::{Batch, COMMIT_DEADLINE, Command, Link, ProxyConfig, ProxyState, StateSource};

const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
const START_DEADLINE: Duration = Duration::from_secs(10);
const START_POLL: Duration = Duration::from_millis(5);
/// A proxy that lived this long is started again at once.
const HEALTHY: Duration = Duration::from_secs(10);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// How often a connected proxy is asked whether it still answers.
const PROBE: Duration = Duration::from_secs(1);
/// Probes in a row without an answer, after which a proxy is ended. They are counted, and not
/// timed: a machine that slept makes one of them late, and the proxy is not to blame.
const MAX_SILENT: u32 = 8;
/// The most batches that one commit covers.
const COALESCE: usize = 128;

/// The agent is gone: the proxy is left as it is.
struct AgentGone;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the egress proxy ended")]
    Ended,
    #[error("the egress proxy closed the connection")]
    Closed,
    #[error("the connection to the egress proxy failed")]
    Frame(#[source] causeway_egress::control::FrameError),
    #[error("the egress proxy does not take messages")]
    Stalled,
    #[error("the egress proxy has not answered {MAX_SILENT} probes")]
    Silent,
    #[error("the egress proxy refused the whole state of generation {generation}: {message}")]
    Refused {
        generation: Generation,
        message: String,
    },
}

pub(super) struct Supervisor {
    pub(super) config: ProxyConfig,
    pub(super) source: Weak<dyn StateSource>,
    pub(super) queue: mpsc::Receiver<Command>,
    pub(super) publish: watch::Sender<ProxyState>,
    pub(super) kill: Arc<Notify>,
    pub(super) followers: watch::Receiver<usize>,
}

impl Supervisor {
    pub(super) async fn run(mut self) {
        // It ends when the agent drops its handle.
        let AgentGone = self.supervise().await;
    }

    async fn supervise(&mut self) -> AgentGone {
        let mut backoff = Duration::ZERO;
        loop {
            let started = Instant::now();
            match self.cycle().await {
                Ok(problem) => self.report(problem),
                Err(gone) => return gone,
            }
            backoff = if started.elapsed() > HEALTHY || backoff.is_zero() {
                FIRST_BACKOFF.min(backoff + FIRST_BACKOFF)
            } else {
                (backoff * 2).min(MAX_BACKOFF)
            };
            // The first start again is immediate: each moment without a proxy is an outage.
            let wait = if started.elapsed() > HEALTHY {
                Duration::ZERO
            } else {
                backoff
            };
            if let Err(gone) = self.idle(tokio::time::sleep(wait)).await {
                return gone;
            }
        }
    }

    /// One proxy's life with this agent. Returns why it is over.
    async fn cycle(&mut self) -> Result<String, AgentGone> {
        let config = self.config.clone();
        let publish = self.publish.clone();
        let obtained = self.idle(obtain(&config, &publish)).await?;
        let (client, process) = match obtained {
            Ok(pair) => pair,
            Err(error) => return Ok(crate::chain(&error)),
        };
        let pid = process.pid;
        self.publish.send_modify(|state| state.pid = Some(pid));
        if let Some(source) = self.source.upgrade() {
            source.changed("connected", format!("process {pid}"));
        }
        let (sender, receiver) = client.split();
        let mut session = Session {
            sender,
            receiver,
            sent: Generation(0),
            whole: true,
            stats: VecDeque::new(),
            silent: 0,
        };
        let broken = self.serve(&mut session, &process).await?;
        self.publish.send_modify(|state| {
            state.link = Link::Unknown;
            state.following = false;
        });
        if matches!(
            broken,
            Broken::Stalled | Broken::Silent | Broken::Refused { .. }
        ) {
            process.kill();
        }
        // Whether it ended shows at once; one that lives on is connected to again.
        let wait = tokio::time::timeout(Duration::from_millis(100), process.ended());
        if self.idle(wait).await?.is_ok() {
            self.down();
        }
        Ok(crate::chain(&broken))
    }

    fn down(&self) {
        self.publish.send_modify(|state| {
            state.link = Link::Down;
            state.pid = None;
            state.committed = Generation(0);
        });
    }

    fn report(&self, problem: String) {
        tracing::warn!(%problem, "egress proxy");
        if let Some(source) = self.source.upgrade() {
            source.changed("lost", problem.clone());
        }
        self.publish
            .send_modify(|state| state.problem = Some(problem));
    }

    /// Does something while no proxy is connected. Changes need not be kept meanwhile: the next
    /// proxy gets the whole state.
    async fn idle<T>(&mut self, work: impl Future<Output = T>) -> Result<T, AgentGone> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                command = self.queue.recv() => if command.is_none() {
                    return Err(AgentGone);
                },
            }
        }
    }

    async fn serve(
        &mut self,
        session: &mut Session,
        process: &ProxyProcess,
    ) -> Result<Broken, AgentGone> {
        if let Err(broken) = self.send_whole(session).await {
            return broken;
        }
        let mut followers = self.followers.clone();
        followers.mark_changed();
        let mut follows = false;
        let mut probes = tokio::time::interval(PROBE);
        probes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = process.ended() => return Ok(Broken::Ended),
                () = self.kill.notified() => process.kill(),
                Ok(()) = followers.changed() => {
                    let events = *followers.borrow_and_update() > 0;
                    if events != follows {
                        follows = events;
                        if let Err(broken) = session.send_one(&ToProxy::Follow { events }).await {
                            return Ok(broken);
                        }
                    }
                }
                _ = probes.tick() => if let Err(broken) = session.probe().await {
                    return Ok(broken);
                },
                message = session.receiver.receive() => {
                    let message = match message {
                        Ok(Some(message)) => message,
                        Ok(None) => return Ok(Broken::Closed),
                        Err(error) => return Ok(Broken::Frame(error)),
                    };
                    if let Err(broken) = self.take(session, message).await {
                        return broken;
                    }
                }
                command = self.queue.recv() => {
                    let Some(command) = command else { return Err(AgentGone) };
                    if let Err(broken) = self.forward(session, command).await {
                        return Ok(broken);
                    }
                }
            }
        }
    }

    async fn send_whole(&self, session: &mut Session) -> Result<(), Result<Broken, AgentGone>> {
        let source = self.source.upgrade().ok_or(Err(AgentGone))?;
        let (generation, messages) = source.full_state();
        drop(source);
        session.sent = generation;
        session.whole = true;
        let begin = std::iter::once(ToProxy::Begin);
        session
            .send(begin.chain(messages), generation)
            .await
            .map_err(Ok)
    }

    async fn take(
        &self,
        session: &mut Session,
        message: FromProxy,
    ) -> Result<(), Result<Broken, AgentGone>> {
        match message {
            FromProxy::Committed { generation } => {
                session.whole = false;
                self.publish.send_modify(|state| {
                    state.link = Link::Up;
                    state.committed = generation;
                    state.problem = None;
                });
            }
            FromProxy::Rejected {
                generation,
                message,
            } => {
                if session.whole {
                    return Err(Ok(Broken::Refused {
                        generation,
                        message,
                    }));
                }
                tracing::error!(%generation, %message, "the egress proxy refused a change");
                self.send_whole(session).await?;
            }
            FromProxy::Stats(stats) => {
                session.silent = 0;
                if let Some(reply) = session.stats.pop_front() {
                    // Whoever asked may have gone.
                    drop(reply.send(stats));
                }
            }
            FromProxy::Following { events } => {
                self.publish.send_modify(|state| state.following = events);
            }
            event @ FromProxy::Event(_) => {
                if let Some(source) = self.source.upgrade() {
                    source.event(event);
                }
            }
            FromProxy::Welcome(_) => tracing::warn!("the egress proxy greeted twice"),
        }
        Ok(())
    }

    /// Sends a change, and those that wait behind it, under one commit.
    async fn forward(&mut self, session: &mut Session, first: Command) -> Result<(), Broken> {
        let mut messages = Vec::new();
        let mut last = None;
        let mut next = Some(first);
        for _ in 0..COALESCE {
            match next {
                Some(Command::Change(batch)) => {
                    let Batch {
                        generation,
                        messages: mut more,
                    } = batch;
                    // The whole state that was sent at the start holds it already.
                    if generation > session.sent {
                        messages.append(&mut more);
                        last = Some(generation);
                    }
                }
                Some(Command::Stats(reply)) => {
                    session.stats.push_back(reply);
                    session.send_one(&ToProxy::GetStats).await?;
                }
                None => break,
            }
            next = self.queue.try_recv().ok();
        }
        // One that was taken out of the queue in the last turn is not lost.
        if let Some(Command::Change(batch)) = next
            && batch.generation > session.sent
        {
            last = Some(batch.generation);
            messages.extend(batch.messages);
        }
        if let Some(generation) = last {
            session.sent = generation;
            session.send(messages, generation).await?;
        }
        Ok(())
    }
}

struct Session {
    sender: ClientSender,
    receiver: ClientReceiver,
    /// The last generation that was sent.
    sent: Generation,
    /// Whether the last state that was sent whole is not yet acknowledged.
    whole: bool,
    stats: VecDeque<oneshot::Sender<Stats>>,
    /// Probes since the last answer. While there are some, no other is sent.
    silent: u32,
}

impl Session {
    /// Asks whether the proxy still answers: one that hangs would keep all sandboxes from the
    /// outside for as long as nothing changes.
    async fn probe(&mut self) -> Result<(), Broken> {
        if self.silent >= MAX_SILENT {
            return Err(Broken::Silent);
        }
        self.silent += 1;
        if self.silent > 1 {
            return Ok(());
        }
        // Nobody waits for these counters.
        let (reply, _nobody) = oneshot::channel();
        self.stats.push_back(reply);
        self.send_one(&ToProxy::GetStats).await
    }

    async fn send(
        &mut self,
        messages: impl IntoIterator<Item = ToProxy>,
        generation: Generation,
    ) -> Result<(), Broken> {
        for message in messages {
            self.send_one(&message).await?;
        }
        self.send_one(&ToProxy::Commit { generation }).await
    }

    async fn send_one(&mut self, message: &ToProxy) -> Result<(), Broken> {
        match tokio::time::timeout(COMMIT_DEADLINE, self.sender.send(message)).await {
            Ok(sent) => sent.map_err(Broken::Frame),
            Err(_late) => Err(Broken::Stalled),
        }
    }
}

/// Adopts the proxy that runs, when it is of this build, or starts one.
async fn obtain(
    config: &ProxyConfig,
    publish: &watch::Sender<ProxyState>,
) -> Result<(Client, ProxyProcess), ProcessError> {
    let connect = Client::connect(&config.control_socket, &config.build);
    if let Ok(Ok(client)) = tokio::time::timeout(CONNECT_DEADLINE, connect).await {
        let welcome = client.welcome();
        if welcome.protocol == PROTOCOL && welcome.build == config.build {
            let process = ProxyProcess::watch(welcome.pid)?;
            tracing::info!(pid = welcome.pid, "adopted the running egress proxy");
            return Ok((client, process));
        }
        tracing::info!(
            pid = welcome.pid,
            build = %welcome.build,
            "replacing an egress proxy of another build"
        );
    }
    process::end(&config.control_socket).await?;
    publish.send_modify(|state| {
        state.link = Link::Down;
        state.pid = None;
        state.committed = Generation(0);
        state.starts += 1;
    });
    start(config).await
}

async fn start(config: &ProxyConfig) -> Result<(Client, ProxyProcess), ProcessError> {
    let mut child = process::start(config)?;
    let deadline = Instant::now() + START_DEADLINE;
    loop {
        let connect = Client::connect(&config.control_socket, &config.build);
        if let Ok(Ok(client)) = tokio::time::timeout(CONNECT_DEADLINE, connect).await {
            let process = ProxyProcess::watch(client.welcome().pid)?;
            // The runtime reaps the child when it ends.
            return Ok((client, process));
        }
        if let Some(status) = child.try_wait().map_err(ProcessError::Start)? {
            return Err(ProcessError::Ended {
                status,
                message: process::log_tail(&config.log_path),
            });
        }
        if Instant::now() > deadline {
            child.start_kill().map_err(ProcessError::Start)?;
            return Err(ProcessError::Silent);
        }
        tokio::time::sleep(START_POLL).await;
    }
}
