//! The floor: two interfaces of the same kind, with an address, a neighbour and nothing else.

use std::net::Ipv6Addr;
use std::process::Command;

use causeway::lab::{Namespace, run_ok};
use causeway_types::MacAddress;
use vpp_config::messages::attach::{AfPacketCreateV3, AfPacketFlags};
use vpp_config::wire::FixedText;

use super::console::Console;
use crate::netns;

/// As the dataplane's own: packets of 64 bytes and room for as many.
const PLACE: u32 = 20_480;
const PLACES: u32 = 64;

/// Two namespaces that VPP routes between.
#[derive(Debug)]
pub(crate) struct Floor {
    pub(crate) namespaces: Vec<Namespace>,
    /// The second one's address.
    pub(crate) address: Ipv6Addr,
}

impl Floor {
    /// Wires both.
    pub(crate) fn make(console: &Console) -> anyhow::Result<Self> {
        let namespaces = netns::create_many("vpp-floor", 2)?;
        let mut address = Ipv6Addr::LOCALHOST;
        for (index, namespace) in namespaces.iter().enumerate() {
            let link = format!("vppfloor{index}");
            let prefix = Ipv6Addr::new(0x3ffe, 0xb00, 9, u16::try_from(index)?, 0, 0, 0, 0);
            let router = netns::host(prefix, 1)?;
            address = netns::host(prefix, 2)?;
            let (name, mac) = (&namespace.name, format!("02:00:00:00:00:0{index}"));
            for line in [
                format!("link add {link} type veth peer name eth0 address {mac} netns {name}"),
                format!("link set {link} up"),
                format!("-n {name} link set eth0 up"),
                format!("-n {name} address add {address}/64 dev eth0 nodad"),
                format!(
                    "-n {name} -6 neighbour add {router} lladdr 02:fe:00:00:00:0{index} dev eth0"
                ),
                format!("-n {name} -6 route add default via {router}"),
            ] {
                run_ok(Command::new("ip").args(line.split(' ')))?;
            }
            let port = [2, 0xfe, 0, 0, 0, u8::try_from(index)?];
            console.call(&af_packet(&link, MacAddress::new(port)))?;
            for command in [
                format!("set interface state host-{link} up"),
                format!("set interface ip address host-{link} {router}/64"),
                format!("set ip neighbor static host-{link} {address} {mac}"),
            ] {
                console.run(&command)?;
            }
        }
        Ok(Self {
            namespaces,
            address,
        })
    }
}

/// An interface of the host for VPP, as the dataplane asks for one.
pub(super) fn af_packet(link: &str, mac: MacAddress) -> AfPacketCreateV3 {
    AfPacketCreateV3 {
        hw_addr: vpp_config::types::MacAddress(mac.octets()),
        host_if_name: FixedText::new(link).unwrap_or_default(),
        rx_frame_size: PLACE,
        tx_frame_size: PLACE,
        rx_frames_per_block: PLACES,
        tx_frames_per_block: PLACES,
        flags: AfPacketFlags::CKSUM_GSO | AfPacketFlags::VERSION_2,
        ..AfPacketCreateV3::default()
    }
}
