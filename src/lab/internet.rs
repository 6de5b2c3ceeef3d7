//! The lab's internet: a name server and web servers on names of their own, with certificates
//! from a root of their own. Each request that arrives is written down, so that a test can say
//! what left a sandbox and what did not.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::stream;
use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType, rdata};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;

/// Where the name server answers.
pub const NAME_SERVER: Ipv6Addr = Ipv6Addr::new(0x3ffe, 0xb00, 0, 0, 0, 0, 0, 0x53);

/// A port on which every server sends back what it gets, over TCP and UDP.
pub const ECHO_PORT: u16 = 7000;

/// A site of the lab's internet.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    /// Its name.
    pub name: &'static str,
    /// Its IPv6 address, if it has one.
    pub v6: Option<Ipv6Addr>,
    /// Its IPv4 address, if it has one.
    pub v4: Option<Ipv4Addr>,
    /// Whether a server stands behind the addresses; otherwise only the name server knows them.
    pub served: bool,
}

const fn site(name: &'static str, host: u16) -> Site {
    let address = Ipv6Addr::new(0x3ffe, 0xb00, 0, 0, 0, 0, 0, host);
    Site {
        name,
        v6: Some(address),
        v4: None,
        served: true,
    }
}

const fn vacant(name: &'static str, host: u16) -> Site {
    Site {
        served: false,
        ..site(name, host)
    }
}

/// Every site. The addresses are global unicast ones that nobody uses: the range of the
/// former 6bone (RFC 3701) and the test range of amateur radio's 44/8.
pub const SITES: &[Site] = &[
    site("api.forge.example", 0x10),
    site("files.forge.example", 0x11),
    site("static.example", 0x20),
    Site {
        v6: None,
        v4: Some(Ipv4Addr::new(44, 128, 66, 30)),
        ..site("legacy.example", 0x30)
    },
    site("intruder.example", 0x66),
    // Behind which a test puts servers of its own.
    vacant("web.clients.example", 0x81),
    vacant("git.clients.example", 0x82),
    vacant("index.clients.example", 0x83),
    vacant("shell.clients.example", 0x84),
    vacant("db.clients.example", 0x85),
    vacant("rpc.clients.example", 0x86),
    vacant("socket.clients.example", 0x87),
    // Names whose owner points them at places that are not his.
    Site {
        v6: Some(Ipv6Addr::LOCALHOST),
        v4: Some(Ipv4Addr::new(169, 254, 169, 254)),
        served: false,
        name: "rebind.example",
    },
];

/// The address of `name`, which must be a site with an IPv6 address.
pub fn address_of(name: &str) -> Option<Ipv6Addr> {
    SITES.iter().find(|site| site.name == name)?.v6
}

/// The root that signs the sites' certificates, as PEM.
pub(crate) struct Root {
    issuer: Issuer<'static, KeyPair>,
    /// The root certificate.
    pub(crate) pem: String,
}

impl Root {
    /// Makes a new root.
    pub(crate) fn generate() -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "Lab Internet Root");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        })
    }

    fn certify(&self, name: &str) -> anyhow::Result<CertifiedKey> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing = rustls::crypto::ring::sign::any_supported_type(&private)?;
        Ok(CertifiedKey::new(
            vec![CertificateDer::from(certificate.der().to_vec())],
            signing,
        ))
    }
}

/// Runs the internet until it is killed. Writes `internet-root.pem` and `received.jsonl` into
/// `folder`, and `internet-ready` when everything listens.
pub async fn serve(folder: &Path) -> anyhow::Result<()> {
    let root = Root::generate()?;
    tokio::fs::write(folder.join("internet-root.pem"), &root.pem).await?;
    let mut names = BTreeMap::new();
    for site in SITES.iter().filter(|site| site.served) {
        names.insert(site.name.to_owned(), Arc::new(root.certify(site.name)?));
    }
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()?
    .with_no_client_auth()
    .with_cert_resolver(Arc::new(ByName(names)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let record = Recorder::open(folder.join("received.jsonl")).await?;

    let any: SocketAddr = (Ipv6Addr::UNSPECIFIED, 0).into();
    let at = |port| SocketAddr::new(any.ip(), port);
    let dns = UdpSocket::bind((NAME_SERVER, 53))
        .await
        .context("name server")?;
    let dns_tcp = TcpListener::bind((NAME_SERVER, 53))
        .await
        .context("name server")?;
    let https = TcpListener::bind(at(443)).await.context("web server")?;
    let http = TcpListener::bind(at(80)).await.context("web server")?;
    let echo = TcpListener::bind(at(ECHO_PORT))
        .await
        .context("echo server")?;
    let mut echo_udp = tokio::task::JoinSet::new();
    for address in SITES
        .iter()
        .filter(|site| site.served)
        .filter_map(|site| site.v6)
    {
        // One socket an address: a reply has to come from the address that was asked.
        let socket = UdpSocket::bind((address, ECHO_PORT))
            .await
            .context("echo server")?;
        echo_udp.spawn(echo_datagrams(socket));
    }
    tokio::fs::write(folder.join("internet-ready"), b"").await?;

    tokio::select! {
        ended = answer_udp(dns) => ended,
        ended = answer_tcp(dns_tcp) => ended,
        ended = web(https, Some(acceptor), record.clone()) => ended,
        ended = web(http, None, record) => ended,
        ended = echo_streams(echo) => ended,
        Some(ended) = echo_udp.join_next() => ended?,
    }
}

#[derive(Debug)]
struct ByName(BTreeMap<String, Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.get(hello.server_name()?).cloned()
    }
}

/// Writes down each request, a line of JSON each.
#[derive(Clone)]
struct Recorder(mpsc::Sender<String>);

impl Recorder {
    async fn open(path: PathBuf) -> anyhow::Result<Self> {
        let mut file = tokio::fs::File::create(path).await?;
        let (sender, mut lines) = mpsc::channel::<String>(1024);
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if file.write_all(line.as_bytes()).await.is_err() || file.flush().await.is_err() {
                    break;
                }
            }
        });
        Ok(Self(sender))
    }
}

async fn web(
    listener: TcpListener,
    tls: Option<tokio_rustls::TlsAcceptor>,
    record: Recorder,
) -> anyhow::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        let (tls, record) = (tls.clone(), record.clone());
        tokio::spawn(async move {
            // A client that breaks off is no concern of the server's.
            let _broken = serve_connection(stream, peer, tls, record).await;
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<tokio_rustls::TlsAcceptor>,
    record: Recorder,
) -> anyhow::Result<()> {
    let local = stream.local_addr()?;
    let secure = tls.is_some();
    let service = service_fn(move |request| {
        let record = record.clone();
        async move { Ok::<_, Infallible>(reply(request, peer, local, secure, &record).await) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    let served = match tls {
        Some(acceptor) => {
            let stream = acceptor.accept(stream).await?;
            server.serve_connection(TokioIo::new(stream), service).await
        }
        None => server.serve_connection(TokioIo::new(stream), service).await,
    };
    served.map_err(|error| anyhow::anyhow!(error))
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Says what the server saw: method, path, headers, body, and from where it came. `/stream`
/// sends a line every 50 ms for as long as the client listens, `/bytes/N` sends N bytes.
async fn reply(
    request: Request<Incoming>,
    peer: SocketAddr,
    local: SocketAddr,
    secure: bool,
    record: &Recorder,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let headers: BTreeMap<_, Vec<_>> = head
        .headers
        .keys()
        .map(|name| {
            let values = head.headers.get_all(name).iter();
            (
                name.as_str().to_owned(),
                values
                    .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
                    .collect(),
            )
        })
        .collect();
    let host = head.uri.authority().map(ToString::to_string).or_else(|| {
        head.headers
            .get("host")
            .and_then(|host| host.to_str().ok())
            .map(ToOwned::to_owned)
    });
    let body = body
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let seen = serde_json::json!({
        "server": local.to_string(), "peer": peer.ip().to_string(), "tls": secure,
        "version": format!("{:?}", head.version), "host": host, "method": head.method.as_str(),
        "path": path, "query": head.uri.query(), "headers": headers, "body_bytes": body.len(),
        "body": String::from_utf8_lossy(body.get(..body.len().min(4096)).unwrap_or_default()),
    });
    // When the recorder is gone the lab is being taken down.
    let _gone = record.0.send(format!("{seen}\n")).await;
    // Over HTTP/2 nobody else takes the body of an answer to HEAD away.
    let body = if head.method == http::Method::HEAD {
        Full::new(Bytes::new()).boxed_unsync()
    } else if path == "/stream" {
        endless()
    } else if let Some(count) = path.strip_prefix("/bytes/").and_then(|n| n.parse().ok()) {
        Full::new(Bytes::from(vec![b'x'; std::cmp::min(count, 64 << 20)])).boxed_unsync()
    } else {
        Full::new(Bytes::from(format!("{seen}\n"))).boxed_unsync()
    };
    Response::new(body)
}

fn endless() -> Body {
    let lines = stream::unfold(0_u64, |count| async move {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Some((
            Ok(Frame::data(Bytes::from(format!("{count}\n")))),
            count + 1,
        ))
    });
    StreamBody::new(lines).boxed_unsync()
}

async fn echo_streams(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.split();
            let _broken = tokio::io::copy(&mut reader, &mut writer).await;
        });
    }
}

async fn echo_datagrams(socket: UdpSocket) -> anyhow::Result<()> {
    let mut buffer = vec![0; 65536];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).await?;
        socket
            .send_to(buffer.get(..length).unwrap_or_default(), peer)
            .await?;
    }
}

async fn answer_udp(socket: UdpSocket) -> anyhow::Result<()> {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).await?;
        if let Some(reply) = answer(buffer.get(..length).unwrap_or_default()) {
            socket.send_to(&reply, peer).await?;
        }
    }
}

async fn answer_tcp(listener: TcpListener) -> anyhow::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            while let Ok(length) = stream.read_u16().await {
                let mut query = vec![0; usize::from(length)];
                stream.read_exact(&mut query).await.ok()?;
                let reply = answer(&query)?;
                stream
                    .write_u16(u16::try_from(reply.len()).ok()?)
                    .await
                    .ok()?;
                stream.write_all(&reply).await.ok()?;
            }
            Some(())
        });
    }
}

/// An authoritative answer from [`SITES`]; nothing for what is not a query.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let query = Message::from_vec(query).ok()?;
    let question = query.queries.first()?.clone();
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    let asked = question.name().to_lowercase().to_ascii();
    let site = SITES
        .iter()
        .find(|site| site.name == asked.trim_end_matches('.'));
    match site {
        None => reply.metadata.response_code = ResponseCode::NXDomain,
        Some(site) => {
            reply.add_answers(records(question.name(), question.query_type(), site));
        }
    }
    reply.add_query(question);
    reply.to_vec().ok()
}

fn records(name: &Name, asked: RecordType, site: &Site) -> Option<Record> {
    let data = match asked {
        RecordType::AAAA => site.v6.map(|address| RData::AAAA(rdata::AAAA(address))),
        RecordType::A => site.v4.map(|address| RData::A(rdata::A(address))),
        _ => None,
    };
    data.map(|data| Record::from_rdata(name.clone(), 60, data))
}
