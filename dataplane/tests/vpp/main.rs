//! The VPP backend against a real VPP, with real packets. The cases of the kernel backend run
//! here as they are; what VPP adds has its own.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "the helpers of tests fail as tests do, and say what was skipped; tables are long"
)]

mod forwarder;
mod instance;
#[path = "../hostile/lab.rs"]
mod lab;
#[path = "../hostile/packet.rs"]
mod packet;
mod ports;
mod scale;

include!("../hostile/cases.rs");
