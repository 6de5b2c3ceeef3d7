//! What the router has, and what passed through it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use causeway_types::{MacAddress, Reason, SandboxUid};
use ipnet::Ipv6Net;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::route::RouteSocket;
use crate::backend::{BackendError, PortCounters, PortState};
use crate::desired::InterfaceName;
use crate::elements::PortIndexes;

/// The ports of a router and their indexes.
#[derive(Debug, Default)]
pub(super) struct Ports {
    pub(super) states: BTreeMap<SandboxUid, PortState>,
    pub(super) indexes: PortIndexes,
}

/// Lists the router's ports with all that belongs to them.
pub(super) fn ports(routes: &mut RouteSocket) -> Result<Ports, BackendError> {
    let mut by_index: BTreeMap<u32, (SandboxUid, PortState)> = BTreeMap::new();
    for link in links(routes)? {
        let Some(uid) = port_uid(&link) else {
            continue;
        };
        by_index.insert(link.header.index, (uid, bare(&link)));
    }
    addresses(routes, &mut by_index)?;
    neighbours(routes, &mut by_index)?;
    routes_of(routes, &mut by_index)?;
    let mut ports = Ports::default();
    for (index, (uid, state)) in by_index {
        ports.indexes.insert(uid, index);
        ports.states.insert(uid, state);
    }
    Ok(ports)
}

/// Traffic of each port, as the sandbox sees it.
pub(super) fn traffic(
    routes: &mut RouteSocket,
) -> Result<BTreeMap<u32, (SandboxUid, PortCounters)>, BackendError> {
    let mut traffic = BTreeMap::new();
    for link in links(routes)? {
        let Some(uid) = port_uid(&link) else {
            continue;
        };
        let mut counters = PortCounters::default();
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Stats64(stats) => {
                    // What the router receives, the sandbox has sent.
                    counters.sent_packets = stats.rx_packets;
                    counters.sent_bytes = stats.rx_bytes;
                    counters.received_packets = stats.tx_packets;
                    counters.received_bytes = stats.tx_bytes;
                }
                LinkAttribute::IfName(name) => {
                    let failed = failed_reassemblies(name);
                    if failed > 0 {
                        counters.drops.insert(Reason::Fragment, failed);
                    }
                }
                _ => {}
            }
        }
        traffic.insert(link.header.index, (uid, counters));
    }
    Ok(traffic)
}

/// Packets whose fragments did not all come. They end in front of the packet filter, so the
/// kernel's own counter is the only one. Over netlink it has no stable place; here it has a name.
fn failed_reassemblies(name: &str) -> u64 {
    // The thread's own view: its namespace is the router's.
    let path = format!("/proc/thread-self/net/dev_snmp6/{name}");
    // A port that is gone meanwhile has no counters.
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(char::is_whitespace))
        .find(|(counter, _)| *counter == "Ip6ReasmFails")
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

fn links(routes: &mut RouteSocket) -> Result<Vec<LinkMessage>, BackendError> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let found = routes.dump(&request, "links")?;
    Ok(found
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        })
        .collect())
}

fn port_uid(link: &LinkMessage) -> Option<SandboxUid> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => InterfaceName::new(name.clone()).ok()?.port_uid(),
            _ => None,
        })
}

fn bare(link: &LinkMessage) -> PortState {
    let mtu = link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(*mtu),
            _ => None,
        });
    PortState {
        up: link.header.flags.contains(LinkFlags::Up),
        mtu: mtu.unwrap_or(0),
        addresses: std::collections::BTreeSet::new(),
        neighbours: BTreeMap::new(),
        routes: BTreeMap::new(),
    }
}

fn addresses(
    routes: &mut RouteSocket,
    ports: &mut BTreeMap<u32, (SandboxUid, PortState)>,
) -> Result<(), BackendError> {
    let mut request = AddressMessage::default();
    request.header.family = AddressFamily::Inet6;
    for message in routes.dump(&RouteNetlinkMessage::GetAddress(request), "addresses")? {
        let RouteNetlinkMessage::NewAddress(message) = message else {
            continue;
        };
        let Some((_, state)) = ports.get_mut(&message.header.index) else {
            continue;
        };
        for attribute in message.attributes {
            if let AddressAttribute::Address(IpAddr::V6(address)) = attribute {
                state.addresses.insert(address);
            }
        }
    }
    Ok(())
}

fn neighbours(
    routes: &mut RouteSocket,
    ports: &mut BTreeMap<u32, (SandboxUid, PortState)>,
) -> Result<(), BackendError> {
    let mut request = NeighbourMessage::default();
    request.header.family = AddressFamily::Inet6;
    for message in routes.dump(&RouteNetlinkMessage::GetNeighbour(request), "neighbours")? {
        let RouteNetlinkMessage::NewNeighbour(message) = message else {
            continue;
        };
        let permanent = message.header.state == NeighbourState::Permanent;
        let Some((_, state)) = ports.get_mut(&message.header.ifindex).filter(|_| permanent) else {
            continue;
        };
        let mut address: Option<Ipv6Addr> = None;
        let mut mac = None;
        for attribute in message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(found)) => {
                    address = Some(found);
                }
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    mac = <[u8; 6]>::try_from(bytes).ok().map(MacAddress::new);
                }
                _ => {}
            }
        }
        if let (Some(address), Some(mac)) = (address, mac) {
            state.neighbours.insert(address, mac);
        }
    }
    Ok(())
}

fn mtu_of(metrics: &[RouteMetric]) -> Option<u32> {
    metrics.iter().find_map(|metric| match metric {
        RouteMetric::Mtu(mtu) => Some(*mtu),
        _ => None,
    })
}

fn routes_of(
    routes: &mut RouteSocket,
    ports: &mut BTreeMap<u32, (SandboxUid, PortState)>,
) -> Result<(), BackendError> {
    let mut request = RouteMessage::default();
    request.header.address_family = AddressFamily::Inet6;
    for message in routes.dump(&RouteNetlinkMessage::GetRoute(request), "routes")? {
        let RouteNetlinkMessage::NewRoute(message) = message else {
            continue;
        };
        // The kernel's own routes, to fe80::/64 and the like, come with the addresses.
        if message.header.protocol != RouteProtocol::Static {
            continue;
        }
        let mut index = None;
        let mut gateway = None;
        let mut mtu = None;
        let mut to = Ipv6Addr::UNSPECIFIED;
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Oif(oif) => index = Some(*oif),
                RouteAttribute::Gateway(RouteAddress::Inet6(via)) => gateway = Some(*via),
                RouteAttribute::Destination(RouteAddress::Inet6(found)) => to = *found,
                RouteAttribute::Metrics(metrics) => mtu = mtu_of(metrics),
                _ => {}
            }
        }
        let port = index.and_then(|index| ports.get_mut(&index));
        let prefix = Ipv6Net::new(to, message.header.destination_prefix_length).ok();
        if let (Some((_, state)), Some(prefix)) = (port, prefix) {
            state.routes.insert(prefix, gateway);
            // The link takes larger frames than are sent on it.
            state.mtu = mtu.unwrap_or(state.mtu);
        }
    }
    Ok(())
}
