//! Calls that wait for an answer.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::CloseReason;
use super::frame::Received;

/// Which messages answer a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// Any number of these.
    pub(super) details: Option<u16>,
    /// Then this.
    pub(super) end: u16,
    /// Or another with this CRC.
    pub(super) end_crc: Option<u32>,
}

/// What answered a call.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) details: Vec<Bytes>,
    pub(super) end: Bytes,
}

/// Why nothing answered a call.
#[derive(Debug)]
pub(super) enum Failure {
    Closed { reason: CloseReason, sent: bool },
    Unexpected { number: u16 },
    TooLarge,
}

type Outcome = Result<Answer, Failure>;

#[derive(Debug)]
struct Waiting {
    expected: Expected,
    sent: bool,
    details: Vec<Bytes>,
    /// How many more bytes of details are allowed.
    allowance: usize,
    done: oneshot::Sender<Outcome>,
}

#[derive(Debug, Default)]
struct Calls {
    waiting: HashMap<u32, Waiting>,
    last_context: u32,
    closed: Option<CloseReason>,
}

/// The calls of one connection, by context.
#[derive(Debug, Default)]
pub(super) struct Pending {
    calls: Mutex<Calls>,
}

impl Pending {
    /// A new call. It is forgotten when the slot is dropped.
    pub(super) fn insert(
        &self,
        expected: Expected,
        allowance: usize,
    ) -> Result<(Slot<'_>, oneshot::Receiver<Outcome>), CloseReason> {
        let mut calls = self.lock();
        if let Some(reason) = &calls.closed {
            return Err(reason.clone());
        }
        let mut context = calls.last_context.wrapping_add(1);
        // The window is far smaller than the number of contexts, so one is free.
        while calls.waiting.contains_key(&context) {
            context = context.wrapping_add(1);
        }
        calls.last_context = context;
        let (done, answer) = oneshot::channel();
        let waiting = Waiting {
            expected,
            sent: false,
            details: Vec::new(),
            allowance,
            done,
        };
        calls.waiting.insert(context, waiting);
        drop(calls);
        let slot = Slot {
            pending: self,
            context,
        };
        Ok((slot, answer))
    }

    /// Whether a call still waits. If so, it counts as sent from now on.
    pub(super) fn start(&self, context: u32) -> bool {
        match self.lock().waiting.get_mut(&context) {
            Some(waiting) => {
                waiting.sent = true;
                true
            }
            None => false,
        }
    }

    /// Hands a message, of a layout with this CRC, to the call that waits for it. Whether there is one.
    pub(super) fn answer(&self, received: Received, crc: Option<u32>) -> bool {
        let mut calls = self.lock();
        let Some(waiting) = calls.waiting.get_mut(&received.context) else {
            return false;
        };
        let expected = waiting.expected;
        let is_alike = expected.end_crc.is_some() && expected.end_crc == crc;
        let outcome = if received.number == expected.end || is_alike {
            Ok(Answer {
                details: std::mem::take(&mut waiting.details),
                end: received.body,
            })
        } else if Some(received.number) == expected.details {
            match waiting.allowance.checked_sub(received.body.len()) {
                Some(left) => {
                    waiting.allowance = left;
                    waiting.details.push(received.body);
                    return true;
                }
                None => Err(Failure::TooLarge),
            }
        } else {
            Err(Failure::Unexpected {
                number: received.number,
            })
        };
        if let Some(waiting) = calls.waiting.remove(&received.context) {
            // The caller may have gone meanwhile.
            let _gone = waiting.done.send(outcome);
        }
        true
    }

    /// Ends every call, and refuses new ones.
    pub(super) fn close(&self, reason: &CloseReason) {
        let mut calls = self.lock();
        calls.closed.get_or_insert_with(|| reason.clone());
        for (_context, waiting) in calls.waiting.drain() {
            let _gone = waiting.done.send(Err(Failure::Closed {
                reason: reason.clone(),
                sent: waiting.sent,
            }));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        // Nothing in here panics half-way.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call's place.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    pending: &'a Pending,
    context: u32,
}

impl Slot<'_> {
    pub(super) fn context(&self) -> u32 {
        self.context
    }

    /// Whether the request may have been sent.
    pub(super) fn sent(&self) -> bool {
        self.pending
            .lock()
            .waiting
            .get(&self.context)
            .is_none_or(|waiting| waiting.sent)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.pending.lock().waiting.remove(&self.context);
    }
}
