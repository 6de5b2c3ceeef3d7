//! HTTP as it is on the wire: interim answers, lengths, ends, and requests with two readings.

use std::time::Duration;

use base64::Engine as _;
use causeway_types::Reason;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::client::{Client, tls};
use super::world::{UPSTREAM, World, in_namespace, policies};

const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: agent, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: web, to: ["web.allowed.example"], http: [{ methods: ["*"], paths: ["/**"] }] }
"#;
const WEB: &str = "web.allowed.example";
const H1: &[&[u8]] = &[b"http/1.1"];
const H2: &[&[u8]] = &[b"h2"];

/// Reads one head.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => text.push(byte),
            Err(_ended) => break,
        }
    }
    String::from_utf8(text).unwrap()
}

/// A TLS upstream that answers each head with these bytes, all in one write, and then sends back
/// what it gets.
async fn scripted(world: &World, answer: &'static [u8]) {
    let listener = TcpListener::bind((UPSTREAM, 443)).await.unwrap();
    let acceptor = world.roots.acceptor(WEB, H1);
    tokio::spawn(async move {
        while let Ok((stream, _source)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(stream).await else {
                    return;
                };
                while !head(&mut tls).await.is_empty() {
                    tls.write_all(answer).await.unwrap();
                    tls.flush().await.unwrap();
                    if answer.starts_with(b"HTTP/1.1 101") {
                        let (mut read, mut write) = tokio::io::split(tls);
                        let _ended = tokio::io::copy(&mut read, &mut write).await;
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn frames_flow_from_the_very_first() {
    in_namespace(
        "tests::protocols::frames_flow_from_the_very_first",
        || async {
            let world = World::new(POLICY);
            world.pin(WEB);
            scripted(
            &world,
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
              Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n\x81\x05first",
        )
        .await;
            let mut client = tls(&world, 443, WEB, H1).await.unwrap();
            let request = format!(
                "GET /ws HTTP/1.1\r\nHost: {WEB}\r\nConnection: keep-alive, Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            client.write_all(request.as_bytes()).await.unwrap();
            let answer = head(&mut client).await.to_lowercase();
            assert!(answer.starts_with("http/1.1 101"), "{answer}");
            assert!(
                answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="),
                "{answer}"
            );
            let mut frame = [0; 7];
            client.read_exact(&mut frame).await.unwrap();
            assert_eq!(&frame, b"\x81\x05first", "in the same packet as the answer");
            client.write_all(b"\x81\x04back").await.unwrap();
            client.read_exact(&mut frame[..6]).await.unwrap();
            assert_eq!(&frame[..6], b"\x81\x04back");
        },
    );
}

/// A WebSocket server as far as the handshake goes.
async fn websocket(world: &World, right: bool) {
    let listener = TcpListener::bind((UPSTREAM, 443)).await.unwrap();
    let acceptor = world.roots.acceptor(WEB, H1);
    tokio::spawn(async move {
        while let Ok((stream, _source)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(stream).await else {
                continue;
            };
            tokio::spawn(async move {
                let request = head(&mut tls).await;
                assert!(request.starts_with("GET /ws?x=1 HTTP/1.1\r\n"), "{request}");
                let lower = request.to_lowercase();
                assert!(lower.contains("upgrade: websocket\r\n"), "{request}");
                assert!(
                    lower.contains("sec-websocket-protocol: chat\r\n"),
                    "{request}"
                );
                let key = lower.find("sec-websocket-key: ").unwrap() + 19;
                let key = request[key..].lines().next().unwrap();
                let hashed = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
                let algorithm = &ring::digest::SHA1_FOR_LEGACY_USE_ONLY;
                let digest = ring::digest::digest(algorithm, hashed.as_bytes());
                let accept = base64::engine::general_purpose::STANDARD.encode(digest);
                let accept = if right { accept } else { "x".to_owned() };
                let answer = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: chat\r\n\r\n\x01\x05first"
                );
                tls.write_all(answer.as_bytes()).await.unwrap();
                let (mut read, mut write) = tokio::io::split(tls);
                let _ended = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
}

fn extended(
    path: &str,
    protocol: &'static str,
) -> http::Request<http_body_util::Full<bytes::Bytes>> {
    http::Request::builder()
        .method("CONNECT")
        .uri(format!("https://{WEB}{path}"))
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "chat")
        .extension(hyper::ext::Protocol::from_static(protocol))
        .body(http_body_util::Full::default())
        .unwrap()
}

#[test]
fn websocket_in_a_stream_of_http2() {
    in_namespace(
        "tests::protocols::websocket_in_a_stream_of_http2",
        || async {
            let world = World::new(&POLICY.replace("\"*\"", "GET").replace("\"/**\"", "\"/ws\""));
            world.pin(WEB);
            websocket(&world, true).await;
            let mut client = Client::https(&world, 443, WEB, H2).await;
            let mut response = client.send(extended("/ws?x=1", "websocket")).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers()["sec-websocket-protocol"], "chat");
            assert!(!response.headers().contains_key("sec-websocket-accept"));
            let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
            let mut stream = hyper_util::rt::TokioIo::new(upgraded);
            let mut frame = [0; 7];
            stream.read_exact(&mut frame).await.unwrap();
            assert_eq!(&frame, b"\x01\x05first");
            stream.write_all(b"\x01\x04back").await.unwrap();
            stream.read_exact(&mut frame[..6]).await.unwrap();
            assert_eq!(&frame[..6], b"\x01\x04back");
            // Judged like every request, beside the stream that lives on.
            for (path, protocol, status, reason) in [
                ("/other", "websocket", 403, "request_denied"),
                ("/ws?x=1", "connect-udp", 501, "unsupported"),
            ] {
                let refused = client.send(extended(path, protocol)).await.unwrap();
                assert_eq!(refused.status(), status);
                assert_eq!(refused.headers()["x-causeway-denied"], reason);
            }
            stream.write_all(b"again").await.unwrap();
            stream.read_exact(&mut frame[..5]).await.unwrap();
            world.commit(vec![policies(&POLICY.replace("\"/**\"", "\"/b\""))]);
            let ended = stream.read(&mut frame).await;
            assert!(!matches!(ended, Ok(1..)), "cut: {ended:?}");
        },
    );
}

#[test]
fn a_websocket_that_the_upstream_did_not_accept_is_none() {
    in_namespace(
        "tests::protocols::a_websocket_that_the_upstream_did_not_accept_is_none",
        || async {
            let world = World::new(POLICY);
            world.pin(WEB);
            websocket(&world, false).await;
            let mut client = Client::https(&world, 443, WEB, H2).await;
            let refused = client.send(extended("/ws?x=1", "websocket")).await.unwrap();
            assert_eq!(refused.status(), 502);
            assert_eq!(refused.headers()["x-causeway-denied"], "upstream_protocol");
        },
    );
}

async fn interim(alpn: &[&[u8]]) {
    let world = World::new(POLICY);
    world.pin(WEB);
    scripted(
        &world,
        b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n\
          HTTP/1.1 100 Continue\r\n\r\n\
          HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfinal",
    )
    .await;
    let mut client = Client::https(&world, 443, WEB, alpn).await;
    for _again in 0..2 {
        let (status, denied, body) = client.get(WEB, "/a").await;
        assert_eq!((status, denied, body.as_str()), (200, None, "final"));
    }
}

#[test]
fn an_interim_answer_is_not_the_final_one_http1() {
    in_namespace(
        "tests::protocols::an_interim_answer_is_not_the_final_one_http1",
        || interim(H1),
    );
}

#[test]
fn an_interim_answer_is_not_the_final_one_http2() {
    in_namespace(
        "tests::protocols::an_interim_answer_is_not_the_final_one_http2",
        || interim(H2),
    );
}

async fn heads(alpn: &[&[u8]]) {
    let world = World::new(POLICY);
    world.pin(WEB);
    scripted(
        &world,
        b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\nETag: x\r\n\r\n",
    )
    .await;
    let mut client = Client::https(&world, 443, WEB, alpn).await;
    for _again in 0..2 {
        let request = client.request("HEAD", WEB, "/a", "");
        let response = client.send(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-length"], "12345");
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap();
        assert!(body.to_bytes().is_empty());
    }
}

#[test]
fn head_keeps_its_length_http1() {
    in_namespace("tests::protocols::head_keeps_its_length_http1", || {
        heads(H1)
    });
}

#[test]
fn head_keeps_its_length_http2() {
    in_namespace("tests::protocols::head_keeps_its_length_http2", || {
        heads(H2)
    });
}

/// A plain upstream that gives each connection to `serve`.
async fn plain<F, W>(serve: F)
where
    F: Fn(TcpStream) -> W + Send + 'static,
    W: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((UPSTREAM, 80)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _source)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
}

#[test]
fn one_who_has_asked_and_says_no_more_gets_the_answer() {
    in_namespace(
        "tests::protocols::one_who_has_asked_and_says_no_more_gets_the_answer",
        || async {
            let world = World::new(POLICY);
            world.pin(WEB);
            plain(|mut stream| async move {
                let _request = head(&mut stream).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
                    .await
                    .unwrap();
            })
            .await;
            let mut client = world.connect(80).await;
            let request = format!("GET /a HTTP/1.1\r\nHost: {WEB}\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with("late"),
                "{answer}"
            );
        },
    );
}

#[test]
fn an_answer_that_breaks_off_is_not_taken_for_whole() {
    in_namespace(
        "tests::protocols::an_answer_that_breaks_off_is_not_taken_for_whole",
        || async {
            let world = World::new(POLICY);
            world.pin(WEB);
            plain(|mut stream| async move {
                let request = head(&mut stream).await;
                let whole: &[u8] =
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
                stream.write_all(whole).await.unwrap();
                if request.starts_with("GET /whole") {
                    stream.write_all(b"0\r\n\r\n").await.unwrap();
                }
            })
            .await;
            for (path, ends) in [("/whole", true), ("/half", false)] {
                let mut client = world.connect(80).await;
                let request =
                    format!("GET {path} HTTP/1.1\r\nHost: {WEB}\r\nConnection: close\r\n\r\n");
                client.write_all(request.as_bytes()).await.unwrap();
                let mut answer = Vec::new();
                let _reset = client.read_to_end(&mut answer).await;
                assert_eq!(answer.ends_with(b"0\r\n\r\n"), ends, "{path}");
            }
        },
    );
}

/// The highest resident size of this process until now, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kibibytes * 1024
}

/// The length of a large body, in bytes.
const SIZE: usize = 200 << 20;

async fn send(to: &mut (impl AsyncWrite + Unpin)) {
    let piece = vec![b'x'; 1 << 16];
    for _piece in 0..SIZE / piece.len() {
        to.write_all(&piece).await.unwrap();
    }
}

#[test]
fn large_bodies_take_constant_memory() {
    in_namespace(
        "tests::protocols::large_bodies_take_constant_memory",
        || async {
            let world = World::new(POLICY);
            world.pin(WEB);
            plain(|stream| async move {
                let mut stream = BufReader::new(stream);
                let request = head(&mut stream).await;
                if request.starts_with("POST") {
                    let mut left = SIZE;
                    while left > 0 {
                        let count = stream.fill_buf().await.unwrap().len();
                        assert!(count > 0, "{left} bytes are missing");
                        stream.consume(count);
                        left -= count;
                    }
                    let done = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
                    stream.get_mut().write_all(done).await.unwrap();
                } else {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
                    stream.get_mut().write_all(head.as_bytes()).await.unwrap();
                    send(stream.get_mut()).await;
                }
            })
            .await;
            let before = peak();
            let mut client = world.connect(80).await;
            let post = format!("POST /a HTTP/1.1\r\nHost: {WEB}\r\nContent-Length: {SIZE}\r\n\r\n");
            client.write_all(post.as_bytes()).await.unwrap();
            send(&mut client).await;
            let answer = head(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            let mut client = world.connect(80).await;
            let get = format!("GET /a HTTP/1.1\r\nHost: {WEB}\r\nConnection: close\r\n\r\n");
            client.write_all(get.as_bytes()).await.unwrap();
            let _head = head(&mut client).await;
            let received = tokio::io::copy(&mut client, &mut tokio::io::sink())
                .await
                .unwrap();
            assert_eq!(received, SIZE as u64);
            let grown = peak() - before;
            assert!(
                grown < 32 << 20,
                "{grown} bytes more for two bodies of {SIZE}"
            );
        },
    );
}

#[test]
fn each_request_of_a_connection_is_judged_anew() {
    in_namespace(
        "tests::protocols::each_request_of_a_connection_is_judged_anew",
        || async {
            let world = World::new(POLICY);
            world.pin(WEB);
            scripted(&world, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            for alpn in [H1, H2] {
                world.commit(vec![policies(POLICY)]);
                let mut client = Client::https(&world, 443, WEB, alpn).await;
                assert_eq!(client.get(WEB, "/a").await.0, 200);
                world.commit(vec![policies(&POLICY.replace("\"/**\"", "\"/b\""))]);
                let (status, denied, _body) = client.get(WEB, "/a").await;
                assert_eq!((status, denied.as_deref()), (403, Some("request_denied")));
                assert_eq!(client.get(WEB, "/b").await.0, 200, "on the same connection");
            }
        },
    );
}

/// Header lines that some parser reads in another way than some other.
const HOSTILE: &[&str] = &[
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5, 5",
    "Content-Length: 5, 6",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 0x5",
    "Content-Length: 5 5",
    "Content-Length: 5_0",
    "Content-Length: ",
    "Content-Length: 99999999999999999999",
    "Content-Length : 5",
    "Content-Length: 5\r\n 0",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\t: chunked",
    "Transfer-Encoding: \u{b}chunked",
    "Transfer-Encoding:\r\n chunked",
    "Transfer_Encoding : chunked",
    " Transfer-Encoding: chunked",
    "X: a\rTransfer-Encoding: chunked",
    "X: a\0b",
    "X\0: a",
    "X y: a",
    "(x): a",
    "Host: other.example",
    "Host : other.example",
];

#[test]
fn requests_with_two_readings_are_refused() {
    in_namespace(
        "tests::protocols::requests_with_two_readings_are_refused",
        || async {
            let world = World::new(POLICY);
            world.pin(WEB);
            let (seen, mut requests) = tokio::sync::mpsc::unbounded_channel();
            plain(move |mut stream| {
                let seen = seen.clone();
                async move {
                    let mut got = Vec::new();
                    while stream.read_buf(&mut got).await.is_ok_and(|count| count > 0) {
                        if got.ends_with(b"\r\n\r\n") {
                            let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                            let _gone = stream.write_all(ok).await;
                        }
                    }
                    seen.send(String::from_utf8_lossy(&got).into_owned())
                        .unwrap();
                }
            })
            .await;
            let exchange = async |text: String| {
                let mut client = world.connect(80).await;
                let _reset = client.write_all(text.as_bytes()).await;
                let _reset = client.shutdown().await;
                let mut answer = Vec::new();
                let _reset = client.read_to_end(&mut answer).await;
                String::from_utf8_lossy(&answer).into_owned()
            };
            let smuggled = format!("0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: {WEB}\r\n\r\n");
            let post = |headers: &str| {
                format!("POST /p HTTP/1.1\r\nHost: {WEB}\r\n{headers}\r\n\r\n{smuggled}")
            };
            for hostile in HOSTILE {
                let answer = exchange(post(hostile)).await;
                assert!(answer.starts_with("HTTP/1.1 4"), "{hostile:?}: {answer:?}");
                assert_eq!(
                    answer.matches("HTTP/1.1 ").count(),
                    1,
                    "{hostile:?}: {answer:?}"
                );
            }
            for hostile in [
                format!(
                    "POST /p HTTP/1.0\r\nHost: {WEB}\r\nTransfer-Encoding: chunked\r\n\r\n{smuggled}"
                ),
                format!("GET /p HTTP/1.1 \r\nHost: {WEB}\r\n\r\n"),
                format!("GET  /p HTTP/1.1\r\nHost: {WEB}\r\n\r\n"),
                format!("GET /p\u{b}HTTP/1.1\r\nHost: {WEB}\r\n\r\n"),
                format!("GET /p HTTP/1.1\r\nHost: {WEB}\r\nbroken\r\n\r\n"),
                "GET /p HTTP/1.1\r\n\r\n".to_owned(),
                format!("GET /p HTTP/2.0\r\nHost: {WEB}\r\n\r\n"),
            ] {
                let answer = exchange(hostile.clone()).await;
                assert!(!answer.contains("HTTP/1.1 200"), "{hostile:?}: {answer:?}");
            }
            assert!(requests.try_recv().is_err(), "nothing of it went on");
            assert!(world.refused(Reason::AmbiguousRequest) > 20);
            // The controls, and what is read in one way and written anew: both lengths, where
            // the coding counts and nothing is read behind it, and lines that end in a bare LF.
            for (headers, one) in [
                ("Content-Length: 5", true),
                ("Transfer-Encoding: chunked", true),
                ("Content-Length: 5\r\nTransfer-Encoding: chunked", true),
                ("X: a\nContent-Length: 5", true),
            ] {
                let answer = exchange(post(headers)).await;
                assert!(
                    answer.starts_with("HTTP/1.1 200"),
                    "{headers:?}: {answer:?}"
                );
                let request = requests.recv().await.unwrap();
                assert_eq!(
                    request.starts_with("POST /p HTTP/1.1\r\n"),
                    one,
                    "{request:?}"
                );
                let lengths = request.to_lowercase().matches("content-length:").count();
                let codings = request.to_lowercase().matches("transfer-encoding:").count();
                assert_eq!(lengths + codings, 1, "one length: {request:?}");
                let both = headers.contains("Content-Length: 5\r\nT");
                assert!(!(both && request.contains("/smuggled HTTP")), "{request:?}");
            }
        },
    );
}
