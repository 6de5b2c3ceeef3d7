//! Connections to upstreams that carry the requests of one client connection.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use causeway_types::{DomainName, Reason};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::secrets::RequestBody;
use super::tasks::Tasks;
use crate::dial::DialError;
use crate::judge::Target;
use crate::session::Session;
use crate::stream::{Gathered, ReadAhead};
use crate::trust::HttpVersion;

/// How long an upstream may take for its side of a handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long an idle connection may take to say that it is ready.
const READY_DEADLINE: Duration = Duration::from_millis(100);
/// How long an upstream may be silent, and take nothing, before the head of its answer:
/// language models think.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10 * 60);

/// The most bytes of an answer's head.
const MAX_HEAD: usize = 128 * 1024;
/// What a peer may send on a stream before it is consumed, and on all of a connection's.
pub(super) const STREAM_WINDOW: u32 = 256 * 1024;
pub(super) const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Why a request was not answered by the upstream.
#[derive(Debug)]
pub(super) struct UpstreamError {
    pub(super) reason: Reason,
}

impl From<Reason> for UpstreamError {
    fn from(reason: Reason) -> Self {
        Self { reason }
    }
}

/// A connection to an upstream.
pub(super) enum Upstream {
    Http1(http1::SendRequest<RequestBody>),
    Http2(http2::SendRequest<RequestBody>),
}

impl Upstream {
    pub(super) fn version(&self) -> HttpVersion {
        match self {
            Self::Http1(_) => HttpVersion::Http1,
            Self::Http2(_) => HttpVersion::Http2,
        }
    }

    /// Sends a request. When it could not even be begun, it comes back. `sent` counts the bytes
    /// of its body: an upstream may be silent for as long as it still takes some.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
        sent: &AtomicU64,
    ) -> Result<Response<Incoming>, (UpstreamError, Option<Request<RequestBody>>)> {
        let answer = async {
            match self {
                Self::Http1(sender) => sender.try_send_request(request).await,
                Self::Http2(sender) => sender.try_send_request(request).await,
            }
        };
        let silent = async {
            let mut before = sent.load(Ordering::Relaxed);
            loop {
                tokio::time::sleep(ANSWER_DEADLINE).await;
                let now = sent.load(Ordering::Relaxed);
                if now == before {
                    return;
                }
                before = now;
            }
        };
        tokio::select! {
            biased;
            answered = answer => answered.map_err(|mut error| {
                let unsent = error.take_message();
                (protocol_error(&error).into(), unsent)
            }),
            () = silent => Err((Reason::TimedOut.into(), None)),
        }
    }
}

/// A request whose own body was cut is not the upstream's fault.
fn protocol_error<T>(error: &TrySendError<T>) -> Reason {
    super::body::cut_reason(error.error()).unwrap_or(Reason::UpstreamProtocol)
}

/// The upstream connections of one client connection. No other client's requests use them.
pub(super) struct Pool {
    session: Arc<Session>,
    config: Option<Arc<ClientConfig>>,
    idle: Mutex<Vec<(Option<DomainName>, http1::SendRequest<RequestBody>)>>,
    shared: tokio::sync::Mutex<Option<http2::SendRequest<RequestBody>>>,
    /// Set when the upstream has chosen HTTP/1: there is nothing to share then.
    http1_only: AtomicBool,
    tasks: Tasks,
}

impl Pool {
    /// `config` for TLS, none for plain HTTP. `shares` is whether the upstream may be asked for
    /// HTTP/2.
    pub(super) fn new(
        session: Arc<Session>,
        config: Option<Arc<ClientConfig>>,
        shares: bool,
        tasks: Tasks,
    ) -> Self {
        Self {
            session,
            config,
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
            http1_only: AtomicBool::new(!shares),
            tasks,
        }
    }

    /// A connection for a request to `target`: one that is open, or a new one. The flag says
    /// whether it was used before.
    pub(super) async fn take(&self, target: &Target) -> Result<(Upstream, bool), UpstreamError> {
        if !self.http1_only.load(Ordering::Relaxed) {
            // Held while connecting, so that streams that begin together share one connection.
            let mut shared = self.shared.lock().await;
            if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed()) {
                return Ok((Upstream::Http2(sender.clone()), true));
            }
            if !self.http1_only.load(Ordering::Relaxed) {
                let upstream = self.connect(target).await?;
                match &upstream {
                    Upstream::Http2(sender) => *shared = Some(sender.clone()),
                    Upstream::Http1(_) => self.http1_only.store(true, Ordering::Relaxed),
                }
                return Ok((upstream, false));
            }
        }
        while let Some(mut sender) = self.take_idle(target.name.as_ref()) {
            let ready = tokio::time::timeout(READY_DEADLINE, sender.ready()).await;
            if matches!(ready, Ok(Ok(()))) {
                return Ok((Upstream::Http1(sender), true));
            }
        }
        Ok((self.connect(target).await?, false))
    }

    fn take_idle(&self, name: Option<&DomainName>) -> Option<http1::SendRequest<RequestBody>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let index = idle.iter().position(|(held, _)| held.as_ref() == name)?;
        Some(idle.swap_remove(index).1)
    }

    /// Gives a connection back whose answer was read to its end.
    pub(super) fn give_back(&self, name: Option<DomainName>, upstream: Upstream) {
        /// More idle connections than streams that ran at once are of no use.
        const MAX_IDLE: usize = 32;
        if let Upstream::Http1(sender) = upstream {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|(_, sender)| !sender.is_closed());
            if idle.len() < MAX_IDLE {
                idle.push((name, sender));
            }
        }
    }

    /// Opens a connection.
    pub(super) async fn connect(&self, target: &Target) -> Result<Upstream, UpstreamError> {
        self.connect_with(target, self.config.as_ref()).await
    }

    /// Opens one with this configuration for TLS, or without TLS.
    pub(super) async fn connect_with(
        &self,
        target: &Target,
        config: Option<&Arc<ClientConfig>>,
    ) -> Result<Upstream, UpstreamError> {
        let stream = self
            .session
            .dial(target.address, target.port)
            .await
            .map_err(|error| match error {
                DialError::TimedOut | DialError::Io(_) => Reason::UpstreamUnreachable,
            })?;
        let Some(config) = config else {
            return self.handshake(stream, HttpVersion::Http1).await;
        };
        let name = target.name.as_ref().ok_or(Reason::NoName)?;
        let name = ServerName::try_from(name.as_str().to_owned())
            .map_err(|_not_a_dns_name| Reason::BadName)?;
        let connect = TlsConnector::from(Arc::clone(config)).connect(name, ReadAhead::new(stream));
        let tls = match tokio::time::timeout(HANDSHAKE_DEADLINE, connect).await {
            Ok(Ok(tls)) => tls,
            Ok(Err(error)) => return Err(tls_error(&error).into()),
            Err(_elapsed) => return Err(Reason::UpstreamUnreachable.into()),
        };
        let version = match tls.get_ref().1.alpn_protocol() {
            Some(b"h2") => HttpVersion::Http2,
            _ => HttpVersion::Http1,
        };
        self.handshake(Gathered::new(tls), version).await
    }

    async fn handshake<S>(&self, stream: S, version: HttpVersion) -> Result<Upstream, UpstreamError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broken = |_error| UpstreamError::from(Reason::UpstreamProtocol);
        let stream = TokioIo::new(stream);
        match version {
            HttpVersion::Http1 => {
                let (sender, connection) = http1::Builder::new()
                    .preserve_header_case(true)
                    .max_buf_size(MAX_HEAD)
                    .handshake(stream)
                    .await
                    .map_err(broken)?;
                self.tasks.spawn(connection.with_upgrades());
                Ok(Upstream::Http1(sender))
            }
            HttpVersion::Http2 => {
                let (sender, connection) = http2::Builder::new(self.tasks.clone())
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .max_header_list_size(64 * 1024)
                    .handshake(stream)
                    .await
                    .map_err(broken)?;
                self.tasks.spawn(connection);
                Ok(Upstream::Http2(sender))
            }
        }
    }
}

fn tls_error(error: &std::io::Error) -> Reason {
    let inner = error
        .get_ref()
        .and_then(|e| e.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
            Reason::UpstreamCertificate
        }
        Some(_) => Reason::UpstreamProtocol,
        None => Reason::UpstreamUnreachable,
    }
}
