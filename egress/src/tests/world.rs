//! A namespace with a sandbox, upstreams and the proxy between them.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use causeway_types::{Generation, Labels, PROXY_PORTS, RESOLVER, Reason, SandboxId, SandboxUid};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::broadcast;

use crate::audit::{AuditLog, AuditRecord};
use crate::ca::CertificateAuthority;
use crate::control::{Change, Controlled, SandboxInfo, SecretValue, Settings, ToProxy};
use crate::dns::{Resolver, ResolverConfig};
use crate::metrics::Metrics;
use crate::secrets::PlaceholderKey;
use crate::session::{self, Accepted, Way};
use crate::state::Shared;

pub(super) const SANDBOX: Ipv6Addr = Ipv6Addr::new(0x2a0e, 1, 0, 0, 0, 0, 0, 0xa);
pub(super) const UPSTREAM: Ipv6Addr = Ipv6Addr::new(0x2a0e, 2, 0, 0, 0, 0, 0, 1);
pub(super) const SECRET: &str = "s3cr3t-v4lue";

const PLACEHOLDERS: [u8; 16] = *b"0123456789abcdef";

/// The placeholder of a secret in the sandbox.
pub(super) fn placeholder(secret: &str) -> String {
    let key = PlaceholderKey::new(PLACEHOLDERS);
    key.placeholder(uid(), &secret.parse().unwrap()).to_string()
}

const MARK: &str = "CAUSEWAY_EGRESS_TEST_NAMESPACE";

/// Runs a test in a namespace of its own: the test binary starts itself again there.
pub(super) fn in_namespace<F: Future<Output = ()>>(name: &str, test: impl FnOnce() -> F) {
    if std::env::var_os(MARK).is_some() {
        let threads = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build();
        threads.unwrap().block_on(test());
        return;
    }
    let root = nix::unistd::geteuid().is_root();
    let flags: &[&str] = if root { &["-n"] } else { &["-Urn"] };
    if !Command::new("unshare")
        .args(flags)
        .arg("true")
        .status()
        .is_ok_and(|s| s.success())
    {
        causeway_testing::skip(name, "needs root or user namespaces");
        return;
    }
    let script = format!(
        "set -e; ip link set lo up; ip -6 addr add {SANDBOX}/128 dev lo nodad; \
         ip -6 addr add {UPSTREAM}/128 dev lo nodad; exec \"$0\" \"$@\""
    );
    let output = Command::new("unshare")
        .args(flags)
        .args(["sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && text.contains("1 passed");
    assert!(
        passed,
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

pub(super) struct World {
    pub(super) shared: Arc<Shared>,
    pub(super) roots: super::server::TestAuthority,
    pub(super) ca_pem: String,
    pub(super) events: broadcast::Receiver<Arc<AuditRecord>>,
    generation: std::sync::atomic::AtomicU64,
}

impl World {
    /// A world in which names are resolved by `names`.
    pub(super) fn with_names(policy: &str, names: &super::names::Names) -> Self {
        let world = Self::new(policy);
        world.commit(vec![ToProxy::Settings(Settings {
            upstream_resolvers: vec![names.address],
            extra_roots_pem: world.roots.pem(),
            reserved: Vec::new(),
        })]);
        world
    }

    pub(super) fn new(policy: &str) -> Self {
        let metrics = Arc::new(Metrics::default());
        let (audit, _no_file) = AuditLog::open(None, Arc::clone(&metrics)).unwrap();
        let events = audit.subscribe();
        let resolver = Resolver::new(ResolverConfig::default());
        let shared = Shared::new("test".to_owned(), audit, metrics, resolver, Vec::new());
        let roots = super::server::TestAuthority::new();
        let ca = CertificateAuthority::generate("Causeway test", SystemTime::now()).unwrap();
        let world = Self {
            shared: Arc::new(shared),
            ca_pem: ca.cert_pem.clone(),
            events,
            generation: 0.into(),
            roots,
        };
        let settings = Settings {
            upstream_resolvers: Vec::new(),
            extra_roots_pem: world.roots.pem(),
            reserved: Vec::new(),
        };
        world.commit(vec![
            ToProxy::Settings(settings),
            ToProxy::Ca {
                cert_pem: ca.cert_pem,
                key_pem: secret(ca.key_pem.as_str()),
            },
            ToProxy::Placeholders {
                key: SecretValue::new(PLACEHOLDERS.to_vec()).unwrap(),
            },
            policies(policy),
            ToProxy::Secret {
                tenant: "acme".parse().unwrap(),
                name: "TOKEN".parse().unwrap(),
                value: secret(SECRET),
            },
            ToProxy::Sandbox(sandbox(false)),
        ]);
        world
    }

    pub(super) fn commit(&self, messages: Vec<ToProxy>) {
        let change = Change {
            whole: false,
            messages,
        };
        let before = self
            .generation
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.shared.commit(change, Generation(before + 1)).unwrap();
    }

    /// Does what the resolver does when the sandbox asks for the name.
    pub(super) fn pin(&self, name: &str) {
        let name = name.parse().unwrap();
        let ttl = Duration::from_secs(60);
        self.shared
            .pins
            .insert(uid(), UPSTREAM, &name, ttl, Instant::now());
    }

    /// Opens a connection from the sandbox to a port of the upstream, as TPROXY delivers it.
    pub(super) async fn connect(&self, port: u16) -> TcpStream {
        let destination = SocketAddrV6::new(UPSTREAM, port, 0, 0);
        self.connect_to(destination, Way::Transparent).await
    }

    /// Opens a connection from the sandbox to the proxy itself.
    pub(super) async fn connect_to_proxy(&self) -> TcpStream {
        let destination = SocketAddrV6::new(RESOLVER, PROXY_PORTS[0], 0, 0);
        self.connect_to(destination, Way::Explicit).await
    }

    async fn connect_to(&self, destination: SocketAddrV6, way: Way) -> TcpStream {
        // A connection attempt can fail on a busy machine; waiting for it to be accepted would
        // then never end.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        let (client, stream, source) = loop {
            match tokio::time::timeout_at(deadline, Self::pair()).await {
                Ok(Ok(pair)) => break pair,
                Ok(Err(error)) => {
                    println!("a connection attempt failed: {error}");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(late) => panic!("no connection on the loopback: {late}"),
            }
        };
        let std::net::SocketAddr::V6(source) = source else {
            panic!("not IPv6: {source}")
        };
        let accepted = Accepted {
            stream,
            source,
            destination,
            way,
        };
        tokio::spawn(session::serve(Arc::clone(&self.shared), accepted));
        client
    }

    /// Both ends of a connection from the sandbox's address.
    async fn pair() -> std::io::Result<(TcpStream, TcpStream, std::net::SocketAddr)> {
        let listener = TcpListener::bind((UPSTREAM, 0)).await?;
        let socket = TcpSocket::new_v6()?;
        socket.bind(SocketAddrV6::new(SANDBOX, 0, 0, 0).into())?;
        let address = listener.local_addr()?;
        let (client, (stream, source)) =
            tokio::try_join!(socket.connect(address), listener.accept())?;
        Ok((client, stream, source))
    }

    /// The next audit record that fits.
    pub(super) async fn record(&mut self, fits: impl Fn(&AuditRecord) -> bool) -> AuditRecord {
        let wait = async {
            loop {
                let record = self.events.recv().await.unwrap();
                if fits(&record) {
                    return (*record).clone();
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait)
            .await
            .expect("no such record")
    }

    /// How often something was refused for this reason.
    pub(super) fn refused(&self, reason: Reason) -> u64 {
        self.shared
            .stats()
            .refused_total
            .get(&reason)
            .copied()
            .unwrap_or(0)
    }
}

pub(super) fn policies(text: &str) -> ToProxy {
    let documents = if text.is_empty() {
        Vec::new()
    } else {
        vec![text.to_owned()]
    };
    ToProxy::Policies {
        tenant: Some("acme".parse().unwrap()),
        documents,
    }
}

pub(super) fn sandbox(quarantined: bool) -> SandboxInfo {
    SandboxInfo {
        address: SANDBOX,
        prefix: None,
        id: SandboxId::new("acme".parse().unwrap(), "web".parse().unwrap()),
        uid: uid(),
        labels: Labels::default(),
        networks: BTreeSet::new(),
        quarantined,
    }
}

fn uid() -> SandboxUid {
    SandboxUid::from_random(7)
}

pub(super) fn secret(text: &str) -> SecretValue {
    SecretValue::new(text.as_bytes().to_vec()).unwrap()
}
