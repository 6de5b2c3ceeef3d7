//! VPP as a [`Backend`].

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_types::SandboxUid;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use vpp_config::supervise;

use super::VppConfig;
use super::admission::Gate;
use super::facts::{Facts, Inlet, border_link};
use super::found::{self, Found};
use super::host::{self, Made};
use super::make::{self, SEGMENTS};
use super::routes::{self, BORDER};
use super::session::{Session, Vpp};
use super::state::{Known, State};
use super::traffic::Traffic;
use crate::backend::{AttachedPort, Backend, BackendError, BackendFuture, Counters, Observed};
use crate::desired::{Mtu, SandboxSpec};
use crate::elements::ElementChanges;
use crate::kernel::namespace::io_error;
use crate::kernel::{KernelBackend, apart, port};

/// How many ports are made at the same time after VPP restarted. VPP makes one after the other;
/// more than one keeps it from waiting for us.
const PARALLEL: usize = 16;

/// VPP as the forwarder, and the kernel's router as its border.
#[derive(Debug)]
pub struct VppBackend {
    config: VppConfig,
    kernel: KernelBackend,
    session: OnceLock<Session>,
    state: Mutex<State>,
    gate: Mutex<Gate>,
    traffic: Traffic,
    /// The connection that was looked at last; zero when there was none.
    seen: AtomicU64,
}

/// What the kernel has of all ports.
#[derive(Debug, Default)]
struct Sight {
    facts: BTreeMap<SandboxUid, Facts>,
    /// Ports that VPP can be given anew without the kernel's part being touched.
    intact: BTreeSet<SandboxUid>,
}

impl VppBackend {
    /// Takes the configuration. Nothing happens before [`Backend::setup`].
    pub fn new(config: VppConfig) -> Self {
        Self {
            kernel: KernelBackend::new(config.kernel.clone()),
            traffic: Traffic::new(config.stats.clone()),
            config,
            session: OnceLock::new(),
            state: Mutex::default(),
            gate: Mutex::default(),
            seen: AtomicU64::new(0),
        }
    }

    fn session(&self) -> &Session {
        let start = || Session::start(self.config.socket.clone(), self.config.watchdog);
        self.session.get_or_init(start)
    }

    /// What the kernel has of the ports that `observed` lists.
    async fn sight(&self, observed: &Observed) -> Result<Sight, BackendError> {
        let (inlets, links) = self.kernel.inside(host::inlets).await?;
        let mut sight = Sight::default();
        for (uid, state) in &observed.ports {
            let own = state
                .neighbours
                .iter()
                .find(|(address, _)| !address.is_unicast_link_local());
            let (Some(inlet), Some((address, mac))) = (inlets.get(uid), own) else {
                continue;
            };
            let facts = Facts {
                uid: *uid,
                address: *address,
                mac: *mac,
                mtu: state.mtu,
                inlet: inlet.clone(),
            };
            let there = |name: &String| links.contains(name);
            let reached = match inlet {
                Inlet::Host(name) => there(name),
                Inlet::VhostUser(_) | Inlet::Memif(_) => true,
            };
            let finished = state.routes.contains_key(&facts.address.into());
            if reached && finished && there(&border_link(*uid)) {
                sight.intact.insert(*uid);
            }
            sight.facts.insert(*uid, facts);
        }
        Ok(sight)
    }

    async fn set_up(&self) -> Result<(), BackendError> {
        apart(host::shield).await?;
        self.kernel.setup().await?;
        self.kernel.inside(|_| host::tolerate_gaps()).await?;
        self.seen.store(0, Ordering::Relaxed);
        if let Some(program) = &self.config.supervise {
            self.session().supervise(program);
        }
        let vpp = self.session().wait().await?;
        // An agent that ended too early may have left some.
        vpp.soften().await;
        routes::table(&vpp, BORDER, true).await?;
        let observed = self.kernel.observe().await?;
        let sight = self.sight(&observed).await?;
        let found = found::look(&vpp).await?;
        self.sweep(&vpp, &found, &sight).await?;
        self.complete(&vpp, &found, &sight).await?;
        for group in found.broken_tables() {
            routes::group(&vpp, group, true).await?;
        }
        let found = found::look(&vpp).await?;
        let mut state = self.state.lock().await;
        self.seen.store(vpp.generation(), Ordering::Relaxed);
        note(&mut state, &vpp, &found, &sight, observed);
        let lacking = sight
            .intact
            .iter()
            .filter(|uid| !state.ports.contains_key(uid));
        state.hopeless = lacking.copied().collect();
        let strays = found.strays(&state.ports());
        make::remove(&vpp, &strays).await?;
        let changes = state.direct.changes(&state.wanted());
        state.run(&vpp, &changes.narrow).await?;
        state.run(&vpp, &changes.widen).await?;
        // Whether a classifier is switched on is nothing that VPP tells.
        for (uid, known) in &state.ports {
            if state.direct.bindings.contains_key(uid) {
                state.classify(&vpp, known.port).await?;
            }
        }
        Ok(())
    }

    /// Takes away what VPP has of sandboxes that have no port any more.
    async fn sweep(&self, vpp: &Vpp, found: &Found, sight: &Sight) -> Result<(), BackendError> {
        for uid in found.uids() {
            let kept = sight.facts.get(&uid);
            if kept.is_none_or(|facts| self.permit(&facts.inlet).is_err()) {
                make::remove(vpp, &found.remains(uid, None)).await?;
            }
        }
        Ok(())
    }

    /// Guests share memory with VPP only where that is allowed.
    fn permit(&self, inlet: &Inlet) -> Result<(), BackendError> {
        if self.config.shared_memory || !inlet.is_shared_memory() {
            return Ok(());
        }
        Err(BackendError::SharedMemory)
    }

    /// Gives VPP its part of each port that lacks it.
    async fn complete(&self, vpp: &Vpp, found: &Found, sight: &Sight) -> Result<(), BackendError> {
        let mut running = JoinSet::new();
        for (uid, facts) in &sight.facts {
            if !sight.intact.contains(uid) || found.port(facts).is_some() {
                continue;
            }
            if let Err(error) = self.permit(&facts.inlet) {
                tracing::warn!(%error, %uid, "a port is not given to VPP");
                continue;
            }
            if running.len() >= PARALLEL {
                warn(running.join_next().await);
            }
            let (vpp, facts) = (vpp.clone(), facts.clone());
            let remains = found.remains(*uid, Some(&facts));
            let operator = self.config.kernel.operator_prefixes.clone();
            running.spawn(async move {
                make::remove(&vpp, &remains).await?;
                make::make(&vpp, &facts, &operator).await.map(drop)
            });
        }
        while let Some(ended) = running.join_next().await {
            warn(Some(ended));
        }
        Ok(())
    }

    async fn look(&self) -> Result<Observed, BackendError> {
        let mut observed = self.kernel.observe().await?;
        let Ok(vpp) = self.session().vpp() else {
            observed.ready = false;
            return Ok(observed);
        };
        let sight = self.sight(&observed).await?;
        let found = found::look(&vpp).await?;
        let mut state = self.state.lock().await;
        let fresh = state.generation == vpp.generation();
        let elements = observed.clone();
        note(&mut state, &vpp, &found, &sight, elements);
        let strays = found.strays(&state.ports());
        let gone = |uid: &SandboxUid| !sight.facts.contains_key(uid);
        let clean = strays.is_empty() && !found.uids().iter().any(gone);
        let same = state.direct.changes(&state.wanted()).is_empty();
        observed.ready &= fresh && found.ready() && clean && same;
        for (uid, port) in &mut observed.ports {
            if state.ports.contains_key(uid) {
                continue;
            }
            // A setup gives VPP anew what it lacks, and the sandbox sees nothing of it; where that
            // does not help, or the kernel's part is not whole, another attach does.
            if sight.intact.contains(uid) && !state.hopeless.contains(uid) {
                observed.ready = false;
            } else {
                port.up = false;
            }
        }
        Ok(observed)
    }

    async fn attach_port(&self, spec: SandboxSpec) -> Result<AttachedPort, BackendError> {
        self.permit(&host::inlet(&spec))?;
        let vpp = self.session().vpp()?;
        let any = !self.state.lock().await.ports.is_empty();
        let mut gate = self.gate.lock().await;
        if any {
            gate.bridged(vpp.generation());
        }
        gate.admit(&self.config.stats, vpp.generation()).await?;
        drop(gate);
        let wanted = spec.clone();
        let Made {
            index,
            inlet,
            attached,
        } = self
            .kernel
            .attach_with(spec.uid, move |worker, indexes| {
                let made = host::make(worker, indexes, &wanted, SEGMENTS)?;
                Ok((made.index, made))
            })
            .await?;
        let facts = Facts {
            uid: spec.uid,
            address: spec.address,
            mac: spec.mac(),
            mtu: Mtu::bytes(spec.mtu),
            inlet,
        };
        match self.finish(&vpp, &facts, &spec, index).await {
            Ok(()) => Ok(attached),
            Err(error) => {
                self.unwind(&vpp, &facts).await;
                Err(error)
            }
        }
    }

    async fn finish(
        &self,
        vpp: &Vpp,
        facts: &Facts,
        spec: &SandboxSpec,
        index: u32,
    ) -> Result<(), BackendError> {
        let operator = &self.config.kernel.operator_prefixes;
        let port = make::make(vpp, facts, operator).await?;
        let spec = spec.clone();
        self.kernel
            .inside(move |worker| port::finish(&mut worker.routes, &spec, index))
            .await?;
        let known = Known {
            remains: port.remains(facts),
            link: facts.link(),
            port,
        };
        let mut state = self.state.lock().await;
        state.hopeless.remove(&facts.uid);
        state.ports.insert(facts.uid, known);
        drop(state);
        self.gate.lock().await.bridged(vpp.generation());
        Ok(())
    }

    /// Takes away what a failed attach made.
    async fn unwind(&self, vpp: &Vpp, facts: &Facts) {
        let uid = facts.uid;
        let in_vpp = async {
            let remains = found::look(vpp).await?.remains(uid, Some(facts));
            make::remove(vpp, &remains).await
        };
        let removed = in_vpp.await;
        let in_kernel = self
            .kernel
            .detach_with(uid, move |worker| host::remove(worker, uid))
            .await;
        if let Err(error) = removed.and(in_kernel) {
            tracing::error!(%error, %uid, "a port stays behind after a failed attach");
        }
    }

    async fn detach_port(&self, uid: SandboxUid) -> Result<(), BackendError> {
        let in_vpp = self.detach_from_vpp(uid).await;
        self.kernel
            .detach_with(uid, move |worker| host::remove(worker, uid))
            .await?;
        in_vpp
    }

    async fn detach_from_vpp(&self, uid: SandboxUid) -> Result<(), BackendError> {
        // A VPP that is gone has nothing; one that comes back with something is swept.
        let Ok(vpp) = self.session().vpp() else {
            self.state.lock().await.ports.remove(&uid);
            return Ok(());
        };
        let mut state = self.state.lock().await;
        let known = state.ports.get(&uid).cloned();
        let mut without = state.wanted();
        without.bindings.remove(&uid);
        for routes in without.tables.values_mut() {
            routes.retain(|_, owner| *owner != uid);
        }
        let changes = state.direct.changes(&without);
        state.run(&vpp, &changes.narrow).await?;
        state.ports.remove(&uid);
        drop(state);
        let remains = match known {
            Some(known) => known.remains,
            None => found::look(&vpp).await?.remains(uid, None),
        };
        make::remove(&vpp, &remains).await
    }

    async fn change(&self, changes: &ElementChanges) -> Result<(), BackendError> {
        let mut state = self.state.lock().await;
        let (elements, wanted) = state.after(changes);
        let steps = state.direct.changes(&wanted);
        let vpp = self.session().vpp();
        let narrowed = match &vpp {
            _ if steps.narrow.is_empty() => Ok(()),
            Ok(vpp) => state.run(vpp, &steps.narrow).await,
            Err(_) => Err(self.session().absent()),
        };
        self.kernel.apply(changes).await?;
        state.elements = elements;
        narrowed?;
        // Another VPP, or another connection, is looked at first.
        if let Ok(vpp) = vpp
            && vpp.generation() == state.generation
        {
            state.run(&vpp, &steps.widen).await?;
        }
        Ok(())
    }

    async fn count(&self) -> Result<Counters, BackendError> {
        let mut counters = self.kernel.counters().await?;
        let (generation, ports) = {
            let state = self.state.lock().await;
            (state.generation, state.ports())
        };
        self.traffic.count(generation, &ports, &mut counters).await;
        Ok(counters)
    }

    async fn tear_down(&self) -> Result<(), BackendError> {
        let in_vpp = match self.session().wait().await {
            Ok(vpp) => remove_everything(&vpp).await,
            Err(_) => Ok(()),
        };
        *self.state.lock().await = State::default();
        self.kernel.teardown().await?;
        apart(host::unshield).await?;
        // Nobody would look after it.
        if self.config.supervise.is_some() {
            let socket = &self.config.socket;
            let ended = supervise::end(socket).await;
            ended.map_err(|source| io_error("end the VPP that listens on", socket, source))?;
        }
        in_vpp
    }
}

async fn remove_everything(vpp: &Vpp) -> Result<(), BackendError> {
    let found = found::look(vpp).await?;
    let direct = found.direct(&BTreeMap::new());
    let mut state = State {
        direct,
        ..State::default()
    };
    for uid in found.uids() {
        make::remove(vpp, &found.remains(uid, None)).await?;
    }
    let changes = state.direct.changes(&State::default().direct);
    state.run(vpp, &changes.narrow).await?;
    state.run(vpp, &changes.widen).await?;
    let found = found::look(vpp).await?;
    make::remove(vpp, &found.strays(&BTreeMap::new())).await?;
    routes::table(vpp, BORDER, false).await
}

/// Takes what was seen as what is.
fn note(state: &mut State, vpp: &Vpp, found: &Found, sight: &Sight, observed: Observed) {
    state.generation = vpp.generation();
    state.ports = sight
        .facts
        .iter()
        .filter(|(uid, _)| sight.intact.contains(uid))
        .filter_map(|(uid, facts)| {
            let port = found.port(facts)?;
            let known = Known {
                remains: port.remains(facts),
                link: facts.link(),
                port,
            };
            Some((*uid, known))
        })
        .collect();
    state.elements = observed.elements;
    state.direct = found.direct(&state.ports());
}

fn warn(ended: Option<Result<Result<(), BackendError>, tokio::task::JoinError>>) {
    match ended {
        Some(Ok(Err(error))) => tracing::warn!(%error, "a port could not be given to VPP"),
        Some(Err(error)) => tracing::error!(%error, "a port's step did not end"),
        Some(Ok(Ok(()))) | None => {}
    }
}

impl Backend for VppBackend {
    fn name(&self) -> &'static str {
        "vpp"
    }

    fn setup(&self) -> BackendFuture<'_, ()> {
        Box::pin(self.set_up())
    }

    fn attach<'a>(&'a self, spec: &'a SandboxSpec) -> BackendFuture<'a, AttachedPort> {
        Box::pin(self.attach_port(spec.clone()))
    }

    fn detach(&self, uid: SandboxUid) -> BackendFuture<'_, ()> {
        Box::pin(self.detach_port(uid))
    }

    fn apply<'a>(&'a self, changes: &'a ElementChanges) -> BackendFuture<'a, ()> {
        Box::pin(self.change(changes))
    }

    fn observe(&self) -> BackendFuture<'_, Observed> {
        Box::pin(self.look())
    }

    fn counters(&self) -> BackendFuture<'_, Counters> {
        Box::pin(self.count())
    }

    fn disturbed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let seen = self.seen.load(Ordering::Relaxed);
        Box::pin(self.session().disturbed(seen))
    }

    fn teardown(&self) -> BackendFuture<'_, ()> {
        Box::pin(self.tear_down())
    }
}
