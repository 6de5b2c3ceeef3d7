//! The node itself: health, events, leases, repair.

use std::sync::Arc;

use axum::Json;
use axum::body::Body as StreamBody;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;

use super::extract::Body;
use super::model::{
    CaInfo, ErrorReply, IpamInfo, LeaseInfo, Reconciled, Status, Trace, TraceRequest,
};
use super::{ApiError, to_the_end};
use crate::agent::{Agent, Event, Follower};

/// Follow a packet through each decision that it would meet, without sending it.
#[utoipa::path(
    post, path = "/v1/trace", tag = "node", request_body = TraceRequest,
    responses(
        (status = OK, body = Trace),
        (status = 400, body = ErrorReply), (status = 404, body = ErrorReply),
        (status = 422, body = ErrorReply),
    )
)]
pub(super) async fn trace(
    State(agent): State<Arc<Agent>>,
    Body(request): Body<TraceRequest>,
) -> Result<Json<Trace>, ApiError> {
    Ok(Json(agent.trace(&request)?))
}

/// How the node is.
#[utoipa::path(
    get, path = "/v1/status", tag = "node", responses((status = OK, body = Status))
)]
pub(super) async fn status(State(agent): State<Arc<Agent>>) -> Json<Status> {
    Json(agent.status())
}

/// Follow what happens: one JSON object a line, until the client goes away.
#[utoipa::path(
    get, path = "/v1/events", tag = "node",
    responses((status = OK, content_type = "application/x-ndjson", body = String))
)]
pub(super) async fn events(State(agent): State<Arc<Agent>>) -> Response {
    // The first line is empty, so that a client knows that it is connected.
    let events = stream::unfold(None, move |follower: Option<Follower>| {
        let agent = Arc::clone(&agent);
        async move {
            match follower {
                None => Some((line(None), Some(agent.follow().await))),
                Some(mut follower) => {
                    let event = follower.next().await?;
                    Some((line(Some(&event)), Some(follower)))
                }
            }
        }
    });
    let kind = [(CONTENT_TYPE, "application/x-ndjson")];
    (kind, StreamBody::from_stream(events)).into_response()
}

fn line(event: Option<&Event>) -> Result<Bytes, serde_json::Error> {
    let mut line = match event {
        Some(event) => serde_json::to_vec(event)?,
        None => Vec::new(),
    };
    line.push(b'\n');
    Ok(line.into())
}

/// The certificate of the authority that the proxy signs with.
#[utoipa::path(get, path = "/v1/ca", tag = "node", responses((status = OK, body = CaInfo)))]
pub(super) async fn ca(State(agent): State<Arc<Agent>>) -> Json<CaInfo> {
    Json(CaInfo {
        certificate_pem: agent.ca_certificate().to_owned(),
    })
}

/// List the leases, those in quarantine too.
#[utoipa::path(
    get, path = "/v1/leases", tag = "node", responses((status = OK, body = Vec<LeaseInfo>))
)]
pub(super) async fn leases(State(agent): State<Arc<Agent>>) -> Json<Vec<LeaseInfo>> {
    Json(agent.leases())
}

/// How full the address plan is.
#[utoipa::path(get, path = "/v1/ipam", tag = "node", responses((status = OK, body = IpamInfo)))]
pub(super) async fn ipam(State(agent): State<Arc<Agent>>) -> Result<Json<IpamInfo>, ApiError> {
    Ok(Json(agent.ipam()?))
}

/// Make reality equal to the desired state now.
#[utoipa::path(
    post, path = "/v1/reconcile", tag = "node",
    responses((status = OK, body = Reconciled), (status = 500, body = ErrorReply))
)]
pub(super) async fn reconcile(
    State(agent): State<Arc<Agent>>,
) -> Result<Json<Reconciled>, ApiError> {
    let done = to_the_end(agent, |agent| async move { agent.reconcile_now().await }).await?;
    Ok(Json(done))
}

/// This document.
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "node", responses((status = OK, body = Object))
)]
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(super::document())
}

/// Metrics, as Prometheus text.
#[utoipa::path(
    get, path = "/metrics", tag = "node",
    responses(
        (status = OK, content_type = "text/plain", body = String),
        (status = 500, body = ErrorReply),
    )
)]
pub(super) async fn metrics(State(agent): State<Arc<Agent>>) -> Result<Response, ApiError> {
    let text = crate::metrics::render(&agent.measure().await?);
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, text).into_response())
}
