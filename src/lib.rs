//! Causeway: the network for sandboxes that run untrusted code.
//!
//! This is the product put together: the [`agent`] that keeps a node as it is meant to be, its
//! HTTP [`api`], and the command line ([`cli`]). The parts that it is made of are crates of
//! their own.

pub mod agent;
pub mod api;
pub mod cli;
pub mod client;
pub mod config;
pub mod demo;
pub mod lab;
pub mod logging;
mod metrics;
pub mod node;
pub mod secrets;
pub mod store;

/// An error and what it came from, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        // Some errors show their source themselves.
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        source = inner.source();
    }
    text
}
