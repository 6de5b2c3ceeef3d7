//! Making reality equal to the desired state.

use std::collections::HashMap;
use std::sync::Arc;

use causeway_types::{Generation, SandboxUid};
use tokio::task::JoinSet;

use super::{Attached, Inner, PARALLEL, ReconcileError, State};
use crate::backend::{AttachedPort, Backend, BackendError};
use crate::desired::{Attachment, DesiredState, InterfaceName, SandboxSpec};
use crate::elements::ElementChanges;
use crate::planner::{Plan, Planner, Step, plan};

/// What a reconciliation did.
#[derive(Debug)]
pub struct ReconcileReport {
    /// The generation that reality now is at, problems aside.
    pub generation: Generation,
    /// Ports made, taken away or made anew, and set elements changed. Zero when reality was
    /// as desired.
    pub changes: usize,
    /// Sandboxes that could not be made as desired.
    pub problems: Vec<Problem>,
}

/// One sandbox that could not be made as desired. It forwards nothing.
#[derive(Debug)]
pub struct Problem {
    /// The sandbox.
    pub uid: SandboxUid,
    /// Why.
    pub error: BackendError,
}

pub(super) async fn reconcile(
    inner: &Inner,
    desired: &DesiredState,
) -> Result<ReconcileReport, ReconcileError> {
    let fail = |operation| move |source| ReconcileError { operation, source };
    let backend = &inner.backend;
    let mut observed = backend
        .observe()
        .await
        .map_err(fail("observe the router"))?;
    let mut changes = 0;
    if !observed.ready {
        backend.setup().await.map_err(fail("set the router up"))?;
        observed = backend
            .observe()
            .await
            .map_err(fail("observe the router"))?;
        changes += 1;
    }
    let Plan { steps, mut planner } = plan(desired, &observed);
    let mut problems = Vec::new();
    let mut ports = Vec::new();
    for step in steps {
        match step {
            Step::Apply(elements) => {
                // Elements that come after ports leave out the ports that failed.
                changes += run_ports(backend, std::mem::take(&mut ports), &mut problems).await;
                let elements = without(elements, &problems);
                changes += elements.len();
                if !elements.is_empty() {
                    let applied = backend.apply(&elements).await;
                    applied.map_err(fail("write set elements"))?;
                }
            }
            other => ports.push(other),
        }
    }
    changes += run_ports(backend, ports, &mut problems).await;
    settle(inner, desired, &mut planner, &problems).await?;
    Ok(ReconcileReport {
        generation: desired.generation,
        changes,
        problems,
    })
}

/// Takes the new planner into use, without the sandboxes that have no port.
async fn settle(
    inner: &Inner,
    desired: &DesiredState,
    planner: &mut Planner,
    problems: &[Problem],
) -> Result<(), ReconcileError> {
    let mut ends: HashMap<SandboxUid, Attached> = desired
        .sandboxes
        .values()
        .map(|spec| (spec.uid, attached(spec)))
        .collect();
    let complete = planner.elements();
    for problem in problems {
        planner.remove(problem.uid);
        ends.remove(&problem.uid);
    }
    let mut left = ElementChanges::between(&complete, &planner.elements());
    // Sources of failed ports were never written.
    left = without(left, problems);
    if !left.is_empty() {
        let applied = inner.backend.apply(&left).await;
        applied.map_err(|source| ReconcileError {
            operation: "write set elements",
            source,
        })?;
    }
    *inner.state() = State {
        planner: std::mem::take(planner),
        ends,
        ..State::default()
    };
    Ok(())
}

fn without(mut elements: ElementChanges, problems: &[Problem]) -> ElementChanges {
    use crate::elements::{Element, PortRef};
    let works = |element: &Element| match element {
        Element::Source {
            port: PortRef::Sandbox(uid),
            ..
        } => !problems.iter().any(|problem| problem.uid == *uid),
        _ => true,
    };
    elements.add.retain(works);
    elements.remove.retain(works);
    elements
}

fn attached(spec: &SandboxSpec) -> Attached {
    let interface = match &spec.attachment {
        Attachment::Netns { interface, .. } => interface.clone(),
        Attachment::Tap { name } => name.clone(),
        Attachment::VhostUser { .. } | Attachment::Memif { .. } => InterfaceName::of_port(spec.uid),
    };
    Attached::new(spec, InterfaceName::of_port(spec.uid), interface)
}

/// Makes and takes away ports, many at a time. Says how many changed.
async fn run_ports(
    backend: &Arc<dyn Backend>,
    steps: Vec<Step>,
    problems: &mut Vec<Problem>,
) -> usize {
    let mut running = JoinSet::new();
    let mut changed = 0;
    let mut take = |result: Option<Result<(SandboxUid, Result<(), BackendError>), _>>| {
        let Some(result) = result else {
            return false;
        };
        let result: Result<_, tokio::task::JoinError> = result;
        match result {
            Ok((_, Ok(()))) => changed += 1,
            Ok((uid, Err(error))) => problems.push(Problem { uid, error }),
            Err(error) => tracing::error!(%error, "a port's step did not end"),
        }
        true
    };
    for step in steps {
        if running.len() >= PARALLEL {
            take(running.join_next().await);
        }
        let backend = Arc::clone(backend);
        running.spawn(async move { run_port(&*backend, step).await });
    }
    while take(running.join_next().await) {}
    changed
}

async fn run_port(backend: &dyn Backend, step: Step) -> (SandboxUid, Result<(), BackendError>) {
    match step {
        Step::Detach(uid) => (uid, backend.detach(uid).await),
        Step::Attach(spec) => (spec.uid, backend.attach(&spec).await.map(no_ends)),
        Step::Reattach(spec) => {
            let detached = backend.detach(spec.uid).await;
            let result = match detached {
                Ok(()) => backend.attach(&spec).await.map(no_ends),
                Err(error) => Err(error),
            };
            (spec.uid, result)
        }
        Step::Apply(_) => unreachable!("set elements are written in order, by the caller"),
    }
}

fn no_ends(_: AttachedPort) {}
