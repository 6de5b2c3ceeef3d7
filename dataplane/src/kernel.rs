//! The Linux kernel as the forwarder: a network namespace as router, rtnetlink and nftables.

use std::path::PathBuf;

use ipnet::{IpNet, Ipv6Net};

use crate::desired::InterfaceName;

pub mod nft;

mod backend;
pub(crate) mod message;
pub(crate) mod namespace;
mod observe;
pub(crate) mod port;
pub(crate) mod route;
mod router;
mod sysctl;
pub(crate) mod tap;
mod uplink;
pub(crate) mod worker;

pub use backend::KernelBackend;

pub(crate) use backend::apart;
pub(crate) use uplink::run_nft as nft_program;

/// The router's end of the link to the host.
pub const UPLINK: &str = "cw-up";
/// The host's end of the link to the router.
pub const HOST_LINK: &str = "cw-host";
/// The mark on packets that go to the proxy; a policy rule delivers them locally.
pub const PROXY_MARK: u32 = 0xca05_e000;
/// The routing table that delivers marked packets locally.
pub const PROXY_TABLE: u32 = 0xca05;
/// The port at which the proxy takes redirected connections.
pub const PROXY_PORT: u16 = 15001;

/// How the kernel backend is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelConfig {
    /// The directory in which network namespaces are bound: `/run/netns`.
    pub netns_dir: PathBuf,
    /// The name of the router's namespace: `causeway`.
    pub namespace: String,
    /// The prefixes that sandbox addresses come from.
    pub operator_prefixes: Vec<Ipv6Net>,
    /// Ranges of this node and its operator that no rule opens: host addresses, tunnel
    /// endpoints, segment identifiers.
    pub own_prefixes: Vec<Ipv6Net>,
    /// The way to the outside.
    pub uplink: Uplink,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self {
            netns_dir: PathBuf::from("/run/netns"),
            namespace: "causeway".to_owned(),
            operator_prefixes: Vec::new(),
            own_prefixes: Vec::new(),
            uplink: Uplink::None,
        }
    }
}

impl KernelConfig {
    /// The file that the router's namespace is bound to.
    pub fn namespace_path(&self) -> PathBuf {
        self.netns_dir.join(&self.namespace)
    }
}

/// The router's way to the outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Uplink {
    /// None: sandboxes reach each other only.
    #[default]
    None,
    /// Through the host, over a veth pair.
    Host {
        /// Whether the host translates addresses.
        translation: Translation,
    },
    /// An interface that is moved into the router's namespace, and back at teardown.
    Interface {
        /// Its name in the host's namespace.
        name: InterfaceName,
        /// Addresses that the router takes on it.
        addresses: Vec<IpNet>,
        /// Default gateways, IPv6 and perhaps IPv4.
        gateways: Vec<std::net::IpAddr>,
    },
}

/// What the host does with packets from the router.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Translation {
    /// Routes them as they are: the operator prefixes are routed to this host.
    #[default]
    Routed,
    /// Gives them the host's own address.
    Masquerade,
}
