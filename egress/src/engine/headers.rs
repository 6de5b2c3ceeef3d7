//! Headers that belong to one hop, and headers that can be read in two ways.

use causeway_types::Reason;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{Method, Version};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Refuses a request whose length or coding another parser could read differently.
///
/// The HTTP library has refused most of these before: lengths that differ or are no numbers,
/// codings that do not end in `chunked`. What it takes is framed anew on the way out.
pub(super) fn check_framing(headers: &HeaderMap, version: Version) -> Result<(), Reason> {
    let coded = headers.contains_key(TRANSFER_ENCODING);
    let sized = headers.contains_key(CONTENT_LENGTH);
    if coded && (sized || version != Version::HTTP_11) {
        return Err(Reason::AmbiguousRequest);
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let plain = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !plain || codings.next().is_some() {
            return Err(Reason::AmbiguousRequest);
        }
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next() {
        let digits = !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
        if !digits || lengths.next().is_some() {
            return Err(Reason::AmbiguousRequest);
        }
    }
    Ok(())
}

/// Refuses methods that a proxy must not carry on. `injects` is whether a secret goes along.
pub(super) fn check_method(method: &Method, injects: bool) -> Result<(), Reason> {
    match *method {
        Method::CONNECT => Err(Reason::Unsupported),
        // The answer to TRACE is the request, with the secret in it (RFC 9110, section 9.3.8).
        Method::TRACE if injects => Err(Reason::Unsupported),
        _ => Ok(()),
    }
}

/// Removes what belongs to this hop (RFC 9110, section 7.6.1), and gives the protocol that the
/// sender wants to change to.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    let upgrade = if named.contains(&UPGRADE) {
        headers.get(UPGRADE).cloned()
    } else {
        None
    };
    let trailers = wants_trailers(headers);
    for name in named {
        // Lengths are not the sender's to take away from the message.
        if name != CONTENT_LENGTH && name != http::header::HOST {
            headers.remove(name);
        }
    }
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHORIZATION,
        HTTP2_SETTINGS,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    upgrade
}

fn wants_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_can_be_read_two_ways_is_refused() {
        for good in [
            map(&[]),
            map(&[("content-length", "5")]),
            map(&[("transfer-encoding", "chunked")]),
            map(&[("transfer-encoding", "Chunked")]),
        ] {
            assert_eq!(check_framing(&good, Version::HTTP_11), Ok(()), "{good:?}");
        }
        for bad in [
            map(&[("content-length", "5"), ("transfer-encoding", "chunked")]),
            map(&[("content-length", "5"), ("content-length", "5")]),
            map(&[("content-length", "5, 5")]),
            map(&[("content-length", "+5")]),
            map(&[("content-length", "")]),
            map(&[("transfer-encoding", "gzip, chunked")]),
            map(&[
                ("transfer-encoding", "chunked"),
                ("transfer-encoding", "chunked"),
            ]),
        ] {
            let refused = check_framing(&bad, Version::HTTP_11);
            assert_eq!(refused, Err(Reason::AmbiguousRequest), "{bad:?}");
        }
        let coded = map(&[("transfer-encoding", "chunked")]);
        assert!(check_framing(&coded, Version::HTTP_10).is_err());
    }

    #[test]
    fn headers_of_one_hop_end_here() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Mine"),
            ("connection", "content-length, Upgrade"),
            ("keep-alive", "timeout=5"),
            ("x-mine", "1"),
            ("x-other", "2"),
            ("content-length", "5"),
            ("upgrade", "websocket"),
            ("te", "gzip, trailers"),
            ("proxy-authorization", "Basic x"),
        ]);
        let upgrade = strip_hop_by_hop(&mut headers);
        assert_eq!(upgrade.unwrap(), "websocket");
        let left = map(&[
            ("x-other", "2"),
            ("content-length", "5"),
            ("te", "trailers"),
        ]);
        assert_eq!(headers, left);
        // Without `connection: upgrade` the header means nothing.
        assert!(strip_hop_by_hop(&mut map(&[("upgrade", "websocket")])).is_none());
    }

    #[test]
    fn trace_never_meets_a_secret() {
        assert!(check_method(&Method::TRACE, false).is_ok());
        assert!(check_method(&Method::TRACE, true).is_err());
        assert!(check_method(&Method::CONNECT, false).is_err());
        assert!(check_method(&Method::GET, true).is_ok());
    }
}
