//! The VPP backend against a real VPP, with real packets. The cases of the kernel backend run
//! here as they are; what VPP adds has its own.
//!
//! All of the hostile cases hold on VPP, each drop under the same reason. Not run here are, of the
//! kernel backend's cases of ports:
//!
//! - `bad_requests_have_typed_errors_and_leave_nothing`: it asks for a memif, which VPP has;
//! - `reconciling_repairs_and_then_finds_nothing` and `a_port_that_was_not_finished_is_made_anew`:
//!   they take the kernel's own objects apart, in the order in which the kernel backend makes them.
//!   `ports::damage_of_every_kind_is_repaired` does so with VPP's;
//! - `without_privileges_the_error_says_so`, `a_missing_nft_is_named` and the module `uplink`: the
//!   router is the same code.
//!
//! Between two sandboxes that may exchange everything VPP tracks nothing. There a packet that is
//! `invalid` to the kernel arrives; no case of the kernel's has such a pair.

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
