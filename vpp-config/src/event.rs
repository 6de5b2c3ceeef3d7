//! Messages that VPP sends by itself.

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::broadcast;

use crate::messages::{EventMessage, MessageId};
use crate::wire::{DecodeError, decode};

/// An event. Which one it is, [`Event::decode`] tells.
#[derive(Clone, Debug)]
pub struct Event {
    /// The connection that it came by. What it says holds for the VPP of that connection.
    pub generation: u64,
    /// What it is known by.
    pub id: MessageId,
    pub(crate) body: Bytes,
}

impl Event {
    /// What it says, if it is such an event.
    pub fn decode<E: EventMessage>(&self) -> Option<Result<E, DecodeError>> {
        (self.id == E::ID).then(|| decode(&self.body))
    }
}

/// A receiver of events. It keeps working when the client connects anew; but events have to be
/// asked for again then.
#[derive(Debug)]
pub struct Events(pub(crate) broadcast::Receiver<Event>);

/// There is no next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EventError {
    /// The receiver was too slow. What it was told of is to be looked up anew.
    #[error("{count} events were missed")]
    Missed {
        /// How many events are lost.
        count: u64,
    },
    /// The client is gone.
    #[error("the client is gone")]
    Closed,
}

impl Events {
    /// Waits for the next event.
    pub async fn next(&mut self) -> Result<Event, EventError> {
        self.0.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(count) => EventError::Missed { count },
            broadcast::error::RecvError::Closed => EventError::Closed,
        })
    }
}
