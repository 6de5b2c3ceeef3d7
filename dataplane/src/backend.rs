//! What the reconciler needs of a forwarder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::net::Ipv6Addr;
use std::pin::Pin;

use causeway_types::{GATEWAY, MacAddress, Reason, SandboxUid};
use ipnet::Ipv6Net;

use crate::desired::{InterfaceName, Mtu, SandboxSpec};
use crate::elements::{Element, ElementChanges};

mod error;

pub use error::BackendError;

/// What a backend's methods return: a boxed future, so that a backend can be chosen at run time.
pub type BackendFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// A forwarder: something that carries packets between ports as the sets say.
///
/// Every method can be called again after it failed or after the process died in the middle
/// of it. No method holds state that a restarted process could not observe.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// The name on the command line: `kernel`, `vpp` or, in tests, `fake`.
    fn name(&self) -> &'static str;

    /// Makes the router: everything but ports and set elements. Finds what is already there
    /// and leaves its ports and flows alone.
    fn setup(&self) -> BackendFuture<'_, ()>;

    /// Wires one sandbox. The port forwards nothing until its elements are applied. On failure
    /// exactly what this call made is taken away again.
    fn attach<'a>(&'a self, spec: &'a SandboxSpec) -> BackendFuture<'a, AttachedPort>;

    /// Takes one sandbox's port away. A port that is not there is success.
    fn detach(&self, uid: SandboxUid) -> BackendFuture<'_, ()>;

    /// Changes set elements, all or nothing.
    fn apply<'a>(&'a self, changes: &'a ElementChanges) -> BackendFuture<'a, ()>;

    /// What is there.
    fn observe(&self) -> BackendFuture<'_, Observed>;

    /// Traffic and drops since each port was made.
    fn counters(&self) -> BackendFuture<'_, Counters>;

    /// Completes when the forwarder went away or came back, and everything should be looked at.
    /// A forwarder that does neither never completes it.
    fn disturbed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    /// Removes the router and everything on it. Nothing there is success.
    fn teardown(&self) -> BackendFuture<'_, ()>;
}

/// What an attach made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedPort {
    /// The router's end.
    pub port: InterfaceName,
    /// The sandbox's end, or the tap device.
    pub interface: InterfaceName,
}

/// What a backend found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Whether the router exists and its fixed structure is complete.
    pub ready: bool,
    /// The ports that are there.
    pub ports: BTreeMap<SandboxUid, PortState>,
    /// The set elements that are there.
    pub elements: BTreeSet<Element>,
}

/// The router's side of one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortState {
    /// Whether the link is up.
    pub up: bool,
    /// The link's MTU in bytes.
    pub mtu: u32,
    /// Addresses on the link.
    pub addresses: BTreeSet<Ipv6Addr>,
    /// Permanent neighbours on the link.
    pub neighbours: BTreeMap<Ipv6Addr, MacAddress>,
    /// Prefixes routed to the link, each with its gateway where it has one.
    pub routes: BTreeMap<Ipv6Net, Option<Ipv6Addr>>,
}

impl PortState {
    /// What the port of `spec` looks like when it is whole.
    pub fn desired(spec: &SandboxSpec) -> Self {
        let mac = spec.mac();
        let mut routes = BTreeMap::from([
            (Ipv6Net::from(spec.address), None),
            (Ipv6Net::from(spec.link_local()), None),
        ]);
        if let Some(prefix) = spec.prefix {
            routes.insert(prefix, Some(spec.link_local()));
        }
        Self {
            up: true,
            mtu: Mtu::bytes(spec.mtu),
            addresses: BTreeSet::from([GATEWAY]),
            neighbours: BTreeMap::from([(spec.address, mac), (spec.link_local(), mac)]),
            routes,
        }
    }
}

/// Traffic and drops.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Per sandbox.
    pub sandboxes: BTreeMap<SandboxUid, PortCounters>,
    /// Drops on the uplink and on interfaces that belong to no sandbox.
    pub other_drops: BTreeMap<Reason, u64>,
}

/// One sandbox's traffic, as the sandbox sees it, and what was dropped of what it sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets that the sandbox sent.
    pub sent_packets: u64,
    /// Bytes that the sandbox sent.
    pub sent_bytes: u64,
    /// Packets that the sandbox was sent.
    pub received_packets: u64,
    /// Bytes that the sandbox was sent.
    pub received_bytes: u64,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<Reason, u64>,
}
