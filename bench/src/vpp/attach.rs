//! Attaching a sandbox on VPP: through the dataplane, and by the shortest sequence of messages that
//! joins the same two links.

use std::net::Ipv6Addr;

use causeway::lab::vpp::{self, Installed};
use causeway_types::MacAddress;
use vpp_config::messages::attach::AfPacketCreateV3;
use vpp_config::messages::interface::SwInterfaceSetFlags;
use vpp_config::messages::l2::{BridgeDomainAddDelV2, SwInterfaceSetL2Bridge};
use vpp_config::types::{IfStatusFlags, InterfaceIndex};

use super::console::Console;
use super::floor::af_packet;
use crate::floor::Router;
use crate::netns;
use crate::report::Report;
use crate::stats::{Samples, timed};
use crate::world::World;

/// How often each way is taken, in turn. Most of the time is the kernel's, for packet sockets.
const ROUNDS: usize = 12;
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x3ffe, 0xb00, 0xa, 0, 0, 0, 0, 0);
pub(super) const NAMES: [&str; 2] = ["attach.vpp.p50_ms", "attach.vpp_floor.p50_ms"];

/// `attach.vpp*`.
pub(super) fn measure(
    installed: &Installed,
    world: &mut World,
    report: &mut Report,
) -> anyhow::Result<()> {
    let running = vpp::Vpp::start(installed, &world.folder().join("vpp-attach"))?;
    let runtime = world.runtime();
    let mut plane = super::open(&runtime, &running, "bench-vpp-attach")?;
    let console = Console::open(runtime, &running.socket())?;
    let router = Router::create("vpp-attach-floor")?;
    let ours = netns::create_many("vpp-attach", ROUNDS)?;
    let bare = netns::create_many("vpp-bare", ROUNDS)?;
    let mut times = [const { Vec::new() }; 2];
    let [by_plane, by_floor] = &mut times;
    for (round, (ours, bare)) in ours.iter().zip(&bare).enumerate() {
        let sandbox = plane.sandbox(ours)?;
        by_plane.push(timed(|| plane.wire(sandbox))?);
        let address = netns::host(PREFIX, round + 1)?;
        by_floor.push(timed(|| {
            let links = [format!("bare{round}"), format!("bareb{round}")];
            let names = [links[0].as_str(), links[1].as_str()];
            router.attach_by(names, bare, address)?;
            join(&console, names, address)
        })?);
    }
    for (name, times) in NAMES.iter().zip(&times) {
        report.set_median(name, &Samples::milliseconds(times));
    }
    Ok(())
}

/// Joins two links of VPP's namespace by a bridge.
fn join(console: &Console, links: [&str; 2], address: Ipv6Addr) -> anyhow::Result<()> {
    let mac = MacAddress::for_lease(address);
    let macs = [MacAddress::GATEWAY, mac];
    let bridge = console.call(&BridgeDomainAddDelV2 {
        flood: true,
        uu_flood: true,
        ..BridgeDomainAddDelV2::default()
    })?;
    for (link, mac) in links.into_iter().zip(macs) {
        let create: AfPacketCreateV3 = af_packet(link, mac);
        let index: InterfaceIndex = console.call(&create)?.sw_if_index;
        console.call(&SwInterfaceSetL2Bridge {
            rx_sw_if_index: index,
            bd_id: bridge.bd_id,
            ..SwInterfaceSetL2Bridge::default()
        })?;
        console.call(&SwInterfaceSetFlags {
            sw_if_index: index,
            flags: IfStatusFlags::ADMIN_UP,
        })?;
    }
    Ok(())
}
