//! The rtnetlink messages that the backend sends.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::RawFd;

use causeway_types::MacAddress;
use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric,
    RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// One end of a veth pair to be.
#[derive(Debug)]
pub(crate) struct VethEnd<'a> {
    pub(crate) name: &'a str,
    pub(crate) mac: Option<MacAddress>,
    pub(crate) mtu: u32,
    /// The interface index to take; the kernel chooses when there is none.
    pub(crate) index: Option<u32>,
    /// The namespace to be born in; the socket's own when there is none.
    pub(crate) namespace: Option<RawFd>,
    pub(crate) up: bool,
    /// The group that links can be removed by.
    pub(crate) group: Option<u32>,
}

impl VethEnd<'_> {
    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = self.index.unwrap_or(0);
        if self.up {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        }
        let attributes = &mut message.attributes;
        attributes.push(LinkAttribute::IfName(self.name.to_owned()));
        attributes.push(LinkAttribute::Mtu(self.mtu));
        if let Some(mac) = self.mac {
            attributes.push(LinkAttribute::Address(mac.octets().to_vec()));
        }
        if let Some(fd) = self.namespace {
            attributes.push(LinkAttribute::NetNsFd(fd));
        }
        if let Some(group) = self.group {
            attributes.push(LinkAttribute::Group(group));
        }
        message
    }
}

/// Creates a veth pair.
pub(crate) fn new_veth(end: &VethEnd<'_>, peer: &VethEnd<'_>) -> RouteNetlinkMessage {
    let mut message = end.message();
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer.message()))),
    ]));
    RouteNetlinkMessage::NewLink(message)
}

fn link(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

/// Sets a link up.
pub(crate) fn link_up(index: u32) -> RouteNetlinkMessage {
    let mut message = link(index);
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    RouteNetlinkMessage::SetLink(message)
}

/// Keeps the kernel from making up a link-local address.
pub(crate) fn no_address_generation(index: u32) -> RouteNetlinkMessage {
    let mut message = link(index);
    message
        .attributes
        .push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(
            vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)],
        )]));
    RouteNetlinkMessage::SetLink(message)
}

/// Sets the MTU of a link.
pub(crate) fn set_mtu(index: u32, mtu: u32) -> RouteNetlinkMessage {
    let mut message = link(index);
    message.attributes.push(LinkAttribute::Mtu(mtu));
    RouteNetlinkMessage::SetLink(message)
}

/// Bounds what a link's stack hands over at once to be cut into segments later.
pub(crate) fn limit_segmentation(index: u32, bytes: u32) -> RouteNetlinkMessage {
    let mut message = link(index);
    message.attributes.push(LinkAttribute::GsoMaxSize(bytes));
    RouteNetlinkMessage::SetLink(message)
}

/// Puts a link into a group.
pub(crate) fn set_group(index: u32, group: u32) -> RouteNetlinkMessage {
    let mut message = link(index);
    message.attributes.push(LinkAttribute::Group(group));
    RouteNetlinkMessage::SetLink(message)
}

/// Gives a link an alias, which creation does not take.
pub(crate) fn set_alias(index: u32, alias: String) -> RouteNetlinkMessage {
    let mut message = link(index);
    message.attributes.push(LinkAttribute::IfAlias(alias));
    RouteNetlinkMessage::SetLink(message)
}

/// Moves a link to another namespace, under its old name.
pub(crate) fn move_link(index: u32, namespace: RawFd) -> RouteNetlinkMessage {
    let mut message = link(index);
    message.attributes.push(LinkAttribute::NetNsFd(namespace));
    RouteNetlinkMessage::SetLink(message)
}

/// Removes a link by name.
pub(crate) fn delete_link(name: &str) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    RouteNetlinkMessage::DelLink(message)
}

/// Removes all links of a group at once.
pub(crate) fn delete_group(group: u32) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::Group(group));
    RouteNetlinkMessage::DelLink(message)
}

/// Asks for a link by name.
pub(crate) fn get_link(name: &str) -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    RouteNetlinkMessage::GetLink(message)
}

/// Asks for a link by index.
pub(crate) fn get_link_by_index(index: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetLink(link(index))
}

/// Puts an address on a link, usable at once.
pub(crate) fn address(index: u32, net: IpNet) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = net.prefix_len();
    match net.addr() {
        IpAddr::V4(v4) => {
            message.header.family = AddressFamily::Inet;
            message.attributes.push(AddressAttribute::Local(v4.into()));
        }
        IpAddr::V6(v6) => {
            message.header.family = AddressFamily::Inet6;
            if v6.is_unicast_link_local() {
                message.header.scope = AddressScope::Link;
            }
            message
                .attributes
                .push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
    }
    message
        .attributes
        .push(AddressAttribute::Address(net.addr()));
    RouteNetlinkMessage::NewAddress(message)
}

/// Fixes a neighbour's link-layer address for good.
pub(crate) fn neighbour(index: u32, address: Ipv6Addr, mac: MacAddress) -> RouteNetlinkMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)),
        NeighbourAttribute::LinkLayerAddress(mac.octets().to_vec()),
    ];
    RouteNetlinkMessage::NewNeighbour(message)
}

/// A route, to a link or through a gateway on it.
pub(crate) fn route(index: u32, to: IpNet, gateway: Option<IpAddr>) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.destination_prefix_length = to.prefix_len();
    header.table = RouteHeader::RT_TABLE_MAIN;
    header.protocol = RouteProtocol::Static;
    header.kind = RouteType::Unicast;
    header.scope = if gateway.is_some() || to.addr().is_ipv6() {
        RouteScope::Universe
    } else {
        RouteScope::Link
    };
    header.address_family = family(to.addr());
    message.attributes.push(RouteAttribute::Oif(index));
    if to.prefix_len() > 0 {
        let destination = RouteAddress::from(to.network());
        message
            .attributes
            .push(RouteAttribute::Destination(destination));
    }
    if let Some(gateway) = gateway {
        message
            .attributes
            .push(RouteAttribute::Gateway(gateway.into()));
        message.header.flags = RouteFlags::Onlink;
    }
    RouteNetlinkMessage::NewRoute(message)
}

/// Gives a route an MTU, below what its link takes.
pub(crate) fn with_mtu(mut route: RouteNetlinkMessage, mtu: u32) -> RouteNetlinkMessage {
    if let RouteNetlinkMessage::NewRoute(message) = &mut route {
        let metrics = RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)]);
        message.attributes.push(metrics);
    }
    route
}

/// Delivers everything of a table locally, whatever its destination.
pub(crate) fn local_route(table: u32, loopback: u32) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.protocol = RouteProtocol::Static;
    message.header.kind = RouteType::Local;
    message.header.scope = RouteScope::Host;
    message.attributes = vec![RouteAttribute::Table(table), RouteAttribute::Oif(loopback)];
    RouteNetlinkMessage::NewRoute(message)
}

/// Looks packets with a mark up in a table of their own.
pub(crate) fn mark_rule(mark: u32, table: u32, priority: u32) -> RouteNetlinkMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::FwMark(mark),
        RuleAttribute::Table(table),
        RuleAttribute::Priority(priority),
    ];
    RouteNetlinkMessage::NewRule(message)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}
