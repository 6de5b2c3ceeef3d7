//! The server that every request goes to: TLS, a small reply, and a guarded path.

use std::convert::Infallible;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::thread;

use anyhow::Context as _;
use bytes::Bytes;
use causeway::lab::Namespace;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::netns;

/// Where it listens.
pub(crate) const PORT: u16 = 8443;
/// Anybody gets a reply here.
pub(crate) const OPEN: &str = "/open";
/// Only who has the secret gets one here.
pub(crate) const GUARDED: &str = "/guarded";
/// The secret.
pub(crate) const SECRET: &str = "bench-0123456789abcdef";
/// The header's value that the guarded path wants.
pub(crate) const CREDENTIAL: &str = "Bearer bench-0123456789abcdef";
/// The size of a reply's body, in bytes, where the query asks for none: it is a number of bytes.
const BODY: usize = 1024;
/// A body comes in pieces of at most this.
const PIECE: usize = 64 * 1024;

/// Starts it for `names` inside `namespace` and returns its root certificate, PEM. It runs until
/// the process ends.
pub(crate) fn start(namespace: &Namespace, names: &[&str]) -> anyhow::Result<String> {
    let (config, root) = certify(names)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (ready, is_ready) = mpsc::channel();
    let place = namespace.clone();
    thread::Builder::new()
        .name("origin".to_owned())
        .spawn(move || {
            let failed = ready.clone();
            let ended = netns::inside(&place, || serve(&acceptor, &ready));
            // Nobody listens any more when it ends later than at the start.
            let _unheard = failed.send(ended);
        })?;
    is_ready.recv().context("the origin ended")??;
    Ok(root)
}

fn certify(names: &[&str]) -> anyhow::Result<(ServerConfig, String)> {
    let root_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "Bench Root");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let root = params.self_signed(&root_key)?;
    let issuer = Issuer::new(params, root_key);
    let key = KeyPair::generate()?;
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    params.use_authority_key_identifier_extension = true;
    let leaf = params.signed_by(&key, &issuer)?;
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], private)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((config, root.pem()))
}

fn serve(acceptor: &TlsAcceptor, ready: &mpsc::Sender<anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
        let listener = TcpListener::bind(address).await.context("origin")?;
        ready.send(Ok(()))?;
        loop {
            let (stream, _) = listener.accept().await?;
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that breaks off is the client's concern.
                let _broken = connection(stream, acceptor).await;
            });
        }
    })
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    let service = service_fn(|request| async move { Ok::<_, Infallible>(reply(&request)) });
    Ok(http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await?)
}

/// A body of so many bytes more, all alike.
struct Alike(usize);

impl Body for Alike {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static BYTES: [u8; PIECE] = [b'x'; PIECE];
        let piece = BYTES.get(..self.0).unwrap_or(&BYTES);
        self.0 -= piece.len();
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(Bytes::from_static(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0 == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0 as u64)
    }
}

fn reply(request: &Request<Incoming>) -> Response<Alike> {
    let mut credentials = request.headers().get_all(AUTHORIZATION).iter();
    let mut holds_secret = || {
        credentials.next().is_some_and(|value| value == CREDENTIAL) && credentials.next().is_none()
    };
    let permitted = match request.uri().path() {
        OPEN => true,
        GUARDED => holds_secret(),
        _ => false,
    };
    let asked = request.uri().query().and_then(|size| size.parse().ok());
    let mut response = Response::new(Alike(asked.unwrap_or(BODY)));
    if !permitted {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    response
}
