use async_compression::tokio::bufread as encoders;
use causeway_types::Reason;
use futures_util::stream;
use http::HeaderValue;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::AsyncReadExt;

use super::*;
use crate::engine::body::cut_reason;

async fn encode(coding: Coding, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let done = match coding {
        Coding::Gzip => {
            encoders::GzipEncoder::new(content)
                .read_to_end(&mut out)
                .await
        }
        Coding::Deflate => {
            encoders::ZlibEncoder::new(content)
                .read_to_end(&mut out)
                .await
        }
        Coding::Brotli => {
            encoders::BrotliEncoder::new(content)
                .read_to_end(&mut out)
                .await
        }
        Coding::Zstd => {
            encoders::ZstdEncoder::new(content)
                .read_to_end(&mut out)
                .await
        }
    };
    done.unwrap();
    out
}

fn body(coded: &[u8], piece: usize, trailers: Option<HeaderMap>) -> Body {
    let pieces: Vec<_> = coded
        .chunks(piece)
        .map(|piece| Frame::data(Bytes::copy_from_slice(piece)))
        .chain(trailers.map(Frame::trailers))
        .map(Ok)
        .collect();
    StreamBody::new(stream::iter(pieces)).boxed_unsync()
}

async fn decode(coding: Coding, coded: &[u8], piece: usize) -> Result<Vec<u8>, Reason> {
    let decoded = Decoded::new(coding, body(coded, piece, None), Side::Request);
    match decoded.collect().await {
        Ok(content) => Ok(content.to_bytes().to_vec()),
        Err(error) => Err(cut_reason(&error).unwrap()),
    }
}

const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

fn content() -> Vec<u8> {
    (0..20_000u64)
        .flat_map(|n| (n * n % 1009).to_string().into_bytes())
        .collect()
}

#[tokio::test]
async fn every_coding_is_undone_however_it_is_cut() {
    let content = content();
    for coding in ALL {
        let coded = encode(coding, &content).await;
        for piece in [1000, 7, 1] {
            assert!(
                decode(coding, &coded, piece).await.unwrap() == content,
                "{coding:?} {piece}"
            );
        }
        assert_eq!(
            decode(coding, b"", 1).await,
            Ok(Vec::new()),
            "an empty body stays empty"
        );
        let empty = encode(coding, b"").await;
        assert_eq!(
            decode(coding, &empty, 1).await,
            Ok(Vec::new()),
            "{coding:?}"
        );
    }
    let mut raw = Vec::new();
    let mut encoder = encoders::DeflateEncoder::new(&content[..]);
    encoder.read_to_end(&mut raw).await.unwrap();
    assert!(decode(Coding::Deflate, &raw, 100).await.unwrap() == content);
    let twice = [
        encode(Coding::Gzip, b"a").await,
        encode(Coding::Gzip, b"b").await,
    ]
    .concat();
    assert_eq!(decode(Coding::Gzip, &twice, 3).await, Ok(b"ab".to_vec()));
}

#[tokio::test]
async fn what_is_cut_off_or_goes_on_is_refused() {
    let content = content();
    for coding in ALL {
        let coded = encode(coding, &content).await;
        let short = &coded[..coded.len() - 1];
        assert_eq!(
            decode(coding, short, 100).await,
            Err(Reason::UnreadableBody),
            "{coding:?}"
        );
        let long = [&coded[..], b"more"].concat();
        assert_eq!(
            decode(coding, &long, 100).await,
            Err(Reason::UnreadableBody),
            "{coding:?}"
        );
        assert_eq!(
            decode(coding, b"{\"plain\": true}", 100).await,
            Err(Reason::UnreadableBody),
            "{coding:?}"
        );
    }
}

#[tokio::test]
async fn a_bomb_is_refused_and_an_answer_streams_on() {
    let bomb = vec![0; 8 * 1024 * 1024];
    for coding in ALL {
        let coded = encode(coding, &bomb).await;
        assert_eq!(
            decode(coding, &coded, 4096).await,
            Err(Reason::TooLarge),
            "{coding:?}"
        );
        let mut answer = Decoded::new(coding, body(&coded, 4096, None), Side::Answer);
        let mut length = 0;
        while let Some(frame) = answer.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= BUFFER);
            length += data.len();
        }
        assert_eq!(length, bomb.len());
    }
}

#[tokio::test]
async fn trailers_stay() {
    let trailers = HeaderMap::from_iter([(
        http::header::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    for coding in ALL {
        let coded = encode(coding, b"content").await;
        let body = body(&coded, 5, Some(trailers.clone()));
        let whole = Decoded::new(coding, body, Side::Answer)
            .collect()
            .await
            .unwrap();
        assert_eq!(whole.trailers(), Some(&trailers));
    }
}

#[test]
fn one_known_coding_or_none() {
    let of = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
        }
        Coding::of(&headers, Side::Request)
    };
    assert_eq!(of(&[]), Ok(None));
    assert_eq!(of(&["identity"]), Ok(None));
    assert_eq!(of(&["GZIP"]), Ok(Some(Coding::Gzip)));
    assert_eq!(of(&["identity, br"]), Ok(Some(Coding::Brotli)));
    for bad in [
        &["gzip, gzip"][..],
        &["gzip", "br"],
        &["aws-chunked"],
        &["compress"],
    ] {
        assert_eq!(of(bad), Err(Reason::UnreadableBody), "{bad:?}");
    }
}
