//! How large things have to be.

use super::{Startup, share};

/// The sizes that VPP cannot change while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The heap, in bytes.
    pub heap: u64,
    /// The stats segment, in bytes.
    pub stats: u64,
    /// Packet buffers on each memory node.
    pub buffers: u64,
    /// What has to be set aside as huge pages, in bytes, on one memory node. Zero without them.
    pub huge: u64,
}

const KB: u64 = 1 << 10;
const MB: u64 = 1 << 20;

/// What VPP takes with no sandbox, with room to spare.
const HEAP_BASE: u64 = 192 * MB;
/// A buffer with its header.
const BUFFER: u64 = 2496;
/// Descriptors of a queue of a card.
const DESCRIPTORS: u64 = 1024;

pub(super) fn of(startup: &Startup) -> Sizes {
    let sandboxes = u64::from(startup.sandboxes);
    let threads = 1 + u64::from(startup.worker_count());

    let heap = HEAP_BASE + sandboxes * share::HEAP;
    // A quarter more, for what is freed and not yet used again.
    let heap = (heap + heap / 4).next_multiple_of(64 * MB);

    let stats = 32 * MB + sandboxes * share::stats(threads);
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
    let buffers = 16 * KB + threads * 2 * KB + sandboxes * share::BUFFERS + rings;

    let huge = startup.hugepages.map_or(0, |pages| {
        let round = |bytes: u64| bytes.next_multiple_of(pages.bytes());
        round(heap) + round(buffers * BUFFER)
    });
    Sizes {
        heap,
        stats,
        buffers,
        huge,
    }
}
