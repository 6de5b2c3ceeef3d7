//! The memory that VPP shares.
#![expect(
    unsafe_code,
    reason = "memory of another process has to be mapped, and taken over by its descriptor"
)]

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg,
    setsockopt, socket,
};
use nix::sys::time::TimeVal;

use super::StatsError;

/// How long VPP may take to hand the memory out.
const PATIENCE: Duration = Duration::from_secs(5);

/// Memory that another process writes and this one only reads.
#[derive(Debug)]
pub(super) struct Map {
    start: NonNull<AtomicU64>,
    /// How many words there are.
    len: usize,
    /// How many bytes were mapped.
    bytes: usize,
}

// SAFETY: the memory is only ever read, word by word and atomically; where it is read from makes no
// difference. It stays mapped until the value is dropped.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn new(file: &File) -> io::Result<Self> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if bytes < size_of::<AtomicU64>() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            len: bytes / size_of::<AtomicU64>(),
            bytes,
        })
    }

    /// The memory. VPP never makes it smaller.
    pub(super) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping starts at a page, has at least `len` words, and is neither unmapped nor
        // changed in size while `self` is borrowed. Any bytes are a valid word, and other processes'
        // writes are accounted for by the words being atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made, and no borrow of it outlives `self`. It can only
        // fail for a range that was not mapped.
        let _done = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Asks VPP for the memory.
pub(super) fn receive(path: &Path) -> Result<Map, StatsError> {
    let failed = |source: io::Error| StatsError::Socket {
        path: path.into(),
        source,
    };
    let descriptor = ask(path).map_err(|error| failed(error.into()))?;
    let Some(descriptor) = descriptor else {
        return Err(StatsError::NoSegment { path: path.into() });
    };
    Map::new(&File::from(descriptor)).map_err(failed)
}

fn ask(path: &Path) -> nix::Result<Option<OwnedFd>> {
    let address = UnixAddr::new(path)?;
    let socket = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let seconds = PATIENCE.as_secs().cast_signed();
    setsockopt(&socket, ReceiveTimeout, &TimeVal::new(seconds, 0))?;
    connect(socket.as_raw_fd(), &address)?;
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 4]);
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut received = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = part {
            for descriptor in descriptors {
                // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
                received.push(unsafe { OwnedFd::from_raw_fd(descriptor) });
            }
        }
    }
    // Any beyond the first are closed here.
    Ok(received.into_iter().next())
}
