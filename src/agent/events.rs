//! What happens, as a stream that many may follow. A slow follower misses events, and is told
//! how many; nobody waits for it.

use std::sync::Arc;
use std::time::SystemTime;

use causeway_egress::audit::{AuditRecord, Timestamp};
use causeway_types::Generation;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};

/// Events that wait for a follower.
const BUFFER: usize = 1024;

/// Something that happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The desired state changed.
    Change {
        /// When.
        time: Timestamp,
        /// The new generation.
        generation: Generation,
        /// What was done: `sandbox_created`, `policy_applied` and so on.
        what: &'static str,
        /// To whom.
        subject: String,
    },
    /// The node's own parts came, went or failed.
    Node {
        /// When.
        time: Timestamp,
        /// What: `proxy_connected`, `reconciled` and so on.
        what: &'static str,
        /// More of it.
        detail: String,
    },
    /// The egress proxy decided.
    Egress(Box<AuditRecord>),
    /// This follower was too slow.
    Missed {
        /// How many events it did not see.
        count: u64,
    },
}

/// The source of the stream.
#[derive(Debug)]
pub(super) struct Events {
    stream: broadcast::Sender<Event>,
    followers: Arc<watch::Sender<usize>>,
}

/// One follower's place. The proxy sends its decisions only while there is one.
#[derive(Debug)]
pub struct Follower {
    stream: broadcast::Receiver<Event>,
    followers: Arc<watch::Sender<usize>>,
}

impl Follower {
    /// The next event; none when there will not be another.
    pub async fn next(&mut self) -> Option<Event> {
        match self.stream.recv().await {
            Ok(event) => Some(event),
            Err(RecvError::Lagged(count)) => Some(Event::Missed { count }),
            Err(RecvError::Closed) => None,
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.followers.send_modify(|count| *count -= 1);
    }
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            stream: broadcast::channel(BUFFER).0,
            followers: Arc::new(watch::channel(0).0),
        }
    }

    /// How many follow.
    pub(super) fn followers(&self) -> watch::Receiver<usize> {
        self.followers.subscribe()
    }

    pub(super) fn change(&self, generation: Generation, what: &'static str, subject: String) {
        tracing::info!(%generation, %subject, "{what}");
        self.send(Event::Change {
            time: Timestamp::from_system(SystemTime::now()),
            generation,
            what,
            subject,
        });
    }

    pub(super) fn node(&self, what: &'static str, detail: String) {
        tracing::info!(%detail, "{what}");
        self.send(Event::Node {
            time: Timestamp::from_system(SystemTime::now()),
            what,
            detail,
        });
    }

    pub(super) fn send(&self, event: Event) {
        // Nobody may be following.
        drop(self.stream.send(event));
    }

    pub(super) fn follow(&self) -> Follower {
        self.followers.send_modify(|count| *count += 1);
        Follower {
            stream: self.stream.subscribe(),
            followers: Arc::clone(&self.followers),
        }
    }
}
