//! A hundred attaches at once.

use causeway::lab::Namespace;

use super::delete;
use crate::netns;
use crate::report::Report;
use crate::stats::Samples;
use crate::world::World;

const AT_ONCE: usize = 100;
const ROUNDS: usize = 3;

/// Through the dataplane and through the API in turn.
pub(crate) fn measure(world: &mut World, report: &mut Report) -> anyhow::Result<()> {
    let (mut kernel, mut api) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        kernel.extend(through_dataplane(world, round)?);
        let namespaces = burst("api", round)?;
        let agent = world.agent()?;
        api.extend(agent.create_at_once(&namespaces)?);
        delete(&agent, &namespaces)?;
    }
    let (kernel, api) = (Samples::milliseconds(&kernel), Samples::milliseconds(&api));
    report.set_median("attach.kernel.burst_p50_ms", &kernel);
    report.set_percentile("attach.kernel.p99_ms", &kernel, 99.0);
    report.set_median("attach.api.burst_p50_ms", &api);
    report.set_percentile("attach.api.p99_ms", &api, 99.0);
    Ok(())
}

fn through_dataplane(world: &mut World, round: usize) -> anyhow::Result<Vec<std::time::Duration>> {
    let namespaces = burst("kernel", round)?;
    let dataplane = world.dataplane()?;
    let sandboxes = namespaces
        .iter()
        .map(|namespace| dataplane.sandbox(namespace))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let uids: Vec<_> = sandboxes.iter().map(|sandbox| sandbox.uid).collect();
    let times = dataplane.wire_at_once(sandboxes)?;
    uids.into_iter().try_for_each(|uid| dataplane.detach(uid))?;
    namespaces.iter().try_for_each(netns::remove)?;
    Ok(times)
}

fn burst(way: &str, round: usize) -> anyhow::Result<Vec<Namespace>> {
    netns::create_many(&format!("burst-{way}-{round}"), AT_ONCE)
}
