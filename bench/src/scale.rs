//! A node with many sandboxes: one more attach, and a new agent that finds them all.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use causeway::lab::Namespace;

use crate::floor::Router;
use crate::netns;
use crate::report::Report;
use crate::stats::{Samples, timed};
use crate::world::World;

/// How many are attached at once while the node fills.
const AT_ONCE: usize = 50;
/// How many more are attached then, one at a time.
const MORE: usize = 40;
const RESTARTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest that attaching a thousand may take.
const FILLING_PATIENCE: Duration = Duration::from_secs(60);
const FLOOR_PREFIX: Ipv6Addr = Ipv6Addr::new(0x3ffe, 0xb00, 6, 0, 0, 0, 0, 0);

/// `attach.*at_1000.*` and `resync.kernel_1000_ms`, or of as many as the world was asked for.
pub(crate) fn measure(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let count = world.sandboxes();
    let router = fill_floor(count)?;
    fill_dataplane(world, count)?;
    let filled = fill_agent(world, count)?;
    report.set(
        &format!("attach.fill_{count}_ms"),
        filled.as_secs_f64() * 1e3,
    );
    one_more(world, &router, count, report)?;
    resync(world, count, report)
}

fn fill_floor(count: usize) -> anyhow::Result<Router> {
    let router = Router::create("scale-floor")?;
    for (index, namespace) in netns::create_many("scale-floor", count)?.iter().enumerate() {
        router.attach(
            &format!("port{index}"),
            namespace,
            netns::host(FLOOR_PREFIX, index + 1)?,
        )?;
    }
    Ok(router)
}

fn fill_dataplane(world: &mut World, count: usize) -> anyhow::Result<()> {
    let namespaces = netns::create_many("scale-kernel", count)?;
    let dataplane = world.dataplane()?;
    for batch in namespaces.chunks(AT_ONCE) {
        let sandboxes = batch
            .iter()
            .map(|namespace| dataplane.sandbox(namespace))
            .collect::<anyhow::Result<Vec<_>>>()?;
        dataplane.wire_at_once(sandboxes)?;
    }
    Ok(())
}

fn fill_agent(world: &mut World, count: usize) -> anyhow::Result<Duration> {
    let agent = world.agent()?;
    let there = agent.status()?.counts.sandboxes;
    let namespaces = netns::create_many("scale", count.saturating_sub(there))?;
    let start = Instant::now();
    for (done, batch) in namespaces.chunks(AT_ONCE).enumerate() {
        agent.create_at_once(batch)?;
        let allowed = FILLING_PATIENCE * u32::try_from(done * AT_ONCE / 1000 + 1)?;
        ensure!(
            start.elapsed() < allowed,
            "attaching {count} takes too long"
        );
    }
    Ok(start.elapsed())
}

/// The three ways in turn, each on its full node.
fn one_more(
    world: &mut World,
    router: &Router,
    count: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let agent = world.agent()?;
    let ways = ["more-floor", "more-kernel", "more-api"].map(|way| netns::create_many(way, MORE));
    let [floor, kernel, api] = ways;
    let mut times = [const { Vec::new() }; 3];
    for (index, ((bare, wired), made)) in floor?.iter().zip(&kernel?).zip(&api?).enumerate() {
        let [by_floor, by_kernel, by_api] = &mut times;
        let address = netns::host(FLOOR_PREFIX, count + index + 1)?;
        by_floor.push(timed(|| {
            router.attach(&format!("more{index}"), bare, address)
        })?);
        let dataplane = world.dataplane()?;
        let sandbox = dataplane.sandbox(wired)?;
        by_kernel.push(timed(|| dataplane.wire(sandbox))?);
        by_api.push(timed(|| agent.create(made, "bench").map(drop))?);
        remove(&agent, made)?;
    }
    for (way, times) in ["floor.", "kernel.", ""].into_iter().zip(times) {
        let name = format!("attach.{way}at_{count}.p50_ms");
        report.set_median(&name, &Samples::milliseconds(&times));
    }
    Ok(())
}

/// From the start of a new agent until it has found everything as it should be.
fn resync(world: &mut World, count: usize, report: &mut Report) -> anyhow::Result<()> {
    let agent = world.agent()?;
    let mut times = Vec::new();
    for _ in 0..RESTARTS {
        world.lab().kill_agent()?;
        let start = Instant::now();
        world.lab().spawn_agent()?;
        causeway::lab::poll("the agent to have reconciled", PATIENCE, || {
            // It does not listen at first.
            Ok(agent.status().ok().filter(|status| status.health == "ok"))
        })?;
        times.push(start.elapsed());
    }
    report.set_median(
        &format!("resync.kernel_{count}_ms"),
        &Samples::milliseconds(&times),
    );
    Ok(())
}

fn remove(agent: &crate::agent::Agent, namespace: &Namespace) -> anyhow::Result<()> {
    agent.delete(namespace)?;
    netns::remove(namespace)
}
