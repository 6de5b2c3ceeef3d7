//! Which VPP is at the other end, so that a restarted one is known as another.

use std::fs;
use std::path::Path;

use tokio::net::UnixStream;

/// Which VPP it is. Two that differ are two runs of VPP; what the earlier had is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VppIdentity {
    /// The process id that VPP says. In a container it may be the same in each run.
    pub vpe_pid: u32,
    /// The process that made the socket, where the kernel tells.
    pub peer: Option<PeerProcess>,
}

/// A process, as this one sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProcess {
    /// Its id.
    pub pid: i32,
    /// When it started, in clock ticks since the machine did, where that can be read.
    pub started: Option<u64>,
}

impl PeerProcess {
    /// The process that listens on a socket, whatever it does with its connections.
    pub async fn listening(socket: &Path) -> Option<Self> {
        peer(&UnixStream::connect(socket).await.ok()?)
    }

    /// Whether it still runs. One that only waits to be reaped does not.
    pub fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat
            .rsplit_once(')')
            .map_or("", |(_name, rest)| rest.trim_start());
        !stat.is_empty() && started(&stat) == self.started && !state.starts_with(['Z', 'X'])
    }
}

pub(super) fn peer(stream: &UnixStream) -> Option<PeerProcess> {
    let pid = stream.peer_cred().ok()?.pid()?;
    // Zero is a process in another namespace, which cannot be looked up here.
    (pid != 0).then(|| PeerProcess {
        pid,
        started: fs::read_to_string(format!("/proc/{pid}/stat"))
            .ok()
            .and_then(|stat| started(&stat)),
    })
}

/// The 22nd field. The second is a name in parentheses, which may have spaces and parentheses in it.
fn started(stat: &str) -> Option<u64> {
    let (_name, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 1";
        assert_eq!(started(stat), Some(4711));
        assert_eq!(started("7 (a"), None);
        assert_eq!(started("7 (a) S 1"), None);
    }
}
