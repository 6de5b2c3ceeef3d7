//! What happens, as a stream that many may follow. A slow follower misses events, and is told
//! how many; nobody waits for it.

use std::time::SystemTime;

use causeway_egress::audit::{AuditRecord, Timestamp};
use causeway_types::Generation;
use serde::Serialize;
use tokio::sync::broadcast;

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
pub(super) struct Events(broadcast::Sender<Event>);

impl Events {
    pub(super) fn new() -> Self {
        Self(broadcast::channel(BUFFER).0)
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
        drop(self.0.send(event));
    }

    pub(super) fn follow(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}
