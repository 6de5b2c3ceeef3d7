//! The upstream side of the resolver, against small authoritative servers on loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use causeway_egress::dns::{ResolveError, Resolver, ResolverConfig};
use causeway_types::DomainName;
use hickory_proto::rr::RecordType;

#[path = "dns/server.rs"]
mod server;
use server::{Server, example};

const PATIENCE: Duration = Duration::from_secs(10);

fn quick() -> ResolverConfig {
    ResolverConfig {
        attempt: Duration::from_millis(300),
        deadline: Duration::from_secs(3),
        shortest: Duration::from_millis(200),
        failure: Duration::from_millis(200),
        ..ResolverConfig::default()
    }
}

fn name(text: &str) -> DomainName {
    DomainName::parse(text).unwrap()
}

#[tokio::test]
async fn one_question_serves_all_who_wait_and_is_kept() {
    let upstream = Server::start(example).await;
    let resolver = Resolver::new(quick());
    let both = name("both.example");
    let missing = resolver.resolve(&both).await;
    assert!(matches!(missing, Err(ResolveError::NoUpstream { .. })));
    resolver.configure(&[upstream.address]);
    let all = (0..50).map(|_| resolver.resolve(&both));
    for resolved in futures_util::future::join_all(all).await {
        let resolved = resolved.unwrap();
        assert_eq!((resolved.v6.len(), resolved.v4.len()), (1, 1));
        assert!(resolved.ttl <= Duration::from_mins(1));
    }
    assert_eq!(upstream.count("both.example."), 2);
    for _ in 0..3 {
        assert!(resolver.resolve(&name("missing.example")).await.is_err());
    }
    assert_eq!(upstream.count("missing.example."), 2);
    // Changing the upstream forgets what the old one said; the same again does not.
    resolver.configure(&[upstream.address]);
    resolver.resolve(&both).await.unwrap();
    assert_eq!(upstream.count("both.example."), 2);
    resolver.configure(&[upstream.address, upstream.address]);
    resolver.resolve(&both).await.unwrap();
    assert_eq!(upstream.count("both.example."), 4);
}

#[tokio::test]
async fn short_answers_are_kept_for_the_shortest_time() {
    let upstream = Server::start(example).await;
    let resolver = Resolver::new(quick());
    resolver.configure(&[upstream.address]);
    let short = name("short.example");
    let kinds = |kind| {
        let asked = upstream.asked();
        asked
            .iter()
            .filter(|(n, k)| n == "short.example." && *k == kind)
            .count()
    };
    resolver.resolve(&short).await.unwrap();
    resolver.resolve(&short).await.unwrap();
    assert_eq!(kinds(RecordType::AAAA), 1);
    let deadline = Instant::now() + PATIENCE;
    while kinds(RecordType::AAAA) < 2 && Instant::now() < deadline {
        resolver.resolve(&short).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(kinds(RecordType::AAAA), 2);
}

#[tokio::test]
async fn a_dead_resolver_is_passed_over_and_then_avoided() {
    let upstream = Server::start(example).await;
    let dead = Server::start(|_, _| server::Act::Ignore).await;
    let resolver = Resolver::new(quick());
    resolver.configure(&[dead.address, upstream.address]);
    resolver.resolve(&name("both.example")).await.unwrap();
    assert_eq!(dead.count("both.example."), 2);
    resolver.resolve(&name("v4.example")).await.unwrap();
    assert_eq!(dead.count("v4.example."), 0);
}

#[tokio::test]
async fn questions_in_flight_are_bounded() {
    let upstream = Server::start(example).await;
    let config = ResolverConfig {
        in_flight: 2,
        ..quick()
    };
    let resolver = Resolver::new(config);
    resolver.configure(&[upstream.address]);
    let (silent, other) = (name("silent.example"), name("both.example"));
    let (first, second) = tokio::join!(resolver.resolve(&silent), resolver.resolve(&other));
    assert!(matches!(first, Err(ResolveError::Unreachable { .. })));
    assert!(matches!(second, Err(ResolveError::Busy { .. })));
    assert!(resolver.resolve(&other).await.is_ok());
}
