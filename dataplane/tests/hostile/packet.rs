//! Packets, built byte by byte: most of these are what a stack refuses to build.

use std::net::Ipv6Addr;

/// Next header values.
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const ESP: u8 = 50;
pub(crate) const AH: u8 = 51;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const NO_NEXT: u8 = 59;
pub(crate) const DESTINATION: u8 = 60;
pub(crate) const MOBILITY: u8 = 135;

/// A packet without its Ethernet header.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    pub(crate) hop_limit: u8,
    pub(crate) next: u8,
    pub(crate) payload: Vec<u8>,
}

impl Packet {
    pub(crate) fn new(source: Ipv6Addr, destination: Ipv6Addr, next: u8, payload: Vec<u8>) -> Self {
        Self {
            source,
            destination,
            hop_limit: 64,
            next,
            payload,
        }
    }

    pub(crate) fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.hop_limit = hop_limit;
        self
    }

    /// Puts an extension header of `8 * n` bytes in front of what is there.
    pub(crate) fn behind(mut self, header: u8, body: &[u8]) -> Self {
        let units = u8::try_from((body.len() + 2) / 8 - 1).unwrap();
        let mut bytes = vec![self.next, units];
        bytes.extend_from_slice(body);
        assert_eq!(bytes.len() % 8, 0);
        bytes.append(&mut self.payload);
        self.payload = bytes;
        self.next = header;
        self
    }

    /// Cuts the payload at the given offsets, which are multiples of eight.
    pub(crate) fn fragments(&self, identification: u32, cuts: &[usize]) -> Vec<Self> {
        let mut pieces = Vec::new();
        let mut from = 0;
        for &to in cuts.iter().chain([&self.payload.len()]) {
            let more = to < self.payload.len();
            pieces.push(self.fragment(identification, from, &self.payload[from..to], more));
            from = to;
        }
        pieces
    }

    /// One fragment of a packet like this one.
    pub(crate) fn fragment(
        &self,
        identification: u32,
        offset: usize,
        data: &[u8],
        more: bool,
    ) -> Self {
        let field = u16::try_from(offset).unwrap() | u16::from(more);
        let mut payload = vec![self.next, 0];
        payload.extend_from_slice(&field.to_be_bytes());
        payload.extend_from_slice(&identification.to_be_bytes());
        payload.extend_from_slice(data);
        Self {
            next: FRAGMENT,
            payload,
            ..self.clone()
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x60, 0, 0, 0];
        let length = u16::try_from(self.payload.len()).unwrap();
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&[self.next, self.hop_limit]);
        bytes.extend_from_slice(&self.source.octets());
        bytes.extend_from_slice(&self.destination.octets());
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

fn sum(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, data: &[u8]) -> u16 {
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    let pseudo = [
        &source.octets()[..],
        &destination.octets(),
        &length,
        &[0, 0, 0, protocol],
        data,
    ]
    .concat();
    let mut sum: u32 = pseudo
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

fn checked(
    (source, destination): (Ipv6Addr, Ipv6Addr),
    protocol: u8,
    mut payload: Vec<u8>,
    at: usize,
) -> Packet {
    let sum = sum(source, destination, protocol, &payload);
    payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Packet::new(source, destination, protocol, payload)
}

pub(crate) fn udp(ends: (Ipv6Addr, Ipv6Addr), ports: (u16, u16), data: &[u8]) -> Packet {
    let mut payload = Vec::new();
    payload.extend_from_slice(&ports.0.to_be_bytes());
    payload.extend_from_slice(&ports.1.to_be_bytes());
    let length = u16::try_from(data.len() + 8).unwrap();
    payload.extend_from_slice(&length.to_be_bytes());
    payload.extend_from_slice(&[0, 0]);
    payload.extend_from_slice(data);
    checked(ends, UDP, payload, 6)
}

pub(crate) const SYN: u8 = 2;

pub(crate) fn tcp(ends: (Ipv6Addr, Ipv6Addr), ports: (u16, u16), flags: u8, data: &[u8]) -> Packet {
    let mut payload = Vec::new();
    payload.extend_from_slice(&ports.0.to_be_bytes());
    payload.extend_from_slice(&ports.1.to_be_bytes());
    payload.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    payload.extend_from_slice(data);
    checked(ends, TCP, payload, 16)
}

pub(crate) fn icmp(ends: (Ipv6Addr, Ipv6Addr), kind: u8, code: u8, body: &[u8]) -> Packet {
    let mut payload = vec![kind, code, 0, 0];
    payload.extend_from_slice(body);
    checked(ends, ICMPV6, payload, 2)
}

pub(crate) fn echo(ends: (Ipv6Addr, Ipv6Addr), data: &[u8]) -> Packet {
    icmp(ends, 128, 0, &[&[0, 9, 0, 1][..], data].concat())
}

/// A solicitation or advertisement of a neighbour, with a link-layer address as option.
pub(crate) fn neighbour(
    ends: (Ipv6Addr, Ipv6Addr),
    kind: u8,
    target: Ipv6Addr,
    mac: [u8; 6],
) -> Packet {
    let (flags, option) = if kind == 136 { (0x60, 2) } else { (0, 1) };
    let mut body = vec![flags, 0, 0, 0];
    body.extend_from_slice(&target.octets());
    body.extend_from_slice(&[option, 1]);
    body.extend_from_slice(&mac);
    icmp(ends, kind, 0, &body).hop_limit(255)
}

/// An Ethernet frame.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), payload].concat()
}
