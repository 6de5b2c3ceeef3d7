//! What the node should look like: plain, checked values without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::Arc;

use causeway_types::{Generation, Labels, MacAddress, NetworkName, SandboxId, SandboxUid};
use ipnet::Ipv6Net;

mod firewall;
mod interface;

pub use firewall::{EgressRule, Firewall, Ingress, IngressPeer, IngressRule};
pub use firewall::{PortRange, PortRangeError, Ports, Protocol};
pub use interface::{InterfaceName, InterfaceNameError, Mtu, MtuError};

/// Everything that the dataplane of this node should carry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredState {
    /// The generation of the desired state that this was taken from.
    pub generation: Generation,
    /// The prefixes that sandbox addresses come from. An address inside them that no sandbox
    /// holds is never looked for outside.
    pub operator_prefixes: Vec<Ipv6Net>,
    /// The sandboxes of this node.
    pub sandboxes: BTreeMap<SandboxUid, SandboxSpec>,
}

/// One sandbox: how it is wired, and what it may exchange with whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Names the sandbox's port on the router.
    pub uid: SandboxUid,
    /// Tenant and name, for people and for tenancy.
    pub id: SandboxId,
    /// Its leased address.
    pub address: Ipv6Addr,
    /// A prefix that is routed to the sandbox as well, for nested containers.
    pub prefix: Option<Ipv6Net>,
    /// How it is wired.
    pub attachment: Attachment,
    /// The MTU of its interface.
    pub mtu: Mtu,
    /// The private networks of its tenant that it belongs to.
    pub networks: BTreeSet<NetworkName>,
    /// Its labels, which other sandboxes' ingress rules select by.
    pub labels: Labels,
    /// Its compiled policy, so far as the dataplane enforces it.
    pub firewall: Arc<Firewall>,
    /// Whether it is cut off from everything.
    pub quarantined: bool,
}

impl SandboxSpec {
    /// The address of the sandbox's network card.
    pub fn mac(&self) -> MacAddress {
        MacAddress::for_lease(self.address)
    }

    /// The sandbox's link-local address.
    pub fn link_local(&self) -> Ipv6Addr {
        self.mac().link_local()
    }

    /// Whether the two differ only in what can change while traffic flows: networks, labels,
    /// firewall and quarantine, and not in wiring or addresses.
    pub fn same_port(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.address == other.address
            && self.prefix == other.prefix
            && self.attachment == other.attachment
            && self.mtu == other.mtu
    }
}

/// How a sandbox is wired to the router.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attachment {
    /// A veth pair whose other end is inside a named network namespace.
    Netns {
        /// The file that the namespace is bound to, such as `/run/netns/web`.
        path: PathBuf,
        /// The interface's name inside.
        interface: InterfaceName,
    },
    /// A tap device in the agent's own network namespace, for a microVM to open by name.
    Tap {
        /// The device's name.
        name: InterfaceName,
    },
    /// A vhost-user socket (VPP only).
    VhostUser {
        /// The socket's path.
        socket: PathBuf,
    },
    /// A memif socket (VPP only).
    Memif {
        /// The socket's path.
        socket: PathBuf,
    },
}

impl Attachment {
    /// Whether the guest shares memory with VPP, and chooses by itself how large frames are.
    pub fn is_shared_memory(&self) -> bool {
        matches!(self, Self::VhostUser { .. } | Self::Memif { .. })
    }

    /// The word that the command line uses: `netns`, `tap`, `vhost-user` or `memif`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Netns { .. } => "netns",
            Self::Tap { .. } => "tap",
            Self::VhostUser { .. } => "vhost-user",
            Self::Memif { .. } => "memif",
        }
    }
}
