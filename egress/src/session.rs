//! One connection of a sandbox, from its acceptance to its end.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use causeway_policy::{Denial, RuleRef};
use causeway_types::{DomainName, Reason, SandboxUid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::audit::{AuditRecord, Outcome, Protocol};
use crate::dial::{reset_on_close, set_options};
use crate::flows::Flow;
use crate::judge::{self, Subject, Target};
use crate::sniff::{ClientHello, MAX_SNIFF, Sni, Sniffed, sniff};
use crate::state::{Activity, Sandbox, Shared, Snapshot};
use crate::{engine, limits};

/// How long a client may take to show what it wants.
const SNIFF_DEADLINE: Duration = Duration::from_secs(10);
/// How long a client of an address that rules open may be silent before it is taken for one
/// whose server speaks first.
const SERVER_FIRST: Duration = Duration::from_millis(200);

/// A connection as the dataplane delivered it.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// The connection.
    pub(crate) stream: TcpStream,
    /// Who opened it.
    pub(crate) source: SocketAddrV6,
    /// Where it was meant to go.
    pub(crate) destination: SocketAddrV6,
}

/// What stays the same over the life of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    pub(crate) port: u16,
    pub(crate) activity: Arc<Activity>,
    uid: SandboxUid,
    started: Instant,
}

/// Serves one connection to its end.
pub(crate) async fn serve(shared: Arc<Shared>, accepted: Accepted) {
    shared.metrics.connections_total.add(1);
    let metrics = Arc::clone(&shared.metrics);
    serve_counted(shared, accepted).await;
    metrics.connections_closed.add(1);
}

async fn serve_counted(shared: Arc<Shared>, accepted: Accepted) {
    let Accepted {
        mut stream,
        source,
        destination,
    } = accepted;
    let snapshot = shared.snapshot();
    let Some(sandbox) = snapshot.sandbox(*source.ip()) else {
        refuse_unknown(&shared, &snapshot, source, destination);
        reset_on_close(&stream);
        return;
    };
    let uid = sandbox.info.uid;
    let session = Arc::new(Session {
        source: *source.ip(),
        destination: *destination.ip(),
        port: destination.port(),
        activity: Arc::clone(&sandbox.activity),
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
            return;
        }
        Ok((_snapshot, sandbox)) => sandbox.policy.limits().connections,
    };
    let slots = &session.activity.connections;
    let Some(_slot) = slots.take(most.unwrap_or(limits::DEFAULT_CONNECTIONS)) else {
        session.refuse(Protocol::Tcp, None, &denial(Reason::LimitReached));
        reset_on_close(&stream);
        return;
    };
    let _best_effort = set_options(&stream);
    let first = tokio::select! {
        biased;
        reason = flow.cut() => Err(reason),
        first = session.first_bytes(&mut stream) => Ok(first),
    };
    match first {
        Ok(first) => session.judge(&flow, stream, first).await,
        Err(reason) => {
            session.refuse(Protocol::Tcp, None, &denial(reason));
            reset_on_close(&stream);
        }
    }
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

/// What a client began with.
struct First {
    bytes: Bytes,
    sniffed: Result<Sniffed, Reason>,
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

    /// Reads until it is clear what the client speaks.
    async fn first_bytes(&self, stream: &mut TcpStream) -> First {
        let mut buffer = BytesMut::with_capacity(2048);
        let opaque = self.target(None, false);
        let open = self
            .current()
            .is_ok_and(|(_, sandbox)| judge::connection(&sandbox.policy, &opaque).is_ok());
        let first_wait = if open { SERVER_FIRST } else { SNIFF_DEADLINE };
        let sniffed = async {
            loop {
                let wait = if buffer.is_empty() {
                    first_wait
                } else {
                    SNIFF_DEADLINE
                };
                let read = tokio::time::timeout(wait, stream.read_buf(&mut buffer));
                match read.await {
                    Err(_elapsed) if buffer.is_empty() && open => return Ok(Sniffed::Opaque),
                    Err(_elapsed) => return Err(Reason::TimedOut),
                    // The client closed before it showed anything else than opaque bytes.
                    Ok(Ok(0)) => return Ok(Sniffed::Opaque),
                    Ok(Err(_broken)) => return Err(Reason::TimedOut),
                    Ok(Ok(_count)) => {}
                }
                if let Some(sniffed) = sniff(&buffer) {
                    return Ok(sniffed);
                }
                if buffer.len() >= MAX_SNIFF {
                    return Err(Reason::TooLarge);
                }
            }
        };
        // A client that drips bytes does not get the wait again for each of them.
        let sniffed = tokio::time::timeout(SNIFF_DEADLINE, sniffed)
            .await
            .unwrap_or(Err(Reason::TimedOut));
        First {
            bytes: buffer.freeze(),
            sniffed,
        }
    }

    /// Decides what happens to the connection, and does it.
    async fn judge(self: &Arc<Self>, flow: &Flow, stream: TcpStream, first: First) {
        match first.sniffed {
            Err(reason) => {
                self.refuse(Protocol::Tcp, None, &denial(reason));
                reset_on_close(&stream);
            }
            Ok(Sniffed::Opaque) => self.judge_opaque(stream, first.bytes).await,
            Ok(Sniffed::Http) => {
                let work = engine::plain(self, stream, first.bytes);
                self.until_cut(flow, Protocol::Http, None, work).await;
            }
            Ok(Sniffed::Tls(hello)) => self.judge_tls(flow, stream, first.bytes, hello).await,
            Ok(Sniffed::BadTls(_error)) => {
                self.refuse(Protocol::Tls, None, &denial(Reason::BadTls));
                alert(stream, DECODE_ERROR).await;
            }
        }
    }

    async fn judge_opaque(self: &Arc<Self>, stream: TcpStream, bytes: Bytes) {
        let target = self.target(None, false);
        let flow = self
            .activity
            .flows
            .register(Subject::Connection(target.clone()));
        let decision = self
            .current()
            .and_then(|(_, sandbox)| judge::connection(&sandbox.policy, &target));
        match decision {
            Err(denial) => {
                self.refuse(Protocol::Tcp, None, &denial);
                reset_on_close(&stream);
            }
            Ok(permit) => {
                engine::pass(self, &flow, stream, bytes, &target, &permit, Protocol::Tcp).await;
            }
        }
    }

    async fn judge_tls(
        self: &Arc<Self>,
        unknown: &Flow,
        stream: TcpStream,
        bytes: Bytes,
        hello: ClientHello,
    ) {
        let name = match &hello.sni {
            Sni::Absent => None,
            Sni::Name(name) => Some(name.clone()),
            Sni::Malformed => {
                self.refuse(Protocol::Tls, None, &denial(Reason::BadName));
                return alert(stream, UNRECOGNISED_NAME).await;
            }
        };
        let target = self.target(name, true);
        let flow = self
            .activity
            .flows
            .register(Subject::Connection(target.clone()));
        let decision = self.current().and_then(|(snapshot, sandbox)| {
            judge::connection(&sandbox.policy, &target).map(|permit| (snapshot, permit))
        });
        match decision {
            Ok((_snapshot, permit)) if !permit.inspect || target.name.is_none() => {
                engine::pass(self, &flow, stream, bytes, &target, &permit, Protocol::Tls).await;
            }
            Ok((snapshot, _permit)) => {
                let name = target.name.clone();
                let work = engine::inspect(self, &snapshot, stream, bytes, target, None);
                self.until_cut(&flow, Protocol::Tls, name.as_ref(), work)
                    .await;
            }
            Err(denial) => {
                self.refuse(Protocol::Tls, target.name.as_ref(), &denial);
                let snapshot = self.shared.snapshot();
                if target.name.is_some() && hello.may_speak_http() && snapshot.ca.is_some() {
                    // So that the client can read why.
                    let work =
                        engine::inspect(self, &snapshot, stream, bytes, target, Some(denial));
                    self.until_cut(unknown, Protocol::Tls, None, work).await;
                } else {
                    alert(stream, ACCESS_DENIED).await;
                }
            }
        }
    }

    /// Works until the flow is cut.
    async fn until_cut(
        &self,
        flow: &Flow,
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

/// Alert descriptions (RFC 8446, section 6.2).
const ACCESS_DENIED: u8 = 49;
const DECODE_ERROR: u8 = 50;
const UNRECOGNISED_NAME: u8 = 112;

/// Ends a TLS connection before its handshake with a fatal alert, which clients show.
async fn alert(mut stream: TcpStream, description: u8) {
    let record = [21, 3, 3, 0, 2, 2, description];
    // The client may be gone, and then there is nobody to tell.
    let _gone = stream.write_all(&record).await;
    let _gone = stream.shutdown().await;
}
