//! The process from start to end.

use std::io;
use std::net::SocketAddrV6;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::audit::{AuditLog, AuditWriter};
use crate::control::{self, ControlSocket, ControlSocketError};
use crate::dns::{BindError, Resolver, ResolverConfig, Service, ServiceConfig};
use crate::metrics::Metrics;
use crate::privilege::PrivilegeError;
use crate::session::Way;
use crate::state::Shared;
use crate::workers::Workers;
use crate::{intercept, privilege};

/// How to start the proxy. Everything else comes from the agent.
#[derive(Debug, Clone)]
pub struct ProxyArgs {
    /// Where agents connect.
    pub control_socket: PathBuf,
    /// Where the dataplane delivers connections, `[::]:15001` by default.
    pub listen: SocketAddrV6,
    /// Where the resolver answers: [`causeway_types::RESOLVER`], port 53, by default.
    pub resolver: SocketAddrV6,
    /// Where clients find the proxy that know of it: HTTP and SOCKS on each.
    pub explicit: Vec<SocketAddrV6>,
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
    /// The resolver's sockets could not be opened.
    #[error("the resolver could not be started")]
    Resolver(#[from] BindError),
    /// A privilege could not be given up.
    #[error("privileges could not be given up")]
    Privileges(#[from] PrivilegeError),
    /// The threads could not be started, or a socket not be watched.
    #[error("the runtime could not be started")]
    Runtime(#[source] io::Error),
}

/// Runs the proxy on the calling thread until an agent asks for its end or SIGTERM arrives.
///
/// Call it before any other thread exists: namespace and capabilities belong to threads, and
/// those that this function starts inherit them from the caller's.
pub fn start(args: ProxyArgs) -> Result<(), ProxyError> {
    let prepared = Prepared::new(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("egress")
        .enable_all()
        .build()
        .map_err(ProxyError::Runtime)?;
    let served = runtime.block_on(prepared.serve());
    // Blocking tasks are commits; nobody waits for them any more.
    runtime.shutdown_background();
    served
}

/// Like [`start`], on a thread of its own, for callers inside a runtime.
pub async fn run(args: ProxyArgs) -> Result<(), ProxyError> {
    let (done, result) = tokio::sync::oneshot::channel();
    let work = move || {
        // Nobody waits any more when the caller was cancelled.
        let _unwanted = done.send(start(args));
    };
    std::thread::Builder::new()
        .name("egress-main".to_owned())
        .spawn(work)
        .map_err(ProxyError::Runtime)?;
    result
        .await
        .unwrap_or_else(|_panicked| Err(ProxyError::Runtime(io::ErrorKind::Other.into())))
}

/// Everything that needs privileges, done; and the privileges given up.
struct Prepared {
    shared: Arc<Shared>,
    control: ControlSocket,
    listener: std::net::TcpListener,
    explicit: Vec<std::net::TcpListener>,
    resolver: Service,
    audit: Option<std::thread::JoinHandle<()>>,
}

impl Prepared {
    fn new(args: ProxyArgs) -> Result<Self, ProxyError> {
        if let Some(path) = &args.namespace {
            privilege::enter_namespace(path).map_err(|source| ProxyError::Namespace {
                path: path.clone(),
                source,
            })?;
        }
        let control = ControlSocket::bind(&args.control_socket, args.user)?;
        let failed = |address| move |source| ProxyError::Listen { address, source };
        let listener = intercept::listen(args.listen).map_err(failed(args.listen))?;
        let explicit = args
            .explicit
            .iter()
            .map(|address| intercept::listen_at(*address).map_err(failed(*address)));
        let explicit = explicit.collect::<Result<_, _>>()?;
        let resolver = Service::bind(ServiceConfig::new(args.resolver))?;
        let metrics = Arc::new(Metrics::default());
        let (audit, writer) = open_audit(&args, &metrics)?;
        let roots = rustls_native_certs::load_native_certs();
        for error in &roots.errors {
            tracing::warn!(%error, "a system root could not be read");
        }
        privilege::drop_all(args.user)?;
        let audit_thread = writer.map(spawn_writer).transpose()?;
        let shared = Shared::new(
            args.build,
            audit,
            metrics,
            Resolver::new(ResolverConfig::default()),
            roots.certs,
        );
        Ok(Self {
            shared: Arc::new(shared),
            control,
            listener,
            explicit,
            resolver,
            audit: audit_thread,
        })
    }

    async fn serve(self) -> Result<(), ProxyError> {
        let shared = self.shared;
        let listener = TcpListener::from_std(self.listener).map_err(ProxyError::Runtime)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = Workers::start(&shared, threads).map_err(ProxyError::Runtime)?;
        let workers = Arc::new(workers);
        let places = intercept::places();
        let mut explicit = JoinSet::new();
        for listener in self.explicit {
            let listener = TcpListener::from_std(listener).map_err(ProxyError::Runtime)?;
            let (shared, places) = (Arc::clone(&shared), Arc::clone(&places));
            let workers = Arc::clone(&workers);
            let way = Way::Explicit;
            explicit.spawn(intercept::accept(shared, listener, way, places, workers));
        }
        let stop = CancellationToken::new();
        let mut terminate = signal(SignalKind::terminate()).map_err(ProxyError::Runtime)?;
        let resolver = shared.resolver.clone();
        let pins = Arc::clone(&shared.pins);
        let way = Way::Transparent;
        let intercepted = intercept::accept(Arc::clone(&shared), listener, way, places, workers);
        tracing::info!("the egress proxy is ready");
        let ended = tokio::select! {
            ended = control::serve(self.control, Arc::clone(&shared), stop) => ended,
            ended = self.resolver.run(Arc::clone(&shared), resolver, pins) => ended,
            () = intercepted => Ok(()),
            _signal = terminate.recv() => Ok(()),
        };
        drop(explicit);
        drop(shared);
        tracing::info!("the egress proxy ends");
        // The writer ends by itself when the last connection has; its file is whole at any time.
        drop(self.audit);
        ended.map_err(ProxyError::Runtime)
    }
}

fn open_audit(
    args: &ProxyArgs,
    metrics: &Arc<Metrics>,
) -> Result<(AuditLog, Option<AuditWriter>), ProxyError> {
    let path = args.audit_path.as_deref();
    let failed = |source| ProxyError::Audit {
        path: path.map(ToOwned::to_owned).unwrap_or_default(),
        source,
    };
    let (log, writer) = AuditLog::open(path, Arc::clone(metrics)).map_err(failed)?;
    if let (Some(writer), Some((uid, gid))) = (&writer, args.user) {
        std::os::unix::fs::fchown(writer.file(), Some(uid), Some(gid)).map_err(failed)?;
    }
    Ok((log, writer))
}

fn spawn_writer(writer: AuditWriter) -> Result<std::thread::JoinHandle<()>, ProxyError> {
    std::thread::Builder::new()
        .name("audit".to_owned())
        .spawn(move || writer.run())
        .map_err(ProxyError::Runtime)
}
