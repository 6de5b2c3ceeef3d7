//! How large things have to be.

use super::{Attachment, Startup};

/// The sizes that VPP cannot change while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The heap, in bytes.
    pub heap: u64,
    /// The stats segment, in bytes.
    pub stats: u64,
    /// Packet buffers on each memory node.
    pub buffers: u64,
    /// Sessions that the ACL plugin keeps, on each thread.
    pub connections: u64,
    /// Buckets of the table that finds them.
    pub connection_buckets: u64,
    /// What has to be set aside as huge pages, in bytes, on one memory node. Zero without them.
    pub huge: u64,
}

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;

/// What VPP takes with no sandbox, with room to spare.
const HEAP_BASE: u64 = 192 * MB;
/// An interface with its table, addresses, neighbour, routes and lists: about 42 KB were measured.
pub(super) const HEAP_SANDBOX: u64 = 64 * KB;
/// A session of the ACL plugin.
pub(super) const SESSION: u64 = 128;
/// Sessions for each sandbox. A sandbox can have more while others have fewer.
pub(super) const SESSIONS_SANDBOX: u64 = 256;
/// An interface with its names: about 5 KB were measured.
pub(super) const STATS_SANDBOX: u64 = 8 * KB;
/// The counters of an interface and its routes on one thread, twice, since vectors are copied when
/// they grow.
const STATS_THREAD: u64 = KB;
/// A buffer with its header.
const BUFFER: u64 = 2496;
/// Descriptors of a queue of a card.
const DESCRIPTORS: u64 = 1024;

pub(super) fn of(startup: &Startup) -> Sizes {
    let sandboxes = u64::from(startup.sandboxes);
    let threads = 1 + u64::from(startup.worker_count());

    let connections = (sandboxes * SESSIONS_SANDBOX).max(64 * KB);
    let connection_buckets = (connections / 4).next_power_of_two().max(64 * KB);
    let heap = HEAP_BASE + sandboxes * HEAP_SANDBOX + threads * connections * SESSION;
    // A quarter more, for what is freed and not yet used again.
    let heap = (heap + heap / 4).next_multiple_of(64 * MB);

    let stats = 32 * MB + sandboxes * (STATS_SANDBOX + threads * STATS_THREAD);
    let stats = stats.next_multiple_of(16 * MB);

    let rings: u64 = startup
        .dpdk
        .iter()
        .map(|device| {
            let receiving = match u64::from(device.rx_queues) {
                0 => (threads - 1).max(1),
                queues => queues,
            };
            (receiving + threads) * DESCRIPTORS
        })
        .sum();
    let buffers = 16 * KB + threads * 2 * KB + sandboxes * held(startup.attachment) + rings;

    let huge = startup.hugepages.map_or(0, |pages| {
        let round = |bytes: u64| bytes.next_multiple_of(pages.bytes());
        round(heap) + round(buffers * BUFFER)
    });
    Sizes {
        heap,
        stats,
        buffers,
        connections,
        connection_buckets,
        huge,
    }
}

/// How many buffers a sandbox holds while nothing moves, and a burst of its own.
pub(super) fn held(attachment: Attachment) -> u64 {
    match attachment {
        Attachment::Veth | Attachment::VhostUser => 32,
        Attachment::Tap => 512 + 32,
        Attachment::Memif => 1024 + 32,
    }
}
