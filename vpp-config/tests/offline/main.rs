//! The client against a fake VPP, so that it runs everywhere.

mod calls;
mod fake;
mod reconnect;
