//! What policies decide.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;
mod decisions;
mod peers;
mod reference;
