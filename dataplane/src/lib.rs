//! The dataplane: desired state, planner, reconciler, and the backends that carry packets.
//!
//! Desired state ([`DesiredState`]) is compiled by a pure planner into ports and set elements
//! ([`elements`]). A [`Backend`] makes them real. [`Dataplane`] orders what is done to each
//! sandbox, and makes reality equal to the desired state after a crash.

pub mod backend;
pub mod desired;
pub mod elements;
pub mod facade;
pub mod fake;
pub mod kernel;
pub mod planner;
pub mod reserved;
pub mod trace;
pub mod vpp;

pub use backend::{Backend, BackendError, Counters, Observed, PortCounters};
pub use desired::{
    Attachment, DesiredState, EgressRule, Firewall, Ingress, IngressPeer, IngressRule,
    InterfaceName, Mtu, PortRange, Ports, Protocol, SandboxSpec,
};
pub use facade::{Attached, Dataplane, ReconcileReport};
pub use trace::{Packet, Trace, Verdict, trace};
