//! Live connections and requests, and what each was judged by.
//!
//! A flow is registered before it is judged. A commit first publishes the new state and then
//! goes through the flows, so a flow is judged by the new state in one of the two places.

use std::collections::HashMap;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use causeway_types::Reason;

use crate::judge::Subject;

/// One live flow.
#[derive(Debug)]
pub(crate) struct Flow {
    subject: Subject,
    /// Why it must end; empty while it may go on.
    reason: OnceLock<Reason>,
    waiting: Mutex<Waiting>,
}

/// The tasks that wait for a flow's end.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    wakers: Vec<(u64, Waker)>,
}

impl Flow {
    fn new(subject: Subject) -> Self {
        Self {
            subject,
            reason: OnceLock::new(),
            waiting: Mutex::default(),
        }
    }

    /// What is judged.
    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Resolves when the flow must end.
    pub(crate) fn cut(&self) -> Cut<&Self> {
        Cut::new(self)
    }

    /// Whether the flow must end, and why.
    pub(crate) fn is_cut(&self) -> Option<Reason> {
        self.reason.get().copied()
    }

    /// Ends the flow. False when it had to end already.
    fn end(&self, reason: Reason) -> bool {
        if self.reason.set(reason).is_err() {
            return false;
        }
        // Whoever registers after this sees the reason.
        let wakers = std::mem::take(&mut self.waiting().wakers);
        for (_place, waker) in wakers {
            waker.wake();
        }
        true
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves when a flow must end. A task polls it along with its work, so that it costs one look
/// at the flow and nothing else while the task stays the same.
#[derive(Debug)]
pub(crate) struct Cut<F: Deref<Target = Flow>> {
    flow: F,
    place: Option<(u64, Waker)>,
}

impl<F: Deref<Target = Flow>> Cut<F> {
    fn new(flow: F) -> Self {
        Self { flow, place: None }
    }

    fn register(&mut self, waker: &Waker) {
        let mut waiting = self.flow.waiting();
        let place = match &self.place {
            Some((place, _other)) => *place,
            None => waiting.next,
        };
        waiting.next = waiting.next.max(place + 1);
        waiting.wakers.retain(|(other, _)| *other != place);
        waiting.wakers.push((place, waker.clone()));
        drop(waiting);
        self.place = Some((place, waker.clone()));
    }
}

impl<F: Deref<Target = Flow> + Unpin> Future for Cut<F> {
    type Output = Reason;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reason> {
        if let Some(reason) = self.flow.is_cut() {
            return Poll::Ready(reason);
        }
        let same = |(_, waker): &(u64, Waker)| waker.will_wake(context.waker());
        if self.place.as_ref().is_some_and(same) {
            return Poll::Pending;
        }
        self.register(context.waker());
        // It may have been cut in between.
        match self.flow.is_cut() {
            Some(reason) => Poll::Ready(reason),
            None => Poll::Pending,
        }
    }
}

impl<F: Deref<Target = Flow>> Drop for Cut<F> {
    fn drop(&mut self) {
        if let Some((place, _waker)) = self.place.take() {
            let mut waiting = self.flow.waiting();
            waiting.wakers.retain(|(other, _)| *other != place);
        }
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
        let flow = Arc::new(Flow::new(subject));
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
                && flow.end(reason)
            {
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

impl FlowGuard {
    /// Like [`Flow::cut`], for what may outlive the guard.
    pub(crate) fn watch(&self) -> Cut<Arc<Flow>> {
        Cut::new(Arc::clone(&self.flow))
    }
}

impl Deref for FlowGuard {
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

    #[tokio::test]
    async fn all_that_wait_are_told_whatever_task_they_are_in() {
        let flows = Arc::new(Flows::default());
        let flow = flows.register(Subject::Unknown);
        let other = flow.watch();
        let moved = flow.watch();
        // One that has waited in this task goes on in another.
        let mut moved = Box::pin(moved);
        assert!(futures_util::poll!(&mut moved).is_pending());
        let tasks = [tokio::spawn(other), tokio::spawn(moved)];
        {
            let mut gone = Box::pin(flow.cut());
            assert!(futures_util::poll!(&mut gone).is_pending());
        }
        while flow.waiting().wakers.len() < 2 {
            tokio::task::yield_now().await;
        }
        flows.cut_where(|_subject| Some(Reason::Revoked));
        for task in tasks {
            assert_eq!(task.await.unwrap(), Reason::Revoked);
        }
        assert_eq!(flow.cut().await, Reason::Revoked, "at once, when it is cut");
        assert!(flow.waiting().wakers.is_empty());
    }
}
