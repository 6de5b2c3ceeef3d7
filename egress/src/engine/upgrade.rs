//! Connections that change from HTTP to another protocol (RFC 9110, section 7.8).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::http::Entry;
use super::pass::copy;
use super::secrets::{Guard, Scrubbed};
use super::tasks::Tasks;

/// Whether a connection may change to `protocol`. To another form of HTTP, or to TLS with HTTP
/// inside, it may not: requests would follow that no rule has seen.
pub(super) fn may_change_to(protocol: &HeaderValue) -> bool {
    let hides_requests = |name: &str| {
        let name = name.split('/').next().unwrap_or(name).trim();
        ["h2", "h2c", "h3", "http", "spdy", "tls"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
    };
    let names = protocol.to_str().unwrap_or("http");
    !names.split(',').any(hides_requests)
}

/// Asks the next hop for the protocol.
pub(super) fn request(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// When the upstream agreed, joins both sides as soon as the client has the answer. What the
/// upstream sends is searched with `guard`.
pub(super) fn join(
    tasks: &Tasks,
    client: OnUpgrade,
    response: &mut Response<Incoming>,
    entry: Arc<Entry>,
    guard: Option<Guard>,
) -> bool {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return false;
    }
    let upstream = hyper::upgrade::on(response);
    tasks.spawn_tunnel(async move {
        let flow = entry.flow();
        let tunnel = async {
            let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else {
                return;
            };
            let (out, back) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
            let moving = async {
                match guard {
                    None => copy(&mut client, &mut upstream, &out, &back).await,
                    Some(guard) => {
                        let upstream = Scrubbed::new(guard, upstream);
                        copy(&mut client, upstream, &out, &back).await
                    }
                }
            };
            tokio::select! {
                biased;
                reason = flow.cut() => {
                    entry.cut(reason);
                }
                _moved = moving => {}
            }
            entry.add_bytes(out.load(Ordering::Relaxed), back.load(Ordering::Relaxed));
        };
        tunnel.await;
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_requests_behind_a_change_of_protocol() {
        for (protocol, may) in [
            ("websocket", true),
            ("echo", true),
            ("h2c", false),
            ("H2C", false),
            ("websocket, h2c", false),
            ("websocket,HTTP/2.0", false),
            ("TLS/1.2 , x", false),
            ("SPDY/3.1", false),
        ] {
            let value = HeaderValue::from_static(protocol);
            assert_eq!(may_change_to(&value), may, "{protocol}");
        }
        let odd = HeaderValue::from_bytes(b"\xffwebsocket").unwrap();
        assert!(!may_change_to(&odd));
    }
}
