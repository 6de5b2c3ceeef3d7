//! A forwarder in memory, for tests: it keeps state as a kernel would, and fails where it is told.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use causeway_types::SandboxUid;

use crate::backend::{
    AttachedPort, Backend, BackendError, BackendFuture, Counters, Observed, PortCounters, PortState,
};
use crate::desired::{Attachment, InterfaceName, SandboxSpec};
use crate::elements::{Element, ElementChanges, PortRef};

/// What happens at the step that a test picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The step fails, and the backend unwinds as it promises.
    Error,
    /// The process dies there: what was done stays, and nothing is unwound.
    Crash,
}

/// A [`Backend`] in memory.
#[derive(Debug, Default)]
pub struct FakeBackend {
    world: Mutex<World>,
}

#[derive(Debug, Default)]
struct World {
    observed: Observed,
    steps: usize,
    fault: Option<(usize, Fault)>,
    crashed: bool,
}

impl FakeBackend {
    /// Starts with an empty world.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the step with this number fail, counted from the first step of the backend's life.
    pub fn fail_at(&self, step: usize, fault: Fault) {
        self.world().fault = Some((step, fault));
    }

    /// How many steps were made so far.
    pub fn steps(&self) -> usize {
        self.world().steps
    }

    /// What is there.
    pub fn state(&self) -> Observed {
        self.world().observed.clone()
    }

    /// Ends a crash: a new process looks at the world that the old one left.
    pub fn restart(&self) {
        let mut world = self.world();
        world.crashed = false;
        world.fault = None;
    }

    /// Changes the world behind the backend's back.
    pub fn meddle(&self, edit: impl FnOnce(&mut Observed)) {
        edit(&mut self.world().observed);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        // The world is valid after each assignment, so a panic elsewhere leaves it usable.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attach_now(&self, spec: &SandboxSpec) -> Result<AttachedPort, BackendError> {
        let interface = match &spec.attachment {
            Attachment::Netns { interface, .. } => interface.clone(),
            Attachment::Tap { name } => name.clone(),
            other => {
                return Err(BackendError::UnsupportedAttachment {
                    attachment: other.kind(),
                    needs: "vpp",
                });
            }
        };
        let mut world = self.world();
        world.ready()?;
        if world.observed.ports.contains_key(&spec.uid) {
            return Err(BackendError::PortExists { uid: spec.uid });
        }
        let whole = PortState::desired(spec);
        let bare = PortState {
            up: false,
            addresses: whole.addresses.iter().take(0).copied().collect(),
            neighbours: BTreeMap::new(),
            routes: BTreeMap::new(),
            ..whole.clone()
        };
        world.step()?;
        world.observed.ports.insert(spec.uid, bare);
        let finished = world.step().and_then(|()| {
            if let Some(port) = world.observed.ports.get_mut(&spec.uid) {
                port.up = true;
                port.addresses.clone_from(&whole.addresses);
            }
            world.step()
        });
        match finished {
            Ok(()) => {
                world.observed.ports.insert(spec.uid, whole);
                Ok(AttachedPort {
                    port: InterfaceName::of_port(spec.uid),
                    interface,
                })
            }
            Err(error) => {
                if !world.crashed {
                    world.observed.ports.remove(&spec.uid);
                }
                Err(error)
            }
        }
    }

    fn apply_now(&self, changes: &ElementChanges) -> Result<(), BackendError> {
        let mut world = self.world();
        world.ready()?;
        let mut elements = world.observed.elements.clone();
        for element in &changes.remove {
            if !elements.remove(element) {
                return Err(refused(element, "is not there"));
            }
        }
        for element in &changes.add {
            if let Element::Source {
                port: PortRef::Sandbox(uid),
                ..
            } = element
                && !world.observed.ports.contains_key(uid)
            {
                return Err(refused(element, "has no port"));
            }
            if !elements.insert(*element) {
                return Err(refused(element, "is there already"));
            }
        }
        world.step()?;
        world.observed.elements = elements;
        Ok(())
    }
}

impl World {
    fn ready(&self) -> Result<(), BackendError> {
        if self.crashed {
            return Err(BackendError::Stopped);
        }
        if self.observed.ready {
            Ok(())
        } else {
            Err(BackendError::NotSetUp)
        }
    }

    fn step(&mut self) -> Result<(), BackendError> {
        let step = self.steps;
        self.steps += 1;
        match self.fault {
            Some((at, fault)) if at == step => {
                self.crashed = fault == Fault::Crash;
                Err(BackendError::Injected { step })
            }
            _ => Ok(()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{element:?} {problem}")]
struct Refused {
    element: Element,
    problem: &'static str,
}

fn refused(element: &Element, problem: &'static str) -> BackendError {
    BackendError::Filter {
        operation: "change set elements",
        source: Box::new(Refused {
            element: *element,
            problem,
        }),
    }
}

fn ready<'a, T: Send + 'a>(result: Result<T, BackendError>) -> BackendFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn setup(&self) -> BackendFuture<'_, ()> {
        let mut world = self.world();
        if world.crashed {
            return ready(Err(BackendError::Stopped));
        }
        world.observed.ready = true;
        ready(Ok(()))
    }

    fn attach<'a>(&'a self, spec: &'a SandboxSpec) -> BackendFuture<'a, AttachedPort> {
        ready(self.attach_now(spec))
    }

    fn detach(&self, uid: SandboxUid) -> BackendFuture<'_, ()> {
        let mut world = self.world();
        ready(world.ready().and_then(|()| world.step()).map(|()| {
            world.observed.ports.remove(&uid);
            // Elements that name the port outlive it, under an index that means nothing.
            let orphans: Vec<Element> = world.observed.elements.iter().copied().collect();
            for element in orphans {
                if let Element::Source {
                    port: PortRef::Sandbox(owner),
                    address,
                } = element
                    && owner == uid
                {
                    world.observed.elements.remove(&element);
                    let port = PortRef::Index(u32::MAX);
                    world
                        .observed
                        .elements
                        .insert(Element::Source { port, address });
                }
            }
        }))
    }

    fn apply<'a>(&'a self, changes: &'a ElementChanges) -> BackendFuture<'a, ()> {
        ready(self.apply_now(changes))
    }

    fn observe(&self) -> BackendFuture<'_, Observed> {
        let world = self.world();
        ready(if world.crashed {
            Err(BackendError::Stopped)
        } else {
            Ok(world.observed.clone())
        })
    }

    fn counters(&self) -> BackendFuture<'_, Counters> {
        let world = self.world();
        let sandboxes = world
            .observed
            .ports
            .keys()
            .map(|uid| (*uid, PortCounters::default()))
            .collect();
        ready(Ok(Counters {
            sandboxes,
            ..Counters::default()
        }))
    }

    fn teardown(&self) -> BackendFuture<'_, ()> {
        self.world().observed = Observed::default();
        ready(Ok(()))
    }
}
