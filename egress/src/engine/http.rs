//! HTTP from the sandbox: each request is judged, completed and sent on.

mod entry;
mod exchange;
mod gate;
mod websocket;

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causeway_policy::Denial;
use causeway_types::Reason;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::tasks::Tasks;
use super::upstream::{CONNECTION_WINDOW, Pool, STREAM_WINDOW};
use crate::audit::Protocol;
use crate::judge::Target;
use crate::session::{Session, denial};
use crate::stream::Prefixed;
use crate::trust::HttpVersion;

pub(super) use entry::Entry;
pub(crate) use gate::proxy;

/// How long the head of a request may take, counted from the end of the one before.
const HEAD_DEADLINE: Duration = Duration::from_secs(2 * 60);
/// The most bytes of a request's head.
const MAX_HEAD: usize = 64 * 1024;
/// The most headers of a request.
const MAX_HEADERS: usize = 128;
/// Requests at a time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;

/// What the connection is.
#[derive(Debug)]
pub(super) enum Scheme {
    /// Plain HTTP: each request names its target.
    Http,
    /// Inside TLS, which named the target.
    Https(Target),
}

/// One HTTP connection of a sandbox.
pub(super) struct Http {
    session: Arc<Session>,
    scheme: Scheme,
    version: HttpVersion,
    refused: Option<Denial>,
    pool: Pool,
    tasks: Tasks,
}

/// Serves plain HTTP.
pub(crate) async fn plain(session: &Arc<Session>, stream: TcpStream, first: Bytes) {
    let version = if first.starts_with(b"PRI ") {
        HttpVersion::Http2
    } else {
        HttpVersion::Http1
    };
    let http = Http::new(session, Scheme::Http, version, None);
    http.serve(Prefixed::new(first, stream)).await;
}

impl Http {
    pub(super) fn new(
        session: &Arc<Session>,
        scheme: Scheme,
        version: HttpVersion,
        refused: Option<Denial>,
    ) -> Self {
        Self::with_tasks(session, scheme, version, refused, Tasks::new())
    }

    /// Serves absolute targets of one host on a connection that has others too.
    fn of_origin(session: &Arc<Session>, tasks: Tasks) -> Self {
        Self::with_tasks(session, Scheme::Http, HttpVersion::Http1, None, tasks)
    }

    fn with_tasks(
        session: &Arc<Session>,
        scheme: Scheme,
        version: HttpVersion,
        refused: Option<Denial>,
        tasks: Tasks,
    ) -> Self {
        let config = match scheme {
            Scheme::Http => None,
            Scheme::Https(_) => Some(session.shared.snapshot().trust.client(version)),
        };
        let shares = config.is_some() && version == HttpVersion::Http2;
        Self {
            pool: Pool::new(Arc::clone(session), config, shares, tasks.clone()),
            session: Arc::clone(session),
            scheme,
            version,
            refused,
            tasks,
        }
    }

    /// Serves the connection to its end, tunnels included.
    pub(super) async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (version, session, tasks) =
            (self.version, Arc::clone(&self.session), self.tasks.clone());
        let http = Arc::new(self);
        // Tasks hold clones, and end when this function does.
        let _end = tasks.end_on_drop();
        let service = service_fn(move |request| {
            let http = Arc::clone(&http);
            async move { Ok::<_, Infallible>(http.answer(request).await) }
        });
        let stream = TokioIo::new(stream);
        let served = match version {
            HttpVersion::Http1 => {
                http1_server()
                    .serve_connection(stream, service)
                    .with_upgrades()
                    .await
            }
            HttpVersion::Http2 => {
                http2::Builder::new(tasks.clone())
                    .timer(TokioTimer::new())
                    .auto_date_header(false)
                    .max_concurrent_streams(MAX_STREAMS)
                    .enable_connect_protocol()
                    .max_header_list_size(64 * 1024)
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .keep_alive_interval(Duration::from_secs(2 * 60))
                    .serve_connection(stream, service)
                    .await
            }
        };
        if let Err(error) = served
            && let Some(reason) = client_fault(&error)
        {
            session.refuse(Protocol::Http, None, &denial(reason));
        }
        tasks.tunnels().await;
    }
}

/// How HTTP/1 is taken from sandboxes.
fn http1_server() -> http1::Builder {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .preserve_header_case(true)
        .auto_date_header(false)
        // One who has asked and says no more still wants the answer.
        .half_close(true)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    server
}

/// What the HTTP library refused by itself.
fn client_fault(error: &hyper::Error) -> Option<Reason> {
    if error.is_parse_too_large() {
        Some(Reason::TooLarge)
    } else if error.is_parse() {
        Some(Reason::AmbiguousRequest)
    } else if error.is_timeout() {
        // An idle connection that is closed is no refusal.
        error.source().map(|_head| Reason::TimedOut)
    } else {
        None
    }
}
