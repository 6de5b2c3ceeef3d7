//! Code in the sandbox: an HTTP client that trusts Causeway's authority and the test's.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::world::World;

pub(super) enum Client {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// Trusts Causeway and the test's authority.
pub(super) fn config(world: &World, alpn: &[&[u8]]) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    for pem in [world.roots.pem(), world.ca_pem.clone()] {
        roots
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
    }
    let mut config = rustls::ClientConfig::builder_with_provider(crate::trust::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    config
}

/// Does a TLS handshake for `name` on a connection of the sandbox.
pub(super) async fn tls(
    world: &World,
    port: u16,
    name: &str,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    tls_on(world, world.connect(port).await, name, alpn).await
}

/// Does a TLS handshake for `name` on a connection that is there.
pub(super) async fn tls_on(
    world: &World,
    stream: TcpStream,
    name: &str,
    alpn: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let config = config(world, alpn);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

/// Whether the certificate was issued by Causeway.
pub(super) fn inspected(world: &World, tls: &TlsStream<TcpStream>) -> bool {
    let certificates = tls.get_ref().1.peer_certificates().unwrap();
    let roots = CertificateDer::from_pem_slice(world.ca_pem.as_bytes()).unwrap();
    let verifier = webpki_chain(&roots, &certificates[0]);
    verifier.is_ok()
}

fn webpki_chain(
    root: &CertificateDer<'_>,
    leaf: &CertificateDer<'static>,
) -> Result<(), rustls::Error> {
    use rustls::client::danger::ServerCertVerifier;
    let mut store = rustls::RootCertStore::empty();
    store.add(root.clone().into_owned()).unwrap();
    let provider = crate::trust::provider();
    let verifier =
        rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider)
            .build()
            .unwrap();
    let name = ServerName::try_from("api.allowed.example").unwrap();
    let now = rustls::pki_types::UnixTime::now();
    verifier
        .verify_server_cert(leaf, &[], &name, &[], now)
        .map(|_verified| ())
}

impl Client {
    /// An HTTPS client.
    pub(super) async fn https(world: &World, port: u16, name: &str, alpn: &[&[u8]]) -> Self {
        Self::over(tls(world, port, name, alpn).await.unwrap()).await
    }

    /// An HTTPS client on a connection that is there.
    pub(super) async fn over(tls: TlsStream<TcpStream>) -> Self {
        let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(tls);
        if http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
            tokio::spawn(connection);
            Self::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection.with_upgrades());
            Self::Http1(sender)
        }
    }

    /// A client on plain HTTP.
    pub(super) async fn http(world: &World, port: u16) -> Self {
        let io = TokioIo::new(world.connect(port).await);
        let (sender, connection) = http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Self::Http1(sender)
    }

    pub(super) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Http2(sender) => sender.send_request(request).await,
        }
    }

    /// Gets a path and gives status, reason of denial and body.
    pub(super) async fn get(&mut self, host: &str, path: &str) -> (u16, Option<String>, String) {
        let response = self
            .send(self.request("GET", host, path, ""))
            .await
            .unwrap();
        let status = response.status().as_u16();
        let denied = response.headers().get("x-causeway-denied");
        let denied = denied.map(|value| value.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, denied, String::from_utf8(body.to_vec()).unwrap())
    }

    /// A request in the form of the version.
    pub(super) fn request(
        &self,
        method: &str,
        host: &str,
        path: &str,
        body: &str,
    ) -> Request<Full<Bytes>> {
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        let request = Request::builder().method(method);
        match self {
            Self::Http1(_) => request.uri(path).header("host", host),
            Self::Http2(_) => request.uri(format!("https://{host}{path}")),
        }
        .body(body)
        .unwrap()
    }
}
