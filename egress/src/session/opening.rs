//! Protocols whose server speaks first: SSH, SMTP, `MySQL` and, after a request for TLS of
//! eight bytes, `PostgreSQL`.
//!
//! What the server says is handed on, and what the client answers is looked at all the same: a
//! client that is silent for a moment and then begins TLS for another name would else have
//! found a way around every rule on names.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use causeway_types::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::first::SNIFF_DEADLINE;
use super::{Session, denial};
use crate::audit::Protocol;
use crate::engine::Opening;
use crate::flows::Flow;
use crate::judge::{self, Subject, Target};
use crate::sniff::{MAX_SNIFF, POSTGRES_REQUEST, Sniffed, sniff};

/// How long a client may leave what the server said unanswered.
const SILENCE: Duration = Duration::from_secs(3600);
/// A client asks for GSSAPI encryption, for TLS, and then begins.
const MAX_REQUESTS: u32 = 3;

/// Both ends, and what has gone between them.
struct Exchange {
    client: TcpStream,
    upstream: TcpStream,
    /// What the client has said and the server has not got.
    buffer: BytesMut,
    out: u64,
    back: u64,
    requests: u32,
}

impl Session {
    /// Connects a client to a server that has to speak before the client shows what it is.
    /// `request` is what the server gets first.
    pub(super) async fn open(
        self: &Arc<Self>,
        unknown: &Flow,
        client: TcpStream,
        target: Target,
        request: Bytes,
    ) {
        let flow = (self.activity.flows).register(Subject::Passed(target.clone()));
        let permitted = self
            .current()
            .and_then(|(_, sandbox)| judge::passed(&sandbox.policy, &target));
        if let Err(denial) = permitted {
            return self.reset(&client, Protocol::Tcp, target.name.as_ref(), &denial);
        }
        let opened = tokio::select! {
            biased;
            reason = flow.cut() => Err(reason),
            dialled = self.dial(target.address, target.port) => {
                dialled.map_err(|_unreachable| Reason::UpstreamUnreachable)
            }
        };
        let upstream = match opened {
            Ok(upstream) => upstream,
            Err(reason) => {
                let name = target.name.as_ref();
                return self.reset(&client, Protocol::Tcp, name, &denial(reason));
            }
        };
        let mut exchange = Exchange {
            client,
            upstream,
            buffer: BytesMut::new(),
            out: 0,
            back: 0,
            requests: 0,
        };
        let shown = tokio::select! {
            biased;
            reason = flow.cut() => Err(reason),
            shown = exchange.until_shown(request) => shown,
        };
        drop(flow);
        let Exchange {
            client,
            upstream,
            buffer,
            out,
            back,
            requests: _,
        } = exchange;
        match shown {
            Err(reason) => {
                crate::dial::reset_on_close(&upstream);
                self.reset(
                    &client,
                    Protocol::Tcp,
                    target.name.as_ref(),
                    &denial(reason),
                );
            }
            // Nobody has said anything yet: the client was only slow.
            Ok(sniffed) if out + back == 0 => {
                self.keep_ready(upstream);
                self.judge_anew(unknown, client, buffer, sniffed).await;
            }
            Ok(sniffed) => {
                self.keep_ready(upstream);
                let opening = Opening {
                    first: buffer.freeze(),
                    out,
                    back,
                };
                self.judge_late(client, target, opening, sniffed).await;
            }
        }
    }
}

impl Exchange {
    /// Hands on what the server says until the client has shown what it speaks.
    async fn until_shown(&mut self, request: Bytes) -> Result<Sniffed, Reason> {
        if !request.is_empty() {
            self.hand_on(&request).await?;
        }
        loop {
            match self.next().await? {
                Sniffed::Postgres if self.requests < MAX_REQUESTS => {
                    let request = self.buffer.split_to(POSTGRES_REQUEST).freeze();
                    if !self.buffer.is_empty() {
                        return Err(Reason::AmbiguousRequest);
                    }
                    self.hand_on(&request).await?;
                }
                shown => return Ok(shown),
            }
        }
    }

    async fn hand_on(&mut self, request: &[u8]) -> Result<(), Reason> {
        self.requests += 1;
        self.out += request.len() as u64;
        let sent = self.upstream.write_all(request).await;
        sent.map_err(|_broken| Reason::UpstreamUnreachable)
    }

    async fn next(&mut self) -> Result<Sniffed, Reason> {
        let Self {
            client,
            upstream,
            buffer,
            back,
            ..
        } = self;
        let mut said = [0; 4096];
        let mut deadline = Instant::now() + SILENCE;
        loop {
            tokio::select! {
                read = upstream.read(&mut said) => match read {
                    // Both directions are ended where bytes are passed.
                    Ok(0) | Err(_) => return Ok(Sniffed::Opaque),
                    Ok(count) => {
                        let handed = client.write_all(&said[..count]).await;
                        handed.map_err(|_gone| Reason::TimedOut)?;
                        *back += count as u64;
                    }
                },
                read = client.read_buf(buffer) => {
                    if matches!(read, Ok(0) | Err(_)) {
                        return Ok(Sniffed::Opaque);
                    }
                    if let Some(sniffed) = sniff(buffer) {
                        return Ok(sniffed);
                    }
                    if buffer.len() >= MAX_SNIFF {
                        return Err(Reason::TooLarge);
                    }
                    deadline = deadline.min(Instant::now() + SNIFF_DEADLINE);
                }
                () = tokio::time::sleep_until(deadline) => return Err(Reason::TimedOut),
            }
        }
    }
}
