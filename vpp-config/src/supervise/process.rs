//! Another process, by a descriptor: a number that was given to another is never signalled.

#![expect(
    unsafe_code,
    reason = "descriptors of processes have no safe wrapper here"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::connection::PeerProcess;

/// A process that made a socket.
#[derive(Debug)]
pub(super) struct Process {
    peer: PeerProcess,
    handle: OwnedFd,
}

impl Process {
    /// Takes hold of it; not found when it has ended.
    pub(super) fn open(peer: PeerProcess) -> io::Result<Self> {
        // SAFETY: a system call on numbers.
        let number = unsafe { libc::syscall(libc::SYS_pidfd_open, peer.pid, 0) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let number = i32::try_from(number).map_err(io::Error::other)?;
        // SAFETY: the call has just made this descriptor, and nobody else knows it.
        let handle = unsafe { OwnedFd::from_raw_fd(number) };
        let process = Self { peer, handle };
        // The number may have been another's by then.
        if process.is_alive() {
            return Ok(process);
        }
        Err(io::ErrorKind::NotFound.into())
    }

    pub(super) fn pid(&self) -> i32 {
        self.peer.pid
    }

    /// Whether it runs. One that only waits to be reaped does not.
    pub(super) fn is_alive(&self) -> bool {
        self.peer.is_alive()
    }

    /// Ends it at once.
    pub(super) fn kill(&self) {
        let handle = self.handle.as_raw_fd();
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open; no information is passed. It fails only when the process
        // has ended.
        let _ended = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                handle,
                libc::SIGKILL,
                nothing,
                0,
            )
        };
    }
}
