//! Why a backend could not do what it was asked.

use std::io;
use std::path::PathBuf;

use causeway_types::SandboxUid;

use crate::desired::InterfaceName;

/// Why a backend could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The file of a network namespace is not there.
    #[error(
        "there is no network namespace at {}: create it first, for example with `ip netns add NAME`",
        path.display()
    )]
    NamespaceMissing {
        /// The path, as given.
        path: PathBuf,
    },
    /// The file is there, and is no network namespace.
    #[error(
        "{} is not a network namespace: give a file such as /run/netns/NAME or /proc/PID/ns/net",
        path.display()
    )]
    NotANamespace {
        /// The path, as given.
        path: PathBuf,
    },
    /// The sandbox's namespace is the router's or the host's own.
    #[error("{} is the network namespace of the {owner}, not a sandbox's", path.display())]
    ReservedNamespace {
        /// The path, as given.
        path: PathBuf,
        /// `host` or `router`.
        owner: &'static str,
    },
    /// The name is taken in the sandbox's namespace.
    #[error(
        "an interface `{interface}` already exists in {}: remove it, or ask for another name",
        namespace.display()
    )]
    InterfaceExists {
        /// The name that was asked for.
        interface: InterfaceName,
        /// Where.
        namespace: PathBuf,
    },
    /// The sandbox has a port already.
    #[error("sandbox {uid} already has a port: detach it first")]
    PortExists {
        /// The sandbox.
        uid: SandboxUid,
    },
    /// The attachment needs another backend.
    #[error(
        "a {attachment} attachment needs the {needs} backend: start the node with `--backend {needs}`"
    )]
    UnsupportedAttachment {
        /// The attachment's kind.
        attachment: &'static str,
        /// The backend that offers it.
        needs: &'static str,
    },
    /// The operator has not allowed that guests share memory with VPP.
    #[error(
        "vhost-user and memif let the guest write to memory that VPP works in, and VPP does \
         not withstand a hostile guest there: attach it by tap, or, if every such guest is \
         trusted, set `shared_memory = true` in the section `[vpp]` of the configuration"
    )]
    SharedMemory,
    /// The kernel lacks something.
    #[error("this kernel lacks {feature}, which {used_for} needs")]
    KernelFeature {
        /// What is missing.
        feature: &'static str,
        /// What needs it.
        used_for: &'static str,
    },
    /// The process lacks privileges.
    #[error("no permission to {operation}: run as root, or with CAP_NET_ADMIN and CAP_SYS_ADMIN")]
    Permission {
        /// What was tried.
        operation: &'static str,
    },
    /// A program is missing.
    #[error("the program `{program}` is not installed: install the package `{package}`")]
    ProgramMissing {
        /// The program.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// A program failed.
    #[error("`{program}` failed ({status}): {message}")]
    ProgramFailed {
        /// The program.
        program: &'static str,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it wrote to standard error, cut to a sensible length.
        message: String,
    },
    /// The router is not there.
    #[error("the router namespace is not set up: is the node running?")]
    NotSetUp,
    /// The uplink interface is not there.
    #[error("there is no interface `{interface}` to use as uplink")]
    UplinkMissing {
        /// The interface, as configured.
        interface: InterfaceName,
    },
    /// The kernel refused a request.
    #[error("could not {operation} `{object}`{}", detail.as_deref().map(|d| format!(" ({d})")).unwrap_or_default())]
    Netlink {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// What the kernel said beyond the error number, if anything.
        detail: Option<String>,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// A system call or a file access failed.
    #[error("could not {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The packet filter refused a change or gave an answer that makes no sense.
    #[error("the packet filter failed to {operation}")]
    Filter {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no connection to VPP.
    #[error(
        "there is no VPP at {}: start it, with this as `socket-name` in the section `socksvr` of its configuration",
        path.display()
    )]
    VppAbsent {
        /// The socket, as configured.
        path: PathBuf,
        /// What came of the last attempt.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// VPP refused a request, or did not answer it in time.
    #[error("VPP did not {operation}")]
    Vpp {
        /// What was asked.
        operation: &'static str,
        /// What became of it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The socket is another sandbox's.
    #[error("the socket {} belongs to sandbox {holder}: give each its own", path.display())]
    SocketInUse {
        /// The socket, as given.
        path: PathBuf,
        /// Whose it is.
        holder: SandboxUid,
    },
    /// VPP runs without a plugin.
    #[error(
        "VPP runs without {plugin}, which {used_for} needs: enable it in the section `plugins` of its configuration"
    )]
    VppLacks {
        /// The plugin.
        plugin: &'static str,
        /// What needs it.
        used_for: &'static str,
    },
    /// VPP would run out of something with one more sandbox, and end.
    #[error(transparent)]
    VppShort(#[from] crate::vpp::admission::Shortage),
    /// The backend's own threads are gone.
    #[error("the backend has stopped")]
    Stopped,
    /// A test asked for this failure.
    #[error("failed at step {step}, as a test asked")]
    Injected {
        /// The step's number.
        step: usize,
    },
}
