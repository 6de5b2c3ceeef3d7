//! The proxy as sandboxes meet it: real sockets, real TLS and HTTP on both sides.
//!
//! Each test runs in a network namespace of its own, where public addresses are on the loopback
//! interface. Only the delivery is replaced: the destination that TPROXY would show is given.

mod client;
mod explicit;
mod names;
mod opening;
mod process;
mod protocols;
mod redaction;
mod refusals;
mod secrets;
mod server;
mod streams;
mod upstream;
mod world;
