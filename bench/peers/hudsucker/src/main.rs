//! A proxy that is asked by CONNECT, terminates TLS, sets the header `authorization` and forwards
//! to one server. Arguments: where to listen, the server's address, the header's value, a file
//! with the roots to trust, and a file for its own authority, which is written when it listens.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::{Context as _, bail};
use hudsucker::certificate_authority::RcgenAuthority;
use hudsucker::hyper::Request;
use hudsucker::hyper::header::{AUTHORIZATION, HeaderValue};
use hudsucker::hyper_util::client::legacy::connect::HttpConnector;
use hudsucker::hyper_util::client::legacy::connect::dns::Name;
use hudsucker::rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use hudsucker::rustls::crypto::aws_lc_rs;
use hudsucker::rustls::{ClientConfig, RootCertStore};
use hudsucker::{Body, HttpContext, HttpHandler, Proxy, RequestOrResponse};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, server, credential, trusted, authority_file] = arguments.as_slice() else {
        bail!("five arguments are expected");
    };
    let listener = TcpListener::bind(listen.parse::<SocketAddr>()?).await?;
    let (authority, pem) = authority()?;
    let mut http = HttpConnector::new_with_resolver(OneServer(server.parse()?));
    http.enforce_http(false);
    http.set_nodelay(true);
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(trusting(trusted)?)
        .https_only()
        .enable_http1()
        .wrap_connector(http);
    let mut credential = HeaderValue::from_str(credential)?;
    credential.set_sensitive(true);
    let proxy = Proxy::builder()
        .with_listener(listener)
        .with_ca(authority)
        .with_http_connector(connector)
        .with_http_handler(SetHeader(credential))
        .build()?;
    std::fs::write(authority_file, pem)?;
    proxy.start().await.context("the proxy ended")
}

#[derive(Clone)]
struct SetHeader(HeaderValue);

impl HttpHandler for SetHeader {
    async fn handle_request(
        &mut self,
        _context: &HttpContext,
        mut request: Request<Body>,
    ) -> RequestOrResponse {
        request.headers_mut().insert(AUTHORIZATION, self.0.clone());
        request.into()
    }
}

/// Every name is the one server's.
#[derive(Clone)]
struct OneServer(SocketAddr);

impl tower_service::Service<Name> for OneServer {
    type Response = std::iter::Once<SocketAddr>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _name: Name) -> Self::Future {
        let address = self.0;
        Box::pin(async move { Ok(std::iter::once(address)) })
    }
}

fn authority() -> anyhow::Result<(RcgenAuthority, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "Peer Root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key)?;
    let issuer = Issuer::new(params, key);
    let authority = RcgenAuthority::new(issuer, 1_000, aws_lc_rs::default_provider());
    Ok((authority, certificate.pem()))
}

fn trusting(file: &str) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file)? {
        roots.add(certificate?)?;
    }
    let provider = std::sync::Arc::new(aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
