//! The floor: a router of links, addresses, neighbours and routes, and nothing else. Each
//! sandbox is wired as Causeway's kernel dataplane wires it, by bare netlink, one message at
//! a time, without packet filter and without a store.

use std::fs::{self, File};
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd as _;

use anyhow::Context as _;
use causeway::lab::Namespace;
use causeway_types::{GATEWAY, MacAddress};
use ipnet::Ipv6Net;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};

use crate::netlink::Netlink;
use crate::netns;

/// The interface's name inside a sandbox.
const INSIDE: &str = "eth0";
const MTU: u32 = 1500;

/// A namespace that forwards, and does nothing else.
#[derive(Debug)]
pub(crate) struct Router {
    /// Its namespace.
    pub(crate) namespace: Namespace,
    netlink: Netlink,
    /// The namespace that the calling thread goes back to.
    home: File,
}

impl Router {
    /// Makes one.
    pub(crate) fn create(name: &str) -> anyhow::Result<Self> {
        let namespace = netns::create(name)?;
        netns::forward(&namespace)?;
        netns::inside(&namespace, || {
            Ok(fs::write(
                "/proc/sys/net/ipv6/conf/default/addr_gen_mode",
                "1",
            )?)
        })?;
        let netlink = netns::inside(&namespace, Netlink::open)?;
        netlink.up(netlink.index("lo")?)?;
        Ok(Self {
            namespace,
            netlink,
            home: File::open("/proc/self/ns/net")?,
        })
    }

    /// Wires `sandbox` to it; the router's end of the link is called `port`.
    pub(crate) fn attach(
        &self,
        port: &str,
        sandbox: &Namespace,
        address: Ipv6Addr,
    ) -> anyhow::Result<()> {
        let there = File::open(sandbox.path())?;
        let mac = MacAddress::for_lease(address);
        let link = pair(port, MacAddress::GATEWAY, &there, INSIDE, mac);
        self.netlink.create(RouteNetlinkMessage::NewLink(link))?;
        self.wire_port(port, address)?;
        netns::enter(&there)?;
        let wired = wire_inside(address, mac);
        netns::enter(&self.home).context("cannot go back to the host's namespace")?;
        wired.with_context(|| format!("inside {}", sandbox.name))
    }

    /// Wires `sandbox` and the router to two links of the calling thread's namespace, `link` and
    /// `border`, which something there is to join. The router's end is called as the link is.
    pub(crate) fn attach_by(
        &self,
        [link, border]: [&str; 2],
        sandbox: &Namespace,
        address: Ipv6Addr,
    ) -> anyhow::Result<()> {
        let here = Netlink::open()?;
        let there = File::open(sandbox.path())?;
        let mac = MacAddress::for_lease(address);
        let inside = pair(link, MacAddress::GATEWAY, &there, INSIDE, mac);
        here.create(RouteNetlinkMessage::NewLink(inside))?;
        let router = File::open(self.namespace.path())?;
        let outside = pair(border, mac, &router, link, MacAddress::GATEWAY);
        here.create(RouteNetlinkMessage::NewLink(outside))?;
        self.netlink.up(self.netlink.index(link)?)?;
        self.wire_port(link, address)?;
        netns::enter(&there)?;
        let wired = wire_inside(address, mac);
        netns::enter(&self.home).context("cannot go back to the host's namespace")?;
        wired.with_context(|| format!("inside {}", sandbox.name))
    }

    fn wire_port(&self, port: &str, address: Ipv6Addr) -> anyhow::Result<()> {
        let mac = MacAddress::for_lease(address);
        let index = self.netlink.index(port)?;
        self.netlink.address(index, GATEWAY, 64)?;
        self.netlink.neighbour(index, address, mac)?;
        self.netlink.neighbour(index, mac.link_local(), mac)?;
        self.netlink.route(index, Ipv6Net::from(address), None)
    }

    /// Takes the link called `port` away.
    pub(crate) fn detach(&self, port: &str) -> anyhow::Result<()> {
        self.netlink.remove(self.netlink.index(port)?)
    }
}

/// A veth pair whose other end is in another namespace.
fn pair(
    port: &str,
    port_mac: MacAddress,
    there: &File,
    inside: &str,
    mac: MacAddress,
) -> LinkMessage {
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(inside.to_owned()),
        LinkAttribute::Address(mac.octets().to_vec()),
        LinkAttribute::Mtu(MTU),
        LinkAttribute::NetNsFd(there.as_raw_fd()),
    ];
    let mut message = LinkMessage::default();
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes = vec![
        LinkAttribute::IfName(port.to_owned()),
        LinkAttribute::Address(port_mac.octets().to_vec()),
        LinkAttribute::Mtu(MTU),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    message
}

fn wire_inside(address: Ipv6Addr, mac: MacAddress) -> anyhow::Result<()> {
    let netlink = Netlink::open()?;
    netlink.up(netlink.index("lo")?)?;
    let index = netlink.index(INSIDE)?;
    netlink.no_generated_address(index)?;
    fs::write(format!("/proc/sys/net/ipv6/conf/{INSIDE}/accept_ra"), "0")?;
    netlink.up(index)?;
    netlink.address(index, address, 128)?;
    netlink.address(index, mac.link_local(), 64)?;
    netlink.neighbour(index, GATEWAY, MacAddress::GATEWAY)?;
    netlink.route(index, Ipv6Net::default(), Some(GATEWAY))
}
