//! An upstream that keeps what it got, and answers what the test says.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;

use super::world::{UPSTREAM, World};

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

/// What was got, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<Seen>>>);

impl Log {
    pub(super) fn last(&self) -> Seen {
        self.0.lock().unwrap().last().cloned().expect("no request")
    }

    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Serves HTTPS for `name`.
pub(super) async fn upstream(
    world: &World,
    name: &str,
    alpn: &[&[u8]],
    answer: impl Fn(&Seen, Request<()>) -> Response<Body> + Clone + Send + Sync + 'static,
) -> Log {
    let listener = TcpListener::bind((UPSTREAM, 443)).await.unwrap();
    let acceptor = world.roots.acceptor(name, alpn);
    let log = Log::default();
    let kept = log.clone();
    world.pin(name);
    tokio::spawn(async move {
        loop {
            let (stream, _source) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (acceptor, log, answer) = (acceptor.clone(), kept.clone(), answer.clone());
            tokio::spawn(async move {
                let Ok(tls) = acceptor.accept(stream).await else {
                    return;
                };
                let serve = |request: Request<Incoming>| {
                    let (log, answer) = (log.clone(), answer.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        // A body that breaks off is no request.
                        let body = body.collect().await?;
                        let trailers = body.trailers().cloned();
                        let seen = Seen {
                            uri: parts.uri.clone(),
                            headers: parts.headers.clone(),
                            body: body.to_bytes(),
                            trailers,
                        };
                        log.0.lock().unwrap().push(seen.clone());
                        Ok::<_, hyper::Error>(answer(&seen, Request::from_parts(parts, ())))
                    }
                };
                let service = hyper::service::service_fn(serve);
                let http = auto::Builder::new(TokioExecutor::new());
                let io = TokioIo::new(tls);
                let _ended = http.serve_connection_with_upgrades(io, service).await;
            });
        }
    });
    log
}

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// Says nothing of interest.
pub(super) fn ok(_seen: &Seen, _request: Request<()>) -> Response<Body> {
    Response::new(full("ok"))
}

/// Says what the request's body was, with what the query asks for as headers.
pub(super) fn echo(seen: &Seen, _request: Request<()>) -> Response<Body> {
    let mut response = Response::new(full(seen.body.clone()));
    for (name, value) in &seen.headers {
        if let Some(name) = name.as_str().strip_prefix("answer-") {
            let name = http::HeaderName::try_from(name).unwrap();
            response.headers_mut().append(name, value.clone());
        }
    }
    if let Some(status) = seen.headers.get("status") {
        *response.status_mut() = status.to_str().unwrap().parse().unwrap();
    }
    response
}
