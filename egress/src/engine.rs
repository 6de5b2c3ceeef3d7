//! What is done with a connection that was judged: passed through, or looked into.

mod authority;
mod body;
mod headers;
mod http;
mod pass;
mod refuse;
mod secrets;
mod tasks;
mod tls;
mod upgrade;
mod upstream;

pub(crate) use authority::{Host, parse_host};
pub(crate) use http::{plain, proxy};
pub(crate) use pass::{Opening, pass};
pub(crate) use tls::inspect;
