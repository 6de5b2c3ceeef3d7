//! Interfaces of any kind.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::{Done, Interface, Mac, VrfId};
use crate::types::{
    IfStatusFlags, IfType, InterfaceIndex, InterfaceMtu, LinkDuplex, MacAddress, Prefix, RxMode,
    SubIfFlags,
};
use crate::wire::{FixedText, VarText};

requests! {
    /// Brings an interface up, or down.
    SwInterfaceSetFlags("sw_interface_set_flags", 0xf5aec1b8) {
        sw_if_index: InterfaceIndex,
        /// [`IfStatusFlags::ADMIN_UP`], or nothing.
        flags: IfStatusFlags,
    } -> Done = 0xe8d4e804;

    /// Changes the link-layer address.
    SwInterfaceSetMacAddress("sw_interface_set_mac_address", 0xc536e7eb) {
        sw_if_index: InterfaceIndex,
        mac_address: MacAddress,
    } -> Done = 0xe8d4e804;

    /// Asks for the link-layer address.
    SwInterfaceGetMacAddress("sw_interface_get_mac_address", 0xf9e6675e) {
        sw_if_index: InterfaceIndex,
    } -> Mac = 0x40ef2c08;

    /// Sets the greatest packets by protocol.
    SwInterfaceSetMtu("sw_interface_set_mtu", 0x5cbe85e5) {
        sw_if_index: InterfaceIndex,
        mtu: InterfaceMtu,
    } -> Done = 0xe8d4e804;

    /// Sets the greatest frame of the device.
    HwInterfaceSetMtu("hw_interface_set_mtu", 0xe6746899) {
        sw_if_index: InterfaceIndex,
        mtu: u16,
    } -> Done = 0xe8d4e804;

    /// Puts an interface into a table. It must not have addresses.
    SwInterfaceSetTable("sw_interface_set_table", 0xdf42a577) {
        sw_if_index: InterfaceIndex,
        is_ipv6: bool,
        vrf_id: u32,
    } -> Done = 0xe8d4e804;

    /// Asks which table an interface is in.
    SwInterfaceGetTable("sw_interface_get_table", 0x2d033de4) {
        sw_if_index: InterfaceIndex,
        is_ipv6: bool,
    } -> VrfId = 0xa6eb0109;

    /// Writes a mark on an interface, which dumps return.
    SwInterfaceTagAddDel("sw_interface_tag_add_del", 0x426f8bc1) {
        is_add: bool,
        sw_if_index: InterfaceIndex,
        tag: FixedText<64>,
    } -> Done = 0xe8d4e804;

    /// Renames an interface.
    SwInterfaceSetInterfaceName("sw_interface_set_interface_name", 0x45a1d548) {
        sw_if_index: InterfaceIndex,
        name: FixedText<64>,
    } -> Done = 0xe8d4e804;

    /// Lets an interface receive frames for others.
    SwInterfaceSetPromisc("sw_interface_set_promisc", 0xd40860d4) {
        sw_if_index: InterfaceIndex,
        promisc_on: bool,
    } -> Done = 0xe8d4e804;

    /// Adds an address to an interface, or takes it away.
    SwInterfaceAddDelAddress("sw_interface_add_del_address", 0x5463d73b) {
        sw_if_index: InterfaceIndex,
        is_add: bool,
        /// Takes all addresses away.
        del_all: bool,
        prefix: Prefix,
    } -> Done = 0xe8d4e804;

    /// Lets an interface use the addresses of another.
    SwInterfaceSetUnnumbered("sw_interface_set_unnumbered", 0x154a6439) {
        /// The one that has addresses.
        sw_if_index: InterfaceIndex,
        /// The one that has none.
        unnumbered_sw_if_index: InterfaceIndex,
        is_add: bool,
    } -> Done = 0xe8d4e804;

    /// Sets how receive queues are served.
    SwInterfaceSetRxMode("sw_interface_set_rx_mode", 0xb04d1cfe) {
        sw_if_index: InterfaceIndex,
        /// Otherwise all queues are meant.
        queue_id_valid: bool,
        queue_id: u32,
        mode: RxMode,
    } -> Done = 0xe8d4e804;

    /// Sets which worker serves a receive queue.
    SwInterfaceSetRxPlacement("sw_interface_set_rx_placement", 0xdb65f3c9) {
        sw_if_index: InterfaceIndex,
        queue_id: u32,
        worker_id: u32,
        /// The main thread, and no worker.
        is_main: bool,
    } -> Done = 0xe8d4e804;

    /// Sets the counters of an interface to zero.
    SwInterfaceClearStats("sw_interface_clear_stats", 0xf9e6675e) {
        sw_if_index: InterfaceIndex,
    } -> Done = 0xe8d4e804;

    /// Asks for [`SwInterfaceEvent`]. A connection can ask once.
    WantInterfaceEvents("want_interface_events", 0x476f5a08) {
        /// Zero or one.
        enable_disable: u32,
        /// Any number: events return it.
        pid: u32,
    } -> Done = 0xe8d4e804;

    /// Makes a loopback interface.
    CreateLoopbackInstance("create_loopback_instance", 0xd36a3ee2) {
        /// Zero lets VPP choose.
        mac_address: MacAddress,
        /// Whether the number is given.
        is_specified: bool,
        user_instance: u32,
    } -> Interface = 0x5383d31f;

    /// Deletes a loopback interface.
    DeleteLoopback("delete_loopback", 0xf9e6675e) {
        sw_if_index: InterfaceIndex,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// One interface, or all.
    SwInterfaceDump("sw_interface_dump", 0xaa610c27) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
        name_filter_valid: bool,
        name_filter: VarText,
    } =>
    /// An interface.
    SwInterfaceDetails("sw_interface_details", 0x6c221fc7) {
        sw_if_index: InterfaceIndex,
        /// The interface that this one is a part of; itself where it is none.
        sup_sw_if_index: u32,
        l2_address: MacAddress,
        flags: IfStatusFlags,
        r#type: IfType,
        link_duplex: LinkDuplex,
        /// In kilobits each second.
        link_speed: u32,
        link_mtu: u16,
        mtu: InterfaceMtu,
        sub_id: u32,
        sub_number_of_tags: u8,
        sub_outer_vlan_id: u16,
        sub_inner_vlan_id: u16,
        sub_if_flags: SubIfFlags,
        vtr_op: u32,
        vtr_push_dot1q: u32,
        vtr_tag1: u32,
        vtr_tag2: u32,
        outer_tag: u16,
        b_dmac: MacAddress,
        b_smac: MacAddress,
        b_vlanid: u16,
        i_sid: u32,
        interface_name: FixedText<64>,
        interface_dev_type: FixedText<64>,
        /// As [`SwInterfaceTagAddDel`] wrote it.
        tag: FixedText<64>,
    };

    /// Which worker serves which receive queue.
    SwInterfaceRxPlacementDump("sw_interface_rx_placement_dump", 0xf9e6675e) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } =>
    /// A receive queue.
    SwInterfaceRxPlacementDetails("sw_interface_rx_placement_details", 0x9e44a7ce) {
        sw_if_index: InterfaceIndex,
        queue_id: u32,
        worker_id: u32,
        mode: RxMode,
    };
}

events! {
    /// An interface went up, or down, or away.
    SwInterfaceEvent("sw_interface_event", 0x2d3d95a7) {
        /// As it was asked with.
        pid: u32,
        sw_if_index: InterfaceIndex,
        flags: IfStatusFlags,
        deleted: bool,
    };
}
