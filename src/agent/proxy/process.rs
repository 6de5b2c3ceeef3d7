//! The proxy as a process: started, watched and ended through a descriptor, so that a number
//! that was given to another process is never signalled.

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};
use tokio::io::unix::AsyncFd;

use super::ProxyConfig;

/// How long an ended process may take to go.
const END_DEADLINE: Duration = Duration::from_secs(5);
/// The proxy's own log starts anew above this, in bytes, with the previous one kept.
const MAX_LOG: u64 = 1024 * 1024;

/// Why the proxy could not be started, watched or ended.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The log file cannot be opened.
    #[error("the egress proxy's log {} cannot be opened", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The process cannot be started.
    #[error("the egress proxy cannot be started")]
    Start(#[source] std::io::Error),
    /// The process cannot be watched.
    #[error("the egress proxy, process {pid}, cannot be watched")]
    Watch {
        /// The process.
        pid: u32,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The process does not end.
    #[error("the egress proxy, process {pid}, does not end")]
    Stuck {
        /// The process.
        pid: u32,
    },
    /// It ended before it answered.
    #[error("the egress proxy ended at its start ({status}): {message}")]
    Ended {
        /// How it ended.
        status: std::process::ExitStatus,
        /// The last line of its log.
        message: String,
    },
    /// It never answered.
    #[error("the egress proxy does not answer")]
    Silent,
    /// The socket cannot be examined.
    #[error("the egress proxy's socket {} cannot be used", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// A living proxy, ours or an adopted one.
#[derive(Debug)]
pub(super) struct ProxyProcess {
    pub(super) pid: u32,
    handle: AsyncFd<OwnedFd>,
}

impl ProxyProcess {
    /// Watches the process `pid`.
    #[expect(
        unsafe_code,
        reason = "the runtime cannot see for itself that a descriptor stays what it is"
    )]
    pub(super) fn watch(pid: u32) -> Result<Self, ProcessError> {
        let failed = |source| ProcessError::Watch { pid, source };
        let number = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        let handle = rustix::process::pidfd_open(number, PidfdFlags::empty())
            .map_err(|error| failed(error.into()))?;
        // SAFETY: an `OwnedFd` that lives inside the `AsyncFd` stays open, and the same, until
        // the latter is dropped and has taken it out of the runtime.
        let handle =
            unsafe { AsyncFd::register_with_interest(handle, tokio::io::Interest::READABLE) }
                .map_err(|error| failed(error.into()))?;
        Ok(Self { pid, handle })
    }

    /// Ends it at once. It holds nothing that must be saved.
    pub(super) fn kill(&self) {
        // It fails only when the process is gone already.
        let _ = rustix::process::pidfd_send_signal(self.handle.get_ref(), Signal::KILL);
    }

    /// Waits until it has ended.
    pub(super) async fn ended(&self) {
        // A descriptor of a process becomes readable once, and stays so.
        if let Err(error) = self.handle.readable().await {
            tracing::error!(%error, "the egress proxy cannot be watched");
        }
    }

    /// Ends it and waits until it is gone.
    pub(super) async fn end(&self) -> Result<(), ProcessError> {
        self.kill();
        match tokio::time::timeout(END_DEADLINE, self.ended()).await {
            Ok(()) => Ok(()),
            Err(_late) => Err(ProcessError::Stuck { pid: self.pid }),
        }
    }
}

/// Starts a proxy. It gets a session of its own by itself, so that what ends the agent's
/// terminal does not end it.
pub(super) fn start(config: &ProxyConfig) -> Result<tokio::process::Child, ProcessError> {
    let log = open_log(&config.log_path)?;
    // The running program, also when its file was replaced by another build meanwhile.
    tokio::process::Command::new("/proc/self/exe")
        .arg("egress")
        .arg("--control")
        .arg(&config.control_socket)
        .arg("--namespace")
        .arg(&config.namespace)
        .arg("--audit")
        .arg(&config.audit_path)
        .arg("--build")
        .arg(&config.build)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .current_dir("/")
        .kill_on_drop(false)
        .spawn()
        .map_err(ProcessError::Start)
}

fn open_log(path: &Path) -> Result<std::fs::File, ProcessError> {
    let failed = |source| ProcessError::Log {
        path: path.to_owned(),
        source,
    };
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > MAX_LOG) {
        std::fs::rename(path, path.with_extension("log.old")).map_err(failed)?;
    }
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(failed)
}

/// The last line of the proxy's log, which says why it ended.
pub(super) fn log_tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Ends the process that listens on `socket`, whatever it does with its connections. False when
/// nobody listens.
pub(super) async fn end(socket: &Path) -> Result<bool, ProcessError> {
    let failed = |source| ProcessError::Socket {
        path: socket.to_owned(),
        source,
    };
    let stream = match tokio::net::UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(false);
        }
        Err(error) => return Err(failed(error)),
    };
    let peer = stream.peer_cred().map_err(failed)?;
    let Some(pid) = peer.pid().and_then(|pid| u32::try_from(pid).ok()) else {
        return Err(failed(std::io::ErrorKind::Unsupported.into()));
    };
    match ProxyProcess::watch(pid) {
        Ok(process) => process.end().await.map(|()| true),
        // It went on its own.
        Err(ProcessError::Watch { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
