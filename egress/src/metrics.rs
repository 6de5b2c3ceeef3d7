//! Counters since the start.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_types::Reason;

use crate::audit::{Outcome, Protocol};
use crate::control::Decisions;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reason codes are below this.
const REASON_CODES: usize = 96;

/// Everything that the proxy counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) connections_total: Counter,
    pub(crate) connections_closed: Counter,
    pub(crate) requests_total: Counter,
    pub(crate) dns_queries_total: Counter,
    pub(crate) bytes_out_total: Counter,
    pub(crate) bytes_in_total: Counter,
    pub(crate) injections_total: Counter,
    pub(crate) replacements_total: Counter,
    pub(crate) redactions_total: Counter,
    pub(crate) revoked_total: Counter,
    pub(crate) audit_dropped: Counter,
    pub(crate) events_dropped: Counter,
    refused: [Counter; REASON_CODES],
    decided: [[Counter; Outcome::ALL.len()]; Protocol::ALL.len()],
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            connections_total: Counter::default(),
            connections_closed: Counter::default(),
            requests_total: Counter::default(),
            dns_queries_total: Counter::default(),
            bytes_out_total: Counter::default(),
            bytes_in_total: Counter::default(),
            injections_total: Counter::default(),
            replacements_total: Counter::default(),
            redactions_total: Counter::default(),
            revoked_total: Counter::default(),
            audit_dropped: Counter::default(),
            events_dropped: Counter::default(),
            refused: std::array::from_fn(|_code| Counter::default()),
            decided: Default::default(),
        }
    }
}

impl Metrics {
    /// Counts one refusal.
    pub(crate) fn refused(&self, reason: Reason) {
        if let Some(counter) = self.refused.get(usize::from(reason.code())) {
            counter.add(1);
        }
    }

    /// Counts one decision.
    pub(crate) fn decided(&self, protocol: Protocol, decision: Outcome) {
        self.decided[protocol as usize][decision as usize].add(1);
    }

    /// What was decided, and how often.
    pub(crate) fn decisions(&self) -> impl Iterator<Item = Decisions> {
        let pairs = Protocol::ALL
            .into_iter()
            .flat_map(|protocol| Outcome::ALL.map(|decision| (protocol, decision)));
        pairs
            .map(|(protocol, decision)| Decisions {
                protocol,
                decision,
                count: self.decided[protocol as usize][decision as usize].get(),
            })
            .filter(|decisions| decisions.count > 0)
    }

    /// The reasons that occurred, and how often.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.iter().filter_map(|&reason| {
            let count = self.refused.get(usize::from(reason.code()))?.get();
            (count > 0).then_some((reason, count))
        })
    }

    /// Connections that are open.
    pub(crate) fn connections_live(&self) -> u64 {
        let closed = self.connections_closed.get();
        self.connections_total.get().saturating_sub(closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_counter() {
        let metrics = Metrics::default();
        for &reason in Reason::ALL {
            metrics.refused(reason);
        }
        assert_eq!(metrics.refusals().count(), Reason::ALL.len());
    }

    #[test]
    fn decisions_are_counted_apart() {
        let metrics = Metrics::default();
        for (protocol, decision, count) in [
            (Protocol::Dns, Outcome::Deny, 1),
            (Protocol::Http, Outcome::Permit, 2),
            (Protocol::Http, Outcome::Audit, 3),
        ] {
            for _ in 0..count {
                metrics.decided(protocol, decision);
            }
            assert!(metrics.decisions().any(|found| found
                == Decisions {
                    protocol,
                    decision,
                    count
                }));
        }
        assert_eq!(metrics.decisions().count(), 3);
    }
}
