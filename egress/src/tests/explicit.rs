//! Clients that know of the proxy: one name from the first word to the last.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use causeway_types::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::client::{Client, inspected, tls_on};
use super::names::Names;
use super::server::{serve, serve_at};
use super::world::{SECRET, UPSTREAM, World, in_namespace, policies};

const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: agent, tenant: acme }
spec:
  selector: {}
  egress:
    - name: api
      to: ["api.allowed.example"]
      ports: [443, 8443, 80]
      http:
        - { methods: [GET, POST], paths: ["/repos/**"] }
    - { name: pass, to: ["pass.allowed.example"], ports: [80, 443] }
    - { name: shell, to: ["shell.allowed.example"], ports: [22] }
    - { name: moved, to: ["moved.allowed.example"], ports: [80, 443] }
    - { name: net, cidr: ["2a0e:2::/48"], ports: ["tcp/5432"] }
  secrets:
    TOKEN:
      hosts: ["api.allowed.example"]
      inject: { header: authorization, format: "Bearer {secret}" }
"#;

const H1: &[&[u8]] = &[b"http/1.1"];
const H2: &[&[u8]] = &[b"h2", b"http/1.1"];
const API: &str = "api.allowed.example";
const PASS: &str = "pass.allowed.example";
const HERE: &[&str] = &["2a0e:2::1"];

async fn names() -> Names {
    Names::serve(&[
        (API, HERE),
        (PASS, &["2a0e:2::dead", "2a0e:2::1"]),
        ("shell.allowed.example", HERE),
        ("moved.allowed.example", HERE),
        ("evil.example", HERE),
    ])
    .await
}

/// Sends a head and gives status, reason of denial and what follows.
async fn ask(stream: &mut TcpStream, head: &str) -> (u16, Option<String>, String) {
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let byte = stream.read_u8().await;
        text.push(byte.unwrap_or_else(|error| {
            panic!(
                "{head:?}: {error} after {:?}",
                String::from_utf8_lossy(&text)
            )
        }));
    }
    let text = String::from_utf8(text).unwrap();
    let field = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name).map(ToOwned::to_owned));
        line.map(|value| value.trim().to_owned())
    };
    let length = field("content-length:").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let status = text[9..12].parse().unwrap();
    (
        status,
        field("x-causeway-denied:"),
        String::from_utf8(body).unwrap(),
    )
}

async fn tunnel(world: &World, authority: &str) -> TcpStream {
    let mut stream = world.connect_to_proxy().await;
    let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    assert_eq!(ask(&mut stream, &head).await.0, 200, "{authority}");
    stream
}

async fn one_name(alpn: &[&[u8]]) {
    let names = names().await;
    let mut world = World::with_names(POLICY, &names);
    let server = serve(&world.roots, Some(API), H2).await;
    // The control: one name, and what a transparent client gets.
    let tls = tls_on(
        &world,
        tunnel(&world, "API.Allowed.Example.:443").await,
        API,
        alpn,
    )
    .await;
    let tls = tls.unwrap();
    assert!(inspected(&world, &tls));
    let mut client = Client::over(tls).await;
    for _again in 0..2 {
        let (status, _denied, body) = client.get(API, "/repos/a").await;
        assert_eq!(status, 200, "{body}");
        let got = server.authorization.lock().unwrap().last().cloned();
        assert_eq!(got, Some(vec![format!("Bearer {SECRET}")]));
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    let record = world.record(|record| record.status == Some(200)).await;
    assert_eq!(record.rule.as_deref(), Some("acme/agent/api"));
    assert_eq!(record.upstream, Some(UPSTREAM.into()));
    // A later request for another name, in the same tunnel.
    let before = server.requests.load(Ordering::Relaxed);
    for host in [PASS, "evil.example", "api.allowed.example:8443"] {
        let (status, denied, _body) = client.get(host, "/repos/a").await;
        assert_eq!(
            (status, denied.as_deref()),
            (421, Some("name_mismatch")),
            "{host}"
        );
    }
    let (status, denied, _body) = client.get(API, "/other").await;
    assert_eq!((status, denied.as_deref()), (403, Some("request_denied")));
    // Another name in TLS: refused, be it permitted elsewhere or not.
    for name in [PASS, "evil.example"] {
        let tls = tls_on(
            &world,
            tunnel(&world, "api.allowed.example:443").await,
            name,
            alpn,
        );
        let mut client = Client::over(tls.await.unwrap()).await;
        let (status, denied, _body) = client.get(name, "/repos/a").await;
        assert_eq!(
            (status, denied.as_deref()),
            (421, Some("name_mismatch")),
            "{name}"
        );
    }
    assert_eq!(server.requests.load(Ordering::Relaxed), before);
}

#[test]
fn connect_sni_and_host_are_one_name_http1() {
    in_namespace(
        "tests::explicit::connect_sni_and_host_are_one_name_http1",
        || one_name(H1),
    );
}

#[test]
fn connect_sni_and_host_are_one_name_http2() {
    in_namespace(
        "tests::explicit::connect_sni_and_host_are_one_name_http2",
        || one_name(H2),
    );
}

#[test]
fn a_refusal_comes_before_any_success() {
    in_namespace(
        "tests::explicit::a_refusal_comes_before_any_success",
        || async {
            let names = names().await;
            names.set(
                "moved.allowed.example",
                &["169.254.169.254", "::ffff:10.0.0.1"],
            );
            let mut world = World::with_names(POLICY, &names);
            let server = serve(&world.roots, Some(API), H2).await;
            let mut stream = world.connect_to_proxy().await;
            let refusals = [
                ("evil.example:443", 403, Reason::NameDenied),
                ("pass.allowed.example:22", 403, Reason::PortDenied),
                ("api.allowed.example:3306", 403, Reason::PortDenied),
                ("api.allowed.example:8443", 502, Reason::UpstreamUnreachable),
                ("moved.allowed.example:443", 403, Reason::ReservedAddress),
                ("[2a0e:2::2]:443", 403, Reason::PortDenied),
                ("44.128.66.30:443", 403, Reason::AddressDenied),
                ("127.0.0.1:443", 403, Reason::ReservedAddress),
                ("[::ffff:169.254.169.254]:80", 403, Reason::ReservedAddress),
                ("[64:ff9b::a9fe:a9fe]:80", 403, Reason::ReservedAddress),
                ("[fd63:6175:7365::53]:3128", 403, Reason::ReservedAddress),
                (
                    "[fd63:6175:7365:64::a00:1]:5432",
                    403,
                    Reason::ReservedAddress,
                ),
                ("2130706433:443", 400, Reason::BadName),
                ("0x7f000001:443", 400, Reason::BadName),
                ("0177.0.0.1:443", 400, Reason::BadName),
                ("127.1:443", 400, Reason::BadName),
                ("127.0.0.1.:443", 400, Reason::BadName),
                ("[api.allowed.example]:443", 400, Reason::BadName),
                ("evil.example%00.allowed.example:443", 400, Reason::BadName),
                ("allowed:x@evil.example:443", 400, Reason::BadName),
                ("api.allowed.example:0", 400, Reason::BadName),
                ("two.backend.internal:80", 502, Reason::Unresolved),
            ];
            for (authority, status, reason) in refusals {
                let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                let mut first = [0; 12];
                if let Err(error) = stream.read_exact(&mut first).await {
                    panic!("{authority}: {error}");
                }
                assert_ne!(&first[9..], b"200", "{authority}");
                let mut rest = Vec::new();
                // What the library cannot parse ends the connection; what we refuse does not.
                let _ended = tokio::time::timeout(Duration::from_millis(100), async {
                    while stream
                        .read_buf(&mut rest)
                        .await
                        .is_ok_and(|count| count > 0)
                    {}
                })
                .await;
                let text = String::from_utf8_lossy(&rest).into_owned();
                assert_eq!(
                    &first[9..],
                    status.to_string().as_bytes(),
                    "{authority}: {text}"
                );
                if text.contains("x-causeway-denied") {
                    assert!(text.contains(reason.name()), "{authority}: {text}");
                    assert!(text.contains("\"hint\""), "{text}");
                } else {
                    stream = world.connect_to_proxy().await;
                }
            }
            let record = world.record(|r| r.reason == Some(Reason::NameDenied)).await;
            assert_eq!(record.name.unwrap().as_str(), "evil.example");
            assert_eq!(
                (record.port, record.method.as_deref()),
                (Some(443), Some("CONNECT"))
            );
            // The control, on the connection that was refused so often.
            let head = "CONNECT api.allowed.example:443 HTTP/1.1\r\n\r\n";
            let mut stream = world.connect_to_proxy().await;
            assert_eq!(
                ask(&mut stream, "CONNECT evil.example:443 HTTP/1.1\r\n\r\n")
                    .await
                    .0,
                403
            );
            assert_eq!(ask(&mut stream, head).await.0, 200);
            assert_eq!(server.requests.load(Ordering::Relaxed), 0);
        },
    );
}

#[test]
fn two_readings_of_connect_are_refused() {
    in_namespace(
        "tests::explicit::two_readings_of_connect_are_refused",
        || async {
            let names = names().await;
            let world = World::with_names(POLICY, &names);
            let _server = serve(&world.roots, Some(API), H1).await;
            let mut stream = world.connect_to_proxy().await;
            for (more, status) in [
                ("Host: evil.example:443\r\n", 421),
                (
                    "Host: api.allowed.example:443\r\nHost: api.allowed.example:443\r\n",
                    400,
                ),
                ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
            ] {
                let head = format!("CONNECT {API}:443 HTTP/1.1\r\n{more}\r\n");
                let (got, _denied, body) = ask(&mut stream, &head).await;
                assert_eq!(got, status, "{more}: {body}");
                stream = world.connect_to_proxy().await;
            }
            for target in [
                "http://api.allowed.example:443/",
                "api.allowed.example",
                "/",
            ] {
                let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {API}\r\n\r\n");
                assert!(ask(&mut stream, &head).await.0 >= 400, "{target}");
                stream = world.connect_to_proxy().await;
            }
        },
    );
}

#[test]
fn absolute_targets_name_their_host_each() {
    in_namespace(
        "tests::explicit::absolute_targets_name_their_host_each",
        || async {
            let names = names().await;
            let mut world = World::with_names(POLICY, &names);
            let server = serve(&world.roots, None, H1).await;
            let mut stream = world.connect_to_proxy().await;
            // The controls: two hosts on one connection, the first again.
            for host in [PASS, "moved.allowed.example", PASS] {
                let head = format!(
                    "GET http://{host}/a?q=1 HTTP/1.1\r\nHost: {host}\r\n\
                     Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\n\r\n"
                );
                let (status, denied, body) = ask(&mut stream, &head).await;
                assert_eq!((status, denied), (200, None), "{body}");
                assert!(body.starts_with("GET /a?q=1"), "{body}");
                assert!(body.contains(&format!("host: {host}")), "{body}");
                assert!(!body.to_lowercase().contains("proxy-"), "{body}");
            }
            assert_eq!(
                server.connections.load(Ordering::Relaxed),
                2,
                "one for each host"
            );
            let record = world.record(|record| record.status == Some(200)).await;
            assert_eq!(record.port, Some(80));
            let before = server.requests.load(Ordering::Relaxed);
            for (target, host, status, reason) in [
                (
                    "http://pass.allowed.example/",
                    "evil.example",
                    421,
                    "name_mismatch",
                ),
                ("http://evil.example/", PASS, 403, "name_denied"),
                ("http://evil.example/", "evil.example", 403, "name_denied"),
                (
                    "http://pass.allowed.example:22/",
                    "pass.allowed.example:22",
                    403,
                    "port_denied",
                ),
                (
                    "http://pass.allowed.example/a/../b",
                    PASS,
                    400,
                    "ambiguous_path",
                ),
                (
                    "http://api.allowed.example/repos/a",
                    API,
                    403,
                    "secret_on_plaintext",
                ),
                (
                    "http://api.allowed.example/other",
                    API,
                    403,
                    "request_denied",
                ),
                ("https://pass.allowed.example/", PASS, 501, "unsupported"),
                ("/", PASS, 501, "unsupported"),
            ] {
                let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
                let (got, denied, body) = ask(&mut stream, &head).await;
                assert_eq!(
                    (got, denied.as_deref()),
                    (status, Some(reason)),
                    "{target}: {body}"
                );
            }
            assert_eq!(server.requests.load(Ordering::Relaxed), before);
            for target in ["http://x@pass.allowed.example/", "http://2130706433/"] {
                let head = format!("GET {target} HTTP/1.1\r\nHost: {PASS}\r\n\r\n");
                assert_eq!(ask(&mut stream, &head).await.0, 400, "{target}");
            }
        },
    );
}

#[test]
fn host_keeps_its_port() {
    in_namespace("tests::explicit::host_keeps_its_port", || async {
        let names = names().await;
        let world = World::with_names(POLICY, &names);
        let _server = serve_at(&world.roots, Some(API), H2, 8443).await;
        for alpn in [H1, H2] {
            let stream = tunnel(&world, "api.allowed.example:8443").await;
            let mut client = Client::over(tls_on(&world, stream, API, alpn).await.unwrap()).await;
            let host = "api.allowed.example:8443";
            let (status, _denied, body) = client.get(host, "/repos/a").await;
            assert_eq!(status, 200);
            assert!(body.contains(host), "{body}");
            // Without the port it is another authority.
            let (status, denied, _body) = client.get(API, "/repos/a").await;
            assert_eq!((status, denied.as_deref()), (421, Some("name_mismatch")));
        }
    });
}

/// Answers a line with its capitals, after a greeting.
async fn shout(port: u16) {
    let listener = TcpListener::bind((UPSTREAM, port)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _source)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(b"hello ").await.unwrap();
                let mut line = Vec::new();
                stream.read_to_end(&mut line).await.unwrap();
                line.make_ascii_uppercase();
                stream.write_all(&line).await.unwrap();
            });
        }
    });
}

async fn socks(world: &World, request: &[u8]) -> (TcpStream, u8) {
    let mut stream = world.connect_to_proxy().await;
    stream.write_all(&[5, 1, 0]).await.unwrap();
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await.unwrap();
    assert_eq!(chosen, [5, 0]);
    stream.write_all(request).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    (stream, reply[1])
}

fn by_name(name: &str, port: u16) -> Vec<u8> {
    let length = u8::try_from(name.len()).unwrap();
    let port = port.to_be_bytes();
    [&[5, 1, 0, 3, length], name.as_bytes(), &port].concat()
}

fn by_address(port: u16) -> Vec<u8> {
    [&[5, 1, 0, 4][..], &UPSTREAM.octets(), &port.to_be_bytes()].concat()
}

#[test]
fn socks_clients_are_judged_alike() {
    in_namespace(
        "tests::explicit::socks_clients_are_judged_alike",
        || async {
            let names = names().await;
            let mut world = World::with_names(POLICY, &names);
            let _server = serve(&world.roots, Some(API), H2).await;
            let (_shell, _database) = (shout(22).await, shout(5432).await);
            // The controls: a server that speaks first, by name and by address, and TLS.
            for request in [by_name("shell.allowed.example", 22), by_address(5432)] {
                let (mut stream, code) = socks(&world, &request).await;
                assert_eq!(code, 0);
                let mut hello = [0; 6];
                stream.read_exact(&mut hello).await.unwrap();
                assert_eq!(&hello, b"hello ");
                stream.write_all(b"ls").await.unwrap();
                stream.shutdown().await.unwrap();
                let mut rest = String::new();
                stream.read_to_string(&mut rest).await.unwrap();
                assert_eq!(rest, "LS");
            }
            let record = world.record(|record| record.port == Some(22)).await;
            assert_eq!(record.rule.as_deref(), Some("acme/agent/shell"));
            assert_eq!(record.name.unwrap().as_str(), "shell.allowed.example");
            let (stream, code) = socks(&world, &by_name(API, 443)).await;
            assert_eq!(code, 0);
            let mut client = Client::over(tls_on(&world, stream, API, H2).await.unwrap()).await;
            assert_eq!(client.get(API, "/repos/a").await.0, 200);
            // An address that the resolver gave stands for its names, as for everybody.
            let (stream, code) = socks(&world, &by_address(443)).await;
            assert_eq!(code, 0);
            let mut client = Client::over(tls_on(&world, stream, API, H1).await.unwrap()).await;
            assert_eq!(client.get(API, "/repos/a").await.0, 200);
            let mapped = [
                &[5, 1, 0, 4][..],
                &[0; 10],
                &[255, 255, 169, 254, 169, 254, 0, 80],
            ];
            for (request, expected) in [
                (by_name("evil.example", 443), 2),
                (by_name(API, 22), 2),
                (by_name("shell.allowed.example", 3306), 2),
                (by_name("evil.example\0.allowed.example", 443), 2),
                (by_name("2130706433", 80), 2),
                (by_name("api.allowed.example", 8443), 5),
                (by_address(6379), 2),
                (mapped.concat(), 2),
                ([5, 1, 0, 1, 127, 0, 0, 1, 0, 80].to_vec(), 2),
                ([5, 3, 0, 1, 127, 0, 0, 1, 0, 80].to_vec(), 7),
            ] {
                let (mut stream, code) = socks(&world, &request).await;
                assert_eq!(code, expected, "{request:?}");
                assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "closed");
            }
            // Another name in TLS than the one asked for.
            let (stream, _code) = socks(&world, &by_name(API, 443)).await;
            let mut client = Client::over(tls_on(&world, stream, PASS, H1).await.unwrap()).await;
            assert_eq!(client.get(PASS, "/").await.0, 421);
            // What is neither SOCKS version 5 nor HTTP.
            for other in [&[4, 1, 0, 80, 127, 0, 0, 1, 0][..], &[22, 3, 1, 0, 5]] {
                let mut stream = world.connect_to_proxy().await;
                stream.write_all(other).await.unwrap();
                assert!(stream.read(&mut [0; 1]).await.is_err(), "reset");
            }
            assert!(world.refused(Reason::Unsupported) >= 2);
        },
    );
}

#[test]
fn a_tunnel_ends_when_it_is_no_longer_permitted() {
    in_namespace(
        "tests::explicit::a_tunnel_ends_when_it_is_no_longer_permitted",
        || async {
            let names = names().await;
            let world = World::with_names(POLICY, &names);
            shout(22).await;
            let connect = async || {
                let mut stream = tunnel(&world, "shell.allowed.example:22").await;
                stream.write_all(b"\x01").await.unwrap();
                let mut hello = [0; 6];
                stream.read_exact(&mut hello).await.unwrap();
                stream
            };
            let mut stream = connect().await;
            world.commit(vec![policies(&POLICY.replace("name: net", "name: nets"))]);
            let quiet = tokio::time::timeout(Duration::from_millis(100), stream.read_u8()).await;
            assert!(quiet.is_err(), "a change that does not concern it");
            let start = Instant::now();
            world.commit(vec![policies(
                &POLICY.replace("ports: [22]", "ports: [23]"),
            )]);
            assert!(stream.read_u8().await.is_err());
            assert!(start.elapsed() < Duration::from_secs(1));
        },
    );
}

#[test]
fn a_name_that_moves_to_a_reserved_address_is_not_followed() {
    in_namespace(
        "tests::explicit::a_name_that_moves_to_a_reserved_address_is_not_followed",
        || async {
            let names = names().await;
            let world = World::with_names(POLICY, &names);
            let server = serve(&world.roots, None, H1).await;
            let head = "GET http://moved.allowed.example/x HTTP/1.1\r\n\
                        Host: moved.allowed.example\r\n\r\n";
            let mut stream = world.connect_to_proxy().await;
            assert_eq!(ask(&mut stream, head).await.0, 200, "the control");
            names.set("moved.allowed.example", &["127.0.0.1", "::1"]);
            let deadline = Instant::now() + Duration::from_secs(10);
            loop {
                // The answer holds for a second.
                let mut stream = world.connect_to_proxy().await;
                let (status, denied, _body) = ask(&mut stream, head).await;
                if status != 200 {
                    assert_eq!(denied.as_deref(), Some("reserved_address"));
                    break;
                }
                assert!(Instant::now() < deadline);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert!(server.requests.load(Ordering::Relaxed) > 0);
        },
    );
}
