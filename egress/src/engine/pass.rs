//! Bytes through, unseen.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use causeway_policy::ConnectPermit;
use causeway_types::Reason;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

use crate::audit::{Outcome, Protocol};
use crate::dial::{DialError, reset_on_close};
use crate::flows::Flow;
use crate::judge::Target;
use crate::relay::relay;
use crate::session::{Session, denial, set_rule};
use crate::stream::Counted;

/// Bytes held in each direction.
const BUFFER: usize = 32 * 1024;
/// A connection on which nothing moves for this long is closed.
const IDLE: Duration = Duration::from_secs(3600);

/// What was said before bytes are passed.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    /// What the client has said and the upstream has not got.
    pub(crate) first: Bytes,
    /// Bytes that the upstream has got.
    pub(crate) out: u64,
    /// Bytes that the client has got.
    pub(crate) back: u64,
}

impl From<Bytes> for Opening {
    fn from(first: Bytes) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }
}

/// Dials the judged address and copies both ways until both sides have closed.
pub(crate) async fn pass(
    session: &Session,
    flow: &Flow,
    client: TcpStream,
    opening: Opening,
    target: &Target,
    permit: &ConnectPermit,
    protocol: Protocol,
) {
    let dialled = tokio::select! {
        biased;
        reason = flow.cut() => Err(reason),
        dialled = session.dial(target.address, target.port) => match dialled {
            Ok(upstream) => Ok(upstream),
            Err(DialError::TimedOut | DialError::Io(_)) => Err(Reason::UpstreamUnreachable),
        },
    };
    let mut upstream = match dialled {
        Ok(upstream) => upstream,
        Err(reason) => {
            session.refuse(protocol, target.name.as_ref(), &denial(reason));
            reset_on_close(&client);
            return;
        }
    };
    let Opening { first, out, back } = opening;
    let out = out + first.len() as u64;
    let (to_upstream, to_client) = (
        Arc::new(AtomicU64::new(out)),
        Arc::new(AtomicU64::new(back)),
    );
    let moving = async {
        upstream.write_all(&first).await.map_err(|_broken| None)?;
        drop(first);
        let moving = relay(&client, &upstream, &to_upstream, &to_client);
        unless_idle(moving, &to_upstream, &to_client).await
    };
    let reason = tokio::select! {
        biased;
        reason = flow.cut() => Some(reason),
        moved = moving => moved.err().flatten(),
    };
    if reason.is_some() {
        reset_on_close(&client);
        reset_on_close(&upstream);
    }
    let (bytes_out, bytes_in) = (
        to_upstream.load(Ordering::Relaxed),
        to_client.load(Ordering::Relaxed),
    );
    session.shared.metrics.bytes_out_total.add(bytes_out);
    session.shared.metrics.bytes_in_total.add(bytes_in);
    record(
        session,
        target,
        permit,
        protocol,
        reason,
        (bytes_out, bytes_in),
    );
}

/// Copies both ways until both directions have ended, handing on the end of each as it comes.
/// The error has a reason when it was us who gave up.
pub(super) async fn copy<A, B>(
    client: A,
    upstream: B,
    to_upstream: &Arc<AtomicU64>,
    to_client: &Arc<AtomicU64>,
) -> Result<(), Option<Reason>>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    let mut client = Counted::new(client, Arc::clone(to_upstream));
    let mut upstream = Counted::new(upstream, Arc::clone(to_client));
    let moving = copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER);
    unless_idle(moving, to_upstream, to_client).await
}

/// Waits for `moving`, but not when nothing moves for too long.
async fn unless_idle<T>(
    moving: impl Future<Output = io::Result<T>>,
    to_upstream: &AtomicU64,
    to_client: &AtomicU64,
) -> Result<(), Option<Reason>> {
    let watching = async {
        let moved = || to_upstream.load(Ordering::Relaxed) + to_client.load(Ordering::Relaxed);
        let mut before = moved();
        loop {
            tokio::time::sleep(IDLE).await;
            let now = moved();
            if now == before {
                return;
            }
            before = now;
        }
    };
    tokio::select! {
        moved = moving => moved.map(|_done| ()).map_err(|_broken| None),
        () = watching => Err(Some(Reason::TimedOut)),
    }
}

fn record(
    session: &Session,
    target: &Target,
    permit: &ConnectPermit,
    protocol: Protocol,
    ended: Option<Reason>,
    (bytes_out, bytes_in): (u64, u64),
) {
    let outcome = match (ended, &permit.audit) {
        (Some(_cut), _) => Outcome::Deny,
        (None, Some(_would_deny)) => Outcome::Audit,
        (None, None) => Outcome::Permit,
    };
    let mut record = session.record(protocol, outcome);
    record.name.clone_from(&target.name);
    record.upstream = Some(target.address);
    record.reason = ended.or(permit.audit.as_ref().map(|denial| denial.reason));
    let watched = permit
        .audit
        .as_ref()
        .and_then(|denial| denial.rule.as_deref());
    set_rule(&mut record, permit.rule.as_deref().or(watched));
    record.bytes_in = Some(bytes_in);
    record.bytes_out = Some(bytes_out);
    record.duration_ms = Some(session.duration_ms());
    if let Some(reason) = ended {
        session.shared.metrics.refused(reason);
    }
    session.shared.audit.record(record);
}
