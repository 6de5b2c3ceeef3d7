//! What a sandbox may exchange with whom, so far as the dataplane enforces it.

use std::fmt;

use causeway_types::{Labels, NetworkName};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

/// The compiled rules of one sandbox. The default shares nothing beyond its networks and
/// permits no egress.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Firewall {
    /// Who may open a flow to the sandbox.
    pub ingress: Ingress,
    /// Outside destinations that it may reach without the proxy. TCP always goes to the
    /// proxy, so only the other protocols in these rules count here.
    pub egress: Vec<EgressRule>,
    /// Destinations that it may not reach, other sandboxes included. Deny wins.
    pub egress_deny: Vec<EgressRule>,
}

/// Who may open a flow to a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ingress {
    /// No ingress rules were written: every member of a shared network.
    #[default]
    SharedNetworks,
    /// Only those that a rule names; with no rules, nobody.
    Rules(Vec<IngressRule>),
}

/// One ingress rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IngressRule {
    /// Who.
    pub from: IngressPeer,
    /// To which protocols and ports.
    pub ports: Ports,
}

/// Who an ingress rule lets in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IngressPeer {
    /// Members of a network that this sandbox belongs to as well.
    Network {
        /// The network, of the same tenant.
        network: NetworkName,
        /// Labels that the peer must carry; none selects every member.
        labels: Labels,
    },
    /// Hosts outside of every sandbox.
    Outside {
        /// Where they are.
        prefixes: Vec<Ipv6Net>,
    },
}

/// Destinations by address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EgressRule {
    /// Where to.
    pub prefixes: Vec<Ipv6Net>,
    /// Which protocols and ports.
    pub ports: Ports,
}

/// A choice of protocols and ports. "All" is written out, so that an empty list is what it
/// looks like: nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ports {
    /// Every protocol and every port.
    All,
    /// Only these.
    Only(Vec<PortRange>),
}

impl Ports {
    /// Whether a packet of `protocol` to `port` is among them.
    pub fn contains(&self, protocol: Protocol, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Only(ranges) => ranges.iter().any(|range| range.contains(protocol, port)),
        }
    }
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP for IPv6: echo requests, that is. Errors follow the flow that they are about.
    Icmpv6,
    /// Another, by its IANA number.
    Other(u8),
}

impl Protocol {
    /// The IANA protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Icmpv6 => 58,
            Self::Other(number) => number,
        }
    }

    /// The protocol with this number, in its one form.
    pub const fn from_number(number: u8) -> Self {
        match number {
            6 => Self::Tcp,
            17 => Self::Udp,
            58 => Self::Icmpv6,
            other => Self::Other(other),
        }
    }

    /// Whether its packets carry ports that rules look at. The others count as port 0.
    pub const fn has_ports(self) -> bool {
        matches!(self.number(), 6 | 17)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Udp => f.write_str("udp"),
            Self::Icmpv6 => f.write_str("icmpv6"),
            Self::Other(number) => write!(f, "protocol {number}"),
        }
    }
}

/// Why two numbers are not a range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ports {first} to {last} are no range: the first is larger than the last")]
pub struct PortRangeError {
    /// The first port, as given.
    pub first: u16,
    /// The last port, as given.
    pub last: u16,
}

/// Some ports of one protocol, both ends included. A protocol without ports has port 0 alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    protocol: Protocol,
    first: u16,
    last: u16,
}

impl PortRange {
    /// The ports from `first` to `last`; for a protocol without ports the numbers are ignored.
    pub const fn new(protocol: Protocol, first: u16, last: u16) -> Result<Self, PortRangeError> {
        let protocol = Protocol::from_number(protocol.number());
        if !protocol.has_ports() {
            return Ok(Self::whole(protocol));
        }
        if first > last {
            return Err(PortRangeError { first, last });
        }
        Ok(Self {
            protocol,
            first,
            last,
        })
    }

    /// Every port of `protocol`.
    pub const fn whole(protocol: Protocol) -> Self {
        let protocol = Protocol::from_number(protocol.number());
        let last = if protocol.has_ports() { u16::MAX } else { 0 };
        Self {
            protocol,
            first: 0,
            last,
        }
    }

    /// The protocol.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The first port.
    pub const fn first(&self) -> u16 {
        self.first
    }

    /// The last port.
    pub const fn last(&self) -> u16 {
        self.last
    }

    /// Whether a packet of `protocol` to `port` is inside.
    pub const fn contains(&self, protocol: Protocol, port: u16) -> bool {
        let port = if protocol.has_ports() { port } else { 0 };
        self.protocol.number() == protocol.number() && self.first <= port && port <= self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_one_form() {
        let range = PortRange::new(Protocol::Other(6), 80, 80).unwrap();
        assert_eq!(range, PortRange::new(Protocol::Tcp, 80, 80).unwrap());
        assert!(range.contains(Protocol::Tcp, 80) && !range.contains(Protocol::Udp, 80));
        assert!(!range.contains(Protocol::Tcp, 81));
    }

    #[test]
    fn protocols_without_ports_match_whatever_the_port_field_says() {
        let echo = PortRange::new(Protocol::Icmpv6, 9, 3).unwrap();
        assert_eq!((echo.first(), echo.last()), (0, 0));
        assert!(echo.contains(Protocol::Icmpv6, 77));
    }

    #[test]
    fn a_reversed_range_is_refused() {
        assert!(PortRange::new(Protocol::Tcp, 2, 1).is_err());
        assert!(PortRange::new(Protocol::Tcp, 2, 2).is_ok());
    }

    #[test]
    fn an_empty_list_is_nothing_and_all_is_written_out() {
        assert!(!Ports::Only(Vec::new()).contains(Protocol::Tcp, 80));
        assert!(Ports::All.contains(Protocol::Tcp, 80));
    }
}
