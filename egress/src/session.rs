//! One connection of a sandbox, from its acceptance to its end.

mod first;
mod opening;
mod route;
mod verdict;

pub(crate) use first::SNIFF_DEADLINE;

use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use causeway_policy::{Denial, RuleRef};
use causeway_types::{DomainName, Reason, SandboxUid};
use tokio::net::TcpStream;

use crate::audit::{AuditRecord, Outcome, Protocol};
use crate::dial::{DialError, dial, reset_on_close, set_options};
use crate::flows::FlowGuard;
use crate::judge::{Subject, Target};
use crate::limits::Slot;
use crate::state::{Activity, Sandbox, Shared, Snapshot};
use crate::{explicit, limits};

/// An upstream connection that waits for its first use for longer than this may be closed.
const READY: Duration = Duration::from_secs(5);

/// How a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The sandbox connected to where it wants to go, and the dataplane delivered it here.
    Transparent,
    /// The sandbox connected to the proxy, and says where it wants to go.
    Explicit,
}

/// A connection as it was accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The connection.
    pub(crate) stream: TcpStream,
    /// Who opened it.
    pub(crate) source: SocketAddrV6,
    /// Where it was opened to.
    pub(crate) destination: SocketAddrV6,
    /// How it came.
    pub(crate) way: Way,
}

/// What a client asked the proxy for by name or by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A name: everything inside has to be for this one.
    Name(DomainName),
    /// An address: as if the client had connected to it.
    Address,
}

/// What stays the same over the life of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    pub(crate) port: u16,
    pub(crate) activity: Arc<Activity>,
    asked: Option<Asked>,
    /// A connection to the destination, opened before the client was told that it may begin.
    ready: Mutex<Option<(TcpStream, Instant)>>,
    uid: SandboxUid,
    started: Instant,
}

/// Serves one connection to its end.
pub(crate) async fn serve(shared: Arc<Shared>, accepted: Accepted) {
    shared.metrics.connections_total.add(1);
    let metrics = Arc::clone(&shared.metrics);
    let way = accepted.way;
    if let Some((session, stream, held)) = admit(shared, accepted) {
        match way {
            Way::Transparent => session.begin(&held.flow, stream).await,
            Way::Explicit => explicit::serve(&session, &held.flow, stream).await,
        }
    }
    metrics.connections_closed.add(1);
}

/// What a connection holds while it lives.
struct Held {
    flow: FlowGuard,
    _slot: Slot,
}

/// Finds out whose connection it is, and whether that one may have another.
fn admit(shared: Arc<Shared>, accepted: Accepted) -> Option<(Arc<Session>, TcpStream, Held)> {
    let Accepted {
        stream,
        source,
        destination,
        way: _,
    } = accepted;
    let snapshot = shared.snapshot();
    let Some(sandbox) = snapshot.sandbox(*source.ip()) else {
        refuse_unknown(&shared, &snapshot, source, destination);
        reset_on_close(&stream);
        return None;
    };
    let uid = sandbox.info.uid;
    let session = Arc::new(Session {
        source: *source.ip(),
        destination: *destination.ip(),
        port: destination.port(),
        activity: Arc::clone(&sandbox.activity),
        asked: None,
        ready: Mutex::default(),
        uid,
        started: Instant::now(),
        shared,
    });
    drop(snapshot);
    // Registered first and judged after: see `flows`.
    let flow = session.activity.flows.register(Subject::Unknown);
    let most = match session.current() {
        Err(denial) => {
            session.refuse(Protocol::Tcp, None, &denial);
            reset_on_close(&stream);
            return None;
        }
        Ok((_snapshot, sandbox)) => sandbox.policy.limits().connections,
    };
    let slots = &session.activity.connections;
    let Some(slot) = slots.take(most.unwrap_or(limits::DEFAULT_CONNECTIONS)) else {
        session.refuse(Protocol::Tcp, None, &denial(Reason::LimitReached));
        reset_on_close(&stream);
        return None;
    };
    let _best_effort = set_options(&stream);
    Some((session, stream, Held { flow, _slot: slot }))
}

/// A refusal that no rule is behind.
pub(crate) fn denial(reason: Reason) -> Denial {
    Denial { reason, rule: None }
}

fn refuse_unknown(
    shared: &Shared,
    snapshot: &Snapshot,
    source: SocketAddrV6,
    destination: SocketAddrV6,
) {
    shared.metrics.refused(Reason::UnknownSandbox);
    let mut record = AuditRecord::new(
        SystemTime::now(),
        snapshot.generation,
        *source.ip(),
        None,
        Protocol::Tcp,
        Outcome::Deny,
    );
    record.destination = Some((*destination.ip()).into());
    record.port = Some(destination.port());
    record.reason = Some(Reason::UnknownSandbox);
    shared.audit.record(record);
}

impl Session {
    /// The sandbox as it is now, or why it may do nothing.
    pub(crate) fn current(&self) -> Result<(Arc<Snapshot>, Arc<Sandbox>), Denial> {
        let snapshot = self.shared.snapshot();
        let sandbox = snapshot
            .sandbox(self.source)
            .filter(|sandbox| sandbox.info.uid == self.uid)
            .map(Arc::clone)
            .ok_or_else(|| denial(Reason::UnknownSandbox))?;
        if sandbox.info.quarantined {
            return Err(denial(Reason::SandboxQuarantined));
        }
        Ok((snapshot, sandbox))
    }

    /// The target of this connection under a name, with what the resolver has said until now.
    pub(crate) fn target(&self, name: Option<DomainName>, tls: bool) -> Target {
        let pins = &self.shared.pins;
        let pinned = pins.lookup(self.uid, self.destination, Instant::now());
        Target::new(name, pinned.as_ref(), self.destination, self.port, tls)
    }

    /// The targets that this connection can have while it shows no name: by its address alone,
    /// and under each name that it can stand for.
    pub(crate) fn targets(&self, tls: bool) -> (Target, Vec<Target>) {
        let pins = &self.shared.pins;
        let pinned = pins.lookup(self.uid, self.destination, Instant::now());
        let target = |name| Target::new(name, pinned.as_ref(), self.destination, self.port, tls);
        let names = match (&self.asked, &pinned) {
            (Some(Asked::Name(name)), _) => vec![name.clone()],
            (_, Some(pinned)) => pinned.names.clone(),
            (_, None) => Vec::new(),
        };
        let named = names.into_iter().map(|name| target(Some(name))).collect();
        (target(None), named)
    }

    /// Whether the client may use this name, or none, on this connection: one who asked the
    /// proxy for a name asks for no other.
    pub(crate) fn admits(&self, name: Option<&DomainName>) -> bool {
        match &self.asked {
            Some(Asked::Name(asked)) => name == Some(asked),
            Some(Asked::Address) | None => true,
        }
    }

    /// Connects to a judged target, or takes the connection that is there already.
    pub(crate) async fn dial(&self, address: IpAddr, port: u16) -> Result<TcpStream, DialError> {
        let ready = {
            let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
            ready.take()
        };
        match ready {
            Some((stream, since))
                if port == self.port
                    && address == crate::pins::upstream(self.destination)
                    && since.elapsed() < READY =>
            {
                Ok(stream)
            }
            _ => dial(self.source, address, port).await,
        }
    }

    /// Keeps a connection to the destination for the next [`Session::dial`].
    pub(crate) fn keep_ready(&self, upstream: TcpStream) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        *ready = Some((upstream, Instant::now()));
    }

    /// Works until the flow is cut.
    pub(crate) async fn until_cut(
        &self,
        flow: &crate::flows::Flow,
        protocol: Protocol,
        name: Option<&DomainName>,
        work: impl Future<Output = ()>,
    ) {
        tokio::select! {
            biased;
            reason = flow.cut() => self.refuse(protocol, name, &denial(reason)),
            () = work => {}
        }
    }

    /// Counts and notes a refusal of this connection.
    pub(crate) fn refuse(&self, protocol: Protocol, name: Option<&DomainName>, denial: &Denial) {
        self.shared.metrics.refused(denial.reason);
        let mut record = self.record(protocol, Outcome::Deny);
        record.name = name.cloned();
        record.reason = Some(denial.reason);
        set_rule(&mut record, denial.rule.as_deref());
        self.shared.audit.record(record);
    }

    /// A record of this connection, for the caller to complete.
    pub(crate) fn record(&self, protocol: Protocol, outcome: Outcome) -> AuditRecord {
        let snapshot = self.shared.snapshot();
        let sandbox = snapshot
            .sandbox(self.source)
            .filter(|sandbox| sandbox.info.uid == self.uid);
        let mut record = AuditRecord::new(
            SystemTime::now(),
            snapshot.generation,
            self.source,
            sandbox.map(|sandbox| &sandbox.info.id),
            protocol,
            outcome,
        );
        record.destination = Some(self.destination.into());
        record.port = Some(self.port);
        record
    }

    /// The sandbox.
    pub(crate) fn uid(&self) -> SandboxUid {
        self.uid
    }

    /// How long the connection has lasted, in milliseconds.
    pub(crate) fn duration_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Notes the rule that decided.
pub(crate) fn set_rule(record: &mut AuditRecord, rule: Option<&RuleRef>) {
    record.rule = rule.map(ToString::to_string);
    record.policy = rule.map(|rule| rule.policy.to_string());
}
