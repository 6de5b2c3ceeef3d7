//! The real command, agent and proxy, with real packets, in namespaces of their own.

#![expect(clippy::print_stdout, reason = "tests say what they skip")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod attach;
mod bad_input;
mod chaos;
mod clients;
mod guest;
mod hostile;
mod microvm;
mod scale;
mod secrecy;
mod support;
mod vpp;
