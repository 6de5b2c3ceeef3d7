//! From the call to the first answered ping.

use std::time::{Duration, Instant};

use super::delete;
use crate::netns;
use crate::ping::Pinger;
use crate::report::Report;
use crate::stats::Samples;
use crate::world::World;

const ROUNDS: usize = 30;
const PATIENCE: Duration = Duration::from_secs(5);

/// Through the whole API: from the start of the call until a neighbour in the same network
/// answers.
pub(crate) fn measure(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let agent = world.agent()?;
    let neighbour = netns::create("ping-neighbour")?;
    let address = agent.create(&neighbour, "bench")?.address;
    let namespaces = netns::create_many("ping", ROUNDS)?;
    let mut times = Vec::new();
    for namespace in &namespaces {
        let mut pinger = Pinger::open(namespace)?;
        let start = Instant::now();
        agent.create(namespace, "bench")?;
        pinger.until_answered(address, PATIENCE)?;
        times.push(start.elapsed());
    }
    let samples = Samples::milliseconds(&times);
    report.set_median("attach.first_ping_ms", &samples);
    report.set_percentile("attach.first_ping_p99_ms", &samples, 99.0);
    delete(&agent, &namespaces)?;
    delete(&agent, &[neighbour])
}
