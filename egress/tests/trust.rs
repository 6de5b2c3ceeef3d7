//! The certificates before real clients: a TLS server with a minted leaf, and the TLS stacks
//! that are installed. A client that is not there is named, and counts as not tested.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, and says what it left out"
)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_egress::ca::{CertificateAuthority, bundle};
use causeway_types::DomainName;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;

const NAME: &str = "api.example.com";
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Minting(CertificateAuthority);

impl ResolvesServerCert for Minting {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = DomainName::parse(hello.server_name()?).ok()?;
        self.0.leaf(&name, SystemTime::now()).ok()
    }
}

struct Bench {
    directory: tempfile::TempDir,
    port: u16,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Bench {
    /// A server whose certificates are minted, the file to trust, and one to trust in vain.
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let ours = CertificateAuthority::generate("Causeway test", now).unwrap();
        let other = CertificateAuthority::generate("Somebody else", now).unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text);
        write(
            "ours.pem",
            &bundle(&other.cert_pem, &ours.cert_pem).unwrap(),
        )
        .unwrap();
        write("other.pem", &other.cert_pem).unwrap();
        let ca = CertificateAuthority::from_pem(&ours.cert_pem, &ours.key_pem).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Minting(ca)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config))));
        Self {
            directory,
            port,
            server,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the client with each of the two files.
    async fn check(&self, program: &str, client: impl Fn(&Path, &str) -> Vec<String>) {
        let run = async |file: &str, name: &str| {
            let mut command = Command::new(program);
            command
                .args(client(&self.file(file), name))
                .kill_on_drop(true);
            command.stdin(Stdio::null());
            let output = tokio::time::timeout(PATIENCE, command.output())
                .await
                .unwrap();
            output.ok().map(|output| (output.status.success(), output))
        };
        let Some((trusted, output)) = run("ours.pem", NAME).await else {
            causeway_testing::skip(&format!("trust-{program}"), &format!("needs {program}"));
            return;
        };
        assert!(trusted, "{program}: {output:?}");
        let (trusted, output) = run("other.pem", NAME).await.unwrap();
        assert!(!trusted, "{program} trusts a stranger: {output:?}");
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // A client that refuses the certificate is one half of the test.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let mut request = [0; 4096];
            if stream.read(&mut request).await.is_ok() {
                let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                drop(stream.write_all(reply).await);
                drop(stream.shutdown().await);
            }
        });
    }
}

fn strings(arguments: &[&str]) -> Vec<String> {
    arguments
        .iter()
        .map(|argument| (*argument).to_owned())
        .collect()
}

#[tokio::test]
async fn openssl_accepts_a_leaf_under_its_strict_checks() {
    let bench = Bench::start().await;
    let connect = format!("127.0.0.1:{}", bench.port);
    bench
        .check("openssl", |file, name| {
            let file = file.to_str().unwrap();
            strings(&[
                "s_client",
                "-connect",
                &connect,
                "-servername",
                name,
                "-verify_hostname",
                name,
                "-CAfile",
                file,
                "-no-CApath",
                "-verify_return_error",
                "-x509_strict",
            ])
        })
        .await;
}

#[tokio::test]
async fn curl_accepts_a_leaf() {
    let bench = Bench::start().await;
    let resolve = format!("{NAME}:{}:127.0.0.1", bench.port);
    let url = format!("https://{NAME}:{}/", bench.port);
    bench
        .check("curl", |file, _| {
            let file = file.to_str().unwrap();
            strings(&[
                "-fsS",
                "--noproxy",
                "*",
                "--resolve",
                &resolve,
                "--cacert",
                file,
                &url,
            ])
        })
        .await;
}

#[tokio::test]
async fn python_accepts_a_leaf_under_its_strict_checks() {
    // What Python 3.13 checks by default, switched on where it is older.
    const PROGRAM: &str = "
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
with socket.create_connection(('127.0.0.1', int(sys.argv[2])), timeout=20) as plain:
    with context.wrap_socket(plain, server_hostname=sys.argv[3]) as tls:
        assert tls.version() == 'TLSv1.3'
";
    let bench = Bench::start().await;
    let port = bench.port.to_string();
    bench
        .check("python3", |file, name| {
            strings(&["-c", PROGRAM, file.to_str().unwrap(), &port, name])
        })
        .await;
}

#[tokio::test]
async fn node_accepts_a_leaf() {
    const PROGRAM: &str = "
const [file, port, servername] = process.argv.slice(1);
const ca = require('fs').readFileSync(file);
const socket = require('tls').connect({ host: '127.0.0.1', port, servername, ca }, () => process.exit(0));
socket.on('error', (error) => { console.error(error); process.exit(1); });
";
    let bench = Bench::start().await;
    let port = bench.port.to_string();
    bench
        .check("node", |file, name| {
            strings(&["-e", PROGRAM, file.to_str().unwrap(), &port, name])
        })
        .await;
}
