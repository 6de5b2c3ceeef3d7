//! What is done with a connection that was judged: passed through, or looked into.

mod authority;
mod body;
mod headers;
mod http;
mod inject;
mod pass;
mod refuse;
mod tasks;
mod tls;
mod upgrade;
mod upstream;

pub(crate) use http::plain;
pub(crate) use pass::pass;
pub(crate) use tls::inspect;
