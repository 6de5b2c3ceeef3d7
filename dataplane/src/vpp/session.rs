//! The one connection to VPP, and its errors in the backend's words.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::AbortHandle;
use vpp_config::messages::attach::{
    AfPacketCreateV3, AfPacketDelete, CreateVhostUserIfV2, DeleteVhostUserIf, MemifCreateV2,
    MemifDelete, MemifDump, MemifSocketFilenameAddDelV2, MemifSocketFilenameDump,
};
use vpp_config::messages::classify::{
    ClassifyAddDelSession, ClassifyAddDelTable, ClassifyTableIdsGet, ClassifyTableInfo,
};
use vpp_config::messages::feature::FeatureEnableDisable;
use vpp_config::messages::interface::{
    SwInterfaceDump, SwInterfaceGetTable, SwInterfaceSetFlags, SwInterfaceSetMtu,
    SwInterfaceSetTable, SwInterfaceTagAddDel,
};
use vpp_config::messages::ip::{IpRouteAddDel, IpRouteDump, IpTableAddDelV2, IpTableDump};
use vpp_config::messages::l2::{
    BridgeDomainAddDelV2, BridgeDomainDump, ClassifySetInterfaceL2Tables, SwInterfaceSetL2Bridge,
};
use vpp_config::messages::memclnt::ControlPing;
use vpp_config::messages::neighbor::{IpNeighborAddDel, IpNeighborDump};
use vpp_config::messages::{Dump, Message, Request};
use vpp_config::supervise::{Program, Supervisor};
use vpp_config::wire::FixedText;
use vpp_config::{CallError, Client, Connection, Needs, Options, Retval, Status};

use super::edge::Sets;
use crate::backend::BackendError;

/// How long a setup waits for a VPP that is about to start.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often VPP is asked whether it still answers.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// How long a setup waits for one that is started for it.
const STARTS: Duration = Duration::from_secs(60);

/// How long VPP may take for everything that many ports need at once.
const MAKING: Duration = Duration::from_secs(120);

/// How many ports may have packet sockets, two each, that are not yet edge-triggered. Far from
/// the sixteen at which VPP hangs, and enough to keep it busy.
const SOFTENED_AT_ONCE: usize = 4;

/// VPP, while a connection lasts.
#[derive(Debug, Clone)]
pub(super) struct Vpp {
    connection: Connection,
    sockets: Arc<Sockets>,
}

/// The care for VPP's packet sockets.
#[derive(Debug)]
struct Sockets {
    sets: Arc<Sets>,
    turns: Semaphore,
    warned: AtomicBool,
}

/// The client, which finds VPP again after it restarted.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    socket: PathBuf,
    watchdog: Duration,
    watch: AbortHandle,
    supervisor: Arc<OnceLock<Supervisor>>,
    sockets: Arc<Sockets>,
}

/// The messages that every port needs.
fn needs() -> Needs {
    Needs::new()
        .require::<AfPacketCreateV3>()
        .require::<AfPacketDelete>()
        .require::<BridgeDomainAddDelV2>()
        .require::<BridgeDomainDump>()
        .require::<ClassifyAddDelSession>()
        .require::<ClassifyAddDelTable>()
        .require::<ClassifySetInterfaceL2Tables>()
        .require::<ClassifyTableIdsGet>()
        .require::<ClassifyTableInfo>()
        .require::<FeatureEnableDisable>()
        .require::<IpNeighborAddDel>()
        .require::<IpNeighborDump>()
        .require::<IpRouteAddDel>()
        .require::<IpRouteDump>()
        .require::<IpTableAddDelV2>()
        .require::<IpTableDump>()
        .require::<SwInterfaceDump>()
        .require::<SwInterfaceGetTable>()
        .require::<SwInterfaceSetFlags>()
        .require::<SwInterfaceSetL2Bridge>()
        .require::<SwInterfaceSetMtu>()
        .require::<SwInterfaceSetTable>()
        .require::<SwInterfaceTagAddDel>()
}

impl Session {
    /// Begins to look for VPP.
    pub(super) fn start(socket: PathBuf, watchdog: Duration) -> Self {
        let options = Options {
            name: text("causeway"),
            // What waits behind the making of others' interfaces has to wait as long.
            deadline: MAKING,
            dump_deadline: MAKING,
            ..Options::default()
        };
        let client = Client::start(&socket, options, needs());
        let supervisor = Arc::default();
        let watch = Self::watch(client.clone(), watchdog, Arc::clone(&supervisor));
        Self {
            watch: tokio::spawn(watch).abort_handle(),
            client,
            socket,
            watchdog,
            supervisor,
            sockets: Arc::new(Sockets {
                sets: Arc::default(),
                turns: Semaphore::new(SOFTENED_AT_ONCE),
                warned: AtomicBool::new(false),
            }),
        }
    }

    /// Keeps VPP running from now on.
    pub(super) fn supervise(&self, program: &Program) {
        let start = || Supervisor::start(program.clone(), self.client.clone(), self.watchdog);
        self.supervisor.get_or_init(start);
    }

    /// VPP as it is now.
    pub(super) fn vpp(&self) -> Result<Vpp, BackendError> {
        let connection = self.client.connection().ok_or_else(|| self.absent())?;
        Ok(self.through(connection))
    }

    /// VPP, when it is there or comes soon.
    pub(super) async fn wait(&self) -> Result<Vpp, BackendError> {
        let patience = match self.supervisor.get() {
            Some(_) => STARTS,
            None => PATIENCE,
        };
        let connected = self.client.connected(patience).await;
        let connection = connected.ok_or_else(|| self.absent())?;
        Ok(self.through(connection))
    }

    fn through(&self, connection: Connection) -> Vpp {
        Vpp {
            connection,
            sockets: Arc::clone(&self.sockets),
        }
    }

    /// Why there is no VPP.
    pub(super) fn absent(&self) -> BackendError {
        let source = match &*self.client.status().borrow() {
            Status::Failed { error, .. } => Some(Shared(Arc::clone(error)).into()),
            Status::Closed { reason, .. } => Some(reason.clone().into()),
            Status::Connected { .. } | Status::Starting => None,
        };
        BackendError::VppAbsent {
            path: self.socket.clone(),
            source,
        }
    }
}

impl Session {
    /// Completes when the connection with this number is lost, or there is another. Zero is
    /// none.
    pub(super) async fn disturbed(&self, generation: u64) {
        let mut status = self.client.status();
        let news = |status: &Status| match status {
            Status::Connected {
                generation: now, ..
            } => *now != generation,
            Status::Closed { .. } | Status::Failed { .. } => generation != 0,
            Status::Starting => false,
        };
        if status.wait_for(news).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Tells a VPP that hangs from a busy one, which answers in the end, and gives its
    /// connection up: whoever waits for an answer is told.
    async fn watch(client: Client, watchdog: Duration, supervisor: Arc<OnceLock<Supervisor>>) {
        loop {
            tokio::time::sleep(PING_INTERVAL).await;
            let Some(connection) = client.connection() else {
                continue;
            };
            let ping = ControlPing::default();
            if let Err(CallError::Deadline { .. }) = connection.call_within(&ping, watchdog).await {
                tracing::error!("VPP has not answered for {watchdog:?}: it hangs");
                if let Some(supervisor) = supervisor.get() {
                    supervisor.hangs();
                }
                connection.close();
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// An error that others hold as well.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Shared(Arc<vpp_config::ConnectError>);

impl Vpp {
    /// Which connection this is. Everything that was looked up holds for it only.
    pub(super) fn generation(&self) -> u64 {
        self.connection.generation()
    }

    /// Waits for leave to make the packet sockets of a port, to be kept until they are softened.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.sockets.turns.acquire().await.ok()
    }

    /// Makes VPP's packet sockets such that many of them at once do not hold it. What cannot be
    /// done is said once: few sandboxes are served well without.
    pub(super) async fn soften(&self) {
        let Some(vpp) = self.connection.identity().peer else {
            self.warn("its process is not seen from here");
            return;
        };
        let sets = Arc::clone(&self.sockets.sets);
        match tokio::task::spawn_blocking(move || sets.soften(vpp)).await {
            Ok(Ok(count)) => tracing::debug!(count, "packet sockets are edge-triggered"),
            Ok(Err(error)) => self.warn(error),
            Err(error) => self.warn(error),
        }
    }

    fn warn(&self, why: impl std::fmt::Display) {
        if !self.sockets.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %why,
                "VPP's packet sockets stay level-triggered: VPP 25.06 and later hangs when \
                 sixteen have something to read at the same time"
            );
        }
    }

    pub(super) fn has<M: Message>(&self) -> bool {
        self.connection.has::<M>()
    }

    /// Asks for something. `operation` completes "VPP did not …".
    pub(super) async fn call<R: Request>(
        &self,
        operation: &'static str,
        request: &R,
    ) -> Result<R::Reply, BackendError> {
        self.try_call(request).await.map_err(failed(operation))
    }

    pub(super) async fn try_call<R: Request>(&self, request: &R) -> Result<R::Reply, CallError> {
        self.connection.call(request).await
    }

    /// Asks for something that may have been done already.
    pub(super) async fn call_unless<R: Request>(
        &self,
        operation: &'static str,
        request: &R,
        tolerated: &[Retval],
    ) -> Result<(), BackendError> {
        match self.try_call(request).await {
            Ok(_) => Ok(()),
            Err(error) if refusal(&error).is_some_and(|r| tolerated.contains(&r)) => Ok(()),
            Err(error) => Err(failed(operation)(error)),
        }
    }

    pub(super) async fn dump<D: Dump>(
        &self,
        operation: &'static str,
        request: &D,
    ) -> Result<Vec<D::Details>, BackendError> {
        self.connection
            .dump(request)
            .await
            .map_err(failed(operation))
    }
}

/// The messages of attachments that only some sandboxes have.
pub(super) fn offers_vhost_user(vpp: &Vpp) -> bool {
    vpp.has::<CreateVhostUserIfV2>() && vpp.has::<DeleteVhostUserIf>()
}

pub(super) fn offers_memif(vpp: &Vpp) -> bool {
    vpp.has::<MemifCreateV2>()
        && vpp.has::<MemifDelete>()
        && vpp.has::<MemifDump>()
        && vpp.has::<MemifSocketFilenameAddDelV2>()
        && vpp.has::<MemifSocketFilenameDump>()
}

/// With which value VPP refused, if it did.
pub(super) fn refusal(error: &CallError) -> Option<Retval> {
    match error {
        CallError::Refused { retval, .. } => Some(*retval),
        _ => None,
    }
}

pub(super) fn failed(operation: &'static str) -> impl FnOnce(CallError) -> BackendError {
    move |source| BackendError::Vpp {
        operation,
        source: Box::new(source),
    }
}

/// A text for VPP. What does not fit, none of ours, is left out.
pub(super) fn text<const N: usize>(text: &str) -> FixedText<N> {
    FixedText::new(text).unwrap_or_default()
}
