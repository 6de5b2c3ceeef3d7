//! How the node is, for people and monitors.

use std::collections::BTreeSet;

use causeway_ipam::LeaseState;
use causeway_types::SandboxUid;

use super::proxy::Link;
use super::state::AppliedDocument;
use super::{Agent, Error};
use crate::api::model::{Counts, IpamInfo, LeaseInfo, ProxyStatus, Status};
use crate::config::Uplink;

impl Agent {
    /// How the node is.
    pub fn status(&self) -> Status {
        let proxy = self.proxy.state();
        let mut problems = self.problems().clone();
        if proxy.link != Link::Up {
            let detail = proxy
                .problem
                .map(|problem| format!(" ({problem})"))
                .unwrap_or_default();
            problems.push(format!(
                "the egress proxy is not running: all egress is denied{detail}"
            ));
        }
        if self.resolvers.is_empty() {
            problems.push(
                "no resolver is known, so that no name resolves: set `egress.resolvers`".to_owned(),
            );
        }
        // Taken here: inside the expression below the lock would be held until its end.
        let generation = self.state().generation;
        let counts = self.counts();
        Status {
            health: if problems.is_empty() {
                "ok".to_owned()
            } else {
                "degraded".to_owned()
            },
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            backend: self.dataplane.backend_name().to_owned(),
            generation,
            prefix: self.prefix,
            node_block: self.node_block,
            uplink: match &self.uplink {
                Uplink::Routed => "routed".to_owned(),
                Uplink::Masquerade => "masquerade".to_owned(),
                Uplink::Interface { name, .. } => name.clone(),
            },
            proxy: ProxyStatus {
                state: match proxy.link {
                    Link::Up => "running",
                    Link::Unknown => "starting",
                    Link::Down => "down",
                }
                .to_owned(),
                pid: proxy.pid,
                generation: proxy.committed,
                starts: proxy.starts,
            },
            counts,
            problems,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let state = self.state();
        let tenants: BTreeSet<_> = state
            .sandboxes
            .keys()
            .map(|id| &id.tenant)
            .chain(state.networks.keys().map(|id| &id.tenant))
            .chain(state.policies.keys().filter_map(|p| p.tenant.as_ref()))
            .chain(state.secrets.keys().map(|(tenant, _)| tenant))
            .collect();
        let policies = state
            .policies
            .values()
            .filter(|applied| matches!(applied.document, AppliedDocument::Policy(_)))
            .count();
        Counts {
            tenants: tenants.len(),
            sandboxes: state.sandboxes.len(),
            quarantined: state
                .sandboxes
                .values()
                .filter(|entry| entry.record.quarantined)
                .count(),
            networks: state.networks.len(),
            policies,
            guardrails: state.policies.len() - policies,
            secrets: state.secrets.len(),
        }
    }

    /// Every lease, those in quarantine too.
    pub fn leases(&self) -> Vec<LeaseInfo> {
        let state = self.state();
        let mut leases = Vec::new();
        let mut after = None;
        loop {
            let page = state.ipam.list(after, causeway_ipam::MAX_PAGE);
            for lease in page.leases {
                let sandbox = lease
                    .owner
                    .as_str()
                    .parse::<SandboxUid>()
                    .ok()
                    .and_then(|uid| state.uids.get(&uid))
                    .filter(|_| lease.state.is_held())
                    .map(ToString::to_string);
                let (name, free_at) = match lease.state {
                    LeaseState::Reserved => ("reserved", None),
                    LeaseState::Bound => ("bound", None),
                    LeaseState::Quarantined { until } => ("quarantined", Some(until.0 / 1000)),
                };
                leases.push(LeaseInfo {
                    address: lease.address,
                    prefix: lease.prefix,
                    owner: lease.owner.to_string(),
                    sandbox,
                    state: name.to_owned(),
                    generation: lease.generation,
                    free_at,
                });
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return leases,
            }
        }
    }

    /// How full the address plan is.
    pub fn ipam(&self) -> Result<IpamInfo, Error> {
        let now = self.now();
        let usage = self.state().ipam.usage(now);
        let first = usage.into_iter().next();
        Ok(IpamInfo {
            prefix: self.prefix,
            node_block: self.node_block,
            held: first.as_ref().map_or(0, |pool| pool.reserved + pool.bound),
            quarantined: first.as_ref().map_or(0, |pool| pool.quarantined),
            free: first.map_or(0, |pool| pool.free).to_string(),
        })
    }
}
