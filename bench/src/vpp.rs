//! VPP as the dataplane, where one is installed here: what a packet costs it beside bare routing
//! between two interfaces of the same kind, and how soon sandboxes answer after it died.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use causeway::lab::{Namespace, vpp};
use causeway_dataplane::kernel::KernelConfig;
use causeway_dataplane::vpp::{VppBackend, VppConfig, WATCHDOG};
use tokio::runtime::Handle;

use crate::dataplane::{OPERATOR, OwnDataplane};
use crate::ping::Pinger;
use crate::report::Report;
use crate::stats::Samples;
use crate::world::World;
use crate::{iperf, netns};

mod attach;
mod console;
mod floor;

use console::{Console, Runtime};
use floor::Floor;

const ROUNDS: usize = 5;
/// As many as the lab's VPP has room for. Most of the time is the kernel's, for packet sockets
/// that VPP makes one after the other, so that it grows with their number.
const SANDBOXES: usize = 50;
const PATIENCE: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = [
    "forward.vpp_clocks",
    "forward.vpp_floor_clocks",
    "resync.vpp_50_ms",
];

/// `forward.vpp_*` and `resync.vpp_*`.
pub(crate) fn measure(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let installed = match vpp::find() {
        Ok(installed) => installed,
        Err(why) => {
            for name in NAMES.into_iter().chain(attach::NAMES) {
                report.missing(name, &why);
            }
            return Ok(());
        }
    };
    attach::measure(&installed, world, report)?;
    let folder = world.folder().join("vpp");
    let mut running = vpp::Vpp::start(&installed, &folder)?;
    let runtime = world.runtime();
    let mut plane = open(&runtime, &running, "bench-vpp-border")?;
    forward(&runtime, &mut plane, &running.socket(), report)?;

    let mut sandboxes = Vec::new();
    let namespaces = netns::create_many("vpp-many", SANDBOXES - 2)?;
    for namespace in &namespaces {
        sandboxes.push(plane.sandbox(namespace)?);
    }
    let addresses: Vec<Ipv6Addr> = sandboxes.iter().map(|sandbox| sandbox.address).collect();
    plane.wire_at_once(sandboxes)?;
    reach(&namespaces, &addresses)?;
    running.kill()?;
    let start = Instant::now();
    running.restart()?;
    plane.reconcile()?;
    reach(&namespaces, &addresses)?;
    report.set("resync.vpp_50_ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn open(runtime: &Handle, running: &vpp::Vpp, border: &str) -> anyhow::Result<OwnDataplane> {
    let kernel = KernelConfig {
        namespace: border.to_owned(),
        operator_prefixes: vec![OPERATOR.parse()?],
        ..KernelConfig::default()
    };
    let config = VppConfig {
        socket: running.socket(),
        stats: running.socket().with_file_name("stats.sock"),
        shared_memory: false,
        watchdog: WATCHDOG,
        supervise: None,
        kernel,
    };
    OwnDataplane::on(Arc::new(VppBackend::new(config)), runtime.clone())
}

/// Each reaches the next.
fn reach(namespaces: &[Namespace], addresses: &[Ipv6Addr]) -> anyhow::Result<()> {
    for (namespace, address) in namespaces.iter().zip(addresses.iter().skip(1)) {
        Pinger::open(namespace)?.until_answered(*address, PATIENCE)?;
    }
    Ok(())
}

/// The same flow of small packets through our configuration and through bare routing, in turn.
fn forward(
    runtime: &Handle,
    plane: &mut OwnDataplane,
    socket: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let console = Console::open(runtime.clone(), socket)?;
    let ours = netns::create_many("vpp-pair", 2)?;
    let mut address = Ipv6Addr::LOCALHOST;
    for namespace in &ours {
        address = plane.attach(namespace)?;
    }
    let floor = Floor::make(&console)?;
    let pairs = [
        (NAMES[0], &ours, address),
        (NAMES[1], &floor.namespaces, floor.address),
    ];
    let mut runs: [Vec<Runtime>; 2] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, namespaces, address), runs) in pairs.iter().zip(&mut runs) {
            let [from, to] = namespaces.as_slice() else {
                anyhow::bail!("two namespaces are needed");
            };
            console.run("clear runtime")?;
            iperf::udp_pps(from, to, *address)?;
            runs.push(Runtime::parse(&console.run("show runtime")?)?);
        }
    }
    for ((name, ..), runs) in pairs.iter().zip(&runs) {
        let clocks: Samples = runs.iter().map(Runtime::clocks).collect();
        report.set_median(name, &clocks);
        // Most of it is the kernel's work on a packet socket, which hides what VPP does.
        let with_io: Samples = runs.iter().map(Runtime::clocks_with_io).collect();
        report.set_median(&name.replace("clocks", "io_clocks"), &with_io);
        let last = runs.last().context("nothing was measured")?;
        crate::say(&format!("{name}, by node:\n{last}"));
    }
    let nodes: Vec<BTreeSet<&str>> = runs
        .iter()
        .filter_map(|runs| runs.last())
        .map(Runtime::names)
        .collect();
    if let [ours, floor] = nodes.as_slice() {
        let more: Vec<&str> = ours.difference(floor).copied().collect();
        crate::say(&format!("only ours: {}", more.join(", ")));
    }
    Ok(())
}
