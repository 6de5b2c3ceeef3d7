//! Makes reality equal to the desired state, again and again, and gives back what nobody holds.

use std::sync::{Arc, Weak};
use std::time::Duration;

use causeway_egress::control::ToProxy;
use causeway_ipam::{Listing, Owner};
use causeway_policy::Reserved;

use super::{Agent, Error};
use crate::api::model::Reconciled;
use crate::store::Write;

/// Between two disturbances this passes at least, so that a failing dataplane is not hammered.
const CALM: Duration = Duration::from_secs(1);
/// Leases whose quarantine is over and that one pass removes.
const SWEEP: usize = 1024;

/// Reconciles at intervals and when asked, until the agent is gone.
pub(super) async fn run(agent: Weak<Agent>) {
    loop {
        let Some((interval, disturbed, dataplane)) = agent.upgrade().map(|agent| {
            (
                agent.config.reconcile_interval,
                Arc::clone(&agent.disturbed),
                agent.dataplane.clone(),
            )
        }) else {
            return;
        };
        // The agent is not held meanwhile: it may go.
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = disturbed.notified() => tokio::time::sleep(CALM).await,
            () = dataplane.disturbed() => tracing::warn!("the forwarder went away or came back"),
        }
        drop(dataplane);
        let Some(strong) = agent.upgrade() else {
            return;
        };
        match strong.reconcile_once().await {
            Ok(done) if done.changes > 0 => tracing::warn!(
                changes = done.changes,
                "something else had changed the dataplane: it is as desired again"
            ),
            Ok(_) => {}
            Err(error) => {
                tracing::error!(error = %crate::chain(&error), "reconciliation failed");
                strong.disturbed.notify_one();
            }
        }
    }
}

impl Agent {
    /// One pass over the dataplane and the leases.
    pub async fn reconcile_now(self: &Arc<Self>) -> Result<Reconciled, Error> {
        let done = self.reconcile_once().await?;
        self.events.node(
            "reconciled",
            format!(
                "{} changes, {} leases freed",
                done.changes, done.leases_freed
            ),
        );
        Ok(done)
    }

    pub(super) async fn reconcile_once(self: &Arc<Self>) -> Result<Reconciled, Error> {
        self.follow_host().await?;
        let this = Arc::clone(self);
        let outcome = self
            .dataplane
            .reconcile_with(move || {
                let (desired, misfits) = this.state().desired();
                for misfit in misfits {
                    tracing::error!(sandbox = %misfit, "its record does not fit any more");
                }
                desired
            })
            .await;
        let report = match outcome {
            Ok(report) => report,
            Err(error) => {
                *self.problems() = vec![format!("dataplane: {}", crate::chain(&error))];
                return Err(Error::Dataplane(Box::new(error)));
            }
        };
        let problems: Vec<String> = {
            let state = self.state();
            report
                .problems
                .iter()
                .filter_map(|problem| {
                    // One whose attach is under way reports for itself.
                    let id = state.uids.get(&problem.uid)?;
                    Some(format!("sandbox {id}: {}", crate::chain(&problem.error)))
                })
                .collect()
        };
        (*self.problems()).clone_from(&problems);
        let leases_freed = self.collect_garbage().await?;
        Ok(Reconciled {
            changes: report.changes,
            leases_freed,
            problems,
        })
    }

    /// Takes up addresses that this host gained or lost: no rule reaches them by chance.
    async fn follow_host(&self) -> Result<(), Error> {
        let ranges = super::uplink::own_ranges(self.prefix);
        if self.state().own_ranges == ranges {
            return Ok(());
        }
        let _alone = self.changes.write().await;
        let proxy = self.proxy.reserve().await?;
        let (generation, specs) = {
            let mut state = self.state();
            state.reserved = Reserved::new(ranges.iter().copied());
            state.own_ranges = ranges;
            state.policies_changed();
            let generation = state.advance();
            let (desired, _misfits) = state.desired();
            let settings = self.settings(&state);
            proxy.send(generation, vec![ToProxy::Settings(settings)]);
            (generation, desired.sandboxes.into_values().collect())
        };
        let (updated, settled) =
            tokio::join!(self.dataplane.update(specs), self.proxy.settled(generation));
        settled?;
        self.in_effect(generation, updated)?;
        self.events
            .change(generation, "host_changed", String::new());
        Ok(())
    }

    /// Gives back leases that belong to no sandbox. The records of the sandboxes and their leases
    /// are written together, so that there are none unless the store was meddled with.
    async fn collect_garbage(&self) -> Result<usize, Error> {
        let slot = self.store.reserve().await?;
        let (pending, freed) = {
            let mut state = self.state();
            let began = state.ipam.generation();
            let owners: Vec<Owner> = state
                .uids
                .keys()
                .filter_map(|uid| Owner::new(&uid.to_string()).ok())
                .collect();
            let now = self.now();
            let mut transaction = state.ipam.begin();
            transaction.sweep(now, SWEEP);
            // An empty listing frees nothing: with no sandbox there is rarely a lease, and a
            // listing that failed looks the same.
            let freed = match Listing::new(began, owners) {
                Ok(listing) => transaction.collect_garbage(listing, now).released.len(),
                Err(_empty) => 0,
            };
            let changes = transaction.changes().to_vec();
            transaction.apply();
            if changes.is_empty() {
                return Ok(0);
            }
            (slot.send(vec![Write::Ipam(changes)]), freed)
        };
        pending.done().await?;
        Ok(freed)
    }
}
