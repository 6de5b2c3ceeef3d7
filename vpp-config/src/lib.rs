//! An async client for [VPP](https://fd.io/), in Rust alone.
//!
//! - [`Client`] speaks VPP's binary API over its Unix socket: requests with deadlines, a bounded
//!   number of them in flight, dumps, cursors, events, and a new connection when VPP restarts.
//! - [`stats::Stats`] reads VPP's counters from its shared memory.
//! - [`startup::Startup`] writes a start-up configuration that is large enough for a node.
//! - [`supervise::Supervisor`] keeps a VPP running.
//! - [`messages`] declares messages, each with the name and CRC that VPP knows it by.
//!
//! ```no_run
//! use vpp_config::messages::interface::{SwInterfaceDump, SwInterfaceSetFlags};
//! use vpp_config::types::IfStatusFlags;
//! use vpp_config::{Client, Needs, Options};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let needs = Needs::new()
//!     .require::<SwInterfaceDump>()
//!     .require::<SwInterfaceSetFlags>();
//! let client = Client::connect("/run/vpp/api.sock", Options::default(), needs).await?;
//! for interface in client.dump(&SwInterfaceDump::default()).await? {
//!     client
//!         .call(&SwInterfaceSetFlags {
//!             sw_if_index: interface.sw_if_index,
//!             flags: IfStatusFlags::ADMIN_UP,
//!         })
//!         .await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! VPP runs API requests on the thread that forwards packets when there are no workers, and stops
//! the workers for many of them. Use one connection for each controller: VPP 25.06 to 26.06 hangs
//! for good when sixteen API sockets are closed at the same time.

#[macro_use]
pub mod wire;

pub mod client;
pub mod connection;
pub mod event;
pub mod installed;
pub mod messages;
mod options;
mod retval;
pub mod startup;
pub mod stats;
pub mod supervise;
pub mod table;
pub mod types;

pub use client::{Client, Status};
pub use connection::{CallError, CloseReason, ConnectError, Connection, VppIdentity};
pub use event::{Event, EventError, Events};
pub use options::Options;
pub use retval::Retval;
pub use stats::{Stats, StatsError};
pub use table::{Missing, Needs};
