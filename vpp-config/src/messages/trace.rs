//! Traces of packets. These definitions may change without new names.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::Done;
use crate::wire::VarText;

requests! {
    /// Traces packets from a node on.
    TraceCapturePackets("trace_capture_packets", 0x9e791a9b) {
        node_index: u32,
        max_packets: u32,
        use_filter: bool,
        verbose: bool,
        /// Forgets earlier traces first.
        pre_capture_clear: bool,
    } -> Done = 0xe8d4e804;

    /// Forgets traces.
    TraceClearCapture("trace_clear_capture", 0x51077d14) {} -> Done = 0xe8d4e804;
}

dumps! {
    /// Traces of one thread, or of all.
    TraceV2Dump("trace_v2_dump", 0x83f88d8e) {
        thread_id: u32 = u32::MAX,
        position: u32,
        max: u32 = 50,
        clear_cache: bool,
    } =>
    /// The trace of a packet.
    TraceV2Details("trace_v2_details", 0x91f87d52) {
        thread_id: u32,
        position: u32,
        more: bool,
        trace_data: VarText,
    };
}
