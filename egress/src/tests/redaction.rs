//! Secrets that the upstream sends back.

use std::convert::Infallible;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::client::{Client, tls};
use super::refusals;
use super::secrets::{API, H1, H2};
use super::upstream::{Body, Seen, echo, full, upstream};
use super::world::{SECRET, World, in_namespace};

/// Asks for `answer` as a body with these headers in the answer.
async fn answered(
    client: &mut Client,
    answer: &[u8],
    headers: &[(&'static str, &str)],
) -> (u16, HeaderMap, Bytes) {
    let mut request = client.request("POST", API, "/repos/x", "");
    let wanted: Vec<_> = headers
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .collect();
    for (name, value) in wanted {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        request.headers_mut().append(name, value);
    }
    let request = request.map(|_empty| http_body_util::Full::new(Bytes::copy_from_slice(answer)));
    let response = client.send(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, body)
}

fn spellings() -> Vec<String> {
    let escaped = |format: fn(u8) -> String| SECRET.bytes().map(format).collect::<String>();
    vec![
        SECRET.to_owned(),
        format!("Basic {}", STANDARD.encode(format!("user:{SECRET}"))),
        STANDARD.encode(format!("a{SECRET}b")),
        URL_SAFE.encode(format!("ab{SECRET}\u{ff}")),
        escaped(|byte| format!("%{byte:02X}")),
        escaped(|byte| format!("\\u00{byte:02x}")),
        SECRET.replace('-', "%2d"),
        SECRET.replace('-', "\\u002D"),
    ]
}

fn shows(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let inner = |text: &str| text[8..text.len() - 8].to_owned();
    let encoded = STANDARD.encode(format!("user:{SECRET}"));
    text.contains(SECRET)
        || text.contains(&inner(&encoded))
        || spellings().iter().any(|spelling| text.contains(spelling))
}

async fn bodies_and_heads(alpn: &[&[u8]]) {
    let world = World::new(refusals::POLICY);
    upstream(&world, API, alpn, echo).await;
    let mut client = Client::https(&world, 443, API, alpn).await;
    for spelling in spellings() {
        let text = format!("before {spelling} after");
        let headers = [("answer-x-echo", text.as_str()), ("answer-location", &text)];
        let (status, headers, body) = answered(&mut client, text.as_bytes(), &headers).await;
        assert_eq!(status, 200);
        assert_eq!(body.len(), text.len(), "{spelling}");
        assert_eq!(headers["content-length"], text.len().to_string());
        for got in [
            &body[..],
            headers["x-echo"].as_bytes(),
            headers["location"].as_bytes(),
        ] {
            let shown = String::from_utf8_lossy(got);
            assert!(
                !shows(got) && shown.contains("******"),
                "{spelling}: {shown}"
            );
            assert!(
                shown.starts_with("before ") && shown.ends_with(" after"),
                "{shown}"
            );
        }
    }
    // The control: what is no secret comes as it is.
    let innocent: Vec<u8> = (0..=255).collect();
    let (_status, _headers, body) = answered(&mut client, &innocent, &[]).await;
    assert_eq!(body, innocent);
    let near = "s3cr3t-v4lu";
    let (_status, headers, body) =
        answered(&mut client, near.as_bytes(), &[("answer-x-echo", near)]).await;
    assert_eq!(
        (&body[..], headers["x-echo"].as_bytes()),
        (near.as_bytes(), near.as_bytes())
    );
    // A name has no filler, so the header goes.
    let lower = SECRET.to_ascii_lowercase();
    let name: &'static str = Box::leak(format!("answer-{lower}").into_boxed_str());
    let (_status, headers, _body) = answered(&mut client, b"", &[(name, "1")]).await;
    assert!(
        !headers.keys().any(|name| name.as_str().contains(&lower)),
        "{headers:?}"
    );
    assert!(world.shared.metrics.redactions_total.get() >= 9);
}

#[test]
fn answers_http1() {
    in_namespace("tests::redaction::answers_http1", || bodies_and_heads(H1));
}

#[test]
fn answers_http2() {
    in_namespace("tests::redaction::answers_http2", || bodies_and_heads(H2));
}

fn in_pieces(_seen: &Seen, _request: Request<()>) -> Response<Body> {
    let text = format!("a {SECRET} b {SECRET}");
    let mut trailers = HeaderMap::new();
    trailers.insert(
        "x-status",
        HeaderValue::from_str(&format!("0 {SECRET}")).unwrap(),
    );
    let frames: Vec<Result<_, Infallible>> = text
        .bytes()
        .map(|byte| Ok(Frame::data(Bytes::copy_from_slice(&[byte]))))
        .chain([Ok(Frame::trailers(trailers))])
        .collect();
    Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync())
}

#[test]
fn pieces_and_trailers() {
    in_namespace("tests::redaction::pieces_and_trailers", || async {
        let world = World::new(refusals::POLICY);
        upstream(&world, API, H2, in_pieces).await;
        let mut client = Client::https(&world, 443, API, H2).await;
        let request = client.request("GET", API, "/repos/x", "");
        let body = client.send(request).await.unwrap().into_body();
        let body = body.collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["x-status"], "0 ************");
        assert_eq!(body.to_bytes(), "a ************ b ************");
    });
}

#[test]
fn coded_answers_are_undone_and_unknown_ones_refused() {
    in_namespace(
        "tests::redaction::coded_answers_are_undone_and_unknown_ones_refused",
        || async {
            let world = World::new(refusals::POLICY);
            let log = upstream(&world, API, H1, echo).await;
            let mut client = Client::https(&world, 443, API, H1).await;
            let text = format!("before {SECRET} after");
            for coding in ["gzip", "deflate", "br", "zstd"] {
                let coded = encoded(coding, text.as_bytes()).await;
                let headers = [
                    ("answer-content-encoding", coding),
                    ("accept-encoding", "br, gzip"),
                ];
                let (status, headers, body) = answered(&mut client, &coded, &headers).await;
                assert_eq!(status, 200);
                assert_eq!(body, "before ************ after", "{coding}");
                assert!(!headers.contains_key("content-encoding"));
                assert_eq!(log.last().headers["accept-encoding"], "gzip");
            }
            for headers in [
                &[("answer-content-encoding", "compress")][..],
                &[("answer-content-encoding", "gzip, br")],
                &[("status", "206"), ("answer-content-range", "bytes 0-3/10")],
            ] {
                let (status, headers, _body) = answered(&mut client, b"text", headers).await;
                assert_eq!(status, 502);
                assert_eq!(headers["x-causeway-denied"], "unreadable_answer");
            }
            // A range is not asked for; whoever has no body has no coding to undo.
            let range = [("range", "bytes=0-3"), ("if-range", "\"x\"")];
            let (status, _headers, body) = answered(&mut client, b"text", &range).await;
            assert_eq!((status, &body[..]), (200, &b"text"[..]));
            assert!(!log.last().headers.contains_key("range"));
            assert!(!log.last().headers.contains_key("if-range"));
            let mut request = client.request("HEAD", API, "/repos/x", "");
            let gzip = HeaderValue::from_static("gzip");
            request
                .headers_mut()
                .insert("answer-content-encoding", gzip);
            assert_eq!(client.send(request).await.unwrap().status(), 405 - 2);
        },
    );
}

async fn encoded(coding: &str, content: &[u8]) -> Vec<u8> {
    use async_compression::tokio::bufread as encoders;
    let mut out = Vec::new();
    match coding {
        "gzip" => {
            encoders::GzipEncoder::new(content)
                .read_to_end(&mut out)
                .await
        }
        "deflate" => {
            encoders::ZlibEncoder::new(content)
                .read_to_end(&mut out)
                .await
        }
        "br" => {
            encoders::BrotliEncoder::new(content)
                .read_to_end(&mut out)
                .await
        }
        _ => {
            encoders::ZstdEncoder::new(content)
                .read_to_end(&mut out)
                .await
        }
    }
    .unwrap();
    out
}

fn events(_seen: &Seen, _request: Request<()>) -> Response<Body> {
    let (sender, receiver) = tokio::sync::mpsc::channel::<Frame<Bytes>>(4);
    tokio::spawn(async move {
        let frame = |text: &'static str| Frame::data(Bytes::from_static(text.as_bytes()));
        sender.send(frame("data: {\"a\":1}\n\n")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        // The first letter of the secret, and then nothing for as long as the client waits.
        sender.send(frame("data: s3")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        sender.send(frame("cr3t-v4lue!")).await.unwrap();
    });
    let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
        Some((Ok(receiver.recv().await?), receiver))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}

#[test]
fn events_come_as_they_are_sent() {
    in_namespace("tests::redaction::events_come_as_they_are_sent", || async {
        let world = World::new(refusals::POLICY);
        upstream(&world, API, H1, events).await;
        let mut client = Client::https(&world, 443, API, H1).await;
        let request = client.request("GET", API, "/repos/x", "");
        let mut body = client.send(request).await.unwrap().into_body();
        let mut next = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(next().await, "data: {\"a\":1}\n\n");
        assert_eq!(next().await, "data: ");
        assert_eq!(
            next().await,
            "s3",
            "the stream pauses, so the few bytes go on"
        );
        assert_eq!(next().await, "**********!");
    });
}

fn named(_seen: &Seen, _request: Request<()>) -> Response<Body> {
    let mut response = Response::new(full(""));
    let phrase = hyper::ext::ReasonPhrase::try_from(format!("OK {SECRET}")).unwrap();
    response.extensions_mut().insert(phrase);
    response
}

#[test]
fn a_reason_phrase_is_ours() {
    in_namespace("tests::redaction::a_reason_phrase_is_ours", || async {
        let world = World::new(refusals::POLICY);
        upstream(&world, API, H1, named).await;
        let mut stream = tls(&world, 443, API, H1).await.unwrap();
        let head = format!("GET /repos/x HTTP/1.1\r\nHost: {API}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    });
}

fn upgrade(_seen: &Seen, mut request: Request<()>) -> Response<Body> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgraded.await.unwrap());
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            let text = format!("<{SECRET}>");
            let answer = if buffer[..count] == *b"secret" {
                text.as_bytes()
            } else {
                b"s"
            };
            stream.write_all(answer).await.unwrap();
        }
    });
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert("connection", HeaderValue::from_static("upgrade"));
    headers.insert("upgrade", HeaderValue::from_static("echo"));
    response
}

#[test]
fn other_protocols_are_searched_too() {
    in_namespace(
        "tests::redaction::other_protocols_are_searched_too",
        || async {
            let world = World::new(refusals::POLICY);
            let log = upstream(&world, API, H1, upgrade).await;
            let mut client = Client::https(&world, 443, API, H1).await;
            let mut request = client.request("GET", API, "/upgrade", "");
            for (name, value) in [
                ("connection", "Upgrade"),
                ("upgrade", "echo"),
                ("sec-websocket-extensions", "permessage-deflate"),
            ] {
                request
                    .headers_mut()
                    .insert(name, HeaderValue::from_static(value));
            }
            let mut response = client.send(request).await.unwrap();
            assert_eq!(response.status(), 101);
            assert!(!log.last().headers.contains_key("sec-websocket-extensions"));
            let mut stream = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
            let mut got = [0; 14];
            stream.write_all(b"secret").await.unwrap();
            stream.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"<************>");
            // What may begin a secret does not make both sides wait for each other.
            stream.write_all(b"x").await.unwrap();
            stream.read_exact(&mut got[..1]).await.unwrap();
            assert_eq!(got[0], b's');
        },
    );
}

#[test]
fn without_a_secret_nothing_is_touched() {
    in_namespace(
        "tests::redaction::without_a_secret_nothing_is_touched",
        || async {
            let policy = refusals::POLICY.split("  secrets:").next().unwrap();
            let world = World::new(policy);
            let log = upstream(&world, API, H1, echo).await;
            let mut client = Client::https(&world, 443, API, H1).await;
            let headers = [
                ("range", "bytes=0-3"),
                ("accept-encoding", "br"),
                ("status", "206"),
                ("answer-content-encoding", "compress"),
            ];
            let (status, headers, body) = answered(&mut client, SECRET.as_bytes(), &headers).await;
            assert_eq!((status, &body[..]), (206, SECRET.as_bytes()));
            assert_eq!(headers["content-encoding"], "compress");
            assert_eq!(log.last().headers["range"], "bytes=0-3");
            assert_eq!(log.last().headers["accept-encoding"], "br");
            assert_eq!(world.shared.metrics.redactions_total.get(), 0);
        },
    );
}
