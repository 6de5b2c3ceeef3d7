//! The egress proxy: everything that sandboxes send to the outside over TCP goes through it.
//!
//! It runs as its own process in the router's network namespace, with few privileges, and
//! outlives the agent. A connection's source address says which sandbox it comes from, its
//! local address where the sandbox meant to go. [`start`] is the whole process; [`control`] is
//! how the agent tells it what to permit.

pub mod audit;
pub mod ca;
pub mod control;
mod dial;
pub mod dns;
mod engine;
pub mod explicit;
mod flows;
mod intercept;
mod judge;
mod limits;
mod metrics;
pub mod pins;
mod privilege;
mod relay;
mod run;
pub mod secrets;
mod session;
pub mod sniff;
mod state;
mod stream;
mod text;
mod trust;
mod workers;

pub use privilege::PrivilegeError;
pub use run::{ProxyArgs, ProxyError, run, start};

#[cfg(test)]
mod tests;
