//! The task that sends.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

use super::{CloseReason, Shared};

/// The frames of one call.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) context: u32,
    pub(super) bytes: Vec<u8>,
}

/// How much is sent at a time, where more calls wait.
const CHUNK: usize = 64 << 10;

pub(super) async fn run(
    mut socket: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Outgoing>,
    shared: Arc<Shared>,
) {
    let mut closed = shared.closed.subscribe();
    let reason = tokio::select! {
        reason = send(&mut socket, &mut queue, &shared) => reason,
        _ = closed.wait_for(Option::is_some) => return,
    };
    shared.close(&reason);
}

async fn send(
    socket: &mut OwnedWriteHalf,
    queue: &mut mpsc::Receiver<Outgoing>,
    shared: &Shared,
) -> CloseReason {
    let mut chunk = Vec::new();
    loop {
        let Some(first) = queue.recv().await else {
            return CloseReason::Dropped;
        };
        let mut next = Some(first);
        while let Some(outgoing) = next {
            // A call that is over must have no effect any more.
            if shared.pending.start(outgoing.context) {
                chunk.extend_from_slice(&outgoing.bytes);
            }
            next = if chunk.len() < CHUNK {
                queue.try_recv().ok()
            } else {
                None
            };
        }
        if let Err(error) = socket.write_all(&chunk).await {
            return CloseReason::Socket(error.kind());
        }
        chunk.clear();
    }
}
