//! A world of its own for the demo and the end-to-end tests: a host, an internet with real DNS
//! and TLS servers, and sandboxes, all in network namespaces that vanish with the process.

pub mod internet;
pub mod isolate;
mod process;
pub mod vpp;
mod world;

pub use process::{Finished, poll, run, run_ok};
pub use world::{Lab, Namespace, OPERATOR_PREFIX, is_operators};
