//! What is counted: traffic and drops by the dataplane, decisions by the proxy.

use std::collections::BTreeMap;

use causeway_dataplane::Counters;
use causeway_egress::control::Stats;
use causeway_types::{Generation, SandboxId, SandboxUid};

use super::{Agent, Error};
use crate::api::model::{Counts, ProxyStatus};

/// Everything that the metrics show.
#[derive(Debug)]
pub struct Measurements {
    /// The generation of the desired state.
    pub generation: Generation,
    /// How many there are of each kind.
    pub counts: Counts,
    /// Leases by state.
    pub leases: BTreeMap<String, u64>,
    /// The dataplane's counters.
    pub dataplane: Counters,
    /// The sandboxes' names.
    pub names: BTreeMap<SandboxUid, SandboxId>,
    /// The proxy's counters, when it answers.
    pub egress: Option<Stats>,
    /// How the proxy is.
    pub proxy: ProxyStatus,
    /// How many problems there are.
    pub problems: usize,
    /// Seconds since the agent started.
    pub uptime_seconds: u64,
}

impl Agent {
    /// Takes every measurement.
    pub async fn measure(&self) -> Result<Measurements, Error> {
        let (dataplane, egress) = tokio::join!(self.dataplane.counters(), self.proxy.stats());
        let dataplane = dataplane.map_err(|error| Error::Dataplane(Box::new(error)))?;
        let mut leases = BTreeMap::new();
        for lease in self.leases() {
            *leases.entry(lease.state).or_default() += 1;
        }
        let status = self.status();
        let names = self.state().uids.clone();
        Ok(Measurements {
            generation: status.generation,
            counts: status.counts,
            leases,
            dataplane,
            names,
            egress,
            proxy: status.proxy,
            problems: status.problems.len(),
            uptime_seconds: status.uptime_seconds,
        })
    }
}
