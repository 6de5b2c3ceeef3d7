//! Echo requests without a program: raw sockets opened inside a sandbox.

use std::io::{self, Read as _};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::bail;
use causeway::lab::Namespace;
use socket2::{Domain, Protocol, Socket, Type};

use crate::netns;

const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// Time before the next request when there was no answer.
const INTERVAL: Duration = Duration::from_millis(1);

/// Sends echo requests from inside a sandbox.
#[derive(Debug)]
pub(crate) struct Pinger {
    socket: Socket,
    sequence: u16,
}

impl Pinger {
    /// Opens the socket, which stays in the namespace.
    pub(crate) fn open(namespace: &Namespace) -> anyhow::Result<Self> {
        let socket = netns::inside(namespace, || {
            Ok(Socket::new(
                Domain::IPV6,
                Type::RAW,
                Some(Protocol::ICMPV6),
            )?)
        })?;
        socket.set_read_timeout(Some(INTERVAL))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Sends requests until one is answered.
    pub(crate) fn until_answered(
        &mut self,
        to: Ipv6Addr,
        patience: Duration,
    ) -> anyhow::Result<()> {
        if self.answered_within(to, patience)? {
            return Ok(());
        }
        bail!("no echo reply from {to} within {patience:?}")
    }

    /// Whether a request is answered within `patience`.
    pub(crate) fn answered_within(
        &mut self,
        to: Ipv6Addr,
        patience: Duration,
    ) -> anyhow::Result<bool> {
        let start = Instant::now();
        // An answer to an older request is none to this question.
        let first = self.sequence.wrapping_add(1);
        while start.elapsed() < patience {
            self.sequence = self.sequence.wrapping_add(1);
            let [high, low] = self.sequence.to_be_bytes();
            // The kernel fills in the checksum of a raw ICMPv6 socket.
            let request = [ECHO_REQUEST, 0, 0, 0, 0xca, 0x05, high, low];
            self.socket
                .send_to(&request, &SocketAddr::from((to, 0)).into())?;
            if self.hears_reply_since(first)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn hears_reply_since(&mut self, first: u16) -> anyhow::Result<bool> {
        let mut buffer = [0; 256];
        let start = Instant::now();
        while start.elapsed() < INTERVAL {
            let length = match self.socket.read(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            if let Some([ECHO_REPLY, _, _, _, 0xca, 0x05, high, low, ..]) = buffer.get(..length) {
                let age = u16::from_be_bytes([*high, *low]).wrapping_sub(first);
                if age < u16::MAX / 2 {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
