//! Placeholders on their way out.

use std::convert::Infallible;
use std::io::Write as _;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use causeway_types::Reason;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::client::{Client, tls};
use super::upstream::{Log, ok, upstream};
use super::world::{World, in_namespace, placeholder, policies, secret};
use crate::control::ToProxy;
use crate::secrets::sigv4::{Credentials, Scope, Signed, Signer, sha256};

pub(super) const POLICY: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: agent, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: api, to: ["api.allowed.example", "other.allowed.example"] }
  secrets:
    EVERYWHERE: { hosts: ["api.allowed.example"], replace: [header, query, path, body] }
    HEADER: { hosts: ["api.allowed.example"], replace: [header] }
    PARAMETER: { hosts: ["api.allowed.example"], inject: { query: key, format: "k-{secret}" } }
"#;

pub(super) const H1: &[&[u8]] = &[b"http/1.1"];
pub(super) const H2: &[&[u8]] = &[b"h2"];
pub(super) const API: &str = "api.allowed.example";
const OTHER: &str = "other.allowed.example";
/// Characters that have to be escaped somewhere.
pub(super) const VALUE: &str = r#"v4lue "quoted"\ & <é>"#;
pub(super) const PARAMETER: &str = "p4rameter&x";

pub(super) fn world() -> World {
    let world = World::new(POLICY);
    for (name, value) in [
        ("EVERYWHERE", VALUE),
        ("HEADER", "h3ader-secret"),
        ("PARAMETER", PARAMETER),
    ] {
        world.commit(vec![ToProxy::Secret {
            tenant: "acme".parse().unwrap(),
            name: name.parse().unwrap(),
            value: secret(value),
        }]);
    }
    world
}

/// A request that is sent as these pieces.
pub(super) async fn send_pieces(
    world: &World,
    name: &str,
    alpn: &[&[u8]],
    headers: &[(&str, &str)],
    frames: Vec<Frame<Bytes>>,
) -> hyper::Result<Response<Incoming>> {
    let tls = tls(world, 443, name, alpn).await.unwrap();
    let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let mut request = Request::builder().method("POST");
    request = if http2 {
        request.uri(format!("https://{name}/x"))
    } else {
        request.uri("/x").header("host", name)
    };
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let frames = futures_util::stream::iter(frames.into_iter().map(Ok::<_, Infallible>));
    let request = request.body(StreamBody::new(frames)).unwrap();
    let io = TokioIo::new(tls);
    if http2 {
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await
    } else {
        let (mut sender, connection) = http1::handshake(io).await?;
        tokio::spawn(connection);
        sender.send_request(request).await
    }
}

fn pieces(body: &[u8], length: usize) -> Vec<Frame<Bytes>> {
    let chunks = body.chunks(length.max(1));
    chunks
        .map(|chunk| Frame::data(Bytes::copy_from_slice(chunk)))
        .collect()
}

fn denied(response: &Response<Incoming>) -> Option<&str> {
    response.headers().get("x-causeway-denied")?.to_str().ok()
}

async fn heads(alpn: &[&[u8]]) {
    let mut world = world();
    let log = upstream(&world, API, alpn, ok).await;
    let token = placeholder("EVERYWHERE");
    let mut client = Client::https(&world, 443, API, alpn).await;
    let path = format!("/bot{}/x?a={token}&b=%41&key=forged", placeholder("HEADER"));
    let mut request = client.request("GET", API, &path, "");
    let headers = request.headers_mut();
    let basic = STANDARD.encode(format!("user:{}", placeholder("HEADER")));
    for (name, value) in [
        ("authorization", format!("Basic {basic}")),
        ("x-key", format!("a {token} b")),
        ("x-unknown", placeholder("UNKNOWN")),
        ("x-plain", "causeway_secret_".to_owned()),
    ] {
        headers.append(name, value.parse().unwrap());
    }
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let seen = log.last();
    // HEADER is not to be swapped in a path: its placeholder goes as it is.
    let expected = format!(
        "/bot{}/x?a=v4lue%20%22quoted%22%5C%20%26%20%3C%C3%A9%3E&b=%41&key=k-p4rameter%26x",
        placeholder("HEADER")
    );
    assert_eq!(seen.uri.path_and_query().unwrap().as_str(), expected);
    let basic = STANDARD.encode("user:h3ader-secret");
    assert_eq!(seen.headers["authorization"], format!("Basic {basic}"));
    assert_eq!(
        seen.headers["x-key"].as_bytes(),
        format!("a {VALUE} b").as_bytes()
    );
    assert_eq!(seen.headers["x-unknown"], placeholder("UNKNOWN"));
    assert_eq!(seen.headers["x-plain"], "causeway_secret_");
    // What is written about it has the placeholder.
    let record = world.record(|record| record.method.is_some()).await;
    let path = record.path.clone().unwrap();
    assert_eq!(path, format!("/bot{}/x", placeholder("HEADER")));
    let record = serde_json::to_string(&record).unwrap();
    for value in ["v4lue", "h3ader-secret", "p4rameter"] {
        assert!(!record.contains(value), "{record}");
    }
    let secret_path = format!("/{token}/x");
    let refused = client.get(API, &secret_path).await;
    assert_eq!(
        (refused.0, refused.1.as_deref()),
        (403, Some("secret_misplaced")),
        "a backslash"
    );
    assert!(!refused.2.contains("v4lue"));
    assert_eq!(log.count(), 1);
}

#[test]
fn placeholders_in_heads_http1() {
    in_namespace("tests::secrets::placeholders_in_heads_http1", || heads(H1));
}

#[test]
fn placeholders_in_heads_http2() {
    in_namespace("tests::secrets::placeholders_in_heads_http2", || heads(H2));
}

#[test]
fn a_placeholder_goes_to_another_host_as_it_is() {
    in_namespace(
        "tests::secrets::a_placeholder_goes_to_another_host_as_it_is",
        || async {
            let world = world();
            let log = upstream(&world, OTHER, H1, ok).await;
            let token = placeholder("EVERYWHERE");
            let body = format!(r#"{{"prompt":"my key is {token}"}}"#);
            let headers = [
                ("x-key", token.as_str()),
                ("content-type", "application/json"),
            ];
            let response = send_pieces(&world, OTHER, H1, &headers, pieces(body.as_bytes(), 9));
            assert_eq!(response.await.unwrap().status(), 200);
            let seen = log.last();
            assert_eq!(seen.headers["x-key"], token);
            assert_eq!(seen.body, body);
            assert_eq!(seen.uri.path_and_query().unwrap().as_str(), "/x");
        },
    );
}

fn gzip(content: &[u8]) -> Vec<u8> {
    run_encoder("gzip", content)
}

/// The coded form, made by the library that the proxy decodes with.
fn run_encoder(coding: &str, content: &[u8]) -> Vec<u8> {
    use async_compression::tokio::bufread as encoders;
    use tokio::io::AsyncReadExt as _;
    let mut out = Vec::new();
    let content = content.to_vec();
    futures_util::future::FutureExt::now_or_never(async {
        let reader = &content[..];
        match coding {
            "gzip" => {
                encoders::GzipEncoder::new(reader)
                    .read_to_end(&mut out)
                    .await
            }
            "deflate" => {
                encoders::ZlibEncoder::new(reader)
                    .read_to_end(&mut out)
                    .await
            }
            "br" => {
                encoders::BrotliEncoder::new(reader)
                    .read_to_end(&mut out)
                    .await
            }
            "zstd" => {
                encoders::ZstdEncoder::new(reader)
                    .read_to_end(&mut out)
                    .await
            }
            _ => out.write_all(reader).map(|()| 0),
        }
    })
    .expect("memory is ready")
    .unwrap();
    out
}

const JSON: &str = r#"v4lue \"quoted\"\\ & <é>"#;
const FORM: &str = "v4lue+%22quoted%22%5C+%26+%3C%C3%A9%3E";
const XML: &str = r"v4lue &quot;quoted&quot;\ &amp; &lt;é&gt;";

async fn bodies(alpn: &[&[u8]]) {
    let world = world();
    let log = upstream(&world, API, alpn, ok).await;
    let token = placeholder("EVERYWHERE");
    for (media_type, written) in [
        ("application/json", JSON),
        ("application/x-www-form-urlencoded", FORM),
        ("text/plain; charset=utf-8", VALUE),
        ("application/xml", XML),
        ("multipart/form-data; boundary=b", VALUE),
    ] {
        let json = media_type == "application/json";
        let codings = ["identity", "gzip", "deflate", "br", "zstd"];
        for coding in codings.into_iter().take(if json { 5 } else { 1 }) {
            let plain = format!("--{}--", "untouched ".repeat(50));
            let with = format!("{plain}{token}--{token}");
            let expected = format!("{plain}{written}--{written}");
            // Of a length that is known, and of one that is not.
            for (sized, piece) in [(true, 10_000), (true, 5), (false, 7)] {
                let coded = run_encoder(coding, with.as_bytes());
                let length = coded.len().to_string();
                let mut headers = vec![("content-type", media_type), ("content-encoding", coding)];
                if sized {
                    headers.push(("content-length", &length));
                }
                let sent = send_pieces(&world, API, alpn, &headers, pieces(&coded, piece)).await;
                let response = sent.unwrap();
                let case = format!("{media_type} {coding} {sized} {piece}");
                assert_eq!(response.status(), 200, "{case}: {:?}", denied(&response));
                let seen = log.last();
                assert_eq!(String::from_utf8_lossy(&seen.body), expected, "{case}");
                let coding = seen.headers.get("content-encoding");
                assert!(coding.is_none_or(|coding| coding == "identity"), "{case}");
                let length = seen.headers.get("content-length");
                let expected = sized.then(|| expected.len().to_string());
                assert_eq!(
                    length.map(|l| l.to_str().unwrap()),
                    expected.as_deref(),
                    "{case}"
                );
            }
            // Without a placeholder bytes and length are the same, coded or not.
            let coded = run_encoder(coding, plain.as_bytes());
            let length = coded.len().to_string();
            let headers = [
                ("content-type", media_type),
                ("content-encoding", coding),
                ("content-length", &length),
            ];
            let sent = send_pieces(&world, API, alpn, &headers, pieces(&coded, 11)).await;
            assert_eq!(sent.unwrap().status(), 200);
            let seen = log.last();
            assert_eq!(seen.body, coded);
            assert_eq!(seen.headers["content-length"], length);
            assert_eq!(seen.headers["content-encoding"], coding);
        }
    }
}

#[test]
fn placeholders_in_bodies_http1() {
    in_namespace("tests::secrets::placeholders_in_bodies_http1", || {
        bodies(H1)
    });
}

#[test]
fn placeholders_in_bodies_http2() {
    in_namespace("tests::secrets::placeholders_in_bodies_http2", || {
        bodies(H2)
    });
}

#[test]
fn long_bodies_stream_through() {
    in_namespace("tests::secrets::long_bodies_stream_through", || async {
        let world = world();
        let log = upstream(&world, API, H1, ok).await;
        let token = placeholder("EVERYWHERE");
        let filler = "x".repeat(1024 * 1024);
        let body = format!("{filler}{token}{filler}");
        let length = body.len().to_string();
        let headers = [("content-type", "text/plain"), ("content-length", &length)];
        let sent = send_pieces(&world, API, H1, &headers, pieces(body.as_bytes(), 60_001)).await;
        assert_eq!(sent.unwrap().status(), 200);
        let seen = log.last();
        assert!(seen.body == format!("{filler}{VALUE}{filler}"));
        assert!(!seen.headers.contains_key("content-length"));
    });
}

#[test]
fn placeholders_in_trailers() {
    in_namespace("tests::secrets::placeholders_in_trailers", || async {
        let world = world();
        let log = upstream(&world, API, H2, ok).await;
        for media_type in ["text/plain", "application/octet-stream"] {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-key", placeholder("HEADER").parse().unwrap());
            let mut frames = pieces(b"content", 3);
            frames.push(Frame::trailers(trailers));
            let headers = [("content-type", media_type)];
            let sent = send_pieces(&world, API, H2, &headers, frames).await;
            assert_eq!(sent.unwrap().status(), 200);
            let trailers = log.last().trailers.unwrap();
            assert_eq!(trailers["x-key"], "h3ader-secret");
        }
    });
}

async fn unreadable(alpn: &[&[u8]]) {
    let world = world();
    let log = upstream(&world, API, alpn, ok).await;
    let token = placeholder("EVERYWHERE");
    let text = format!("key {token}");
    let coded = gzip(text.as_bytes());
    let garbage = [&coded[..], b"more"].concat();
    for (media_type, coding, body, reason) in [
        ("text/plain", "compress", text.as_bytes(), "unreadable_body"),
        ("text/plain", "gzip, gzip", &coded, "unreadable_body"),
        ("text/plain", "gzip", text.as_bytes(), "unreadable_body"),
        ("text/plain", "gzip", &garbage, "unreadable_body"),
        (
            "application/octet-stream",
            "identity",
            text.as_bytes(),
            "secret_misplaced",
        ),
        (
            "application/grpc",
            "identity",
            text.as_bytes(),
            "secret_misplaced",
        ),
    ] {
        let length = body.len().to_string();
        for sized in [true, false] {
            let mut headers = vec![("content-type", media_type), ("content-encoding", coding)];
            if sized {
                headers.push(("content-length", &length));
            }
            let sent = send_pieces(&world, API, alpn, &headers, pieces(body, 100)).await;
            let response = sent.unwrap();
            assert_eq!(
                denied(&response),
                Some(reason),
                "{media_type} {coding} {sized}"
            );
            let refusal = response.into_body().collect().await.unwrap().to_bytes();
            assert!(!String::from_utf8_lossy(&refusal).contains("v4lue"));
        }
    }
    assert_eq!(log.count(), 0, "nothing of it arrives whole");
    // The controls: binary content without a placeholder passes, and so does nothing at all.
    let headers = [("content-type", "application/octet-stream")];
    let sent = send_pieces(&world, API, alpn, &headers, pieces(b"\0\xff", 1)).await;
    assert_eq!(sent.unwrap().status(), 200);
    assert_eq!(&log.last().body[..], b"\0\xff");
    let headers = [("content-encoding", "compress"), ("content-length", "0")];
    let sent = send_pieces(&world, API, alpn, &headers, Vec::new()).await;
    assert_eq!(sent.unwrap().status(), 200);
}

#[test]
fn what_cannot_be_looked_into_is_refused_http1() {
    in_namespace(
        "tests::secrets::what_cannot_be_looked_into_is_refused_http1",
        || unreadable(H1),
    );
}

#[test]
fn what_cannot_be_looked_into_is_refused_http2() {
    in_namespace(
        "tests::secrets::what_cannot_be_looked_into_is_refused_http2",
        || unreadable(H2),
    );
}

#[test]
fn a_new_value_counts_at_once_and_a_deleted_one_cuts() {
    in_namespace(
        "tests::secrets::a_new_value_counts_at_once_and_a_deleted_one_cuts",
        || async {
            let mut world = world();
            let log: Log = upstream(&world, API, H1, ok).await;
            let token = placeholder("HEADER");
            let set = |value: &str| ToProxy::Secret {
                tenant: "acme".parse().unwrap(),
                name: "HEADER".parse().unwrap(),
                value: secret(value),
            };
            let mut client = Client::https(&world, 443, API, H1).await;
            for value in ["first-value", "second-value"] {
                world.commit(vec![set(value)]);
                let mut request = client.request("GET", API, "/", "");
                request
                    .headers_mut()
                    .insert("x-key", token.parse().unwrap());
                assert_eq!(client.send(request).await.unwrap().status(), 200);
                assert_eq!(log.last().headers["x-key"], value);
            }
            world.commit(vec![ToProxy::SecretGone {
                tenant: "acme".parse().unwrap(),
                name: "HEADER".parse().unwrap(),
            }]);
            let (status, reason, _body) = client.get(API, "/").await;
            assert_eq!((status, reason.as_deref()), (502, Some("secret_missing")));
            // A request that is under way ends.
            world.commit(vec![set("third-value")]);
            let stalled = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
            let io = TokioIo::new(tls(&world, 443, API, H1).await.unwrap());
            let (mut sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            let request = Request::builder()
                .method("POST")
                .uri("/x")
                .header("host", API);
            let request = request.body(StreamBody::new(stalled)).unwrap();
            let answer = tokio::spawn(sender.send_request(request));
            tokio::time::sleep(Duration::from_millis(50)).await;
            let start = Instant::now();
            world.commit(vec![ToProxy::SecretGone {
                tenant: "acme".parse().unwrap(),
                name: "HEADER".parse().unwrap(),
            }]);
            let answer = answer.await.unwrap();
            assert!(start.elapsed() < Duration::from_secs(1));
            assert!(answer.is_err() || denied(&answer.unwrap()) == Some("revoked"));
            world
                .record(|record| {
                    matches!(record.reason, Some(Reason::Revoked | Reason::SecretMissing))
                        && record.method.as_deref() == Some("POST")
                })
                .await;
            // A change that concerns no secret of it leaves everything as it is.
            world.commit(vec![set("fourth-value"), policies(POLICY)]);
            let mut client = Client::https(&world, 443, API, H1).await;
            assert_eq!(client.get(API, "/").await.0, 200);
        },
    );
}

const SIGNED: &str = r#"
apiVersion: causeway/v1
kind: Policy
metadata: { name: agent, tenant: acme }
spec:
  selector: {}
  egress:
    - { name: api, to: ["api.allowed.example"] }
  secrets:
    AWS: { hosts: ["api.allowed.example"], sign: aws_sigv4 }
"#;

/// A request that the client signed with keys of its own.
fn signed_request(
    client: &Client,
    path: &str,
    content: &str,
    algorithm: &str,
) -> Request<Full<Bytes>> {
    let mut request = client.request("PUT", API, path, "");
    let scope = "CLIENTKEY/20260102/eu-west-1/s3/aws4_request";
    for (name, value) in [
        ("x-amz-date", "20260102T030405Z"),
        ("x-amz-content-sha256", content),
        ("x-amz-security-token", "the-clients"),
        (
            "authorization",
            &format!(
                "{algorithm} Credential={scope}, SignedHeaders=host;x-amz-date, Signature={}",
                "0".repeat(64)
            ),
        ),
    ] {
        let value = http::HeaderValue::from_str(value).unwrap();
        let name = http::HeaderName::try_from(name).unwrap();
        request.headers_mut().insert(name, value);
    }
    request
}

/// The signature that the real keys make of what arrived.
fn expected(seen: &super::upstream::Seen, content: &str) -> String {
    let credentials = Credentials::parse(KEYS.as_bytes()).unwrap();
    let scope = Scope::parse("K/20260102/eu-west-1/s3/aws4_request").unwrap();
    let signer = Signer::new(&credentials, scope, "20260102T030405Z").unwrap();
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let headers = [
        header("host", API),
        header("x-amz-date", "20260102T030405Z"),
        header("x-amz-content-sha256", content),
        header("x-amz-security-token", "t0ken/of=ours"),
    ];
    signer.request(&Signed {
        method: "PUT",
        path: seen.uri.path(),
        query: seen.uri.query().unwrap_or_default(),
        headers: &headers,
        payload: content,
    })
}

const KEYS: &str = "AKIDREAL:r3al/secret+key:t0ken/of=ours";

async fn signatures(alpn: &[&[u8]]) {
    let world = World::new(SIGNED);
    world.commit(vec![ToProxy::Secret {
        tenant: "acme".parse().unwrap(),
        name: "AWS".parse().unwrap(),
        value: secret(KEYS),
    }]);
    let log = upstream(&world, API, alpn, ok).await;
    let mut client = Client::https(&world, 443, API, alpn).await;
    let hmac = "AWS4-HMAC-SHA256";
    let digest = sha256(b"content");
    for content in [
        "UNSIGNED-PAYLOAD",
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        &digest,
    ] {
        let request = signed_request(&client, "/a%20b?list=1", content, hmac);
        assert_eq!(client.send(request).await.unwrap().status(), 200);
        let seen = log.last();
        let signature = expected(&seen, content);
        let names = "host;x-amz-content-sha256;x-amz-date;x-amz-security-token";
        assert_eq!(
            seen.headers["authorization"],
            format!(
                "{hmac} Credential=AKIDREAL/20260102/eu-west-1/s3/aws4_request, \
                 SignedHeaders={names}, Signature={signature}"
            )
        );
        assert_eq!(seen.headers["x-amz-security-token"], "t0ken/of=ours");
    }
    // Chunk by chunk: the body keeps its length.
    let dummy = "0".repeat(64);
    let body = format!("5;chunk-signature={dummy}\r\nhello\r\n0;chunk-signature={dummy}\r\n\r\n");
    let word = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    let request = signed_request(&client, "/x", word, hmac);
    let request = request.map(|_empty| Full::new(Bytes::from(body.clone())));
    assert_eq!(client.send(request).await.unwrap().status(), 200);
    let seen = log.last();
    let credentials = Credentials::parse(KEYS.as_bytes()).unwrap();
    let scope = Scope::parse("K/20260102/eu-west-1/s3/aws4_request").unwrap();
    let signer = Signer::new(&credentials, scope, "20260102T030405Z").unwrap();
    let first = signer.chunk(&expected(&seen, word), b"hello");
    let last = signer.chunk(&first, b"");
    let signed = format!("5;chunk-signature={first}\r\nhello\r\n0;chunk-signature={last}\r\n\r\n");
    assert_eq!(seen.body, signed);
    // In the query.
    let path = "/x?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=CLIENTKEY%2F20260102%2F\
                eu-west-1%2Fs3%2Faws4_request&X-Amz-Date=20260102T030405Z&X-Amz-Expires=60&\
                X-Amz-SignedHeaders=host&X-Amz-Signature=00";
    assert_eq!(client.get(API, path).await.0, 200);
    let query = log.last().uri.query().unwrap().to_owned();
    let (covered, signature) = query.split_once("&X-Amz-Signature=").unwrap();
    assert!(
        covered.contains("X-Amz-Credential=AKIDREAL%2F20260102"),
        "{query}"
    );
    assert!(
        covered.contains("X-Amz-Security-Token=t0ken%2Fof%3Dours"),
        "{query}"
    );
    let headers = [("host".to_owned(), API.to_owned())];
    let own = signer.request(&Signed {
        method: "GET",
        path: "/x",
        query: covered,
        headers: &headers,
        payload: "UNSIGNED-PAYLOAD",
    });
    assert_eq!(signature, own);
    // What cannot be signed is refused, and what is not signed goes as it is.
    let count = log.count();
    for (algorithm, content) in [
        ("AWS4-ECDSA-P256-SHA256", "UNSIGNED-PAYLOAD"),
        (hmac, "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"),
        ("Bearer", "UNSIGNED-PAYLOAD"),
    ] {
        let request = signed_request(&client, "/x", content, algorithm);
        let response = client.send(request).await.unwrap();
        assert_eq!(
            denied(&response),
            Some("unsupported"),
            "{algorithm} {content}"
        );
    }
    assert_eq!(log.count(), count);
    assert_eq!(client.get(API, "/public").await.0, 200);
    assert!(!log.last().headers.contains_key("authorization"));
}

#[test]
fn signatures_are_made_anew_http1() {
    in_namespace("tests::secrets::signatures_are_made_anew_http1", || {
        signatures(H1)
    });
}

#[test]
fn signatures_are_made_anew_http2() {
    in_namespace("tests::secrets::signatures_are_made_anew_http2", || {
        signatures(H2)
    });
}
