//! One lock for each sandbox that something is being done to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use causeway_types::SandboxUid;
use tokio::sync::OwnedMutexGuard;

type Locks = Mutex<HashMap<SandboxUid, Arc<tokio::sync::Mutex<()>>>>;

/// Locks by sandbox. A lock that nobody holds or waits for takes no memory.
#[derive(Debug, Default)]
pub(super) struct KeyedLocks(Locks);

impl KeyedLocks {
    /// Waits for everybody who asked for the same sandbox before.
    pub(super) async fn lock(&self, uid: SandboxUid) -> KeyedGuard<'_> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(locks.entry(uid).or_default())
        };
        KeyedGuard {
            held: Some(lock.lock_owned().await),
            locks: &self.0,
            uid,
        }
    }
}

/// Holds one sandbox's lock.
#[derive(Debug)]
pub(super) struct KeyedGuard<'a> {
    held: Option<OwnedMutexGuard<()>>,
    locks: &'a Locks,
    uid: SandboxUid,
}

impl Drop for KeyedGuard<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.held.take());
        // Only the map has it: nobody waits, and nobody can begin to while the map is locked.
        if locks
            .get(&self.uid)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            locks.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_sandbox_waits_and_another_does_not() {
        let locks = KeyedLocks::default();
        let (a, b) = (SandboxUid::from_random(1), SandboxUid::from_random(2));
        let held = locks.lock(a).await;
        let _other = locks.lock(b).await;
        let mut second = Box::pin(locks.lock(a));
        assert!(futures_now(&mut second).await.is_none());
        drop(held);
        assert!(futures_now(&mut second).await.is_some());
        drop(second);
    }

    #[tokio::test]
    async fn free_locks_are_forgotten() {
        let locks = KeyedLocks::default();
        drop(locks.lock(SandboxUid::from_random(1)).await);
        assert!(locks.0.lock().unwrap().is_empty());
    }

    async fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            value = future => Some(value),
            () = tokio::task::yield_now() => None,
        }
    }
}
