//! Protocols and ports.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::serialize_display;

/// Why text is not a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// No number, or not in one of the forms.
    #[error("not a port")]
    Malformed,
    /// The protocol is not known.
    #[error("not a protocol")]
    UnknownProtocol,
    /// 0, or above 65535.
    #[error("a port is from 1 to 65535")]
    OutOfRange,
    /// The range ends before it begins.
    #[error("the range ends before it begins")]
    Backwards,
    /// A protocol without ports was given one.
    #[error("ICMPv6 has no ports")]
    NoPorts,
}

/// A transport protocol that rules speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP, which the egress proxy carries.
    Tcp,
    /// UDP, which the dataplane forwards.
    Udp,
    /// ICMPv6 echo, which the dataplane forwards.
    Icmpv6,
}

impl Protocol {
    /// The name in files and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmpv6 => "icmpv6",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Ports of one protocol, both ends included. Both are 0 for a protocol without ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    protocol: Protocol,
    first: u16,
    last: u16,
}

impl PortRange {
    /// ICMPv6 echo.
    pub const ECHO: Self = Self {
        protocol: Protocol::Icmpv6,
        first: 0,
        last: 0,
    };

    /// One TCP port.
    pub const fn tcp(port: u16) -> Self {
        Self {
            protocol: Protocol::Tcp,
            first: port,
            last: port,
        }
    }

    /// Every port of TCP or UDP, or ICMPv6 echo.
    pub const fn every(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Icmpv6 => Self::ECHO,
            Protocol::Tcp | Protocol::Udp => Self {
                protocol,
                first: 1,
                last: u16::MAX,
            },
        }
    }

    /// Reads `443`, `8000-8100`, `tcp/443`, `udp/53`, `tcp/8000-8100`, `tcp/*` or `icmpv6`.
    /// A number without a protocol is a TCP port.
    pub fn parse(text: &str) -> Result<Self, PortError> {
        let (protocol, ports) = match text.split_once('/') {
            None if text == "icmpv6" => return Ok(Self::ECHO),
            None => (Protocol::Tcp, text),
            Some(("tcp", ports)) => (Protocol::Tcp, ports),
            Some(("udp", ports)) => (Protocol::Udp, ports),
            Some(("icmpv6", _)) => return Err(PortError::NoPorts),
            Some(_) => return Err(PortError::UnknownProtocol),
        };
        if ports == "*" && text.contains('/') {
            return Ok(Self::every(protocol));
        }
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(PortError::Backwards);
        }
        Ok(Self {
            protocol,
            first,
            last,
        })
    }

    /// The protocol.
    pub const fn protocol(self) -> Protocol {
        self.protocol
    }

    /// The first port.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The last port.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Whether the port of this protocol is one of them. The port says nothing for ICMPv6.
    pub const fn contains(self, protocol: Protocol, port: u16) -> bool {
        match (self.protocol, protocol) {
            (Protocol::Icmpv6, Protocol::Icmpv6) => true,
            (Protocol::Tcp, Protocol::Tcp) | (Protocol::Udp, Protocol::Udp) => {
                self.first <= port && port <= self.last
            }
            _ => false,
        }
    }

    /// The ports that both have.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let first = self.first.max(other.first);
        let last = self.last.min(other.last);
        (self.protocol == other.protocol && first <= last).then_some(Self {
            protocol: self.protocol,
            first,
            last,
        })
    }
}

fn number(text: &str) -> Result<u16, PortError> {
    if text.is_empty() || text.len() > 10 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(PortError::Malformed);
    }
    match text.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(PortError::OutOfRange),
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol;
        match (self.first, self.last) {
            _ if protocol == Protocol::Icmpv6 => protocol.fmt(f),
            (1, u16::MAX) => write!(f, "{protocol}/*"),
            (first, last) if first == last => write!(f, "{protocol}/{first}"),
            (first, last) => write!(f, "{protocol}/{first}-{last}"),
        }
    }
}

serialize_display!(PortRange);

/// Which ports a rule speaks of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortSet {
    /// Every port of every protocol: `"*"` in a file.
    Every,
    /// These ones; never empty.
    Ranges(Vec<PortRange>),
}

impl PortSet {
    /// What a rule that permits names means when it lists no ports.
    pub fn web() -> Self {
        Self::Ranges(vec![PortRange::tcp(80), PortRange::tcp(443)])
    }

    /// Whether the port of this protocol is one of them.
    pub fn contains(&self, protocol: Protocol, port: u16) -> bool {
        match self {
            Self::Every => true,
            Self::Ranges(ranges) => ranges.iter().any(|range| range.contains(protocol, port)),
        }
    }

    /// The ports that both have; none when there are no such ports.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Every, set) | (set, Self::Every) => Some(set.clone()),
            (Self::Ranges(a), Self::Ranges(b)) => {
                let mut both: Vec<_> = a
                    .iter()
                    .flat_map(|x| b.iter().filter_map(|y| x.intersection(*y)))
                    .collect();
                both.sort_unstable();
                both.dedup();
                (!both.is_empty()).then_some(Self::Ranges(both))
            }
        }
    }
}

impl PortSet {
    /// The ports that one of them has, neighbours and overlaps as one range.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        let (Self::Ranges(mut all), Self::Ranges(more)) = (self, other) else {
            return Self::Every;
        };
        all.extend(more);
        all.sort_unstable();
        let mut merged: Vec<PortRange> = Vec::with_capacity(all.len());
        for range in all {
            match merged.last_mut() {
                Some(last)
                    if last.protocol == range.protocol
                        && u32::from(range.first) <= u32::from(last.last) + 1 =>
                {
                    last.last = last.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        Self::Ranges(merged)
    }
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => f.write_str("*"),
            Self::Ranges(ranges) => {
                for (index, range) in ranges.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{range}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_their_canonical_text() {
        for (text, shown) in [
            ("443", "tcp/443"),
            ("8000-8100", "tcp/8000-8100"),
            ("tcp/5432", "tcp/5432"),
            ("udp/53", "udp/53"),
            ("udp/1-65535", "udp/*"),
            ("tcp/*", "tcp/*"),
            ("tcp/7-7", "tcp/7"),
            ("icmpv6", "icmpv6"),
        ] {
            assert_eq!(PortRange::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for (text, error) in [
            ("", PortError::Malformed),
            ("-1", PortError::Malformed),
            ("+443", PortError::Malformed),
            ("1-", PortError::Malformed),
            ("1-2-3", PortError::Malformed),
            ("http", PortError::Malformed),
            ("*", PortError::Malformed),
            ("0x50", PortError::Malformed),
            ("tcp/", PortError::Malformed),
            ("0", PortError::OutOfRange),
            ("65536", PortError::OutOfRange),
            ("tcp/0-10", PortError::OutOfRange),
            ("4294967297", PortError::OutOfRange),
            ("20-10", PortError::Backwards),
            ("sctp/1", PortError::UnknownProtocol),
            ("TCP/1", PortError::UnknownProtocol),
            ("icmpv6/1", PortError::NoPorts),
        ] {
            assert_eq!(PortRange::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn both_ends_are_included() {
        let range = PortRange::parse("tcp/8000-8100").unwrap();
        for (port, inside) in [(7999, false), (8000, true), (8100, true), (8101, false)] {
            assert_eq!(range.contains(Protocol::Tcp, port), inside, "{port}");
            assert!(!range.contains(Protocol::Udp, port));
        }
    }

    #[test]
    fn intersection_keeps_what_both_have() {
        let set = |texts: &[&str]| {
            PortSet::Ranges(texts.iter().map(|t| PortRange::parse(t).unwrap()).collect())
        };
        let both = set(&["1-100", "udp/53"]).intersection(&set(&["50-200", "udp/*"]));
        assert_eq!(both, Some(set(&["50-100", "udp/53"])));
        assert_eq!(set(&["1"]).intersection(&set(&["2", "udp/1"])), None);
        assert_eq!(PortSet::Every.intersection(&set(&["1"])), Some(set(&["1"])));
        let union = set(&["50-60", "udp/1", "icmpv6"]).union(set(&["1-49", "55-70", "90"]));
        assert_eq!(union, set(&["1-70", "90", "udp/1", "icmpv6"]));
        assert_eq!(set(&["1"]).union(PortSet::Every), PortSet::Every);
    }
}
