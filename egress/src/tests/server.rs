//! Upstreams: a small TLS server that says what it got.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use super::world::UPSTREAM;

/// The authority that upstream certificates come from.
pub(super) struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

impl TestAuthority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn acceptor(&self, name: &str, alpn: &[&[u8]]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = rustls::ServerConfig::builder_with_provider(crate::trust::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A running upstream.
#[derive(Clone)]
pub(super) struct Server {
    /// Lets `/stream` send its second part.
    pub(super) more: Arc<Notify>,
    pub(super) requests: Arc<AtomicUsize>,
    pub(super) connections: Arc<AtomicUsize>,
    /// The `authorization` headers of each request.
    pub(super) authorization: Arc<Mutex<Vec<Vec<String>>>>,
}

/// Starts a server with a certificate for `name`; without one it speaks plain HTTP.
pub(super) async fn serve(authority: &TestAuthority, name: Option<&str>, alpn: &[&[u8]]) -> Server {
    let port = if name.is_none() { 80 } else { 443 };
    serve_at(authority, name, alpn, port).await
}

/// The same, at a port.
pub(super) async fn serve_at(
    authority: &TestAuthority,
    name: Option<&str>,
    alpn: &[&[u8]],
    port: u16,
) -> Server {
    let listener = TcpListener::bind((UPSTREAM, port)).await.unwrap();
    let server = Server {
        more: Arc::default(),
        requests: Arc::default(),
        connections: Arc::default(),
        authorization: Arc::default(),
    };
    let acceptor = name.map(|name| authority.acceptor(name, alpn));
    let running = server.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _source) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (acceptor, server) = (acceptor.clone(), running.clone());
            server.connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let answer = |request| {
                    let server = server.clone();
                    async move { Ok::<_, Infallible>(server.answer(request).await) }
                };
                let service = hyper::service::service_fn(answer);
                let http = auto::Builder::new(TokioExecutor::new());
                match acceptor {
                    None => {
                        let io = TokioIo::new(stream);
                        let _ended = http.serve_connection_with_upgrades(io, service).await;
                    }
                    Some(acceptor) => {
                        let Ok(tls) = acceptor.accept(stream).await else {
                            return;
                        };
                        let io = TokioIo::new(tls);
                        let _ended = http.serve_connection_with_upgrades(io, service).await;
                    }
                }
            });
        }
    });
    server
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Server {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let authorization = request.headers().get_all("authorization").iter();
        let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
        self.authorization
            .lock()
            .unwrap()
            .push(authorization.collect());
        match request.uri().path() {
            "/stream" => {
                let more = Arc::clone(&self.more);
                let parts = futures_util::stream::unfold(0, move |sent| {
                    let more = Arc::clone(&more);
                    async move {
                        match sent {
                            0 => Some((Ok(Frame::data(Bytes::from_static(b"first"))), 1)),
                            1 => {
                                more.notified().await;
                                Some((Ok(Frame::data(Bytes::from_static(b"second"))), 2))
                            }
                            2 => {
                                let mut trailers = http::HeaderMap::new();
                                trailers.insert("grpc-status", "0".parse().unwrap());
                                Some((Ok(Frame::trailers(trailers)), 3))
                            }
                            _ => None,
                        }
                    }
                });
                Response::new(StreamBody::new(parts).boxed_unsync())
            }
            "/upgrade" => {
                let upgrade = hyper::upgrade::on(&mut request);
                tokio::spawn(async move {
                    let mut stream = TokioIo::new(upgrade.await.unwrap());
                    stream.write_all(b"welcome").await.unwrap();
                    let mut buffer = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        stream.write_all(&buffer[..count]).await.unwrap();
                    }
                });
                let mut response = Response::new(full(""));
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                let headers = response.headers_mut();
                headers.insert("connection", "upgrade".parse().unwrap());
                headers.insert("upgrade", "echo".parse().unwrap());
                response
            }
            _ => {
                let (parts, body) = request.into_parts();
                let length = body.collect().await.unwrap().to_bytes().len();
                let text = format!(
                    "{} {} {length}\n{:?}",
                    parts.method,
                    parts.uri,
                    parts
                        .headers
                        .iter()
                        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                        .collect::<Vec<_>>()
                );
                Response::new(full(&text))
            }
        }
    }
}

fn full(text: &str) -> Body {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).boxed_unsync()
}
