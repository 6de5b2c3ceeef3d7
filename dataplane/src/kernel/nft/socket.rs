//! A netlink socket for nfnetlink, blocking and with a deadline.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sockopt,
};
use nix::sys::time::TimeVal;

/// The kernel answers at once; a lost answer must not hang the caller.
const TIMEOUT_SECONDS: i64 = 10;
/// What we ask the kernel to hold for us in each direction.
const BUFFER: usize = 4 << 20;
/// What a process gets that may not ask.
const LEAST_BUFFER: usize = 64 << 10;
/// Dumps arrive in pieces of at most this size.
const RECEIVE: usize = 64 << 10;

/// The socket. It belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    buffer: Vec<u8>,
    capacity: usize,
}

impl Socket {
    pub(super) fn open() -> io::Result<Self> {
        let fd = socket::socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkNetFilter,
        )?;
        socket::bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        let timeout = TimeVal::new(TIMEOUT_SECONDS, 0);
        socket::setsockopt(&fd, sockopt::ReceiveTimeout, &timeout)?;
        socket::setsockopt(&fd, sockopt::SendTimeout, &timeout)?;
        // Not every user namespace lets us; smaller transactions do as well.
        let forced = socket::setsockopt(&fd, sockopt::SndBufForce, &BUFFER)
            .and_then(|()| socket::setsockopt(&fd, sockopt::RcvBufForce, &BUFFER));
        let capacity = match forced {
            Ok(()) => BUFFER,
            Err(_) => LEAST_BUFFER,
        };
        Ok(Self {
            fd,
            buffer: vec![0; RECEIVE],
            capacity,
        })
    }

    /// How many bytes one transaction may have.
    pub(super) const fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let kernel = NetlinkAddr::new(0, 0);
        loop {
            match socket::sendto(self.fd.as_raw_fd(), bytes, &kernel, MsgFlags::empty()) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(Errno::EINTR) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    pub(super) fn receive(&mut self) -> io::Result<&[u8]> {
        loop {
            match socket::recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_TRUNC) {
                Ok(length) if length <= self.buffer.len() => {
                    return Ok(self.buffer.get(..length).unwrap_or_default());
                }
                // Longer than the kernel ever sends.
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(Errno::EINTR) => (),
                Err(Errno::EAGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Takes away answers that belong to a request that failed half way.
    pub(super) fn drain(&mut self) {
        while socket::recv(
            self.fd.as_raw_fd(),
            &mut self.buffer,
            MsgFlags::MSG_DONTWAIT,
        )
        .is_ok()
        {}
    }
}
