//! Which upstream certificates are believed, and how upstreams are spoken to over TLS.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Why roots were refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrustError {
    /// The text is not PEM.
    #[error("the text is not PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// A certificate cannot be a root.
    #[error("certificate {number} cannot be a root")]
    Root {
        /// Which one, counted from 1.
        number: usize,
        /// What is wrong with it.
        #[source]
        source: rustls::Error,
    },
}

/// The protocols that both sides speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    /// HTTP/1.1 and earlier.
    Http1,
    /// HTTP/2.
    Http2,
}

/// TLS towards upstreams. Sessions are not resumed: a ticket would tell an upstream that two
/// sandboxes are neighbours.
#[derive(Debug)]
pub(crate) struct Trust {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Trust {
    /// The given roots. What the system has and cannot be read is left out, as everywhere.
    pub(crate) fn new(system: &[CertificateDer<'static>]) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(system.iter().cloned());
        Self::from_roots(roots)
    }

    /// The given roots and those in `extra`, PEM, each of which must be good.
    pub(crate) fn with_extra(
        system: &[CertificateDer<'static>],
        extra: &str,
    ) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(system.iter().cloned());
        for (index, certificate) in CertificateDer::pem_slice_iter(extra.as_bytes()).enumerate() {
            let root = certificate.map_err(TrustError::Pem)?;
            roots.add(root).map_err(|source| TrustError::Root {
                number: index + 1,
                source,
            })?;
        }
        Ok(Self::from_roots(roots))
    }

    fn from_roots(roots: RootCertStore) -> Self {
        let config = client_config(roots);
        let with = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
            Arc::new(config)
        };
        Self {
            http1: with(&[b"http/1.1"]),
            http2: with(&[b"h2", b"http/1.1"]),
        }
    }

    /// The configuration for a client that speaks `version`: upstream is offered what the
    /// client chose, and HTTP/1.1 where it has no HTTP/2.
    pub(crate) fn client(&self, version: HttpVersion) -> Arc<ClientConfig> {
        Arc::clone(match version {
            HttpVersion::Http1 => &self.http1,
            HttpVersion::Http2 => &self.http2,
        })
    }
}

/// The cryptography that both sides use.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[expect(
    clippy::expect_used,
    reason = "the provider supports both default versions, which is all that can fail"
)]
fn client_config(roots: RootCertStore) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config
}
