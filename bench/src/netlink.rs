//! The least that rtnetlink takes: one message, one answer.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use anyhow::{Context as _, bail};
use causeway_types::MacAddress;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// A socket to the kernel, in the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink(Socket);

impl Netlink {
    /// Opens one in the calling thread's namespace.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Makes something new and waits until it is there.
    pub(crate) fn create(&self, message: RouteNetlinkMessage) -> anyhow::Result<()> {
        self.request(
            message,
            NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
        )
        .map(drop)
    }

    /// Changes something and waits until it is so.
    pub(crate) fn change(&self, message: RouteNetlinkMessage) -> anyhow::Result<()> {
        self.request(message, NLM_F_REQUEST | NLM_F_ACK).map(drop)
    }

    /// The index of the link called `name`.
    pub(crate) fn index(&self, name: &str) -> anyhow::Result<u32> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        let reply = self
            .request(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST)
            .with_context(|| format!("looking for {name}"))?;
        match reply {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link.header.index),
            other => bail!("not a link: {other:?}"),
        }
    }

    /// Gives a link no link-local address of the kernel's choice.
    pub(crate) fn no_generated_address(&self, index: u32) -> anyhow::Result<()> {
        let mut message = link(index);
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let spec = vec![AfSpecUnspec::Inet6(vec![mode])];
        message.attributes.push(LinkAttribute::AfSpecUnspec(spec));
        self.change(RouteNetlinkMessage::SetLink(message))
    }

    /// Takes a link up.
    pub(crate) fn up(&self, index: u32) -> anyhow::Result<()> {
        let mut message = link(index);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.change(RouteNetlinkMessage::SetLink(message))
    }

    /// Removes a link.
    pub(crate) fn remove(&self, index: u32) -> anyhow::Result<()> {
        self.change(RouteNetlinkMessage::DelLink(link(index)))
    }

    /// Adds an address that is usable at once.
    pub(crate) fn address(&self, index: u32, address: Ipv6Addr, length: u8) -> anyhow::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.header.prefix_len = length;
        message.header.index = index;
        message
            .attributes
            .push(AddressAttribute::Local(IpAddr::V6(address)));
        message
            .attributes
            .push(AddressAttribute::Flags(AddressFlags::Nodad));
        self.create(RouteNetlinkMessage::NewAddress(message))
    }

    /// Adds a neighbour that is never asked for.
    pub(crate) fn neighbour(
        &self,
        index: u32,
        address: Ipv6Addr,
        mac: MacAddress,
    ) -> anyhow::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)),
            NeighbourAttribute::LinkLayerAddress(mac.octets().to_vec()),
        ];
        self.create(RouteNetlinkMessage::NewNeighbour(message))
    }

    /// Adds a route, over a gateway where there is one.
    pub(crate) fn route(
        &self,
        index: u32,
        destination: ipnet::Ipv6Net,
        gateway: Option<Ipv6Addr>,
    ) -> anyhow::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet6;
        message.header.destination_prefix_length = destination.prefix_len();
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(RouteAttribute::Oif(index));
        if destination.prefix_len() > 0 {
            let network = RouteAddress::Inet6(destination.network());
            message
                .attributes
                .push(RouteAttribute::Destination(network));
        }
        if let Some(gateway) = gateway {
            message
                .attributes
                .push(RouteAttribute::Gateway(RouteAddress::Inet6(gateway)));
        }
        self.create(RouteNetlinkMessage::NewRoute(message))
    }

    fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> anyhow::Result<Option<RouteNetlinkMessage>> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        let (reply, _) = self.0.recv_from_full()?;
        match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&reply)?.payload {
            NetlinkPayload::InnerMessage(answer) => Ok(Some(answer)),
            NetlinkPayload::Error(error) => match error.code {
                None => Ok(None),
                Some(code) => Err(io::Error::from_raw_os_error(code.get().abs()).into()),
            },
            other => bail!("an answer that is none: {other:?}"),
        }
    }
}

fn link(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}
