//! What is decided about a connection once it has shown what it is.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use causeway_policy::{ConnectPermit, Denial};
use causeway_types::{DomainName, Reason};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::first::{First, Shown};
use super::{Session, denial};
use crate::audit::Protocol;
use crate::dial::reset_on_close;
use crate::engine::{self, Opening};
use crate::flows::Flow;
use crate::judge::{self, Subject, Target};
use crate::sniff::{ClientHello, POSTGRES_REQUEST, Sni, Sniffed};

impl Session {
    /// Decides what happens to the connection, and does it.
    pub(super) async fn judge(self: &Arc<Self>, flow: &Flow, stream: TcpStream, first: First) {
        let First { bytes, sniffed } = first;
        match sniffed {
            Err(reason) => self.reset(&stream, Protocol::Tcp, None, &denial(reason)),
            Ok(Shown::Nothing) => self.judge_opening(flow, stream, Bytes::new(), bytes).await,
            Ok(Shown::Protocol(Sniffed::Postgres)) => {
                let mut rest = bytes;
                let request = rest.split_to(POSTGRES_REQUEST.min(rest.len()));
                self.judge_opening(flow, stream, request, rest).await;
            }
            Ok(Shown::Protocol(Sniffed::Opaque)) => match self.unnamed(false) {
                Err(denial) => self.reset(&stream, Protocol::Tcp, None, &denial),
                Ok((target, _permit)) => {
                    self.pass(stream, bytes.into(), target, Protocol::Tcp).await;
                }
            },
            Ok(Shown::Protocol(Sniffed::Http)) => {
                let work = engine::plain(self, stream, bytes);
                self.until_cut(flow, Protocol::Http, None, work).await;
            }
            Ok(Shown::Protocol(Sniffed::Tls(hello))) => {
                self.judge_tls(flow, stream, bytes, hello).await;
            }
            Ok(Shown::Protocol(Sniffed::BadTls(_error))) => {
                self.refuse(Protocol::Tls, None, &denial(Reason::BadTls));
                alert(stream, DECODE_ERROR).await;
            }
        }
    }

    /// What a connection without a name is taken for. `readable` is whether requests inside it
    /// could be read.
    fn unnamed(&self, readable: bool) -> Result<(Target, ConnectPermit), Denial> {
        let (by_address, named) = self.targets(readable);
        let (_snapshot, sandbox) = self.current()?;
        judge::unnamed(&sandbox.policy, &by_address, &named, readable)
    }

    /// The server has to say something before the client shows what it is.
    async fn judge_opening(
        self: &Arc<Self>,
        flow: &Flow,
        stream: TcpStream,
        request: Bytes,
        rest: Bytes,
    ) {
        match self.unnamed(false) {
            Err(denial) => self.reset(&stream, Protocol::Tcp, None, &denial),
            // One who does not wait for the answer could have meant anything by what follows.
            Ok(_) if !rest.is_empty() => {
                let refused = denial(Reason::AmbiguousRequest);
                self.reset(&stream, Protocol::Tcp, None, &refused);
            }
            Ok((target, _permit)) => self.open(flow, stream, target, request).await,
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
        let target = match &name {
            Some(_) => self.target(name.clone(), true),
            // Without a permit there is nothing to end: the refusal below is by address.
            None => match self.unnamed(true) {
                Ok((target, _permit)) => target,
                Err(denial) => {
                    self.refuse(Protocol::Tls, None, &denial);
                    return alert(stream, ACCESS_DENIED).await;
                }
            },
        };
        let flow = self
            .activity
            .flows
            .register(Subject::Connection(target.clone()));
        let decision = self.current().and_then(|(snapshot, sandbox)| {
            if name.is_some() && !self.admits(name.as_ref()) {
                return Err(denial(Reason::NameMismatch));
            }
            judge::connection(&sandbox.policy, &target).map(|permit| (snapshot, permit))
        });
        match decision {
            Ok((_snapshot, permit)) if target.name.is_none() || passes(&permit, &hello) => {
                drop(flow);
                self.pass(stream, bytes.into(), target, Protocol::Tls).await;
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

    /// Passes bytes through, if they need not be seen.
    pub(super) async fn pass(
        self: &Arc<Self>,
        stream: TcpStream,
        opening: Opening,
        target: Target,
        protocol: Protocol,
    ) {
        let flow = (self.activity.flows).register(Subject::Passed(target.clone()));
        let decision = self
            .current()
            .and_then(|(_, sandbox)| judge::passed(&sandbox.policy, &target));
        match decision {
            Err(denial) => self.reset(&stream, protocol, target.name.as_ref(), &denial),
            Ok(permit) => {
                engine::pass(self, &flow, stream, opening, &target, &permit, protocol).await;
            }
        }
    }

    /// Notes a refusal, and ends the connection by a reset.
    pub(super) fn reset(
        &self,
        stream: &TcpStream,
        protocol: Protocol,
        name: Option<&DomainName>,
        denial: &Denial,
    ) {
        self.refuse(protocol, name, denial);
        reset_on_close(stream);
    }

    /// Judges what came after the server and the client had said something to each other.
    /// `buffer` begins with it.
    pub(super) async fn judge_late(
        self: &Arc<Self>,
        stream: TcpStream,
        target: Target,
        opening: Opening,
        sniffed: Sniffed,
    ) {
        let judged = match sniffed {
            Sniffed::Opaque => Ok((target, Protocol::Tcp)),
            Sniffed::Tls(hello) => self.late_name(target, &hello),
            Sniffed::BadTls(_error) => Err(denial(Reason::BadTls)),
            Sniffed::Http | Sniffed::Postgres => Err(denial(Reason::Unsupported)),
        };
        match judged {
            Ok((target, protocol)) => self.pass(stream, opening, target, protocol).await,
            Err(denial) => self.reset(&stream, Protocol::Tcp, None, &denial),
        }
    }

    /// The name in a TLS handshake that the two sides have agreed on begins no new connection:
    /// it has to be one that may be passed to this address.
    fn late_name(&self, target: Target, hello: &ClientHello) -> Result<(Target, Protocol), Denial> {
        match &hello.sni {
            Sni::Absent => Ok((target, Protocol::Tls)),
            Sni::Malformed => Err(denial(Reason::BadName)),
            Sni::Name(name) if !self.admits(Some(name)) => Err(denial(Reason::NameMismatch)),
            Sni::Name(name) => Ok((self.target(Some(name.clone()), true), Protocol::Tls)),
        }
    }

    /// Serves a connection whose first bytes are known, and of which nothing went on.
    pub(super) async fn judge_anew(
        self: &Arc<Self>,
        flow: &Flow,
        stream: TcpStream,
        bytes: BytesMut,
        sniffed: Sniffed,
    ) {
        let first = First {
            bytes: bytes.freeze(),
            sniffed: Ok(Shown::Protocol(sniffed)),
        };
        Box::pin(self.judge(flow, stream, first)).await;
    }
}

/// Whether TLS goes through as it is. A secret alone is no reason to look inside what says that
/// it is no HTTP.
fn passes(permit: &ConnectPermit, hello: &ClientHello) -> bool {
    !permit.inspect || (!permit.requests && !hello.may_speak_http())
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
