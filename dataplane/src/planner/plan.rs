//! The steps from what is there to what should be.

use std::collections::BTreeSet;

use causeway_types::SandboxUid;

use super::Planner;
use crate::backend::{Observed, PortState};
use crate::desired::{DesiredState, SandboxSpec};
use crate::elements::{Element, ElementChanges, PortRef};

/// One step. They are made in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Change set elements.
    Apply(ElementChanges),
    /// Take away a port that should not be there.
    Detach(SandboxUid),
    /// Make a port that is missing.
    Attach(Box<SandboxSpec>),
    /// Make a port anew, since it is not as it should be.
    Reattach(Box<SandboxSpec>),
}

/// The steps, and the planner in the state that they lead to.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What to do, in order. Rules are tightened before ports are touched, and a new port's
    /// elements come after it.
    pub steps: Vec<Step>,
    /// Compiled from the desired state.
    pub planner: Planner,
}

/// Compares what should be with what is. When they are equal there are no steps.
pub fn plan(desired: &DesiredState, observed: &Observed) -> Plan {
    let planner = Planner::load(desired.sandboxes.values(), &observed.elements);
    let mut ports = Vec::new();
    let mut fresh = BTreeSet::new();
    for &uid in observed.ports.keys() {
        if !desired.sandboxes.contains_key(&uid) {
            ports.push(Step::Detach(uid));
        }
    }
    for (&uid, spec) in &desired.sandboxes {
        match observed.ports.get(&uid) {
            Some(state) if *state == PortState::desired(spec) => continue,
            Some(_) => ports.push(Step::Reattach(Box::new(spec.clone()))),
            None => ports.push(Step::Attach(Box::new(spec.clone()))),
        }
        fresh.insert(uid);
    }

    // A port that is made anew has another interface index, so its old elements go.
    let is_fresh = |element: &Element| matches!(element, Element::Source { port: PortRef::Sandbox(uid), .. } if fresh.contains(uid));
    let wanted = planner.elements();
    let (later, now): (BTreeSet<_>, BTreeSet<_>) = wanted.into_iter().partition(is_fresh);
    let mut steps = Vec::new();
    let first = ElementChanges::between(&observed.elements, &now);
    if !first.is_empty() {
        steps.push(Step::Apply(first));
    }
    steps.extend(ports);
    if !later.is_empty() {
        steps.push(Step::Apply(ElementChanges {
            add: later.into_iter().collect(),
            remove: Vec::new(),
        }));
    }
    Plan { steps, planner }
}
