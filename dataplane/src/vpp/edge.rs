//! VPP's packet sockets are made edge-triggered in its epoll sets.
//!
//! VPP since 25.06 takes what is ready from epoll sixteen at a time, and asks again at once as
//! long as it gets sixteen, before it reads a packet from any. A packet socket stays ready until
//! its packets are read. So sixteen of them with something to read at the same time, which any
//! sixteen sandboxes can bring about, hold VPP for good. An edge-triggered socket is reported
//! once for what came, and again for what comes later, which is all that VPP's input needs: it
//! empties the ring each time. There is nothing in VPP's API or configuration for it.

#![expect(
    unsafe_code,
    reason = "descriptors of another process have no safe wrapper here"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use nix::sched::{CloneFlags, unshare};
use vpp_config::connection::PeerProcess;

const EDGE: u32 = libc::EPOLLET.cast_unsigned();

/// The epoll sets of a VPP, which do not change while it runs.
#[derive(Debug, Default)]
pub(super) struct Sets(Mutex<Option<(PeerProcess, Vec<RawFd>)>>);

impl Sets {
    /// Makes every packet socket of this VPP edge-triggered that is not, and says how many were
    /// not. Blocks for as long as it takes to read a few files.
    pub(super) fn soften(&self, vpp: PeerProcess) -> io::Result<usize> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sets = match &*known {
            Some((of, sets)) if *of == vpp => sets.clone(),
            _ => find(vpp.pid)?,
        };
        *known = Some((vpp, sets.clone()));
        // Whoever changes an entry needs the socket under VPP's own number for it, which is
        // taken here by something else: a thread with a descriptor table of its own does it.
        let thread = std::thread::Builder::new().name("vpp-epoll".into());
        let ended = thread.spawn(move || {
            unshare(CloneFlags::CLONE_FILES)?;
            let mut softened = 0;
            for set in sets {
                softened += soften(vpp.pid, set)?;
            }
            Ok(softened)
        })?;
        ended
            .join()
            .map_err(|_panic| io::Error::other("the thread panicked"))?
    }
}

/// An entry of an epoll set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    number: RawFd,
    events: u32,
    data: u64,
    inode: u64,
}

impl Entry {
    /// Reads a line such as `tfd: 12 events: 19 data: 7f00 pos:0 ino:8f sdev:9`.
    fn parse(line: &str) -> Option<Self> {
        let text = line.replace(':', " ");
        let mut words = text.split_ascii_whitespace();
        let mut field = |name| (words.next()? == name).then(|| words.next())?;
        let number = field("tfd")?.parse().ok()?;
        let events = u32::from_str_radix(field("events")?, 16).ok()?;
        let data = u64::from_str_radix(field("data")?, 16).ok()?;
        field("pos")?;
        let inode = u64::from_str_radix(field("ino")?, 16).ok()?;
        Some(Self {
            number,
            events,
            data,
            inode,
        })
    }
}

fn find(pid: i32) -> io::Result<Vec<RawFd>> {
    let mut sets = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        // One that was closed meanwhile is no epoll set.
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if target.as_os_str() == "anon_inode:[eventpoll]" {
            sets.extend(
                entry
                    .file_name()
                    .to_str()
                    .and_then(|n| n.parse::<RawFd>().ok()),
            );
        }
    }
    Ok(sets)
}

/// Entries that are not edge-triggered.
fn entries(pid: i32, set: RawFd) -> io::Result<Vec<Entry>> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{set}"))?;
    let entries = text.lines().filter_map(Entry::parse);
    Ok(entries.filter(|entry| entry.events & EDGE == 0).collect())
}

/// Runs on a thread with a descriptor table of its own, which ends with it and closes what is
/// left open here.
fn soften(pid: i32, set: RawFd) -> io::Result<usize> {
    let before = entries(pid, set)?;
    // Above all numbers that are needed.
    let room = before.iter().map(|entry| entry.number).max();
    let room = room.unwrap_or_default() + 1;
    // SAFETY: a system call on numbers; it touches no memory of this process.
    let process = above(
        room,
        call(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?,
    )?;
    let borrow = |number: RawFd| {
        // SAFETY: as above.
        call(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, number, 0) })
    };
    let own_set = above(room, borrow(set)?)?;
    let mut held = BTreeMap::new();
    for entry in before {
        // One that was closed meanwhile needs nothing.
        let Ok(socket) = borrow(entry.number) else {
            continue;
        };
        let socket = above(room, socket)?;
        if let Some(inode) = packet_socket(socket) {
            held.insert((entry.number, inode), socket);
        }
    }
    if held.is_empty() {
        return Ok(0);
    }
    // While a socket is held its entry stays, and is the one with its number and its inode.
    let mut softened = 0;
    for entry in entries(pid, set)? {
        let Some(socket) = held.get(&(entry.number, entry.inode)) else {
            continue;
        };
        let mut event = libc::epoll_event {
            events: entry.events | EDGE,
            u64: entry.data,
        };
        // SAFETY: this thread's table has nothing else that is used under that number.
        call(unsafe { libc::dup2(*socket, entry.number) }.into())?;
        // SAFETY: the event is valid for the call.
        let done =
            unsafe { libc::epoll_ctl(own_set, libc::EPOLL_CTL_MOD, entry.number, &raw mut event) };
        match call(done.into()) {
            Ok(_) => softened += 1,
            // VPP was done with it first.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(softened)
}

/// Moves a descriptor to a number from `room` on.
fn above(room: RawFd, number: RawFd) -> io::Result<RawFd> {
    if number >= room {
        return Ok(number);
    }
    // SAFETY: it touches no memory of this process.
    call(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, room) }.into())
}

/// The inode of a packet socket; none of anything else.
fn packet_socket(number: RawFd) -> Option<u64> {
    let mut domain: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of_val(&domain)).ok()?;
    // SAFETY: the value and its length are valid for the call.
    let told = unsafe {
        libc::getsockopt(
            number,
            libc::SOL_SOCKET,
            libc::SO_DOMAIN,
            (&raw mut domain).cast(),
            &raw mut length,
        )
    };
    if told != 0 || domain != libc::AF_PACKET {
        return None;
    }
    let path = format!("/proc/thread-self/fd/{number}");
    fs::metadata(path)
        .ok()
        .map(|it| std::os::unix::fs::MetadataExt::ino(&it))
}

fn call(result: libc::c_long) -> io::Result<RawFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    RawFd::try_from(result).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_the_kernel_writes_them() {
        let line = "tfd:       12 events:       19 data:     7f00c0de  pos:0 ino:8f sdev:9";
        let entry = Entry {
            number: 12,
            events: 0x19,
            data: 0x7f00_c0de,
            inode: 0x8f,
        };
        assert_eq!(Entry::parse(line), Some(entry));
        for other in ["", "pos:\t0", "flags:\t02", "tfd: x events: 19"] {
            assert_eq!(Entry::parse(other), None, "{other}");
        }
    }
}
