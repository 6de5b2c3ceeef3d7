//! What a connection is limited to.

use std::time::Duration;

use crate::wire::FixedText;

/// The limits of a client. The defaults suit a controller of one node.
#[derive(Clone, Debug)]
pub struct Options {
    /// What VPP calls the client, in `show api clients`.
    pub name: FixedText<64>,
    /// How long connecting may take, up to the answer to the first ping.
    pub connect_deadline: Duration,
    /// How long a request may take, its wait for a place in the window included.
    pub deadline: Duration,
    /// How long a dump may take.
    pub dump_deadline: Duration,
    /// How many requests may be unanswered at a time. VPP keeps its answers without a bound, and
    /// gains nothing beyond some dozens.
    pub window: usize,
    /// The longest frame that is taken. The longest that VPP sends, its own definitions, has
    /// 1.3 MB.
    pub max_frame: usize,
    /// How many bytes the details of one dump may have.
    pub max_dump: usize,
    /// How many events a slow receiver may be behind before it misses some.
    pub event_queue: usize,
    /// How long to wait before connecting anew. It doubles with each failure, and with each connection
    /// that does not last.
    pub reconnect_first: Duration,
    /// The longest wait before connecting anew.
    pub reconnect_longest: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: FixedText::default(),
            connect_deadline: Duration::from_secs(5),
            deadline: Duration::from_secs(5),
            dump_deadline: Duration::from_secs(30),
            window: 128,
            max_frame: 16 << 20,
            max_dump: 512 << 20,
            event_queue: 1024,
            reconnect_first: Duration::from_millis(50),
            reconnect_longest: Duration::from_secs(2),
        }
    }
}
