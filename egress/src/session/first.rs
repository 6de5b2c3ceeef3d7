//! What a client shows first.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use causeway_types::Reason;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::Session;
use crate::flows::Flow;
use crate::judge;
use crate::sniff::{MAX_SNIFF, Sniffed, sniff};

/// How long a client may take to show what it wants.
pub(crate) const SNIFF_DEADLINE: Duration = Duration::from_secs(10);
/// How long a client may be silent, where what shows no name is permitted, before it is taken
/// for one whose server speaks first.
const SERVER_FIRST: Duration = Duration::from_millis(200);

/// What a client began with.
pub(crate) struct First {
    pub(super) bytes: Bytes,
    pub(super) sniffed: Result<Shown, Reason>,
}

/// What there is to be judged.
pub(super) enum Shown {
    /// The client has shown this.
    Protocol(Sniffed),
    /// The client waits for the server.
    Nothing,
}

impl Session {
    /// Serves a connection of which nothing was read yet.
    pub(super) async fn begin(self: &std::sync::Arc<Self>, flow: &Flow, stream: TcpStream) {
        self.go_on(flow, stream, BytesMut::with_capacity(2048))
            .await;
    }

    /// Serves a connection of which `buffer` was read.
    pub(crate) async fn go_on(
        self: &std::sync::Arc<Self>,
        flow: &Flow,
        mut stream: TcpStream,
        buffer: BytesMut,
    ) {
        let first = tokio::select! {
            biased;
            reason = flow.cut() => First { bytes: Bytes::new(), sniffed: Err(reason) },
            first = self.first(&mut stream, buffer) => first,
        };
        self.judge(flow, stream, first).await;
    }

    /// Reads until it is clear what the client speaks.
    async fn first(&self, stream: &mut TcpStream, mut buffer: BytesMut) -> First {
        let sniffed = async {
            if let Some(sniffed) = sniff(&buffer) {
                return Ok(Shown::Protocol(sniffed));
            }
            let (by_address, named) = self.targets(false);
            let open = self.current().is_ok_and(|(_, sandbox)| {
                judge::unnamed(&sandbox.policy, &by_address, &named, false).is_ok()
            });
            loop {
                let wait = if buffer.is_empty() && open {
                    SERVER_FIRST
                } else {
                    SNIFF_DEADLINE
                };
                let read = tokio::time::timeout(wait, stream.read_buf(&mut buffer));
                match read.await {
                    Err(_elapsed) if buffer.is_empty() && open => return Ok(Shown::Nothing),
                    Err(_elapsed) => return Err(Reason::TimedOut),
                    // The client closed before it showed anything else than opaque bytes.
                    Ok(Ok(0)) => return Ok(Shown::Protocol(Sniffed::Opaque)),
                    Ok(Err(_broken)) => return Err(Reason::TimedOut),
                    Ok(Ok(_count)) => {}
                }
                if let Some(sniffed) = sniff(&buffer) {
                    return Ok(Shown::Protocol(sniffed));
                }
                if buffer.len() >= MAX_SNIFF {
                    return Err(Reason::TooLarge);
                }
            }
        };
        // A client that drips bytes does not get the wait again for each of them.
        let sniffed = tokio::time::timeout(SNIFF_DEADLINE, sniffed)
            .await
            .unwrap_or(Err(Reason::TimedOut));
        First {
            bytes: buffer.freeze(),
            sniffed,
        }
    }
}
