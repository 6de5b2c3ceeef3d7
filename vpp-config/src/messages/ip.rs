//! Tables, routes and addresses.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use std::net::Ipv6Addr;

use super::reply::{Done, Ip6Address, Reassembly, Route, StatsIndex};
use crate::types::{
    InterfaceIndex, IpPathMtu, IpRoute, IpRouteV2, IpTable, Prefix, ReassemblyType,
};

requests! {
    /// Makes a table, or gives it up. Making one that exists succeeds; one in use stays until
    /// nothing uses it.
    IpTableAddDelV2("ip_table_add_del_v2", 0x14e5081f) {
        table: IpTable,
        /// A multicast table too, which takes about 10 KB.
        create_mfib: bool = true,
        is_add: bool = true,
    } -> Done = 0xe8d4e804;

    /// Marks every route that the API made in a table as old.
    IpTableReplaceBegin("ip_table_replace_begin", 0xb9d2e09e) {
        table: IpTable,
    } -> Done = 0xe8d4e804;

    /// Deletes the routes of a table that are still old.
    IpTableReplaceEnd("ip_table_replace_end", 0xb9d2e09e) {
        table: IpTable,
    } -> Done = 0xe8d4e804;

    /// Deletes every route that the API made in a table.
    IpTableFlush("ip_table_flush", 0xb9d2e09e) {
        table: IpTable,
    } -> Done = 0xe8d4e804;

    /// Adds a route, or takes it away.
    IpRouteAddDel("ip_route_add_del", 0xb8ecfe0d) {
        is_add: bool = true,
        /// The paths are added to those that the route has; otherwise they replace them.
        is_multipath: bool,
        route: IpRoute,
    } -> StatsIndex = 0x1992deab;

    /// The same with a source. The definition may change without a new name.
    IpRouteAddDelV2("ip_route_add_del_v2", 0x521ef330) {
        is_add: bool = true,
        /// The paths are added to those that the route has; otherwise they replace them.
        is_multipath: bool,
        route: IpRouteV2,
    } -> StatsIndex = 0x1992deab;

    /// The route of a prefix, or the longest that covers it.
    IpRouteLookup("ip_route_lookup", 0x710d6471) {
        table_id: u32,
        /// Only the route of exactly this prefix.
        exact: u8,
        prefix: Prefix,
    } -> Route = 0x5d8febcb;

    /// Switches IPv6 on an interface, with a link-local address.
    SwInterfaceIp6EnableDisable("sw_interface_ip6_enable_disable", 0xae6cfcfb) {
        sw_if_index: InterfaceIndex,
        enable: bool,
    } -> Done = 0xe8d4e804;

    /// Sets the link-local address.
    SwInterfaceIp6SetLinkLocalAddress("sw_interface_ip6_set_link_local_address", 0x1c10f15f) {
        sw_if_index: InterfaceIndex,
        ip: Ipv6Addr,
    } -> Done = 0xe8d4e804;

    /// Asks for the link-local address.
    SwInterfaceIp6GetLinkLocalAddress("sw_interface_ip6_get_link_local_address", 0xf9e6675e) {
        sw_if_index: InterfaceIndex,
    } -> Ip6Address = 0xd16b7130;

    /// Switches the reassembly of received fragments.
    IpReassemblyEnableDisable("ip_reassembly_enable_disable", 0xeb77968d) {
        sw_if_index: InterfaceIndex,
        enable_ip4: bool,
        enable_ip6: bool,
        r#type: ReassemblyType,
    } -> Done = 0xe8d4e804;

    /// Sets the limits of reassembly.
    IpReassemblySet("ip_reassembly_set", 0x16467d25) {
        timeout_ms: u32,
        max_reassemblies: u32,
        /// In fragments.
        max_reassembly_length: u32,
        expire_walk_interval_ms: u32,
        is_ip6: bool,
        r#type: ReassemblyType,
    } -> Done = 0xe8d4e804;

    /// Asks for the limits of reassembly.
    IpReassemblyGet("ip_reassembly_get", 0xea13ff63) {
        is_ip6: bool,
        r#type: ReassemblyType,
    } -> Reassembly = 0xd5eb8d34;

    /// Sets the path MTU towards an address. Zero forgets it.
    IpPathMtuUpdate("ip_path_mtu_update", 0x10bbe5cb) {
        pmtu: IpPathMtu,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// All tables.
    IpTableDump("ip_table_dump", 0x51077d14) {} =>
    /// A table.
    IpTableDetails("ip_table_details", 0xc79fca0f) { table: IpTable };

    /// The routes of a table.
    IpRouteDump("ip_route_dump", 0xb9d2e09e) { table: IpTable } =>
    /// A route.
    IpRouteDetails("ip_route_details", 0xbda8f315) { route: IpRoute };

    /// The routes of a table that a source made. The definition may change without a new name.
    IpRouteV2Dump("ip_route_v2_dump", 0xd16f72e6) {
        /// Zero is every source.
        src: u8,
        table: IpTable,
    } =>
    /// A route.
    IpRouteV2Details("ip_route_v2_details", 0xb09aa6c0) { route: IpRouteV2 };

    /// The addresses of an interface.
    IpAddressDump("ip_address_dump", 0x2d033de4) {
        sw_if_index: InterfaceIndex,
        is_ipv6: bool,
    } =>
    /// An address.
    IpAddressDetails("ip_address_details", 0xee29b797) {
        sw_if_index: InterfaceIndex,
        prefix: Prefix,
    };

    /// Which interfaces use the addresses of others.
    IpUnnumberedDump("ip_unnumbered_dump", 0xf9e6675e) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } =>
    /// An interface that does.
    IpUnnumberedDetails("ip_unnumbered_details", 0xcc59bd42) {
        sw_if_index: InterfaceIndex,
        /// The one that has addresses.
        ip_sw_if_index: InterfaceIndex,
    };
}

gets! {
    /// The path MTUs.
    IpPathMtuGet("ip_path_mtu_get", 0xf75ba505) {} =>
    /// A path MTU.
    IpPathMtuDetails("ip_path_mtu_details", 0xac9539a7) { pmtu: IpPathMtu },
    0x53b48f5d;
}
