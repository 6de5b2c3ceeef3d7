//! Limits of rate.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::{Done, PolicerIndex};
use crate::types::InterfaceIndex;
use crate::wire::FixedText;

wire_enums! {
    /// What happens to a packet.
    QosActionType: u8 {
        /// It is dropped.
        Drop = 0,
        /// It is sent.
        Transmit = 1,
        /// It is marked and sent.
        MarkAndTransmit = 2,
    }

    /// What is counted.
    QosRateType: u8 {
        /// Kilobits each second.
        Kbps = 0,
        /// Packets each second.
        Pps = 1,
    }

    /// How rates are rounded to what the policer can do.
    QosRoundType: u8 {
        /// To the closest.
        ToClosest = 0,
        /// Up.
        ToUp = 1,
        /// Down.
        ToDown = 2,
    }

    /// The algorithm.
    QosPolicerType: u8 {
        /// One rate, two colours.
        OneRateTwoColours = 0,
        /// One rate, three colours.
        Rfc2697 = 1,
        /// Two rates, three colours.
        Rfc2698 = 2,
        /// Two rates, three colours, in-profile traffic first.
        Rfc4115 = 3,
        /// As MEF 5 has it.
        Mef5Cf1 = 4,
    }
}

wire_structs! {
    /// What happens to a packet.
    QosAction {
        r#type: QosActionType,
        dscp: u8,
    }

    /// A policer.
    PolicerConfig {
        /// The committed rate.
        cir: u32,
        /// The excess or peak rate.
        eir: u32,
        /// The committed burst, in bytes or milliseconds.
        cb: u64,
        /// The excess burst.
        eb: u64,
        rate_type: QosRateType,
        round_type: QosRoundType,
        r#type: QosPolicerType,
        color_aware: bool,
        conform_action: QosAction = QosAction { r#type: QosActionType::Transmit, dscp: 0 },
        exceed_action: QosAction,
        violate_action: QosAction,
    }
}

requests! {
    /// Makes a policer.
    PolicerAdd("policer_add", 0x4d949e35) {
        name: FixedText<64>,
        infos: PolicerConfig,
    } -> PolicerIndex = 0xa177cef2;

    /// Changes a policer.
    PolicerUpdate("policer_update", 0xfd039ef0) {
        policer_index: u32,
        infos: PolicerConfig,
    } -> Done = 0xe8d4e804;

    /// Deletes a policer.
    PolicerDel("policer_del", 0x7ff7912e) { policer_index: u32 } -> Done = 0xe8d4e804;

    /// Applies a policer to what an interface receives.
    PolicerInputV2("policer_input_v2", 0x8388eb84) {
        policer_index: u32,
        sw_if_index: InterfaceIndex,
        apply: bool,
    } -> Done = 0xe8d4e804;

    /// Applies a policer to what an interface sends.
    PolicerOutputV2("policer_output_v2", 0x8388eb84) {
        policer_index: u32,
        sw_if_index: InterfaceIndex,
        apply: bool,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// One policer, or all.
    PolicerDumpV2("policer_dump_v2", 0x7ff7912e) { policer_index: u32 = u32::MAX } =>
    /// A policer.
    PolicerDetails("policer_details", 0x72d0e248) {
        name: FixedText<64>,
        cir: u32,
        eir: u32,
        cb: u64,
        eb: u64,
        rate_type: QosRateType,
        round_type: QosRoundType,
        r#type: QosPolicerType,
        conform_action: QosAction,
        exceed_action: QosAction,
        violate_action: QosAction,
        single_rate: bool,
        color_aware: bool,
        scale: u32,
        cir_tokens_per_period: u32,
        pir_tokens_per_period: u32,
        current_limit: u32,
        current_bucket: u32,
        extended_limit: u32,
        extended_bucket: u32,
        last_update_time: u64,
    };
}
