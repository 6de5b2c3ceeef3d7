//! The process from start to end.

use std::io;
use std::net::SocketAddrV6;
use std::path::PathBuf;

use crate::control::ControlSocketError;

/// How to start the proxy. Everything else comes from the agent.
#[derive(Debug, Clone)]
pub struct ProxyArgs {
    /// Where agents connect.
    pub control_socket: PathBuf,
    /// Where the dataplane delivers connections, `[::]:15001` by default.
    pub listen: SocketAddrV6,
    /// Where the resolver answers: [`causeway_types::RESOLVER`], port 53, by default.
    pub resolver: SocketAddrV6,
    /// The router's network namespace; none to stay in the present one.
    pub namespace: Option<PathBuf>,
    /// The audit log; none for events to the agent only.
    pub audit_path: Option<PathBuf>,
    /// User and group to become, when started by root.
    pub user: Option<(u32, u32)>,
    /// What the proxy calls its build. An agent of another build starts a new proxy.
    pub build: String,
}

/// Why the proxy could not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The network namespace could not be entered.
    #[error("could not enter the network namespace {path}", path = path.display())]
    Namespace {
        /// Its file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The socket for agents could not be opened.
    #[error("the control socket could not be opened")]
    Control(#[from] ControlSocketError),
    /// A listening socket could not be opened.
    #[error("could not listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddrV6,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The audit log could not be opened.
    #[error("could not open the audit log {path}", path = path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A privilege could not be given up.
    #[error("could not {step}")]
    Privileges {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The threads could not be started, or a socket not be watched.
    #[error("the runtime could not be started")]
    Runtime(#[source] io::Error),
}

/// Runs the proxy on the calling thread until an agent asks for its end or SIGTERM arrives.
///
/// Call it before any other thread exists: namespace and capabilities belong to threads, and
/// those that this function starts inherit them from the caller's.
pub fn start(_args: ProxyArgs) -> Result<(), ProxyError> {
    Err(ProxyError::Runtime(io::ErrorKind::Unsupported.into()))
}

/// Like [`start`], on a thread of its own, for callers inside a runtime.
pub async fn run(args: ProxyArgs) -> Result<(), ProxyError> {
    let (done, result) = tokio::sync::oneshot::channel();
    let work = move || {
        // Nobody waits any more when the caller was cancelled.
        let _unwanted = done.send(start(args));
    };
    std::thread::Builder::new()
        .name("egress".to_owned())
        .spawn(work)
        .map_err(ProxyError::Runtime)?;
    result
        .await
        .unwrap_or_else(|_panicked| Err(ProxyError::Runtime(io::ErrorKind::Other.into())))
}
