//! What the agent and the proxy say to each other.
//!
//! The proxy outlives the agent, so it listens: a Unix socket that only root and its own user
//! may use. Frames are a length (32 bits, big endian, at most [`MAX_FRAME`]) and one JSON value.
//! A connection starts with [`ToProxy::Hello`], answered by [`FromProxy::Welcome`]. After that
//! the agent sends either a whole state ([`ToProxy::Begin`] first) or changes; nothing takes
//! effect before [`ToProxy::Commit`], and then all of it does, or none.

mod client;
mod codec;
mod message;
mod secret;
mod server;

pub use client::{Client, ClientError, ClientReceiver, ClientSender};
pub use codec::{FrameError, MAX_FRAME};
pub use message::{Decisions, FromProxy, PROTOCOL, SandboxInfo, Settings, Stats, ToProxy, Welcome};
pub use secret::{SecretValue, SecretValueError};

pub use server::ControlSocketError;
pub(crate) use server::{Change, ControlSocket, Controlled, serve};
