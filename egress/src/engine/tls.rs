//! TLS towards the sandbox, ended here.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use causeway_policy::Denial;
use causeway_types::Reason;
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::http::{Http, Scheme};
use crate::audit::Protocol;
use crate::judge::Target;
use crate::session::{Session, denial};
use crate::state::Snapshot;
use crate::stream::{Gathered, Prefixed, ReadAhead};
use crate::trust::{HttpVersion, provider};

/// How long a client may take for its side of the handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Ends TLS with a certificate for the target's name and serves the HTTP inside. With `refused`
/// every request is answered with that refusal.
pub(crate) async fn inspect(
    session: &Arc<Session>,
    snapshot: &Snapshot,
    stream: TcpStream,
    first: Bytes,
    target: Target,
    refused: Option<Denial>,
) {
    let fail = |reason| {
        // What was refused already is not refused a second time.
        if refused.is_none() {
            session.refuse(Protocol::Tls, target.name.as_ref(), &denial(reason));
        }
    };
    let (Some(ca), Some(name)) = (&snapshot.ca, &target.name) else {
        return fail(Reason::BadTls);
    };
    let config = ca
        .leaf(name, SystemTime::now())
        .map_err(|error| tracing::error!(%name, %error, "no certificate for an inspected name"))
        .ok()
        .and_then(|leaf| server_config(leaf).ok());
    let Some(config) = config else {
        return fail(Reason::BadTls);
    };
    let accept = TlsAcceptor::from(config).accept(Prefixed::new(first, ReadAhead::new(stream)));
    let tls = match tokio::time::timeout(HANDSHAKE_DEADLINE, accept).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(_handshake)) => return fail(Reason::BadTls),
        Err(_elapsed) => return fail(Reason::TimedOut),
    };
    let version = match tls.get_ref().1.alpn_protocol() {
        Some(b"h2") => HttpVersion::Http2,
        _ => HttpVersion::Http1,
    };
    let http = Http::new(session, Scheme::Https(target), version, refused);
    http.serve(Gathered::new(tls)).await;
}

fn server_config(leaf: Arc<CertifiedKey>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(OneLeaf(leaf)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // The configuration lives as long as the connection, so nothing could be resumed.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct OneLeaf(Arc<CertifiedKey>);

impl ResolvesServerCert for OneLeaf {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
