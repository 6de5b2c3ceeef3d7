//! The part of a policy that the dataplane enforces by itself, packet by packet.

use ipnet::Ipv6Net;
use serde::Serialize;

use crate::model::{IngressRule, PortSet};

/// What the dataplane lets through without the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct L4Rules {
    /// Who may reach the sandbox.
    pub ingress: L4Ingress,
    /// Where UDP and ICMPv6 may go: reserved ranges that no rule opens are already cut out. TCP
    /// is never here, since the proxy judges all of it.
    pub egress: Vec<L4Egress>,
    /// Where nothing may go, which wins over `egress`.
    pub egress_deny: Vec<L4Egress>,
}

/// Who may reach a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum L4Ingress {
    /// No policy says: every member of a shared network, on every protocol and port.
    SharedNetworks,
    /// These peers and no others; nobody when there are none.
    Rules(Vec<IngressRule>),
}

/// One egress entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct L4Egress {
    /// The destination.
    pub prefix: Ipv6Net,
    /// The ports.
    pub ports: PortSet,
}
