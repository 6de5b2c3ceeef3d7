//! Bridge domains, and classification of what comes in on their members.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::{BridgeDomain, Done};
use crate::types::InterfaceIndex;
use crate::wire::FixedText;

wire_enums! {
    /// What an interface is to its bridge domain.
    L2PortType: u32 {
        /// One of many.
        Normal = 0,
        /// The one that routes.
        Bvi = 1,
        /// The one that unknown unicast goes to.
        UuFwd = 2,
    }
}

wire_structs! {
    /// A member of a bridge domain.
    BridgeDomainSwIf {
        /// Not used.
        context: u32,
        sw_if_index: InterfaceIndex,
        /// Members of the same group other than zero do not exchange frames.
        shg: u8,
    }
}

requests! {
    /// Makes a bridge domain, or takes it away.
    BridgeDomainAddDelV2("bridge_domain_add_del_v2", 0x600b7170) {
        /// By default, VPP chooses.
        bd_id: u32 = u32::MAX,
        flood: bool,
        uu_flood: bool,
        forward: bool,
        learn: bool,
        arp_term: bool,
        arp_ufwd: bool,
        /// In minutes. Zero is for ever.
        mac_age: u8,
        bd_tag: FixedText<64>,
        is_add: bool = true,
    } -> BridgeDomain = 0xfcb1e980;

    /// Puts an interface into a bridge domain, or takes it out.
    SwInterfaceSetL2Bridge("sw_interface_set_l2_bridge", 0xd0678b13) {
        rx_sw_if_index: InterfaceIndex,
        bd_id: u32,
        port_type: L2PortType,
        shg: u8,
        enable: bool = true,
    } -> Done = 0xe8d4e804;

    /// Hangs classifier tables at what comes in, or goes out, in a bridge domain. All three
    /// `u32::MAX` is off.
    ClassifySetInterfaceL2Tables("classify_set_interface_l2_tables", 0x5a6ddf65) {
        sw_if_index: InterfaceIndex,
        ip4_table_index: u32 = u32::MAX,
        ip6_table_index: u32 = u32::MAX,
        other_table_index: u32 = u32::MAX,
        is_input: bool = true,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// One bridge domain, or all.
    BridgeDomainDump("bridge_domain_dump", 0x74396a43) {
        bd_id: u32 = u32::MAX,
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } =>
    /// A bridge domain.
    BridgeDomainDetails("bridge_domain_details", 0x0fa506fd) {
        bd_id: u32,
        flood: bool,
        uu_flood: bool,
        forward: bool,
        learn: bool,
        arp_term: bool,
        arp_ufwd: bool,
        mac_age: u8,
        bd_tag: FixedText<64>,
        bvi_sw_if_index: InterfaceIndex,
        uu_fwd_sw_if_index: InterfaceIndex,
        [u32: sw_if_details] sw_if_details: Vec<BridgeDomainSwIf>,
    };
}
