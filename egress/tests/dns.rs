//! The resolver over real sockets, between a client and a small authoritative server.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use causeway_egress::dns::{
    Asker, Directory, Refusal, Resolver, ResolverConfig, Service, ServiceConfig,
};
use causeway_egress::pins::Pins;
use causeway_types::{DomainName, NetworkName, Reason, SandboxName, SandboxUid};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

#[path = "dns/server.rs"]
mod server;
use server::{Server, example};

const UID: SandboxUid = SandboxUid::from_random(42);
const PATIENCE: Duration = Duration::from_secs(10);

struct World {
    known: AtomicBool,
    refusals: Mutex<Vec<Refusal>>,
}

struct Sandbox;

impl Asker for Sandbox {
    fn uid(&self) -> SandboxUid {
        UID
    }
    fn quarantined(&self) -> bool {
        false
    }
    fn resolves(&self, name: &DomainName) -> Result<(), Reason> {
        let permitted = name.as_str().ends_with(".example");
        permitted.then_some(()).ok_or(Reason::NameDenied)
    }
    fn opens(&self, _: IpAddr) -> bool {
        false
    }
    fn reserved(&self, _: IpAddr) -> bool {
        false
    }
    fn private(&self, sandbox: &SandboxName, network: &NetworkName) -> Option<Ipv6Addr> {
        (sandbox.as_str() == "api" && network.as_str() == "backend")
            .then(|| "2001:db8::7".parse().unwrap())
    }
}

impl Directory for World {
    fn asker(&self, source: Ipv6Addr) -> Option<Arc<dyn Asker>> {
        (source == Ipv6Addr::LOCALHOST && self.known.load(Ordering::SeqCst))
            .then(|| Arc::new(Sandbox) as Arc<dyn Asker>)
    }
    fn refused(&self, refusal: Refusal) {
        self.refusals.lock().unwrap().push(refusal);
    }
}

/// A running resolver with its upstream and one client socket.
struct Bench {
    upstream: Server,
    world: Arc<World>,
    pins: Arc<Pins>,
    address: SocketAddr,
    client: UdpSocket,
    service: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.service.abort();
    }
}

fn quick() -> ResolverConfig {
    ResolverConfig {
        attempt: Duration::from_millis(300),
        deadline: Duration::from_secs(3),
        shortest: Duration::from_millis(200),
        failure: Duration::from_millis(200),
        ..ResolverConfig::default()
    }
}

fn loopback() -> ServiceConfig {
    ServiceConfig::new(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0))
}

async fn bench(config: ServiceConfig) -> Bench {
    let upstream = Server::start(example).await;
    let resolver = Resolver::new(quick());
    resolver.configure(&[upstream.address]);
    let service = Service::bind(config).unwrap();
    let address = service.local_addr().unwrap();
    let world = Arc::new(World {
        known: AtomicBool::new(true),
        refusals: Mutex::new(Vec::new()),
    });
    let pins = Arc::new(Pins::default());
    let task = service.run(Arc::clone(&world), resolver, Arc::clone(&pins));
    let client = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    client.connect(address).await.unwrap();
    Bench {
        upstream,
        world,
        pins,
        address,
        client,
        service: tokio::spawn(task),
    }
}

fn query(id: u16, name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.set_edns(Edns::new().set_max_payload(1232).clone());
    message.to_vec().unwrap()
}

impl Bench {
    async fn receive(&self) -> Message {
        let mut buffer = [0; 4096];
        let length = timeout(PATIENCE, self.client.recv(&mut buffer)).await;
        Message::from_vec(&buffer[..length.unwrap().unwrap()]).unwrap()
    }

    async fn ask(&self, name: &str, kind: RecordType) -> Message {
        self.client.send(&query(9, name, kind)).await.unwrap();
        self.receive().await
    }

    fn reasons(&self) -> Vec<Reason> {
        let refusals = self.world.refusals.lock().unwrap();
        refusals.iter().map(|refusal| refusal.reason).collect()
    }

    /// The upstream address and names of a pin.
    fn pinned(&self, address: &str) -> Option<(String, Vec<String>)> {
        let pinned = self
            .pins
            .lookup(UID, address.parse().unwrap(), Instant::now())?;
        let names = pinned.names.iter().map(ToString::to_string).collect();
        Some((pinned.upstream.to_string(), names))
    }
}

fn addresses(message: &Message) -> Vec<String> {
    let data = message.answers.iter().map(|record| match &record.data {
        RData::AAAA(address) => address.0.to_string(),
        other => panic!("{other}"),
    });
    data.collect()
}

#[tokio::test]
async fn addresses_are_answered_and_pinned() {
    let bench = bench(loopback()).await;
    let both = bench.ask("both.example.", RecordType::AAAA).await;
    assert_eq!(addresses(&both), ["2a00::1"]);
    let name = vec!["both.example".to_owned()];
    assert_eq!(bench.pinned("2a00::1"), Some(("2a00::1".to_owned(), name)));

    let v4 = bench.ask("V4.example.", RecordType::AAAA).await;
    assert_eq!(addresses(&v4), ["fd63:6175:7365:64::c629:4"]);
    let name = vec!["v4.example".to_owned()];
    let pinned = bench.pinned("fd63:6175:7365:64::c629:4");
    assert_eq!(pinned, Some(("198.41.0.4".to_owned(), name)));
    assert_eq!(bench.pinned("2a00::ffff"), None);
    assert_eq!(bench.reasons(), []);
}

#[tokio::test]
async fn nothing_but_addresses_is_asked_or_answered() {
    let bench = bench(loopback()).await;
    let kinds = [
        RecordType::A,
        RecordType::TXT,
        RecordType::HTTPS,
        RecordType::SRV,
        RecordType::ANY,
    ];
    for kind in kinds {
        let answer = bench.ask("both.example.", kind).await;
        assert_eq!(
            answer.metadata.response_code,
            ResponseCode::NoError,
            "{kind}"
        );
        assert!(
            answer.answers.is_empty() && answer.authorities.is_empty(),
            "{kind}"
        );
        let missing = bench.ask("missing.example.", kind).await;
        assert_eq!(
            missing.metadata.response_code,
            ResponseCode::NXDomain,
            "{kind}"
        );
    }
    let asked: HashSet<_> = bench
        .upstream
        .asked()
        .into_iter()
        .map(|(_, kind)| kind)
        .collect();
    assert_eq!(asked, HashSet::from([RecordType::A, RecordType::AAAA]));
    let no_addresses = bench.ask("empty.example.", RecordType::AAAA).await;
    assert_eq!(no_addresses.metadata.response_code, ResponseCode::NoError);
}

#[tokio::test]
async fn denied_names_never_reach_the_upstream() {
    let bench = bench(loopback()).await;
    for name in ["c2VjcmV0.evil.test.", "x.internal.", "localhost."] {
        let answer = bench.ask(name, RecordType::AAAA).await;
        assert_eq!(
            answer.metadata.response_code,
            ResponseCode::NXDomain,
            "{name}"
        );
    }
    assert_eq!(bench.upstream.asked(), []);
    let refusal = bench.world.refusals.lock().unwrap()[0].clone();
    assert_eq!(refusal.name.as_deref(), Some("c2vjcmv0.evil.test"));
    assert_eq!(
        (refusal.sandbox, refusal.reason),
        (Some(UID), Reason::NameDenied)
    );
    assert_eq!(bench.reasons(), [Reason::NameDenied]);
    // The control.
    bench.ask("both.example.", RecordType::AAAA).await;
    assert_eq!(bench.upstream.count("both.example."), 2);
}

#[tokio::test]
async fn private_names_and_reserved_addresses() {
    let bench = bench(loopback()).await;
    let private = bench.ask("api.backend.internal.", RecordType::AAAA).await;
    assert_eq!(addresses(&private), ["2001:db8::7"]);
    let reserved = bench.ask("private.example.", RecordType::AAAA).await;
    assert_eq!(reserved.metadata.response_code, ResponseCode::NoError);
    assert!(reserved.answers.is_empty());
    assert_eq!(bench.reasons(), [Reason::ReservedAddress]);
    assert_eq!(bench.pinned("fd63:6175:7365:64::10.0.0.1"), None);
}

#[tokio::test]
async fn failures_upstream_are_failures_here() {
    let bench = bench(loopback()).await;
    for name in ["broken.example.", "silent.example.", "circle.example."] {
        let answer = bench.ask(name, RecordType::AAAA).await;
        assert_eq!(
            answer.metadata.response_code,
            ResponseCode::ServFail,
            "{name}"
        );
    }
    assert_eq!(bench.reasons(), [Reason::Unresolved; 3]);
    let half = bench.ask("half.example.", RecordType::AAAA).await;
    assert_eq!(addresses(&half), ["fd63:6175:7365:64::c629:5"]);
}

#[tokio::test]
async fn aliases_are_followed_and_forgeries_read_past() {
    let bench = bench(loopback()).await;
    let chain = bench.ask("chain.example.", RecordType::AAAA).await;
    assert_eq!(addresses(&chain), ["2a00::1"]);
    assert_eq!(chain.answers[0].name.to_ascii(), "chain.example.");
    let names = bench.pinned("2a00::1").unwrap().1;
    assert_eq!(
        names,
        ["chain.example"],
        "judged and pinned by the name asked for"
    );
    let forged = bench.ask("forged.example.", RecordType::AAAA).await;
    assert_eq!(addresses(&forged), ["2a00::1"]);
}

#[tokio::test]
async fn long_answers_come_over_tcp() {
    let bench = bench(loopback()).await;
    let cut = bench.ask("many.example.", RecordType::AAAA).await;
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    let mut stream = TcpStream::connect(bench.address).await.unwrap();
    let whole = over_tcp(&mut stream, &[query(1, "many.example.", RecordType::AAAA)]).await;
    assert_eq!(addresses(&whole[0]).len(), 200);
    assert!(bench.pinned("2a00::1").is_some() && bench.pinned("2a00::c8").is_some());
}

/// Sends all queries in one write and reads as many answers.
async fn over_tcp(stream: &mut TcpStream, queries: &[Vec<u8>]) -> Vec<Message> {
    let mut bytes = Vec::new();
    for query in queries {
        bytes.extend(u16::try_from(query.len()).unwrap().to_be_bytes());
        bytes.extend(query);
    }
    stream.write_all(&bytes).await.unwrap();
    let mut answers = Vec::new();
    for _ in queries {
        let length = timeout(PATIENCE, stream.read_u16()).await.unwrap().unwrap();
        let mut buffer = vec![0; usize::from(length)];
        stream.read_exact(&mut buffer).await.unwrap();
        answers.push(Message::from_vec(&buffer).unwrap());
    }
    answers
}

#[tokio::test]
async fn tcp_takes_several_queries_and_ends_when_idle_or_abused() {
    let config = ServiceConfig {
        idle: Duration::from_millis(300),
        connections_each: 2,
        ..loopback()
    };
    let bench = bench(config).await;
    let mut first = TcpStream::connect(bench.address).await.unwrap();
    let queries = [
        query(1, "both.example.", RecordType::AAAA),
        query(2, "evil.test.", RecordType::AAAA),
        query(3, "both.example.", RecordType::A),
    ];
    let answers = over_tcp(&mut first, &queries).await;
    let ids: Vec<_> = answers.iter().map(|answer| answer.metadata.id).collect();
    assert_eq!(ids, [1, 2, 3]);

    // Two are allowed; the third is closed at once, while the others still work.
    let mut second = TcpStream::connect(bench.address).await.unwrap();
    over_tcp(&mut second, &queries[..1]).await;
    let mut third = TcpStream::connect(bench.address).await.unwrap();
    assert!(closed(&mut third).await);
    over_tcp(&mut second, &queries[..1]).await;
    assert!(bench.reasons().contains(&Reason::LimitReached));

    // Idle ones end by themselves and make room.
    assert!(closed(&mut first).await && closed(&mut second).await);
    let mut fourth = TcpStream::connect(bench.address).await.unwrap();
    over_tcp(&mut fourth, &queries[..1]).await;
    fourth.write_all(&[0xff; 40]).await.unwrap();
    assert!(closed(&mut fourth).await, "a length that no query has");
}

async fn closed(stream: &mut TcpStream) -> bool {
    let end = timeout(PATIENCE, stream.read(&mut [0; 16])).await.unwrap();
    matches!(end, Ok(0) | Err(_))
}

#[tokio::test]
async fn odd_packets_do_no_harm() {
    let bench = bench(loopback()).await;
    for junk in [&[][..], &[1, 2, 3], &[0; 12], &[0xff; 1500], &[0x00; 2100]] {
        bench.client.send(junk).await.unwrap();
    }
    bench
        .client
        .send(&query(77, "both.example.", RecordType::AAAA))
        .await
        .unwrap();
    loop {
        let answer = bench.receive().await;
        if answer.metadata.id == 77 {
            assert_eq!(addresses(&answer), ["2a00::1"]);
            break;
        }
        assert_eq!(answer.metadata.response_code, ResponseCode::FormErr);
    }
}

#[tokio::test]
async fn strangers_get_no_answer() {
    let bench = bench(loopback()).await;
    bench.world.known.store(false, Ordering::SeqCst);
    bench
        .client
        .send(&query(1, "both.example.", RecordType::AAAA))
        .await
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while bench.reasons().is_empty() && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.reasons(), [Reason::UnknownSandbox]);
    bench.world.known.store(true, Ordering::SeqCst);
    bench
        .client
        .send(&query(2, "both.example.", RecordType::AAAA))
        .await
        .unwrap();
    assert_eq!(
        bench.receive().await.metadata.id,
        2,
        "the first stays unanswered"
    );
}

#[tokio::test]
async fn a_flood_is_refused_and_noted_once() {
    let config = ServiceConfig {
        rate: NonZeroU32::MIN,
        burst: NonZeroU32::new(5).unwrap(),
        ..loopback()
    };
    let bench = bench(config).await;
    let mut codes = Vec::new();
    for _ in 0..8 {
        codes.push(
            bench
                .ask("both.example.", RecordType::AAAA)
                .await
                .metadata
                .response_code,
        );
    }
    assert_eq!(codes[..5], [ResponseCode::NoError; 5]);
    assert_eq!(codes[6..], [ResponseCode::Refused; 2]);
    let noted = bench
        .reasons()
        .iter()
        .filter(|r| **r == Reason::LimitReached)
        .count();
    assert!((1..=2).contains(&noted), "{noted}");
}

#[tokio::test]
async fn the_resolver_binds_an_address_that_is_not_there_yet() {
    let address = SocketAddrV6::new(causeway_types::RESOLVER, 0, 0, 0);
    let service = Service::bind(ServiceConfig::new(address)).unwrap();
    assert_eq!(
        service.local_addr().unwrap().ip(),
        IpAddr::V6(causeway_types::RESOLVER)
    );
    let port = service.local_addr().unwrap().port();
    let again = SocketAddrV6::new(causeway_types::RESOLVER, port, 0, 0);
    assert!(Service::bind(ServiceConfig::new(again)).is_err(), "taken");
}
