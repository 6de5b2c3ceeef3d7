//! What is refused, beside what is not.

use std::sync::atomic::Ordering;

use causeway_types::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, inspected, tls};
use super::server::serve;
use super::world::{SECRET, World, in_namespace, policies, sandbox};
use crate::audit::Outcome;
use crate::control::ToProxy;

pub(super) const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: agent, tenant: acme }
spec:
  selector: {}
  egress:
    - name: api
      to: ["api.allowed.example"]
      http:
        - { methods: [GET, POST], paths: ["/repos/**", "/stream", "/upgrade"] }
    - name: pass
      to: ["pass.allowed.example"]
      ports: [443]
  secrets:
    TOKEN:
      hosts: ["api.allowed.example"]
      inject: { header: authorization, format: "Bearer {secret}" }
"#;

const H1: &[&[u8]] = &[b"http/1.1"];
const H2: &[&[u8]] = &[b"h2", b"http/1.1"];
const API: &str = "api.allowed.example";
const PASS: &str = "pass.allowed.example";

async fn requests(client_alpn: &[&[u8]], server_alpn: &[&[u8]]) {
    let mut world = World::new(POLICY);
    let server = serve(&world.roots, Some(API), server_alpn).await;
    world.pin(API);
    let mut client = Client::https(&world, 443, API, client_alpn).await;
    // The control: permitted, with the one header that the proxy sets.
    for _again in 0..2 {
        let mut request = client.request("GET", API, "/repos/%61?q=1", "");
        request
            .headers_mut()
            .insert("authorization", "Bearer forged".parse().unwrap());
        let response = client.send(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
        let text = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        assert!(text.contains("/repos/a?q=1"), "{text}");
        assert_eq!(text.matches("authorization").count(), 1, "{text}");
        let got = server.authorization.lock().unwrap().last().cloned();
        assert_eq!(got, Some(vec![format!("Bearer {SECRET}")]));
        assert!(!text.contains(SECRET), "the upstream's echo: {text}");
        assert!(!text.contains("forged"), "{text}");
    }
    assert_eq!(
        server.connections.load(Ordering::Relaxed),
        1,
        "the connection is used again"
    );
    let record = world
        .record(|record| record.decision == Outcome::Permit)
        .await;
    assert_eq!(record.path.as_deref(), Some("/repos/a"));
    assert_eq!(record.rule.as_deref(), Some("acme/agent/api"));
    assert_eq!(record.status, Some(200));
    assert!(!serde_json::to_string(&record).unwrap().contains(SECRET));
    let before = server.requests.load(Ordering::Relaxed);
    for (path, host, status, reason) in [
        ("/other", API, 403, Reason::RequestDenied),
        ("/repos/../other", API, 400, Reason::AmbiguousPath),
        ("/repos/%2e%2e/other", API, 400, Reason::AmbiguousPath),
        ("/repos/%252e%252e/x", API, 400, Reason::AmbiguousPath),
        ("/repos//x", API, 400, Reason::AmbiguousPath),
        ("/repos/a", PASS, 421, Reason::NameMismatch),
        (
            "/repos/a",
            "api.allowed.example:8443",
            421,
            Reason::NameMismatch,
        ),
        ("/repos/a", "other.example", 421, Reason::NameMismatch),
    ] {
        let (got, denied, body) = client.get(host, path).await;
        assert_eq!(
            (got, denied.as_deref()),
            (status, Some(reason.name())),
            "{host}{path}: {body}"
        );
        let json: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(json["reason"], reason.name());
        assert!(!body.contains(SECRET));
    }
    assert_eq!(
        server.requests.load(Ordering::Relaxed),
        before,
        "nothing refused went on"
    );
    let (status, _denied, _body) = client.get(API, "/repos/z").await;
    assert_eq!(status, 200, "the connection is still good");
    let record = world
        .record(|record| record.decision == Outcome::Deny)
        .await;
    assert_eq!(record.reason, Some(Reason::RequestDenied));
}

#[test]
fn requests_http1() {
    in_namespace("tests::refusals::requests_http1", || requests(H1, H2));
}

#[test]
fn requests_http2() {
    in_namespace("tests::refusals::requests_http2", || requests(H2, H2));
}

#[test]
fn requests_http2_to_http1() {
    in_namespace("tests::refusals::requests_http2_to_http1", || {
        requests(H2, H1)
    });
}

#[test]
fn names_and_pins() {
    in_namespace("tests::refusals::names_and_pins", || async {
        let world = World::new(POLICY);
        let _server = serve(&world.roots, Some(PASS), H1).await;
        // Not resolved by us: no pass-through, and the reason is told over HTTP.
        let mut client = Client::https(&world, 443, PASS, H1).await;
        let (status, denied, _body) = client.get(PASS, "/").await;
        assert_eq!((status, denied.as_deref()), (403, Some("not_pinned")));
        // The control: resolved, and the upstream's own certificate is seen.
        world.pin(PASS);
        let passed = tls(&world, 443, PASS, H1).await.unwrap();
        assert!(!inspected(&world, &passed));
        drop(passed);
        let mut client = Client::https(&world, 443, PASS, H1).await;
        let (status, denied, _body) = client.get(PASS, "/anything").await;
        assert_eq!((status, denied), (200, None));
        // Another name at the same address, and another port.
        for (name, port, reason) in [
            ("evil.example", 443, Reason::NameDenied),
            (PASS, 8443, Reason::PortDenied),
        ] {
            let mut client = Client::https(&world, port, name, H2).await;
            let (status, denied, _body) = client.get(&format!("{name}:{port}"), "/").await;
            assert_eq!(
                (status, denied.as_deref()),
                (403, Some(reason.name())),
                "{name}:{port}"
            );
        }
        // A client that speaks something else is refused by an alert, not by a certificate.
        assert!(tls(&world, 443, "evil.example", &[b"imap"]).await.is_err());
        assert!(world.refused(Reason::NameDenied) >= 2);
    });
}

#[test]
fn what_shows_no_name() {
    in_namespace("tests::refusals::what_shows_no_name", || async {
        let by_address = POLICY.replace(
            "  secrets:",
            "    - { name: db, cidr: [\"2a0e:2::/48\"], ports: [\"tcp/5432\"] }\n  secrets:",
        );
        let world = World::new(&by_address);
        let listener = tokio::net::TcpListener::bind((super::world::UPSTREAM, 5432))
            .await
            .unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, source)) = listener.accept().await {
                assert_eq!(
                    source.ip(),
                    super::world::SANDBOX,
                    "from the sandbox's own address"
                );
                stream.write_all(b"server first").await.unwrap();
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.unwrap();
                stream.write_all(&rest).await.unwrap();
            }
        });
        // The control: the server speaks first, and half-close is handed on.
        let mut stream = world.connect(5432).await;
        let mut greeting = [0; 12];
        stream.read_exact(&mut greeting).await.unwrap();
        stream.write_all(b"tail").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!(
            (&greeting[..], &rest[..]),
            (&b"server first"[..], &b"tail"[..])
        );
        // Another port: a reset.
        let mut stream = world.connect(2222).await;
        stream.write_all(b"SSH-2.0-x\r\n").await.unwrap();
        let error = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(world.refused(Reason::PortDenied), 1);
        // What begins as TLS and is none.
        let mut stream = world.connect(443).await;
        stream
            .write_all(&[22, 3, 1, 0, 5, 2, 0, 0, 1, 0])
            .await
            .unwrap();
        let mut alert = Vec::new();
        stream.read_to_end(&mut alert).await.unwrap();
        assert_eq!(alert.first(), Some(&21));
        assert_eq!(world.refused(Reason::BadTls), 1);
    });
}

#[test]
fn plain_http_carries_no_secret() {
    in_namespace("tests::refusals::plain_http_carries_no_secret", || async {
        let world = World::new(&POLICY.replace("ports: [443]", "ports: [80]"));
        let server = serve(&world.roots, None, H1).await;
        let mut client = Client::http(&world, 80).await;
        let (status, denied, _body) = client.get(PASS, "/").await;
        assert_eq!((status, denied.as_deref()), (403, Some("not_pinned")));
        world.pin(PASS);
        world.pin(API);
        let (status, _denied, body) = client.get(PASS, "/").await;
        assert_eq!(status, 200, "{body}");
        let before = server.requests.load(Ordering::Relaxed);
        let (status, denied, _body) = client.get(API, "/repos/a").await;
        assert_eq!(
            (status, denied.as_deref()),
            (403, Some("secret_on_plaintext"))
        );
        assert_eq!(server.requests.load(Ordering::Relaxed), before);
        // Two names in one request, and one that is none.
        let mut both = client.request("GET", PASS, "http://evil.example/", "");
        *both.version_mut() = http::Version::HTTP_11;
        assert_eq!(client.send(both).await.unwrap().status(), 421);
        let (status, _denied, _body) = client.get("2130706433", "/").await;
        assert_eq!(status, 400);
    });
}

#[test]
fn upstream_faults() {
    in_namespace("tests::refusals::upstream_faults", || async {
        let world = World::new(POLICY);
        world.pin(API);
        let mut client = Client::https(&world, 443, API, H2).await;
        let (status, denied, _body) = client.get(API, "/repos/a").await;
        assert_eq!(
            (status, denied.as_deref()),
            (502, Some("upstream_unreachable"))
        );
        // A certificate for another name.
        let server = serve(&world.roots, Some("other.example"), H2).await;
        let (status, denied, _body) = client.get(API, "/repos/a").await;
        assert_eq!(
            (status, denied.as_deref()),
            (502, Some("upstream_certificate"))
        );
        assert_eq!(server.requests.load(Ordering::Relaxed), 0);
        // A secret that is gone.
        world.commit(vec![ToProxy::SecretGone {
            tenant: "acme".parse().unwrap(),
            name: "TOKEN".parse().unwrap(),
        }]);
        let (status, denied, _body) = client.get(API, "/repos/a").await;
        assert_eq!((status, denied.as_deref()), (502, Some("secret_missing")));
    });
}

#[test]
fn limits_and_quarantine() {
    in_namespace("tests::refusals::limits_and_quarantine", || async {
        let limited = format!("{POLICY}  limits: {{ connections: 1, requests_per_second: 2 }}\n");
        let world = World::new(&limited);
        let _server = serve(&world.roots, Some(API), H2).await;
        world.pin(API);
        let mut client = Client::https(&world, 443, API, H2).await;
        let mut seen = Vec::new();
        for _request in 0..4 {
            seen.push(client.get(API, "/repos/a").await.0);
        }
        assert_eq!(seen[..2], [200, 200]);
        assert!(seen.contains(&429), "{seen:?}");
        let mut second = world.connect(443).await;
        assert!(
            second.read_to_end(&mut Vec::new()).await.is_err(),
            "one connection is the limit"
        );
        assert!(world.refused(Reason::LimitReached) >= 2);
        world.commit(vec![policies(POLICY), ToProxy::Sandbox(sandbox(true))]);
        let gone = client.request("GET", API, "/repos/a", "");
        assert!(client.send(gone).await.is_err(), "the connection is cut");
        let mut third = world.connect(443).await;
        assert!(third.read_to_end(&mut Vec::new()).await.is_err());
        assert!(world.refused(Reason::SandboxQuarantined) >= 1);
    });
}

#[test]
fn no_policy_and_smuggling() {
    in_namespace("tests::refusals::no_policy_and_smuggling", || async {
        let world = World::new(POLICY);
        let server = serve(&world.roots, None, H1).await;
        world.pin(API);
        for head in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: +5\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Host: other.example\r\n",
        ] {
            let mut stream = world.connect(80).await;
            let text = format!("POST /repos/a HTTP/1.1\r\nHost: {API}\r\n{head}\r\n0\r\n\r\n");
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut buffer = [0; 12];
            stream.read_exact(&mut buffer).await.unwrap();
            assert_eq!(&buffer, b"HTTP/1.1 400", "{head}");
        }
        assert_eq!(server.requests.load(Ordering::Relaxed), 0);
        world.commit(vec![policies("")]);
        let mut client = Client::https(&world, 443, API, H2).await;
        let (status, denied, _body) = client.get(API, "/repos/a").await;
        assert_eq!((status, denied.as_deref()), (403, Some("no_policy")));
    });
}
