//! Element changes on their way to the backend: planned in order, written in batches.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Inner, State};
use crate::backend::BackendError;
use crate::elements::ElementChanges;

type Answer = Result<(), Arc<BackendError>>;

/// Changes that were planned and not yet written. Its length is bounded by the number of
/// calls under way.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Vec<(ElementChanges, oneshot::Sender<Answer>)>,
    /// A write failed, so the sets may differ from what the planner believes.
    pub(super) dirty: bool,
}

impl Inner {
    /// Plans a change and returns once it is written. Whoever comes first writes for all that
    /// wait by then, so that a burst of attaches costs few transactions.
    pub(super) async fn change(
        &self,
        plan: impl FnOnce(&mut State) -> ElementChanges,
    ) -> Result<(), Arc<BackendError>> {
        let mut answer = {
            let mut state = self.state();
            let changes = plan(&mut state);
            if changes.is_empty() && !state.queue.dirty {
                return Ok(());
            }
            let (sender, receiver) = oneshot::channel();
            state.queue.waiting.push((changes, sender));
            receiver
        };
        let _writer = self.flush.lock().await;
        if let Ok(answer) = answer.try_recv() {
            return answer;
        }
        self.write_waiting().await;
        answer
            .try_recv()
            .unwrap_or_else(|_| Err(Arc::new(BackendError::Stopped)))
    }

    /// Writes everything that waits. The caller holds the flush lock.
    async fn write_waiting(&self) {
        let (batch, dirty) = {
            let mut state = self.state();
            (std::mem::take(&mut state.queue.waiting), state.queue.dirty)
        };
        let (changes, mut waiters): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let mut result = Ok(());
        if !dirty {
            let merged = ElementChanges::merge(&changes);
            if !merged.is_empty() {
                result = self.backend.apply(&merged).await;
            }
        }
        if dirty || result.is_err() {
            if let Err(error) = &result {
                tracing::warn!(%error, "set elements are compared afresh after a failed change");
            }
            result = self.resync(&mut waiters).await;
        }
        self.state().queue.dirty = result.is_err();
        let answer = result.map_err(Arc::new);
        for waiter in waiters {
            // A waiter that went away does not need its answer.
            drop(waiter.send(answer.clone()));
        }
    }

    /// Writes the difference between what the sets have and what the planner wants.
    async fn resync(&self, waiters: &mut Vec<oneshot::Sender<Answer>>) -> Result<(), BackendError> {
        let observed = self.backend.observe().await?;
        let wanted = {
            let mut state = self.state();
            let more = std::mem::take(&mut state.queue.waiting);
            waiters.extend(more.into_iter().map(|(_, waiter)| waiter));
            state.planner.elements()
        };
        let changes = ElementChanges::between(&observed.elements, &wanted);
        if changes.is_empty() {
            return Ok(());
        }
        self.backend.apply(&changes).await
    }
}
