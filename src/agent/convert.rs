//! Between the forms of the API, the store, the policies and the dataplane.

use std::collections::{BTreeMap, BTreeSet};

use causeway_dataplane::{
    Attachment, EgressRule, Firewall, Ingress, IngressPeer, IngressRule, InterfaceName, Mtu,
    PortCounters, PortRange, Ports, Protocol,
};
use causeway_policy::model;
use causeway_policy::{L4Egress, L4Ingress, L4Rules};
use causeway_types::NetworkName;
use ipnet::Ipv6Net;

use crate::api::model::{Attach, SandboxCounters};
use crate::store::AttachmentRecord;

/// Why a wiring was refused.
#[derive(Debug, thiserror::Error)]
pub enum WiringError {
    /// A name is not one that an interface can have.
    #[error(transparent)]
    Interface(#[from] causeway_dataplane::desired::InterfaceNameError),
    /// The MTU is out of range.
    #[error(transparent)]
    Mtu(#[from] causeway_dataplane::desired::MtuError),
    /// The path could mean another file for every directory that the agent is started in.
    #[error("`{}` is not an absolute path", path.display())]
    Relative {
        /// The path, as given.
        path: std::path::PathBuf,
    },
    /// The node's own interfaces are called so.
    #[error("a tap cannot be called `{name}`: names that begin with `cw` are this node's own")]
    OwnName {
        /// The name, as given.
        name: String,
    },
}

pub(super) fn attachment(record: &AttachmentRecord) -> Result<Attachment, WiringError> {
    Ok(match record {
        AttachmentRecord::Netns { path, interface } => Attachment::Netns {
            path: absolute(path)?,
            interface: InterfaceName::new(interface)?,
        },
        AttachmentRecord::Tap { name } if name.starts_with("cw") => {
            return Err(WiringError::OwnName { name: name.clone() });
        }
        AttachmentRecord::Tap { name } => Attachment::Tap {
            name: InterfaceName::new(name)?,
        },
        AttachmentRecord::VhostUser { socket } => Attachment::VhostUser {
            socket: absolute(socket)?,
        },
        AttachmentRecord::Memif { socket } => Attachment::Memif {
            socket: absolute(socket)?,
        },
    })
}

fn absolute(path: &std::path::Path) -> Result<std::path::PathBuf, WiringError> {
    if path.is_absolute() {
        Ok(path.to_owned())
    } else {
        Err(WiringError::Relative {
            path: path.to_owned(),
        })
    }
}

pub(super) fn mtu(bytes: u16) -> Result<Mtu, WiringError> {
    Ok(Mtu::new(u32::from(bytes))?)
}

pub(super) fn record(attach: Attach) -> AttachmentRecord {
    match attach {
        Attach::Netns { path, interface } => AttachmentRecord::Netns { path, interface },
        Attach::Tap { name } => AttachmentRecord::Tap { name },
        Attach::VhostUser { socket } => AttachmentRecord::VhostUser { socket },
        Attach::Memif { socket } => AttachmentRecord::Memif { socket },
    }
}

pub(super) fn attach(record: &AttachmentRecord) -> Attach {
    match record.clone() {
        AttachmentRecord::Netns { path, interface } => Attach::Netns { path, interface },
        AttachmentRecord::Tap { name } => Attach::Tap { name },
        AttachmentRecord::VhostUser { socket } => Attach::VhostUser { socket },
        AttachmentRecord::Memif { socket } => Attach::Memif { socket },
    }
}

pub(super) fn counters(counted: PortCounters) -> SandboxCounters {
    let drops = counted.drops.into_iter();
    SandboxCounters {
        sent_packets: counted.sent_packets,
        sent_bytes: counted.sent_bytes,
        received_packets: counted.received_packets,
        received_bytes: counted.received_bytes,
        drops: drops
            .map(|(reason, count)| (reason.name().to_owned(), count))
            .collect(),
    }
}

/// The dataplane's part of a sandbox's policies. A rule for any shared network becomes one for
/// each network that the sandbox is in.
pub(super) fn firewall(rules: &L4Rules, networks: &BTreeSet<NetworkName>) -> Firewall {
    Firewall {
        ingress: match &rules.ingress {
            L4Ingress::SharedNetworks => Ingress::SharedNetworks,
            L4Ingress::Rules(rules) => Ingress::Rules(
                rules
                    .iter()
                    .flat_map(|rule| ingress(rule, networks))
                    .collect(),
            ),
        },
        egress: egress(&rules.egress),
        egress_deny: egress(&rules.egress_deny),
    }
}

fn ingress(rule: &model::IngressRule, networks: &BTreeSet<NetworkName>) -> Vec<IngressRule> {
    let ports = ports(&rule.ports);
    let peers: Vec<IngressPeer> = match &rule.from {
        model::IngressPeer::Network { network, labels } => {
            let named = match network {
                model::NetworkChoice::AnyShared => networks.iter().cloned().collect(),
                model::NetworkChoice::Named(name) => vec![name.clone()],
            };
            let peer = |network| IngressPeer::Network {
                network,
                labels: labels.clone(),
            };
            named.into_iter().map(peer).collect()
        }
        model::IngressPeer::Outside(prefixes) => vec![IngressPeer::Outside {
            prefixes: prefixes.clone(),
        }],
    };
    peers
        .into_iter()
        .map(|from| IngressRule {
            from,
            ports: ports.clone(),
        })
        .collect()
}

/// Entries with the same ports become one rule.
fn egress(entries: &[L4Egress]) -> Vec<EgressRule> {
    let mut by_ports: BTreeMap<Ports, Vec<Ipv6Net>> = BTreeMap::new();
    for entry in entries {
        by_ports
            .entry(ports(&entry.ports))
            .or_default()
            .push(entry.prefix);
    }
    by_ports
        .into_iter()
        .map(|(ports, prefixes)| EgressRule { prefixes, ports })
        .collect()
}

fn ports(set: &model::PortSet) -> Ports {
    match set {
        model::PortSet::Every => Ports::All,
        model::PortSet::Ranges(ranges) => {
            Ports::Only(ranges.iter().copied().filter_map(range).collect())
        }
    }
}

/// A range of a policy is never reversed, so none is lost.
fn range(range: model::PortRange) -> Option<PortRange> {
    let protocol = match range.protocol() {
        model::Protocol::Tcp => Protocol::Tcp,
        model::Protocol::Udp => Protocol::Udp,
        model::Protocol::Icmpv6 => Protocol::Icmpv6,
    };
    PortRange::new(protocol, range.first(), range.last()).ok()
}
