//! Neighbour discovery.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use std::net::Ipv6Addr;

use super::reply::Done;
use crate::types::{InterfaceIndex, Prefix};

requests! {
    /// Sets what router advertisements an interface sends. Each flag changes something when it
    /// is set and nothing when it is not; `is_no` turns the change round.
    SwInterfaceIp6NdRaConfig("sw_interface_ip6nd_ra_config", 0x3eb00b1c) {
        sw_if_index: InterfaceIndex,
        /// Sends none.
        suppress: u8,
        managed: u8,
        other: u8,
        /// Leaves the link-layer address out.
        ll_option: u8,
        send_unicast: u8,
        /// Stops, telling that this is no router any more.
        cease: u8,
        is_no: bool,
        default_router: u8,
        /// In seconds.
        max_interval: u32,
        /// In seconds.
        min_interval: u32,
        /// In seconds.
        lifetime: u32,
        initial_count: u32,
        initial_interval: u32,
    } -> Done = 0xe8d4e804;

    /// Sets how a prefix is advertised.
    SwInterfaceIp6NdRaPrefix("sw_interface_ip6nd_ra_prefix", 0x82cc1b28) {
        sw_if_index: InterfaceIndex,
        prefix: Prefix,
        use_default: bool,
        no_advertise: bool,
        off_link: bool,
        no_autoconfig: bool,
        no_onlink: bool,
        is_no: bool,
        val_lifetime: u32,
        pref_lifetime: u32,
    } -> Done = 0xe8d4e804;

    /// Answers solicitations for an address on behalf of whoever has it. VPP 26.06 sends the dump of
    /// these with a wrong number, so there is none here.
    Ip6NdProxyAddDel("ip6nd_proxy_add_del", 0xc2e4a686) {
        sw_if_index: InterfaceIndex,
        is_add: bool,
        ip: Ipv6Addr,
    } -> Done = 0xe8d4e804;

    /// Answers solicitations for every address that is reached elsewhere.
    Ip6NdProxyEnableDisable("ip6nd_proxy_enable_disable", 0x7daa1e3a) {
        sw_if_index: InterfaceIndex,
        is_enable: bool,
    } -> Done = 0xe8d4e804;
}
