//! Live connections and requests, and what each was judged by.
//!
//! A flow is registered before it is judged. A commit first publishes the new state and then
//! goes through the flows, so a flow is judged by the new state in one of the two places.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use causeway_types::Reason;
use tokio_util::sync::CancellationToken;

use crate::judge::Subject;

/// One live flow.
#[derive(Debug)]
pub(crate) struct Flow {
    subject: Subject,
    cut: CancellationToken,
    reason: OnceLock<Reason>,
}

impl Flow {
    /// What is judged.
    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Resolves when the flow must end.
    pub(crate) async fn cut(&self) -> Reason {
        self.cut.cancelled().await;
        self.reason()
    }

    /// Whether the flow must end, and why.
    pub(crate) fn is_cut(&self) -> Option<Reason> {
        self.cut.is_cancelled().then(|| self.reason())
    }

    /// A token that is cancelled when the flow must end.
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.cut
    }

    fn reason(&self) -> Reason {
        self.reason.get().copied().unwrap_or(Reason::Revoked)
    }
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    live: HashMap<u64, Arc<Flow>>,
}

/// The live flows of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Flows(Mutex<Table>);

impl Flows {
    /// Registers a flow until the guard is dropped.
    pub(crate) fn register(self: &Arc<Self>, subject: Subject) -> FlowGuard {
        let flow = Arc::new(Flow {
            subject,
            cut: CancellationToken::new(),
            reason: OnceLock::new(),
        });
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = table.next;
        table.next += 1;
        table.live.insert(id, Arc::clone(&flow));
        FlowGuard {
            flows: Arc::clone(self),
            id,
            flow,
        }
    }

    /// Cuts every flow for which `judge` gives a reason, and says how many those were.
    pub(crate) fn cut_where(&self, judge: impl Fn(&Subject) -> Option<Reason>) -> u64 {
        let live: Vec<_> = {
            let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            table.live.values().cloned().collect()
        };
        let mut count = 0;
        for flow in live {
            if let Some(reason) = judge(flow.subject())
                && flow.reason.set(reason).is_ok()
            {
                flow.cut.cancel();
                count += 1;
            }
        }
        count
    }
}

/// Keeps a flow registered.
#[derive(Debug)]
pub(crate) struct FlowGuard {
    flows: Arc<Flows>,
    id: u64,
    flow: Arc<Flow>,
}

impl std::ops::Deref for FlowGuard {
    type Target = Flow;

    fn deref(&self) -> &Flow {
        &self.flow
    }
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        let mut table = self.flows.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.live.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_is_no_longer_permitted_is_cut() {
        let flows = Arc::new(Flows::default());
        let kept = flows.register(Subject::Unknown);
        let cut = flows.register(Subject::Unknown);
        let first = std::sync::atomic::AtomicBool::new(false);
        let gone = flows.register(Subject::Unknown);
        drop(gone);
        let count = flows.cut_where(|_subject| {
            let second = first.swap(true, std::sync::atomic::Ordering::Relaxed);
            second.then_some(Reason::Revoked)
        });
        assert_eq!(count, 1);
        let ended = [&kept, &cut]
            .iter()
            .filter(|f| f.is_cut().is_some())
            .count();
        assert_eq!(ended, 1);
        let all = flows.cut_where(|_subject| Some(Reason::SandboxQuarantined));
        assert_eq!(all, 1, "a flow is cut once");
    }
}
