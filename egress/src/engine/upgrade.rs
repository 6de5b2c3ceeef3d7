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
use super::tasks::Tasks;

/// Asks the next hop for the protocol.
pub(super) fn request(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// When the upstream agreed, joins both sides as soon as the client has the answer.
pub(super) fn join(
    tasks: &Tasks,
    client: OnUpgrade,
    response: &mut Response<Incoming>,
    entry: Arc<Entry>,
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
            let moving = copy(&mut client, &mut upstream, &out, &back);
            tokio::select! {
                biased;
                reason = flow.cut() => entry.cut(reason),
                _moved = moving => {}
            }
            entry.add_bytes(out.load(Ordering::Relaxed), back.load(Ordering::Relaxed));
        };
        tunnel.await;
    });
    true
}
