//! What one sandbox takes of what VPP has once and for all.
//!
//! The start-up configuration is sized by these, and whoever admits sandboxes counts each at as
//! much. A live test of the dataplane weighs real sandboxes against them.

/// Bytes of the heap: two interfaces, a bridge, two classifier tables, neighbours and routes, and
/// what the vectors take that grow with them.
pub const HEAP: u64 = 64 << 10;

/// Bytes of the stats segment: the names of two interfaces.
const STATS: u64 = 12 << 10;
/// Bytes of it for each thread: the counters of the interfaces and their routes.
const STATS_THREAD: u64 = 2 << 10;

/// Bytes of the stats segment, where VPP has so many threads, the main one included.
pub const fn stats(threads: u64) -> u64 {
    STATS + threads * STATS_THREAD
}

/// Packet buffers: a burst of its own. An interface without packets holds none.
pub const BUFFERS: u64 = 32;
