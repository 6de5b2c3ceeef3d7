//! Nodes on the arcs of VPP's graph.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::{Done, FeatureState};
use crate::types::InterfaceIndex;
use crate::wire::FixedText;

requests! {
    /// Puts a node on an arc of an interface, or takes it away. It is counted: what is put on
    /// twice has to be taken away twice.
    FeatureEnableDisable("feature_enable_disable", 0x7531c862) {
        sw_if_index: InterfaceIndex,
        enable: bool,
        arc_name: FixedText<64>,
        feature_name: FixedText<64>,
    } -> Done = 0xe8d4e804;

    /// Asks whether it is there. Since 25.06.
    FeatureIsEnabled("feature_is_enabled", 0x55db09e2) {
        arc_name: FixedText<64>,
        feature_name: FixedText<64>,
        sw_if_index: InterfaceIndex,
    } -> FeatureState = 0x03f284b5;
}
