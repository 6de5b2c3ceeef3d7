//! A node with a thousand sandboxes: one more attach, and a new agent that finds them all.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::netns;
use crate::report::Report;
use crate::stats::Samples;
use crate::world::World;

const SANDBOXES: usize = 1000;
/// How many are attached at once while the node fills.
const AT_ONCE: usize = 50;
const MORE: usize = 40;
const RESTARTS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);
const FILLING_PATIENCE: Duration = Duration::from_secs(120);

/// `attach.at_1000.*` and `resync.kernel_1000_ms`.
pub(crate) fn measure(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let agent = world.agent()?;
    let there = agent.status()?.counts.sandboxes;
    let namespaces = netns::create_many("scale", SANDBOXES.saturating_sub(there))?;
    let start = Instant::now();
    for batch in namespaces.chunks(AT_ONCE) {
        agent.create_at_once(batch)?;
        ensure!(
            start.elapsed() < FILLING_PATIENCE,
            "attaching {SANDBOXES} takes too long"
        );
    }
    report.set("attach.fill_1000_ms", start.elapsed().as_secs_f64() * 1e3);
    let mut times = Vec::new();
    for namespace in netns::create_many("more", MORE)? {
        let start = Instant::now();
        agent.create(&namespace, "bench")?;
        times.push(start.elapsed());
        agent.delete(&namespace)?;
        netns::remove(&namespace)?;
    }
    report.set_median("attach.at_1000.p50_ms", &Samples::milliseconds(&times));
    resync(world, report)
}

/// From the start of a new agent until it has found everything as it should be.
fn resync(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
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
    report.set_median("resync.kernel_1000_ms", &Samples::milliseconds(&times));
    Ok(())
}
