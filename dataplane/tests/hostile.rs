//! Crafted packets from inside a hostile sandbox, against the real packet filter.
//!
//! Each attempt is dropped and counted under exactly its reason (the whole ledger of drops is
//! compared), beside a control of the same shape that passes and is received.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "the helpers of tests fail as tests do, and say what was skipped; tables are long"
)]

#[path = "hostile/kernel.rs"]
mod forwarder;
#[path = "hostile/lab.rs"]
mod lab;
#[path = "hostile/packet.rs"]
mod packet;

include!("hostile/cases.rs");
