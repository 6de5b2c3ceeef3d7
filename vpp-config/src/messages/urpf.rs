//! Checks of source addresses against routes.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::Done;
use crate::types::{AddressFamily, InterfaceIndex};

wire_enums! {
    /// What a source address needs.
    UrpfMode: u8 {
        /// Nothing.
        Off = 0,
        /// A route.
        Loose = 1,
        /// A route through the interface that the packet came by.
        Strict = 2,
    }
}

requests! {
    /// Sets the check. It looks at unicast destinations only.
    UrpfUpdateV2("urpf_update_v2", 0xb873d028) {
        is_input: bool = true,
        mode: UrpfMode,
        af: AddressFamily,
        sw_if_index: InterfaceIndex,
        /// By default, the table of the interface.
        table_id: u32 = u32::MAX,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// The checks of an interface, or of all.
    UrpfInterfaceDump("urpf_interface_dump", 0xf9e6675e) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } =>
    /// A check.
    UrpfInterfaceDetails("urpf_interface_details", 0xf94b5374) {
        sw_if_index: InterfaceIndex,
        is_input: bool,
        mode: UrpfMode,
        af: AddressFamily,
        table_id: u32,
    };
}
