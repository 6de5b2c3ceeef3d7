//! What the agent calls: ordering, parallelism and unwinding around a backend.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use causeway_types::{GATEWAY, MacAddress, RESOLVER, SandboxUid};
use ipnet::Ipv6Net;
use tokio::sync::{RwLock, Semaphore};

use crate::backend::{Backend, BackendError, Counters};
use crate::desired::{DesiredState, InterfaceName, Mtu, SandboxSpec};
use crate::elements::ElementChanges;
use crate::planner::Planner;

mod error;
mod order;
mod queue;
mod reconcile;

pub use error::{AttachError, DetachError, OpenError, ReconcileError, TeardownError, UpdateError};
pub use reconcile::{Problem, ReconcileReport};

use order::KeyedLocks;
use queue::Queue;

/// How many sandboxes are attached or detached at the same time.
const PARALLEL: usize = 64;

/// What a sandbox needs to know to use its attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// The interface inside the sandbox, or the tap device.
    pub interface: InterfaceName,
    /// The router's end.
    pub port: InterfaceName,
    /// The address.
    pub address: Ipv6Addr,
    /// The prefix that is routed to the sandbox as well.
    pub prefix: Option<Ipv6Net>,
    /// The address of the network card; a microVM's guest must use this one.
    pub mac: MacAddress,
    /// The default gateway.
    pub gateway: Ipv6Addr,
    /// The resolver.
    pub resolver: Ipv6Addr,
    /// The MTU.
    pub mtu: Mtu,
}

impl Attached {
    fn new(spec: &SandboxSpec, port: InterfaceName, interface: InterfaceName) -> Self {
        Self {
            interface,
            port,
            address: spec.address,
            prefix: spec.prefix,
            mac: spec.mac(),
            gateway: GATEWAY,
            resolver: RESOLVER,
            mtu: spec.mtu,
        }
    }
}

/// The dataplane of one node. Cheap to clone; every clone is the same dataplane.
///
/// What is done to one sandbox happens in order; different sandboxes proceed in parallel. A
/// call that has begun runs to its end, even when its caller stops waiting.
#[derive(Debug, Clone)]
pub struct Dataplane {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    backend: Arc<dyn Backend>,
    state: Mutex<State>,
    /// Held while elements are written, so that changes arrive in the order they were planned.
    flush: tokio::sync::Mutex<()>,
    /// Reconciliation and teardown hold it alone; everything else shares it.
    gate: RwLock<()>,
    slots: Semaphore,
    locks: KeyedLocks,
}

#[derive(Debug, Default)]
struct State {
    planner: Planner,
    /// Addresses of sandboxes that are being attached.
    reserved: HashMap<Ipv6Addr, SandboxUid>,
    ends: HashMap<SandboxUid, Attached>,
    queue: Queue,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every critical section leaves the state consistent before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a future to its end even when the caller goes away. A panic inside is passed on.
async fn detached<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down cancels a task; nobody is left to hear about it.
            Err(_) => std::future::pending().await,
        },
    }
}

impl Dataplane {
    /// Sets the router up, or finds it as an earlier process left it. Ports and flows that are
    /// there stay. Call [`reconcile`](Self::reconcile) next.
    pub async fn open(backend: Arc<dyn Backend>) -> Result<Self, OpenError> {
        backend.setup().await.map_err(OpenError)?;
        Ok(Self {
            inner: Arc::new(Inner {
                backend,
                state: Mutex::default(),
                flush: tokio::sync::Mutex::default(),
                gate: RwLock::new(()),
                slots: Semaphore::new(PARALLEL),
                locks: KeyedLocks::default(),
            }),
        })
    }

    /// The backend's name.
    pub fn backend_name(&self) -> &'static str {
        self.inner.backend.name()
    }

    /// Wires a sandbox. When this returns, its address is usable. A failure leaves nothing
    /// behind. Attaching again exactly what is attached succeeds and changes nothing.
    pub async fn attach(&self, spec: SandboxSpec) -> Result<Attached, AttachError> {
        let inner = Arc::clone(&self.inner);
        detached(async move { inner.attach(spec).await }).await
    }

    /// Takes a sandbox's wiring away. One that is not attached is success. It goes on after a
    /// failure and reports all of them.
    pub async fn detach(&self, uid: SandboxUid) -> Result<(), DetachError> {
        let inner = Arc::clone(&self.inner);
        detached(async move { inner.detach(uid).await }).await
    }

    /// Changes networks, labels, firewall or quarantine of attached sandboxes, all in one
    /// transaction, with effect on live flows. Sandboxes that are not attached are left out
    /// and named in the error, after the others were changed.
    pub async fn update(&self, specs: Vec<SandboxSpec>) -> Result<(), UpdateError> {
        let inner = Arc::clone(&self.inner);
        detached(async move { inner.update(specs).await }).await
    }

    /// Makes reality equal to the desired state. Single sandboxes that cannot be are problems
    /// in the report. No attach or detach runs meanwhile.
    pub async fn reconcile(
        &self,
        desired: &DesiredState,
    ) -> Result<ReconcileReport, ReconcileError> {
        let desired = desired.clone();
        self.reconcile_with(move || desired).await
    }

    /// Like [`reconcile`](Self::reconcile), but asks for the desired state only once no attach or
    /// detach is under way, so that none can fall between reading and comparing.
    pub async fn reconcile_with(
        &self,
        desired: impl FnOnce() -> DesiredState + Send + 'static,
    ) -> Result<ReconcileReport, ReconcileError> {
        let inner = Arc::clone(&self.inner);
        detached(async move {
            let _alone = inner.gate.write().await;
            reconcile::reconcile(&inner, &desired()).await
        })
        .await
    }

    /// Completes when a reconciliation is due that nobody else asks for.
    pub async fn disturbed(&self) {
        self.inner.backend.disturbed().await;
    }

    /// Traffic and drops.
    pub async fn counters(&self) -> Result<Counters, BackendError> {
        self.inner.backend.counters().await
    }

    /// Removes everything that the dataplane made on this node.
    pub async fn teardown(&self) -> Result<(), TeardownError> {
        let inner = Arc::clone(&self.inner);
        detached(async move {
            let _alone = inner.gate.write().await;
            inner.backend.teardown().await.map_err(TeardownError)?;
            *inner.state() = State::default();
            Ok(())
        })
        .await
    }
}

impl Inner {
    async fn attach(&self, spec: SandboxSpec) -> Result<Attached, AttachError> {
        let _shared = self.gate.read().await;
        let _order = self.locks.lock(spec.uid).await;
        let Ok(_slot) = self.slots.acquire().await else {
            return Err(AttachError::Stopped);
        };
        if let Some(attached) = self.reserve(&spec)? {
            return Ok(attached);
        }
        let result = self.attach_reserved(&spec).await;
        self.state().reserved.remove(&spec.address);
        result
    }

    /// Makes sure that nobody else attaches the same address meanwhile. Yields what is there
    /// when the sandbox is attached as asked already.
    fn reserve(&self, spec: &SandboxSpec) -> Result<Option<Attached>, AttachError> {
        let mut state = self.state();
        if let Some(known) = state.planner.get(spec.uid) {
            return match state.ends.get(&spec.uid) {
                Some(ends) if known == spec => Ok(Some(ends.clone())),
                _ => Err(AttachError::AlreadyAttached {
                    id: known.id.clone(),
                    uid: spec.uid,
                }),
            };
        }
        let holder = state.planner.holder(spec.address);
        if let Some(holder) = holder.or_else(|| state.reserved.get(&spec.address).copied()) {
            return Err(AttachError::AddressInUse {
                address: spec.address,
                holder,
            });
        }
        state.reserved.insert(spec.address, spec.uid);
        Ok(None)
    }

    async fn attach_reserved(&self, spec: &SandboxSpec) -> Result<Attached, AttachError> {
        let uid = spec.uid;
        let port = match self.backend.attach(spec).await {
            Ok(port) => port,
            Err(source) => {
                return Err(AttachError::Port {
                    id: spec.id.clone(),
                    source,
                });
            }
        };
        let attached = Attached::new(spec, port.port, port.interface);
        let ends = attached.clone();
        let written = self
            .change(|state| {
                state.ends.insert(uid, ends);
                state.planner.upsert(spec.clone())
            })
            .await;
        if let Err(source) = written {
            let mut leftovers = Vec::new();
            self.unwind(uid, &mut leftovers).await;
            return Err(AttachError::Filter {
                id: spec.id.clone(),
                source,
                leftovers,
            });
        }
        Ok(attached)
    }

    async fn unwind(&self, uid: SandboxUid, errors: &mut Vec<Arc<BackendError>>) {
        errors.extend(self.change(|state| state.forget(uid)).await.err());
        errors.extend(self.backend.detach(uid).await.err().map(Arc::new));
    }

    async fn detach(&self, uid: SandboxUid) -> Result<(), DetachError> {
        let _shared = self.gate.read().await;
        let _order = self.locks.lock(uid).await;
        let Ok(_slot) = self.slots.acquire().await else {
            return Err(DetachError::stopped(uid));
        };
        // Rules first: from then on the port forwards nothing, whatever happens to the link.
        let mut errors = Vec::new();
        self.unwind(uid, &mut errors).await;
        DetachError::unless_empty(uid, errors)
    }

    async fn update(&self, specs: Vec<SandboxSpec>) -> Result<(), UpdateError> {
        let _shared = self.gate.read().await;
        let mut missing = Vec::new();
        let mut rewired = Vec::new();
        let written = self
            .change(|state| {
                let mut changes = Vec::new();
                for spec in specs {
                    match state.planner.get(spec.uid) {
                        None => missing.push(spec.uid),
                        Some(known) if known.same_port(&spec) => {
                            changes.push(state.planner.upsert(spec));
                        }
                        Some(_) => rewired.push(spec.uid),
                    }
                }
                ElementChanges::merge(&changes)
            })
            .await;
        written.map_err(UpdateError::Filter)?;
        if !missing.is_empty() {
            return Err(UpdateError::NotAttached { uids: missing });
        }
        if !rewired.is_empty() {
            return Err(UpdateError::Rewired { uids: rewired });
        }
        Ok(())
    }
}

impl State {
    fn forget(&mut self, uid: SandboxUid) -> ElementChanges {
        self.ends.remove(&uid);
        self.planner.remove(uid)
    }
}

#[cfg(test)]
mod tests;
