//! What flows, and what stops flowing.

use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_types::Reason;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, tls};
use super::refusals::POLICY;
use super::server::serve;
use super::world::{World, in_namespace, policies};

const API: &str = "api.allowed.example";
const PASS: &str = "pass.allowed.example";

async fn first_byte_comes_first(alpn: &[&[u8]]) {
    let world = World::new(POLICY);
    let server = serve(&world.roots, Some(API), alpn).await;
    world.pin(API);
    let mut client = Client::https(&world, 443, API, alpn).await;
    let mut request = client.request("POST", API, "/stream", "");
    request
        .headers_mut()
        .insert("te", "trailers".parse().unwrap());
    let mut body = client.send(request).await.unwrap().into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, Bytes::from_static(b"first"), "before the body ends");
    server.more.notify_one();
    let rest = body.collect().await.unwrap();
    let trailers = rest.trailers().cloned();
    assert_eq!(rest.to_bytes(), Bytes::from_static(b"second"));
    if alpn.contains(&&b"h2"[..]) {
        assert_eq!(trailers.unwrap()["grpc-status"], "0");
    }
}

#[test]
fn streaming_http1() {
    in_namespace("tests::streams::streaming_http1", || {
        first_byte_comes_first(&[b"http/1.1"])
    });
}

#[test]
fn streaming_http2() {
    in_namespace("tests::streams::streaming_http2", || {
        first_byte_comes_first(&[b"h2"])
    });
}

#[test]
fn upgrades_pass() {
    in_namespace("tests::streams::upgrades_pass", || async {
        let world = World::new(POLICY);
        let _server = serve(&world.roots, Some(API), &[b"http/1.1"]).await;
        world.pin(API);
        let mut client = Client::https(&world, 443, API, &[b"http/1.1"]).await;
        let mut request = client.request("GET", API, "/upgrade", "");
        request
            .headers_mut()
            .insert("connection", "Upgrade".parse().unwrap());
        request
            .headers_mut()
            .insert("upgrade", "echo".parse().unwrap());
        let mut response = client.send(request).await.unwrap();
        assert_eq!(response.status(), 101);
        let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
        let mut welcome = [0; 7];
        stream.read_exact(&mut welcome).await.unwrap();
        assert_eq!(
            &welcome, b"welcome",
            "what comes with the answer is not lost"
        );
        stream.write_all(b"frame").await.unwrap();
        let mut echo = [0; 5];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"frame");
        // No longer permitted: the tunnel ends.
        let start = Instant::now();
        world.commit(vec![policies(&POLICY.replace(", \"/upgrade\"", ""))]);
        let ended = stream.read(&mut echo).await;
        assert!(!matches!(ended, Ok(1..)), "{ended:?}");
        assert!(start.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn only_what_is_revoked_is_cut() {
    in_namespace("tests::streams::only_what_is_revoked_is_cut", || async {
        let mut world = World::new(POLICY);
        let _server = serve(&world.roots, Some(API), &[b"h2"]).await;
        world.pin(API);
        let mut client = Client::https(&world, 443, API, &[b"h2"]).await;
        let request = client.request("POST", API, "/stream", "");
        let mut body = client.send(request).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        let mut other = Client::https(&world, 443, API, &[b"h2"]).await;
        let request = other.request("POST", API, "/repos/a", "x");
        assert_eq!(other.send(request).await.unwrap().status(), 200);
        // A change that concerns neither.
        world.commit(vec![policies(&POLICY.replace("\"/upgrade\"", "\"/new\""))]);
        assert!(
            tokio::time::timeout(Duration::from_millis(200), body.frame())
                .await
                .is_err(),
            "still open"
        );
        // A change that takes `/stream` away, and nothing else.
        let start = Instant::now();
        world.commit(vec![policies(&POLICY.replace("\"/stream\", ", ""))]);
        assert!(body.frame().await.unwrap().is_err(), "the stream is cut");
        assert!(start.elapsed() < Duration::from_secs(1));
        let (status, _denied, _body) = other.get(API, "/repos/a").await;
        assert_eq!(status, 200, "the other connection lives");
        let (status, _denied, _body) = client.get(API, "/repos/a").await;
        assert_eq!(status, 200, "and so does the connection of the stream");
        let record = world
            .record(|record| record.reason == Some(Reason::Revoked))
            .await;
        assert_eq!(record.path.as_deref(), Some("/stream"));
    });
}

#[test]
fn a_passed_connection_is_cut() {
    in_namespace("tests::streams::a_passed_connection_is_cut", || async {
        let world = World::new(POLICY);
        let _server = serve(&world.roots, Some(PASS), &[b"http/1.1"]).await;
        world.pin(PASS);
        let mut live = tls(&world, 443, PASS, &[b"http/1.1"]).await.unwrap();
        world.commit(vec![policies(
            &POLICY.replace("ports: [443]", "ports: [443, 8443]"),
        )]);
        live.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let mut buffer = [0; 64];
        assert!(live.read(&mut buffer).await.unwrap() > 0, "still open");
        world.commit(vec![policies(
            &POLICY.replace("ports: [443]", "ports: [8443]"),
        )]);
        let mut rest = Vec::new();
        let wait = live.read_to_end(&mut rest);
        let ended = tokio::time::timeout(Duration::from_secs(1), wait).await;
        assert!(ended.unwrap().is_err(), "reset within a second");
    });
}

async fn uploads(alpn: &[&[u8]]) {
    const LENGTH: usize = 8 * 1024 * 1024;
    let mut world = World::new(POLICY);
    let _server = serve(&world.roots, Some(API), alpn).await;
    world.pin(API);
    let mut client = Client::https(&world, 443, API, alpn).await;
    let request = client.request("POST", API, "/repos/a", &"x".repeat(LENGTH));
    let body = client.send(request).await.unwrap().into_body();
    let text = body.collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains(&format!(" {LENGTH}\n")));
    let record = world.record(|record| record.status == Some(200)).await;
    assert_eq!(record.bytes_out, Some(LENGTH as u64));
    assert_eq!(record.bytes_in, Some(text.len() as u64));
}

#[test]
fn uploads_http1() {
    in_namespace("tests::streams::uploads_http1", || uploads(&[b"http/1.1"]));
}

#[test]
fn uploads_http2() {
    in_namespace("tests::streams::uploads_http2", || uploads(&[b"h2"]));
}

#[test]
fn a_client_that_waits_for_100_gets_it() {
    in_namespace(
        "tests::streams::a_client_that_waits_for_100_gets_it",
        || async {
            let world = World::new(POLICY);
            let _server = serve(&world.roots, Some(API), &[b"http/1.1"]).await;
            world.pin(API);
            let mut stream = tls(&world, 443, API, &[b"http/1.1"]).await.unwrap();
            let head = format!(
                "POST /repos/a HTTP/1.1\r\nHost: {API}\r\nContent-Length: 4\r\n\
             Connection: close\r\nExpect: 100-continue\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut interim = [0; 25];
            stream.read_exact(&mut interim).await.unwrap();
            assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
            stream.write_all(b"body").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(answer.contains("POST /repos/a 4\n"), "{answer}");
        },
    );
}
