//! What a node needs before it can start: directories, privileges, and nobody else in the way.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// Why a node cannot start here.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A directory cannot be made.
    #[error("the directory {} cannot be made", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The lock file cannot be used.
    #[error("the lock file {} cannot be used", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another agent uses the same directories.
    #[error("an agent is already running here, as process {pid} (lock {})", path.display())]
    AlreadyRunning {
        /// Its process, as it wrote it down.
        pid: String,
        /// The lock that it holds.
        path: PathBuf,
    },
    /// The process may not change the network.
    #[error("this needs {missing}, which this process does not have")]
    Privileges {
        /// The capabilities that are missing.
        missing: String,
    },
    /// A program is not installed.
    #[error("the program `{program}` is not installed")]
    Program {
        /// Its name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// Something that is not an agent uses the socket's path.
    #[error("{} is there and is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("the API socket {} cannot be opened", path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl NodeError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::Directory { .. } | Self::Lock { .. } => {
                "run as root, or name directories of your own with `state_dir` and `runtime_dir`"
                    .to_owned()
            }
            Self::AlreadyRunning { .. } => {
                "use the running one, stop it first, or give this one its own `state_dir` and \
                 `runtime_dir`"
                    .to_owned()
            }
            Self::Privileges { .. } => {
                "run it as root: `sudo causeway up`; or in a user namespace of your own: \
                 `unshare -Urnm causeway up`"
                    .to_owned()
            }
            Self::Program { package, .. } => {
                format!("install it: `apt-get install {package}` on Debian and Ubuntu")
            }
            Self::NotASocket { .. } => "move it away, or set another `runtime_dir`".to_owned(),
            Self::Socket { .. } => "check the permissions of the runtime directory".to_owned(),
        }
    }
}

/// The locks of a running agent, held until it is dropped.
#[derive(Debug)]
pub struct NodeLock {
    _held: Vec<Flock<File>>,
}

/// Makes the directories and takes the locks that keep a second agent out.
pub fn claim(state_dir: &Path, runtime_dir: &Path) -> Result<NodeLock, NodeError> {
    let mut held = Vec::new();
    for directory in [state_dir, runtime_dir] {
        make_directory(directory)?;
        let path = directory.join("agent.lock");
        if held.is_empty() || state_dir != runtime_dir {
            held.push(lock(&path)?);
        }
    }
    Ok(NodeLock { _held: held })
}

/// The process of the agent that holds the lock in `runtime_dir`; none when there is no agent.
pub fn running(runtime_dir: &Path) -> Option<String> {
    match lock(&runtime_dir.join("agent.lock")) {
        Err(NodeError::AlreadyRunning { pid, .. }) => Some(pid),
        _ => None,
    }
}

fn make_directory(path: &Path) -> Result<(), NodeError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| NodeError::Directory {
            path: path.to_owned(),
            source,
        })
}

fn lock(path: &Path) -> Result<Flock<File>, NodeError> {
    let failed = |source| NodeError::Lock {
        path: path.to_owned(),
        source,
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut held) => {
            held.set_len(0).map_err(failed)?;
            held.rewind().map_err(failed)?;
            write!(held, "{}", std::process::id()).map_err(failed)?;
            Ok(held)
        }
        Err((mut file, nix::Error::EWOULDBLOCK)) => {
            let mut pid = String::new();
            file.read_to_string(&mut pid).map_err(failed)?;
            Err(NodeError::AlreadyRunning {
                pid,
                path: path.to_owned(),
            })
        }
        Err((_, error)) => Err(failed(error.into())),
    }
}

/// Says which of the needed capabilities this process lacks.
pub fn check_privileges() -> Result<(), NodeError> {
    const NEEDED: [(&str, u32); 3] = [
        ("CAP_NET_ADMIN", 12),
        ("CAP_NET_RAW", 13),
        ("CAP_SYS_ADMIN", 21),
    ];
    let held = effective_capabilities();
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(_, bit)| held & (1 << bit) == 0)
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(NodeError::Privileges {
            missing: missing.join(", "),
        })
    }
}

fn effective_capabilities() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

/// Says which program is not installed.
pub fn check_programs() -> Result<(), NodeError> {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&directories)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|directory| directory.join("nft").is_file());
    if found {
        Ok(())
    } else {
        Err(NodeError::Program {
            program: "nft",
            package: "nftables",
        })
    }
}

/// Keeps secrets out of core dumps, and other processes of this user out of our memory.
pub fn forbid_core_dumps() -> nix::Result<()> {
    nix::sys::prctl::set_dumpable(false)?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0)
}

/// Binds the API socket. One that a dead agent left behind is replaced: the caller holds the
/// lock, so no living one is there.
pub fn bind_socket(path: &Path) -> Result<tokio::net::UnixListener, NodeError> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let failed = |source| NodeError::Socket {
        path: path.to_owned(),
        source,
    };
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {
            std::fs::remove_file(path).map_err(failed)?;
        }
        Ok(_) => {
            return Err(NodeError::NotASocket {
                path: path.to_owned(),
            });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = tokio::net::UnixListener::bind(path).map_err(failed)?;
    // The runtime directory is the owner's alone, so nobody slips in before this.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_told_who_runs() {
        let state = tempfile::tempdir().unwrap();
        let runtime = tempfile::tempdir().unwrap();
        let first = claim(state.path(), runtime.path()).unwrap();
        let own = std::process::id().to_string();
        assert_eq!(running(runtime.path()), Some(own.clone()));
        for (state, runtime) in [
            (state.path(), tempfile::tempdir().unwrap().path()),
            (tempfile::tempdir().unwrap().path(), runtime.path()),
        ] {
            match claim(state, runtime) {
                Err(NodeError::AlreadyRunning { pid, .. }) => assert_eq!(pid, own),
                other => panic!("{other:?}"),
            }
        }
        drop(first);
        assert_eq!(running(runtime.path()), None);
        claim(state.path(), runtime.path()).unwrap();
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        drop(bind_socket(&path).unwrap());
        assert!(path.exists());
        drop(bind_socket(&path).unwrap());
        let file = dir.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        assert!(matches!(
            bind_socket(&file),
            Err(NodeError::NotASocket { .. })
        ));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    }
}
