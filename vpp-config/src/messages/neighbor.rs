//! Neighbours.

#![expect(
    missing_docs,
    reason = "fields are named as VPP names them, and documented where the name does not say it all"
)]

use std::net::IpAddr;

use super::reply::{Done, NeighborConfig, StatsIndex};
use crate::types::{AddressFamily, InterfaceIndex, IpNeighbor};

wire_flags! {
    /// What happened to a neighbour.
    IpNeighborEventFlags: u32 {
        /// It was added.
        ADDED = 1,
        /// It was removed.
        REMOVED = 2,
    }
}

requests! {
    /// Adds a neighbour, or takes it away.
    IpNeighborAddDel("ip_neighbor_add_del", 0x0607c257) {
        is_add: bool,
        neighbor: IpNeighbor,
    } -> StatsIndex = 0x1992deab;

    /// Sets the limits of learned neighbours.
    IpNeighborConfig("ip_neighbor_config", 0xf4a5cf44) {
        af: AddressFamily,
        max_number: u32,
        /// In seconds. Zero is for ever.
        max_age: u32,
        /// Whether the oldest gives way to a new one.
        recycle: bool,
    } -> Done = 0xe8d4e804;

    /// Asks for these limits.
    IpNeighborConfigGet("ip_neighbor_config_get", 0xa5db7bf7) {
        af: AddressFamily,
    } -> NeighborConfig = 0x798e6fdd;

    /// Forgets what was learned.
    IpNeighborFlush("ip_neighbor_flush", 0x16aa35d2) {
        af: AddressFamily,
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } -> Done = 0xe8d4e804;

    /// Asks for [`IpNeighborEventV2`].
    WantIpNeighborEventsV2("want_ip_neighbor_events_v2", 0x73e70a86) {
        enable: bool,
        /// Any number: events return it.
        pid: u32,
        /// Unspecified is every address.
        ip: IpAddr,
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
    } -> Done = 0xe8d4e804;
}

dumps! {
    /// The neighbours of an interface, or of all.
    IpNeighborDump("ip_neighbor_dump", 0xd817a484) {
        sw_if_index: InterfaceIndex = InterfaceIndex::NONE,
        af: AddressFamily,
    } =>
    /// A neighbour.
    IpNeighborDetails("ip_neighbor_details", 0xe29d79f0) {
        /// In seconds.
        age: f64,
        neighbor: IpNeighbor,
    };
}

events! {
    /// A neighbour came, or went.
    IpNeighborEventV2("ip_neighbor_event_v2", 0xc1d53dc0) {
        /// As it was asked with.
        pid: u32,
        flags: IpNeighborEventFlags,
        neighbor: IpNeighbor,
    };
}
