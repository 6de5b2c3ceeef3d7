//! WebSocket over HTTP/2 (RFC 8441): one stream of the client's, and towards the upstream a
//! connection of its own over HTTP/1.1, which every WebSocket server speaks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causeway_types::Reason;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, UPGRADE,
};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use hyper::ext::Protocol;

/// What a key is followed by before it is hashed (RFC 6455, section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A request that came as CONNECT with a protocol, and what its upstream has to accept.
#[derive(Debug, Clone)]
pub(super) struct Extended {
    accept: String,
}

/// Turns such a request into the one that asks for the same over HTTP/1.1, by which it is judged
/// too. Another protocol than WebSocket stays CONNECT, and is refused as that.
pub(super) fn as_upgrade(parts: &mut Parts) {
    let websocket = parts.method == Method::CONNECT
        && parts.version == Version::HTTP_2
        && (parts.extensions.get::<Protocol>()).is_some_and(|p| p.as_str() == "websocket");
    if !websocket {
        return;
    }
    let mut nonce = [0; 16];
    // Without randomness there is no request: as CONNECT it is refused.
    if getrandom::fill(&mut nonce).is_err() {
        return;
    }
    let key = STANDARD.encode(nonce);
    let Ok(value) = HeaderValue::try_from(&key) else {
        return;
    };
    parts.extensions.remove::<Protocol>();
    parts.method = Method::GET;
    parts.headers.insert(SEC_WEBSOCKET_KEY, value);
    super::super::upgrade::request(&mut parts.headers, HeaderValue::from_static("websocket"));
    let accept = accept(&key);
    parts.extensions.insert(Extended { accept });
}

fn accept(key: &str) -> String {
    let hashed = format!("{key}{GUID}");
    let algorithm = &ring::digest::SHA1_FOR_LEGACY_USE_ONLY;
    STANDARD.encode(ring::digest::digest(algorithm, hashed.as_bytes()))
}

/// Turns the upstream's answer into the one to CONNECT. `joined` is whether it changed protocol.
pub(super) fn as_connect<B>(
    extended: &Extended,
    response: &mut Response<B>,
    joined: bool,
) -> Result<(), Reason> {
    const HOP: [HeaderName; 4] = [CONNECTION, UPGRADE, SEC_WEBSOCKET_ACCEPT, CONTENT_LENGTH];
    if !joined {
        // Success would mean that there is a WebSocket.
        return if response.status().is_success() {
            Err(Reason::UpstreamProtocol)
        } else {
            Ok(())
        };
    }
    if !accepted(extended, response.headers()) {
        return Err(Reason::UpstreamProtocol);
    }
    *response.status_mut() = StatusCode::OK;
    for name in HOP {
        response.headers_mut().remove(name);
    }
    Ok(())
}

fn accepted(extended: &Extended, headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(SEC_WEBSOCKET_ACCEPT).iter();
    let first = values.next().map(HeaderValue::as_bytes);
    first == Some(extended.accept.as_bytes()) && values.next().is_none()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn the_example_of_the_standard() {
        assert_eq!(
            accept("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn only_websocket_over_http2_is_asked_for_anew() {
        let parts = |protocol: Option<&'static str>, version| {
            let mut request = Request::builder().method("CONNECT").version(version);
            if let Some(protocol) = protocol {
                request = request.extension(Protocol::from_static(protocol));
            }
            let request = request.uri("https://a.example/ws").body(()).unwrap();
            let mut parts = request.into_parts().0;
            as_upgrade(&mut parts);
            parts.method
        };
        assert_eq!(parts(Some("websocket"), Version::HTTP_2), Method::GET);
        assert_eq!(parts(Some("connect-udp"), Version::HTTP_2), Method::CONNECT);
        assert_eq!(parts(None, Version::HTTP_2), Method::CONNECT);
        assert_eq!(parts(Some("websocket"), Version::HTTP_11), Method::CONNECT);
    }
}
