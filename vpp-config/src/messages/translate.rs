//! Changes to passing packets: prefixes, and the segment size that TCP announces.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::Done;
use crate::types::{InterfaceIndex, Prefix6};

wire_flags! {
    /// In which direction segment sizes are clamped.
    MssClampDir: u8 {
        /// Received packets.
        RX = 1,
        /// Sent packets.
        TX = 2,
    }
}

requests! {
    /// Translates prefixes one to one, without state.
    Npt66BindingAddDel("npt66_binding_add_del", 0x8aa10a52) {
        is_add: bool,
        sw_if_index: InterfaceIndex,
        internal: Prefix6,
        external: Prefix6,
    } -> Done = 0xe8d4e804;

    /// Lowers the segment size that TCP announces.
    MssClampEnableDisable("mss_clamp_enable_disable", 0xd31b44e3) {
        sw_if_index: InterfaceIndex,
        ipv4_mss: u16,
        ipv6_mss: u16,
        ipv4_direction: MssClampDir,
        ipv6_direction: MssClampDir,
    } -> Done = 0xe8d4e804;
}

gets! {
    /// The clamped sizes of one interface, or of all.
    MssClampGet("mss_clamp_get", 0x47250981) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } =>
    /// The clamped sizes of an interface.
    MssClampDetails("mss_clamp_details", 0xd3a4de61) {
        sw_if_index: InterfaceIndex,
        ipv4_mss: u16,
        ipv6_mss: u16,
        ipv4_direction: MssClampDir,
        ipv6_direction: MssClampDir,
    }, 0x53b48f5d;
}
