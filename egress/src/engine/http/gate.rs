//! HTTP from a client that uses us as its proxy (RFC 9110, sections 3.7 and 9.3.6).

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use causeway_policy::Denial;
use causeway_types::Reason;
use http::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::Scheme as UriScheme;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{Http, client_fault, http1_server};
use crate::audit::{Outcome, Protocol};
use crate::engine::authority::{self, Authority, Host};
use crate::engine::body::{Body, full};
use crate::engine::refuse::{self, About};
use crate::engine::tasks::Tasks;
use crate::session::{Session, denial, set_rule};
use crate::stream::Prefixed;

/// Hosts of absolute targets whose connections are kept for the client's next request.
const MAX_ORIGINS: usize = 16;
/// After this a host is resolved again.
const ORIGIN_AGE: Duration = Duration::from_secs(60);

/// A connection that the client may use as if it had opened it to the destination itself.
pub(crate) struct Tunnel {
    pub(crate) session: Arc<Session>,
    pub(crate) stream: TcpStream,
    /// What the client has sent into it already.
    pub(crate) buffer: BytesMut,
}

/// Serves a client of the proxy until it leaves, or until it has a tunnel.
pub(crate) async fn proxy(
    session: &Arc<Session>,
    stream: TcpStream,
    first: Bytes,
) -> Option<Tunnel> {
    let tasks = Tasks::new();
    // Tasks hold clones, and end when this function does.
    let _end = tasks.end_on_drop();
    let gate = Arc::new(Gate {
        session: Arc::clone(session),
        tasks: tasks.clone(),
        origins: Mutex::default(),
        tunnel: Mutex::default(),
    });
    let serving = Arc::clone(&gate);
    let service = service_fn(move |request| {
        let gate = Arc::clone(&serving);
        async move { Ok::<_, Infallible>(gate.answer(request).await) }
    });
    let served = http1_server()
        .serve_connection(TokioIo::new(Prefixed::new(first, stream)), service)
        .with_upgrades()
        .await;
    if let Err(error) = served
        && let Some(reason) = client_fault(&error)
    {
        session.refuse(Protocol::Http, None, &denial(reason));
    }
    let tunnel = {
        let mut tunnel = gate.tunnel.lock().unwrap_or_else(PoisonError::into_inner);
        tunnel.take()
    };
    match tunnel {
        None => {
            tasks.tunnels().await;
            None
        }
        Some((session, upgrade)) => {
            let parts = upgrade.await.ok()?.downcast::<Io>().ok()?;
            let (unread, stream) = parts.io.into_inner().into_parts();
            let mut buffer = BytesMut::from(&parts.read_buf[..]);
            buffer.extend_from_slice(&unread);
            Some(Tunnel {
                session,
                stream,
                buffer,
            })
        }
    }
}

type Io = TokioIo<Prefixed<TcpStream>>;

/// One connection of a client of the proxy.
struct Gate {
    session: Arc<Session>,
    tasks: Tasks,
    origins: Mutex<Vec<Origin>>,
    tunnel: Mutex<Option<(Arc<Session>, OnUpgrade)>>,
}

/// A host that absolute targets have named.
struct Origin {
    authority: Authority,
    http: Arc<Http>,
    since: Instant,
}

impl Gate {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        if request.method() == Method::CONNECT {
            let upgrade = hyper::upgrade::on(&mut request);
            let (parts, _no_body) = request.into_parts();
            return self.connect(&parts, upgrade).await;
        }
        let (parts, body) = request.into_parts();
        let authority = match absolute(&parts) {
            Ok(authority) => authority,
            Err(reason) => return self.refuse(&parts, None, &denial(reason)),
        };
        match self.origin(&authority).await {
            Ok(http) => http.answer(Request::from_parts(parts, body)).await,
            Err(denial) => self.refuse(&parts, Some(&authority), &denial),
        }
    }

    /// Answers CONNECT, and only with success when there is a connection to the destination.
    async fn connect(&self, parts: &Parts, upgrade: OnUpgrade) -> Response<Body> {
        let (authority, port) = match tunnelled(parts) {
            Ok(asked) => asked,
            Err(reason) => return self.refuse(parts, None, &denial(reason)),
        };
        match self.session.route(&authority.host, port).await {
            Ok(session) => {
                let mut tunnel = self.tunnel.lock().unwrap_or_else(PoisonError::into_inner);
                *tunnel = Some((session, upgrade));
                Response::new(full(Bytes::new()))
            }
            Err(denial) => self.refuse(parts, Some(&authority), &denial),
        }
    }

    /// What serves the requests for a host: what did so a moment ago, or a new one.
    async fn origin(&self, authority: &Authority) -> Result<Arc<Http>, Denial> {
        let known = {
            let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
            origins.retain(|origin| origin.since.elapsed() < ORIGIN_AGE);
            let same = origins.iter().find(|origin| origin.authority == *authority);
            same.map(|origin| Arc::clone(&origin.http))
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let port = authority.port.unwrap_or(80);
        let session = self.session.route(&authority.host, port).await?;
        let http = Arc::new(Http::of_origin(&session, self.tasks.clone()));
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if origins.len() == MAX_ORIGINS {
            origins.remove(0);
        }
        origins.push(Origin {
            authority: authority.clone(),
            http: Arc::clone(&http),
            since: Instant::now(),
        });
        Ok(http)
    }

    /// Counts, notes and words a refusal.
    fn refuse(
        &self,
        parts: &Parts,
        authority: Option<&Authority>,
        denial: &Denial,
    ) -> Response<Body> {
        let about = About {
            name: authority.and_then(Authority::name),
            method: Some(parts.method.as_str()),
            ..About::default()
        };
        let response = refuse::response(denial, about);
        let session = &self.session;
        session.shared.metrics.refused(denial.reason);
        let mut record = session.record(Protocol::Http, Outcome::Deny);
        record.destination = None;
        if let Some(authority) = authority {
            record.port = authority.port.or(Some(80));
            match &authority.host {
                Host::Name(name) => record.name = Some(name.clone()),
                Host::Address(address) => record.destination = Some(*address),
            }
        }
        record.method = Some(parts.method.as_str().to_owned());
        record.status = Some(response.status().as_u16());
        record.reason = Some(denial.reason);
        set_rule(&mut record, denial.rule.as_deref());
        session.shared.audit.record(record);
        response
    }
}

/// The host and port of CONNECT. A `host` header says the same, or nothing.
fn tunnelled(parts: &Parts) -> Result<(Authority, u16), Reason> {
    // What follows is the tunnel's, and no body (RFC 9110, section 9.3.6). Both lengths at once
    // leave but one to be seen here.
    let sized = |length: &HeaderValue| length.as_bytes() != b"0";
    if parts.headers.contains_key(TRANSFER_ENCODING)
        || parts.headers.get_all(CONTENT_LENGTH).iter().any(sized)
    {
        return Err(Reason::AmbiguousRequest);
    }
    let target = parts.uri.authority().ok_or(Reason::BadName)?;
    if parts.uri.scheme().is_some() || parts.uri.path_and_query().is_some() {
        return Err(Reason::AmbiguousRequest);
    }
    let authority = authority::parse(target.as_str())?;
    let port = authority.port.ok_or(Reason::BadName)?;
    let mut hosts = parts.headers.get_all(HOST).iter();
    if let Some(host) = hosts.next() {
        let text = host.to_str().map_err(|_not_ascii| Reason::BadName)?;
        let host = authority::parse(text)?;
        // Some clients leave the port out, some write the scheme's.
        if host.host != authority.host {
            return Err(Reason::NameMismatch);
        }
    }
    match hosts.next() {
        None => Ok((authority, port)),
        Some(_second) => Err(Reason::AmbiguousRequest),
    }
}

/// The host of an absolute target. Whether all names of the request agree is looked at later.
fn absolute(parts: &Parts) -> Result<Authority, Reason> {
    match (parts.uri.scheme(), parts.uri.authority()) {
        (Some(scheme), Some(target)) if *scheme == UriScheme::HTTP => {
            authority::parse(target.as_str())
        }
        // `https` is for CONNECT; and this is no server with pages of its own.
        _ => Err(Reason::Unsupported),
    }
}
