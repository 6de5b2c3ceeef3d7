//! The agent's end of the control connection.

use std::io;
use std::path::{Path, PathBuf};

use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::codec::{FrameError, FrameReader, write};
use super::{FromProxy, PROTOCOL, ToProxy, Welcome};

/// Why the agent could not reach the proxy.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens on the socket, or it may not be opened.
    #[error("could not connect to the egress proxy at {path}", path = path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The connection failed during the greeting.
    #[error("the egress proxy broke off the greeting")]
    Greeting(#[from] FrameError),
    /// Something else than a welcome came back.
    #[error("the egress proxy did not answer the greeting")]
    NoWelcome,
}

/// A connection to the proxy, greeted.
#[derive(Debug)]
pub struct Client {
    welcome: Welcome,
    sender: ClientSender,
    receiver: ClientReceiver,
}

impl Client {
    /// Connects to the proxy and exchanges greetings. The caller compares
    /// [`Client::welcome`] with its own protocol and build before it sends state.
    pub async fn connect(path: &Path, build: &str) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path)
            .await
            .map_err(|source| ClientError::Connect {
                path: path.to_owned(),
                source,
            })?;
        let (read, write) = stream.into_split();
        let mut sender = ClientSender { stream: write };
        let mut receiver = ClientReceiver {
            // Events come many at a time. Nothing secret comes this way.
            frames: FrameReader::new(BufReader::with_capacity(64 * 1024, read)),
        };
        let hello = ToProxy::Hello {
            protocol: PROTOCOL,
            build: build.to_owned(),
        };
        sender.send(&hello).await?;
        match receiver.receive().await? {
            Some(FromProxy::Welcome(welcome)) => Ok(Self {
                welcome,
                sender,
                receiver,
            }),
            _ => Err(ClientError::NoWelcome),
        }
    }

    /// How the proxy introduced itself.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The two directions, which different tasks may use.
    pub fn split(self) -> (ClientSender, ClientReceiver) {
        (self.sender, self.receiver)
    }
}

/// Sends to the proxy.
#[derive(Debug)]
pub struct ClientSender {
    stream: OwnedWriteHalf,
}

impl ClientSender {
    /// Sends one message. When this is cancelled halfway, the connection is of no more use.
    pub async fn send(&mut self, message: &ToProxy) -> Result<(), FrameError> {
        write(&mut self.stream, message, message.encoded_size_hint()).await
    }
}

/// Receives from the proxy.
#[derive(Debug)]
pub struct ClientReceiver {
    frames: FrameReader<BufReader<OwnedReadHalf>>,
}

impl ClientReceiver {
    /// The next message; none when the proxy closed the connection. Cancelling loses nothing.
    pub async fn receive(&mut self) -> Result<Option<FromProxy>, FrameError> {
        self.frames.next().await
    }
}
