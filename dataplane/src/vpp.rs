//! VPP as the forwarder.
//!
//! VPP stands between every sandbox and the router's namespace. Each sandbox has two interfaces
//! in VPP, its own and one that leads to its port on the router, in a bridge domain of their
//! own: whatever the sandbox sends arrives on its port as it was sent, and is judged there by
//! the same packet filter as with the kernel alone. The exception is what needs no judgement
//! ([`direct`]): a classifier takes it out of the bridge and VPP routes it to the other
//! sandbox by itself.

use std::path::PathBuf;
use std::time::Duration;

pub use vpp_config::supervise::Program;

use crate::kernel::KernelConfig;

pub mod admission;
mod backend;
mod classify;
pub mod direct;
mod edge;
mod facts;
mod found;
mod host;
mod make;
mod routes;
mod session;
mod state;
mod traffic;

pub use backend::VppBackend;

/// How long VPP may leave requests unanswered: it may be busy making interfaces, but not for that
/// long with a single one.
pub const WATCHDOG: Duration = Duration::from_secs(30);

/// How the VPP backend is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VppConfig {
    /// VPP's API socket.
    pub socket: PathBuf,
    /// The socket of VPP's counters.
    pub stats: PathBuf,
    /// Whether sandboxes may be attached by vhost-user and memif. VPP works in memory that the
    /// guest writes to then, and 26.06 does not withstand a guest that means harm.
    pub shared_memory: bool,
    /// After this time without an answer VPP hangs.
    pub watchdog: Duration,
    /// How VPP is started and kept running; none where somebody else does.
    pub supervise: Option<Program>,
    /// The router, as with the kernel backend.
    pub kernel: KernelConfig,
}
