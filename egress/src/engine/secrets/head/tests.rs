use std::sync::Arc;

use causeway_policy::model::{HeaderName as PolicyHeader, ParameterName};
use causeway_types::SandboxUid;

use super::*;
use crate::control::SecretValue;
use crate::secrets::{Needles, Placeholder, PlaceholderKey};

fn placeholder() -> Placeholder {
    PlaceholderKey::new([1; 16]).placeholder(SandboxUid::from_random(1), &"A".parse().unwrap())
}

/// A secret that is swapped everywhere, and set in these places.
fn carried(secret: &[u8], into: &[Slot]) -> Carried {
    let value = Arc::new(SecretValue::new(secret.to_vec()).unwrap());
    let format = |slot: &Slot| match slot {
        Slot::Header(_) => Format::parse("Bearer {secret}").unwrap(),
        Slot::Query(_) => Format::default(),
    };
    let swaps = Swaps::new([(placeholder(), Arc::clone(&value))]);
    Carried {
        injections: into
            .iter()
            .map(|slot| (slot.clone(), format(slot), Arc::clone(&value)))
            .collect(),
        header: swaps.clone(),
        query: swaps.clone(),
        path: swaps.clone(),
        body: swaps,
        signature: None,
        needles: Needles::new(secret).map(Arc::new).into_iter().collect(),
        secrets: vec![value],
    }
}

fn header(name: &str) -> Slot {
    Slot::Header(PolicyHeader::parse(name).unwrap())
}

fn path(text: &str) -> CanonicalPath {
    CanonicalPath::parse(text).unwrap()
}

fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_str(value).unwrap());
    }
    map
}

fn target(carried: &Carried, at: &str, query: Option<&str>) -> Result<String, Reason> {
    let written = carried.write_head(&mut HeaderMap::new(), &path(at), query)?;
    Ok(written.target.to_string())
}

#[test]
fn exactly_one_header_arrives() {
    let mut headers = map(&[
        ("authorization", "Bearer forged"),
        ("authorization", "Basic forged"),
    ]);
    let carried = carried(b"s3cr3t", &[header("authorization")]);
    let written = carried.write_head(&mut headers, &path("/"), None).unwrap();
    assert_eq!(written.injections, 1);
    let values: Vec<_> = headers.get_all("authorization").iter().collect();
    assert_eq!(values, ["Bearer s3cr3t"]);
    assert!(!format!("{headers:?}").contains("s3cr3t"));
}

#[test]
fn none_arrives_under_a_name_that_looks_the_same() {
    let mut headers = map(&[
        ("x_api_key", "own"),
        ("x-api_key", "own"),
        ("x_apikey", "own"),
    ]);
    let carried = carried(b"s3cr3t", &[header("x-api-key")]);
    carried.write_head(&mut headers, &path("/"), None).unwrap();
    let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["x-api-key", "x_apikey"]);
}

#[test]
fn a_secret_that_cannot_be_sent_changes_nothing() {
    let before = map(&[("authorization", "own"), ("x-key", placeholder().as_str())]);
    for slot in [vec![header("authorization")], Vec::new()] {
        let mut headers = before.clone();
        let carried = carried(b"two\r\nlines", &slot);
        let refused = carried.write_head(&mut headers, &path("/"), None);
        assert_eq!(refused.err(), Some(Reason::SecretMisplaced));
        assert_eq!(headers, before);
    }
}

#[test]
fn placeholders_are_swapped_in_headers_but_not_in_those_that_steer() {
    let token = placeholder();
    let mut headers = map(&[
        ("x-first", "a"),
        ("x-key", &format!("{token}!")),
        ("x-key", &format!("Bearer {token}")),
        ("content-type", &format!("text/{token}")),
        ("host", token.as_str()),
    ]);
    let carried = carried(b"s3cr3t", &[]);
    let written = carried.write_head(&mut headers, &path("/"), None).unwrap();
    assert_eq!(written.replacements, 2);
    let values: Vec<_> = headers.get_all("x-key").iter().collect();
    assert_eq!(values, ["s3cr3t!", "Bearer s3cr3t"]);
    assert_eq!(headers["x-first"], "a");
    assert_eq!(headers["content-type"], format!("text/{token}"));
    assert_eq!(headers["host"], token.as_str());
    assert!(!format!("{headers:?}").contains("s3cr3t"));
}

#[test]
fn paths_and_queries_take_the_secret_in_url_form() {
    let token = placeholder();
    let carried = carried(b"12:a b&c", &[]);
    let asked = format!("/bot{token}/getMe");
    assert_eq!(
        target(&carried, &asked, None).unwrap(),
        "/bot12:a%20b%26c/getMe"
    );
    let asked = format!("a=1&key={token}&b=%zz");
    let got = target(&carried, "/x", Some(&asked)).unwrap();
    assert_eq!(got, "/x?a=1&key=12:a%20b%26c&b=%zz");
    let escaped = asked.replace('_', "%5F");
    assert_eq!(target(&carried, "/x", Some(&escaped)).unwrap(), got);
    assert_eq!(target(&carried, "/x", Some("a=%41")).unwrap(), "/x?a=%41");
}

#[test]
fn a_secret_stays_in_its_segment() {
    let token = placeholder();
    for secret in ["a/b", "..", ".", "a%2fb", "..;x", "a\\b"] {
        let carried = carried(secret.as_bytes(), &[]);
        let refused = target(&carried, &format!("/{token}/x"), None);
        assert_eq!(refused, Err(Reason::SecretMisplaced), "{secret}");
        assert!(target(&carried, "/x", None).is_ok(), "{secret}");
    }
    let dots = carried(b"..", &[]);
    assert_eq!(
        target(&dots, &format!("/a{token}/x"), None).unwrap(),
        "/a../x"
    );
}

#[test]
fn a_parameter_is_set_once() {
    let key = Slot::Query(ParameterName::parse("key").unwrap());
    let carried = carried(b"s3&cr3t", &[key]);
    for (query, expected) in [
        (None, "/x?key=s3%26cr3t"),
        (Some("key=forged&a=1"), "/x?a=1&key=s3%26cr3t"),
        (Some("a=1&%4Bey=forged"), "/x?a=1&key=s3%26cr3t"),
    ] {
        assert_eq!(target(&carried, "/x", query).unwrap(), expected);
    }
}

#[test]
fn answers_are_asked_for_whole_and_in_a_known_coding() {
    for (accepted, asked) in [
        ("gzip, deflate, br", "gzip"),
        ("br;q=1.0, GZIP;q=0.5", "gzip"),
        ("br, zstd", "identity"),
        ("gzip;q=0, br", "identity"),
        ("*", "identity"),
    ] {
        let mut headers = map(&[("accept-encoding", accepted), ("range", "bytes=0-3")]);
        let secret = carried(b"s3cr3t-v4lue", &[]);
        secret.write_head(&mut headers, &path("/"), None).unwrap();
        assert_eq!(headers["accept-encoding"], asked, "{accepted}");
        assert!(!headers.contains_key("range"));
        // What is not searched for changes nothing.
        let mut headers = map(&[("range", "bytes=0-3")]);
        let short = carried(b"short", &[]);
        short.write_head(&mut headers, &path("/"), None).unwrap();
        assert_eq!(headers, map(&[("range", "bytes=0-3")]));
    }
}
