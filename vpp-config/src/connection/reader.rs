//! The task that receives. It never waits on whoever an answer or an event is for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

use super::frame::{Received, take};
use super::{CloseReason, Shared};
use crate::event::Event;

/// How much is received at a time. A frame's declared length is never trusted further than this.
pub(super) const CHUNK: usize = 64 << 10;

pub(super) async fn run(mut socket: OwnedReadHalf, mut input: BytesMut, shared: Arc<Shared>) {
    let mut closed = shared.closed.subscribe();
    let reason = tokio::select! {
        reason = receive(&mut socket, &mut input, &shared) => reason,
        _ = closed.wait_for(Option::is_some) => return,
    };
    tracing::debug!(generation = shared.generation, %reason, "connection to VPP closed");
    shared.close(&reason);
}

async fn receive(socket: &mut OwnedReadHalf, input: &mut BytesMut, shared: &Shared) -> CloseReason {
    loop {
        loop {
            match take(input, shared.options.max_frame) {
                Ok(Some(received)) => dispatch(received, shared),
                Ok(None) => break,
                Err(reason) => return reason,
            }
        }
        input.reserve(CHUNK);
        match socket.read_buf(input).await {
            Ok(0) => return CloseReason::Peer,
            Ok(_) => {}
            Err(error) => return CloseReason::Socket(error.kind()),
        }
    }
}

/// By number first: an event has the client's index where others have their context.
fn dispatch(mut received: Received, shared: &Shared) {
    let event = shared
        .event_ids
        .iter()
        .find(|(number, _)| *number == received.number);
    if let Some((_, id)) = event {
        let event = Event {
            generation: shared.generation,
            id: *id,
            // A copy, so that a waiting event does not hold on to all that came with it.
            body: Bytes::copy_from_slice(&received.body),
        };
        // Without a receiver there is nobody to tell.
        let _nobody = shared.events.send(event);
        return;
    }
    if shared.index_first.contains(&received.number) {
        // What is too short for its context has none, and is a stray.
        received.context = received.body.try_get_u32().unwrap_or_default();
    }
    let (number, context) = (received.number, received.context);
    if !shared.pending.answer(received, shared.table.crc(number)) {
        shared.strays.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(number, context, "message from VPP that nobody waits for");
    }
}
