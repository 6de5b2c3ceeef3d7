//! Cutting a sandbox off: how long until nothing passes.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::netns;
use crate::ping::Pinger;
use crate::report::Report;
use crate::stats::Samples;
use crate::world::World;

const ROUNDS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(2);
/// After the call returned, pings are sent for this long, and none may be answered.
const SILENCE: Duration = Duration::from_millis(10);

/// `quarantine.*`: from the start of the call to its return, after which nothing passes.
pub(crate) fn measure(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let agent = world.agent()?;
    let [from, to] = ["quarantine-a", "quarantine-b"].map(netns::create);
    let (from, to) = (from?, to?);
    agent.create(&from, "bench")?;
    let address = agent.create(&to, "bench")?.address;
    let mut pinger = Pinger::open(&from)?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        pinger.until_answered(address, PATIENCE)?;
        let start = Instant::now();
        agent.quarantine(&from)?;
        times.push(start.elapsed());
        ensure!(
            !pinger.answered_within(address, SILENCE)?,
            "a ping passed a quarantine"
        );
        agent.release(&from)?;
    }
    let samples = Samples::milliseconds(&times);
    report.set_median("quarantine.p50_ms", &samples);
    report.set_percentile("quarantine.p99_ms", &samples, 99.0);
    for namespace in [from, to] {
        agent.delete(&namespace)?;
        netns::remove(&namespace)?;
    }
    Ok(())
}
