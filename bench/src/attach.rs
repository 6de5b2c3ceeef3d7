//! Attaching a sandbox: through the dataplane, through the whole API, by bare netlink, and by
//! the reference CNI plugins.

use std::net::Ipv6Addr;

use causeway::lab::Namespace;

use crate::floor::Router;
use crate::netns;
use crate::report::Report;
use crate::stats::{Samples, timed};
use crate::world::World;

mod burst;
mod cni;
mod first_ping;

pub(crate) use burst::measure as at_once;
pub(crate) use first_ping::measure as first_ping;

/// How often each way is taken, one at a time.
const ROUNDS: usize = 60;
const FLOOR_PREFIX: Ipv6Addr = Ipv6Addr::new(0x3ffe, 0xb00, 3, 0, 0, 0, 0, 0);

/// One at a time, the ways in turn.
pub(crate) fn one_at_a_time(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let router = Router::create("attach-floor")?;
    let agent = world.agent()?;
    // Made beforehand: making and removing namespaces keeps the kernel busy for a while.
    let ways = ["attach-kernel", "attach-bare", "attach-api"];
    let [kernel, bare, api] = ways.map(|way| netns::create_many(way, ROUNDS));
    let (kernel, bare, api) = (kernel?, bare?, api?);
    let mut times = [const { Vec::new() }; 3];
    let mut uids = Vec::new();
    for (round, ((kernel, bare), api)) in kernel.iter().zip(&bare).zip(&api).enumerate() {
        let [by_kernel, by_floor, by_api] = &mut times;
        let dataplane = world.dataplane()?;
        let sandbox = dataplane.sandbox(kernel)?;
        uids.push(sandbox.uid);
        by_kernel.push(timed(|| dataplane.wire(sandbox))?);
        let address = netns::host(FLOOR_PREFIX, round + 1)?;
        by_floor.push(timed(|| {
            router.attach(&format!("port{round}"), bare, address)
        })?);
        by_api.push(timed(|| agent.create(api, "bench").map(drop))?);
    }
    let [by_kernel, by_floor, by_api] = times.map(|times| Samples::milliseconds(&times));
    report.set_median("attach.kernel.p50_ms", &by_kernel);
    report.set_percentile("attach.kernel.single_p99_ms", &by_kernel, 99.0);
    report.set_median("attach.floor.p50_ms", &by_floor);
    report.set_percentile("attach.floor.single_p99_ms", &by_floor, 99.0);
    report.set_median("attach.api.p50_ms", &by_api);
    report.set_percentile("attach.api.single_p99_ms", &by_api, 99.0);
    for (round, (uid, api)) in uids.into_iter().zip(&api).enumerate() {
        world.dataplane()?.detach(uid)?;
        router.detach(&format!("port{round}"))?;
        agent.delete(api)?;
    }
    [kernel, bare, api]
        .concat()
        .iter()
        .try_for_each(netns::remove)
}

/// The reference plugins. IPv6 has them wait for duplicate address detection; IPv4 does not.
pub(crate) fn by_plugins(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    const WAYS: [(&str, &str, usize); 2] = [
        ("attach.cni_ptp.p50_ms", "3ffe:b00:4::/64", 5),
        ("attach.cni_ptp_v4.p50_ms", "198.18.0.0/24", 20),
    ];
    if let Some(why) = cni::Ptp::unavailable() {
        for (name, _, _) in WAYS {
            report.missing(name, &why);
        }
        return Ok(());
    }
    for (name, subnet, rounds) in WAYS {
        let ptp = cni::Ptp::new(subnet, world.folder());
        let namespaces = netns::create_many(&format!("{}-ptp", subnet.len()), rounds)?;
        let times = namespaces
            .iter()
            .map(|namespace| timed(|| ptp.add(namespace)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        report.set_median(name, &Samples::milliseconds(&times));
        namespaces
            .iter()
            .try_for_each(|namespace| ptp.delete(namespace))?;
        namespaces.iter().try_for_each(netns::remove)?;
    }
    Ok(())
}

/// Deletes sandboxes and their namespaces.
fn delete(agent: &crate::agent::Agent, namespaces: &[Namespace]) -> anyhow::Result<()> {
    namespaces
        .iter()
        .try_for_each(|namespace| agent.delete(namespace))?;
    namespaces.iter().try_for_each(netns::remove)
}
