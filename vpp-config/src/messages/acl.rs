//! Access lists.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use super::reply::{AclConnections, AclIndex, AclVersion, Done};
use crate::types::{AclRule, InterfaceIndex, MacIpRule};
use crate::wire::FixedText;

requests! {
    /// Which version of the plugin runs.
    AclPluginGetVersion("acl_plugin_get_version", 0x51077d14) {} -> AclVersion = 0x9b32cf86;

    /// How many sessions it keeps.
    AclPluginGetConnTableMaxEntries("acl_plugin_get_conn_table_max_entries", 0x51077d14) {}
        -> AclConnections = 0x7a096d3d;

    /// Makes an access list, or replaces one where it is applied. What no rule matches is
    /// denied, except by a list without rules, which matches nothing.
    AclAddReplace("acl_add_replace", 0xee5c2f18) {
        /// By default, a new one.
        acl_index: u32 = u32::MAX,
        tag: FixedText<64>,
        [u32: r] r: Vec<AclRule>,
    } -> AclIndex = 0xac407b0c;

    /// Deletes an access list that is nowhere applied.
    AclDel("acl_del", 0xef34fea4) { acl_index: u32 } -> Done = 0xe8d4e804;

    /// Sets which lists an interface has. The first of all allocates the sessions of every
    /// interface.
    AclInterfaceSetAclList("acl_interface_set_acl_list", 0x473982bd) {
        sw_if_index: InterfaceIndex,
        /// How many of them, from the front, are for received packets.
        [u8: acls] n_input: u8,
        acls: Vec<u32>,
    } -> Done = 0xe8d4e804;

    /// Sets which protocols other than IP an interface lets pass.
    AclInterfaceSetEtypeWhitelist("acl_interface_set_etype_whitelist", 0x3f5c2d2d) {
        sw_if_index: InterfaceIndex,
        /// How many of them, from the front, are for received frames.
        [u8: whitelist] n_input: u8,
        whitelist: Vec<u16>,
    } -> Done = 0xe8d4e804;

    /// Counts matches of each rule in the stats segment.
    AclStatsIntfCountersEnable("acl_stats_intf_counters_enable", 0xb3e225d2) {
        enable: bool,
    } -> Done = 0xe8d4e804;

    /// Makes a list of permitted pairs of link-layer and IP source addresses, or replaces one.
    MacipAclAddReplace("macip_acl_add_replace", 0x2a461dd4) {
        acl_index: u32 = u32::MAX,
        tag: FixedText<64>,
        [u32: r] r: Vec<MacIpRule>,
    } -> AclIndex = 0xac407b0c;

    /// Deletes such a list.
    MacipAclDel("macip_acl_del", 0xef34fea4) { acl_index: u32 } -> Done = 0xe8d4e804;

    /// Applies such a list to an interface, or takes it away.
    MacipAclInterfaceAddDel("macip_acl_interface_add_del", 0x4b8690b1) {
        is_add: bool = true,
        sw_if_index: InterfaceIndex,
        acl_index: u32,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// One access list, or all.
    AclDump("acl_dump", 0xef34fea4) { acl_index: u32 = u32::MAX } =>
    /// An access list.
    AclDetails("acl_details", 0x95babae0) {
        acl_index: u32,
        tag: FixedText<64>,
        [u32: r] r: Vec<AclRule>,
    };

    /// The access lists of one interface, or of all.
    AclInterfaceListDump("acl_interface_list_dump", 0xf9e6675e) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } =>
    /// The access lists of an interface.
    AclInterfaceListDetails("acl_interface_list_details", 0xe695d256) {
        sw_if_index: InterfaceIndex,
        /// How many of them, from the front, are for received packets.
        [u8: acls] n_input: u8,
        acls: Vec<u32>,
    };

    /// One list of address pairs, or all.
    MacipAclDump("macip_acl_dump", 0xef34fea4) { acl_index: u32 = u32::MAX } =>
    /// A list of address pairs.
    MacipAclDetails("macip_acl_details", 0x27135b59) {
        acl_index: u32,
        tag: FixedText<64>,
        [u32: r] r: Vec<MacIpRule>,
    };

    /// The lists of address pairs of an interface.
    MacipAclInterfaceListDump("macip_acl_interface_list_dump", 0xf9e6675e) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } =>
    /// The lists of address pairs of an interface.
    MacipAclInterfaceListDetails("macip_acl_interface_list_details", 0xa0c5d56d) {
        sw_if_index: InterfaceIndex,
        [u8: acls] acls: Vec<u32>,
    };
}
