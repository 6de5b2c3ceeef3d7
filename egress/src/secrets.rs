//! Secrets in the bytes of requests and answers. Pure.
//!
//! [`placeholder`] is the token that a sandbox holds in a secret's place, [`swap`] puts the
//! secret where the token stands, and [`redact`] takes the secret out of what comes back.

pub mod basic;
pub mod needle;
pub mod placeholder;
pub mod query;
pub mod redact;
pub mod sigv4;
pub mod swap;
pub mod syntax;
mod unescape;

pub use needle::Needles;
pub use placeholder::{Placeholder, PlaceholderKey};
pub use redact::Redactor;
pub use swap::{Swapper, Swaps};
pub use syntax::Syntax;
