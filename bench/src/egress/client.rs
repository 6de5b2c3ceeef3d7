//! A load client: connections that are kept, each with one request at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use causeway::lab::Namespace;
use futures_util::future::try_join_all;
use http::header::HOST;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::netns;

/// No run sends more requests than this on one connection.
const MAX_REQUESTS: usize = 1_000_000;
/// No connection takes longer to open, and no run longer than this beyond its time.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer to CONNECT.
const MAX_HEAD: usize = 4096;

/// Where requests go, and how.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The namespace that they come from.
    pub(crate) namespace: Namespace,
    /// The name of the server.
    pub(crate) host: &'static str,
    /// Its address; or the proxy's that is asked by CONNECT.
    pub(crate) address: SocketAddr,
    /// The server's port.
    pub(crate) port: u16,
    /// Whether `address` is a proxy's that is asked by CONNECT.
    pub(crate) connect: bool,
    /// The path.
    pub(crate) path: &'static str,
}

/// What a run saw.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Requests answered with 200 per second.
    pub(crate) rate: f64,
    /// The time of each request.
    pub(crate) times: Vec<Duration>,
}

/// TLS as a client does it that trusts `roots`, each PEM.
pub(crate) fn trusting(roots: &[String]) -> anyhow::Result<Arc<ClientConfig>> {
    let mut store = RootCertStore::empty();
    for pem in roots {
        for certificate in rustls_pemfile::certs(&mut pem.as_bytes()) {
            store.add(certificate?)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(store)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Sends requests over `connections` for as long as `time`.
pub(crate) fn run(
    target: &Target,
    tls: &Arc<ClientConfig>,
    connections: usize,
    time: Duration,
) -> anyhow::Result<Outcome> {
    in_time(target, time + 2 * PATIENCE, || {
        load(target, tls, connections, time)
    })
}

/// Fetches one body of `size` bytes, and gives the bits that came in a second, in billions, from
/// the request on.
pub(crate) fn fetch(target: &Target, tls: &Arc<ClientConfig>, size: u32) -> anyhow::Result<f64> {
    in_time(target, 6 * PATIENCE, || async {
        let mut sender = open(target, tls).await?;
        ask(&mut sender, target).await?;
        let asked = Instant::now();
        let reply = send(&mut sender, target, &format!("{}?{size}", target.path)).await?;
        ensure!(reply.status() == StatusCode::OK, "{}", reply.status());
        let (mut body, mut came) = (reply.into_body(), 0_u64);
        while let Some(frame) = body.frame().await {
            came += frame?.data_ref().map_or(0, |data| data.len() as u64);
        }
        ensure!(came == u64::from(size), "{came} bytes of {size} came");
        Ok(f64::from(size) * 8.0 / asked.elapsed().as_secs_f64() / 1e9)
    })
}

/// Does `work` in the client's namespace.
fn in_time<T: Send, F: Future<Output = anyhow::Result<T>>>(
    target: &Target,
    limit: Duration,
    work: impl FnOnce() -> F + Send,
) -> anyhow::Result<T> {
    netns::inside(&target.namespace, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            tokio::time::timeout(limit, work())
                .await
                .context("the run does not end")?
        })
    })
    .with_context(|| format!("{} at {}", target.host, target.address))
}

async fn load(
    target: &Target,
    tls: &Arc<ClientConfig>,
    connections: usize,
    time: Duration,
) -> anyhow::Result<Outcome> {
    let opened = try_join_all((0..connections).map(|_| open(target, tls)));
    let mut senders = tokio::time::timeout(PATIENCE, opened)
        .await
        .context("no connection")??;
    // The first request of each connection also opens the proxy's own connection.
    try_join_all(senders.iter_mut().map(|sender| ask(sender, target))).await?;
    let start = Instant::now();
    let end = start + time;
    let runs = senders.iter_mut().map(|sender| async move {
        let mut times = Vec::new();
        while Instant::now() < end && times.len() < MAX_REQUESTS {
            let asked = Instant::now();
            ask(sender, target).await?;
            times.push(asked.elapsed());
        }
        anyhow::Ok(times)
    });
    let times = try_join_all(runs).await?.concat();
    ensure!(!times.is_empty(), "no request was answered");
    let count = u32::try_from(times.len())?;
    Ok(Outcome {
        rate: f64::from(count) / start.elapsed().as_secs_f64(),
        times,
    })
}

type Sender = SendRequest<Empty<Bytes>>;

async fn open(target: &Target, tls: &Arc<ClientConfig>) -> anyhow::Result<Sender> {
    let mut stream = TcpStream::connect(target.address)
        .await
        .context("cannot connect")?;
    stream.set_nodelay(true)?;
    if target.connect {
        ask_proxy(&mut stream, target).await?;
    }
    let name = ServerName::try_from(target.host)?;
    let stream = TlsConnector::from(Arc::clone(tls))
        .connect(name, stream)
        .await
        .context("TLS")?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // What goes wrong on it shows in the replies.
    drop(tokio::spawn(connection));
    Ok(sender)
}

async fn ask_proxy(stream: &mut TcpStream, target: &Target) -> anyhow::Result<()> {
    let authority = format!("{}:{}", target.host, target.port);
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(
            head.len() < MAX_HEAD,
            "the proxy's answer to CONNECT has no end"
        );
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    if head.split(' ').nth(1) != Some("200") {
        bail!(
            "the proxy answers CONNECT with: {}",
            head.lines().next().unwrap_or_default()
        );
    }
    Ok(())
}

async fn ask(sender: &mut Sender, target: &Target) -> anyhow::Result<()> {
    let reply = send(sender, target, target.path).await?;
    let status = reply.status();
    let body = reply.into_body().collect().await?.to_bytes();
    if status != StatusCode::OK {
        bail!(
            "{status}: {}",
            String::from_utf8_lossy(body.get(..200).unwrap_or(&body))
        );
    }
    Ok(())
}

async fn send(
    sender: &mut Sender,
    target: &Target,
    path: &str,
) -> anyhow::Result<Response<Incoming>> {
    sender.ready().await?;
    let request = Request::get(path)
        .header(HOST, format!("{}:{}", target.host, target.port))
        .body(Empty::new())?;
    Ok(sender.send_request(request).await?)
}
