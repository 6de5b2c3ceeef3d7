//! What is noted about one request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use causeway_policy::RequestPermit;
use causeway_types::Reason;

use crate::audit::{Outcome, Protocol};
use crate::flows::FlowGuard;
use crate::judge::Subject;
use crate::session::{Session, set_rule};

/// A request that was permitted. Its record is written when everything that belongs to it,
/// bodies and tunnel, is over.
pub(crate) struct Entry {
    session: Arc<Session>,
    flow: FlowGuard,
    permit: RequestPermit,
    started: Instant,
    pub(super) bytes_out: Arc<AtomicU64>,
    pub(super) bytes_in: Arc<AtomicU64>,
    end: Mutex<End>,
}

#[derive(Debug, Default)]
struct End {
    status: Option<u16>,
    reason: Option<Reason>,
}

impl Entry {
    pub(super) fn new(session: Arc<Session>, flow: FlowGuard, permit: RequestPermit) -> Self {
        Self {
            session,
            flow,
            permit,
            started: Instant::now(),
            bytes_out: Arc::default(),
            bytes_in: Arc::default(),
            end: Mutex::default(),
        }
    }

    pub(crate) fn flow(&self) -> &FlowGuard {
        &self.flow
    }

    /// Notes the status that the client got.
    pub(super) fn answered(&self, status: u16) {
        self.end().status = Some(status);
    }

    /// Notes that the request was ended for this reason, and gives the first such reason.
    pub(crate) fn cut(&self, reason: Reason) -> Reason {
        *self.end().reason.get_or_insert(reason)
    }

    /// Counts what went through a tunnel.
    pub(crate) fn add_bytes(&self, out: u64, back: u64) {
        self.bytes_out.fetch_add(out, Ordering::Relaxed);
        self.bytes_in.fetch_add(back, Ordering::Relaxed);
    }

    fn end(&self) -> std::sync::MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Subject::Request(target, method, path) = self.flow.subject() else {
            return;
        };
        let metrics = &self.session.shared.metrics;
        let end = std::mem::take(&mut *self.end());
        let reason = end.reason.or_else(|| self.flow.is_cut());
        let watched = self.permit.audit.as_ref();
        let outcome = match (reason, watched) {
            (Some(_reason), _) => Outcome::Deny,
            (None, Some(_denial)) => Outcome::Audit,
            (None, None) => Outcome::Permit,
        };
        let mut record = self.session.record(Protocol::Http, outcome);
        record.name.clone_from(&target.name);
        record.method = Some(method.clone());
        record.path = Some(path.as_str().to_owned());
        record.upstream = Some(target.address);
        record.status = end.status;
        record.reason = reason.or(watched.map(|denial| denial.reason));
        let watched_rule = watched.and_then(|denial| denial.rule.as_deref());
        set_rule(&mut record, self.permit.rule.as_deref().or(watched_rule));
        let (bytes_in, bytes_out) = (
            self.bytes_in.load(Ordering::Relaxed),
            self.bytes_out.load(Ordering::Relaxed),
        );
        record.bytes_in = Some(bytes_in);
        record.bytes_out = Some(bytes_out);
        record.duration_ms = u64::try_from(self.started.elapsed().as_millis()).ok();
        metrics.bytes_in_total.add(bytes_in);
        metrics.bytes_out_total.add(bytes_out);
        if let Some(reason) = reason {
            metrics.refused(reason);
        }
        self.session.shared.audit.record(record);
    }
}
