//! Clients that know of the proxy and say where they want to go: HTTP CONNECT, HTTP with
//! absolute targets, and SOCKS version 5. Each port takes all of them; the first byte tells.
//!
//! What is asked for is resolved, judged and connected (`session/route.rs`), and then the
//! connection goes on exactly as one that the dataplane delivered.

pub mod socks;

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use causeway_policy::Denial;
use causeway_types::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::audit::{Outcome, Protocol};
use crate::dial::reset_on_close;
use crate::engine::{self, Host};
use crate::flows::Flow;
use crate::session::{SNIFF_DEADLINE, Session, denial, set_rule};
use socks::SocksError;

/// The most bytes before a SOCKS client may begin: two messages of at most 262 bytes.
const MAX_TALK: usize = 1024;
/// The version of SOCKS that has no names and no IPv6.
const SOCKS4: u8 = 4;
/// The first byte of TLS.
const TLS: u8 = 22;

/// Serves a connection to the proxy's own ports.
pub(crate) async fn serve(session: &Arc<Session>, flow: &Flow, stream: TcpStream) {
    let work = begin(session, stream);
    let routed = tokio::select! {
        biased;
        reason = flow.cut() => {
            session.refuse(Protocol::Tcp, None, &denial(reason));
            None
        }
        routed = work => routed,
    };
    if let Some((session, stream, buffer)) = routed {
        session.go_on(flow, stream, buffer).await;
    }
}

/// A connection that is to go on from here.
type Routed = (Arc<Session>, TcpStream, BytesMut);

async fn begin(session: &Arc<Session>, mut stream: TcpStream) -> Option<Routed> {
    let mut buffer = BytesMut::with_capacity(2048);
    let read = tokio::time::timeout(SNIFF_DEADLINE, stream.read_buf(&mut buffer)).await;
    match (read, buffer.first()) {
        (Ok(Ok(_)), Some(&socks::VERSION)) => {
            let talk = Talk {
                session,
                stream,
                buffer,
            };
            talk.serve().await
        }
        (Ok(Ok(_)), Some(&(SOCKS4 | TLS))) => {
            session.refuse(Protocol::Tcp, None, &denial(Reason::Unsupported));
            reset_on_close(&stream);
            None
        }
        (Ok(Ok(_)), Some(_)) => {
            let tunnel = engine::proxy(session, stream, buffer.freeze()).await?;
            Some((tunnel.session, tunnel.stream, tunnel.buffer))
        }
        // One that says nothing and leaves was looking whether anybody is here.
        (Ok(_), _) => None,
        (Err(_elapsed), _) => {
            session.refuse(Protocol::Tcp, None, &denial(Reason::TimedOut));
            reset_on_close(&stream);
            None
        }
    }
}

/// A SOCKS client that has not been connected yet.
struct Talk<'a> {
    session: &'a Arc<Session>,
    stream: TcpStream,
    buffer: BytesMut,
}

impl Talk<'_> {
    async fn serve(mut self) -> Option<Routed> {
        let asked = tokio::time::timeout(SNIFF_DEADLINE, self.ask()).await;
        let request = match asked {
            Ok(Ok(request)) => request?,
            Ok(Err(error)) => {
                self.session
                    .refuse(Protocol::Tcp, None, &denial(error.reason()));
                self.end(error.reply().as_deref()).await;
                return None;
            }
            Err(_elapsed) => {
                let refused = denial(Reason::TimedOut);
                self.session.refuse(Protocol::Tcp, None, &refused);
                self.end(None).await;
                return None;
            }
        };
        match self.session.route(&request.host, request.port).await {
            Ok(session) => {
                let welcome = socks::reply(socks::SUCCEEDED);
                self.stream.write_all(&welcome).await.ok()?;
                Some((session, self.stream, self.buffer))
            }
            Err(denial) => {
                note(self.session, &request, &denial);
                let reply = socks::reply(socks::code(denial.reason));
                self.end(Some(&reply)).await;
                None
            }
        }
    }

    /// Reads what the client wants. None when it has gone.
    async fn ask(&mut self) -> Result<Option<socks::Request>, SocksError> {
        let used = loop {
            match socks::greeting(&self.buffer)? {
                Some(used) => break used,
                None if !self.more().await => return Ok(None),
                None => {}
            }
        };
        self.buffer.advance(used);
        if self.stream.write_all(&socks::CHOSEN).await.is_err() {
            return Ok(None);
        }
        loop {
            match socks::request(&self.buffer)? {
                Some((request, used)) => {
                    self.buffer.advance(used);
                    return Ok(Some(request));
                }
                None if !self.more().await => return Ok(None),
                None => {}
            }
        }
    }

    async fn more(&mut self) -> bool {
        self.buffer.len() < MAX_TALK
            && matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..))
    }

    async fn end(mut self, reply: Option<&[u8]>) {
        match reply {
            Some(reply) => {
                // The client may be gone, and then there is nobody to tell.
                let _gone = self.stream.write_all(reply).await;
                let _gone = self.stream.shutdown().await;
            }
            None => reset_on_close(&self.stream),
        }
    }
}

/// Notes that a client was not connected to what it asked for.
fn note(session: &Session, request: &socks::Request, denial: &Denial) {
    session.shared.metrics.refused(denial.reason);
    let mut record = session.record(Protocol::Tcp, Outcome::Deny);
    match &request.host {
        Host::Name(name) => {
            record.name = Some(name.clone());
            record.destination = None;
        }
        Host::Address(address) => record.destination = Some(*address),
    }
    record.port = Some(request.port);
    record.reason = Some(denial.reason);
    set_rule(&mut record, denial.rule.as_deref());
    session.shared.audit.record(record);
}
