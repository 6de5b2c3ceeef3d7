//! Private networks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use causeway_types::{NetworkId, NetworkName, SandboxId, SandboxName, TenantName};
use http::StatusCode;

use super::extract::{Body, Filter, Names};
use super::model::{ErrorReply, Network, NetworkCreate, Sandbox, TenantFilter};
use super::{ApiError, to_the_end};
use crate::agent::Agent;

/// Create a private network.
#[utoipa::path(
    post, path = "/v1/networks", tag = "networks", request_body = NetworkCreate,
    responses(
        (status = CREATED, body = Network),
        (status = 400, body = ErrorReply), (status = 409, body = ErrorReply),
    )
)]
pub(super) async fn create(
    State(agent): State<Arc<Agent>>,
    Body(request): Body<NetworkCreate>,
) -> Result<(StatusCode, Json<Network>), ApiError> {
    let id = NetworkId::new(request.tenant, request.name);
    let network = to_the_end(agent, |agent| async move { agent.create_network(id).await }).await?;
    Ok((StatusCode::CREATED, Json(network)))
}

/// List private networks and their members.
#[utoipa::path(
    get, path = "/v1/networks", tag = "networks", params(TenantFilter),
    responses((status = OK, body = Vec<Network>), (status = 400, body = ErrorReply))
)]
pub(super) async fn list(
    State(agent): State<Arc<Agent>>,
    Filter(filter): Filter<TenantFilter>,
) -> Json<Vec<Network>> {
    Json(agent.networks(filter.tenant.as_ref()))
}

/// Delete a private network that has no members.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/networks/{name}", tag = "networks",
    params(("tenant" = String, Path), ("name" = String, Path)),
    responses(
        (status = NO_CONTENT),
        (status = 404, body = ErrorReply), (status = 409, body = ErrorReply),
    )
)]
pub(super) async fn delete(
    State(agent): State<Arc<Agent>>,
    Names((tenant, name)): Names<(TenantName, NetworkName)>,
) -> Result<StatusCode, ApiError> {
    let id = NetworkId::new(tenant, name);
    to_the_end(
        agent,
        |agent| async move { agent.delete_network(&id).await },
    )
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Make a sandbox a member of a network. Doing it twice changes nothing.
#[utoipa::path(
    put, path = "/v1/tenants/{tenant}/networks/{name}/members/{sandbox}", tag = "networks",
    params(("tenant" = String, Path), ("name" = String, Path), ("sandbox" = String, Path)),
    responses((status = OK, body = Sandbox), (status = 404, body = ErrorReply))
)]
pub(super) async fn join(
    State(agent): State<Arc<Agent>>,
    Names((tenant, network, sandbox)): Names<(TenantName, NetworkName, SandboxName)>,
) -> Result<Json<Sandbox>, ApiError> {
    let id = SandboxId::new(tenant, sandbox);
    let join = |agent: Arc<Agent>| async move { agent.join_network(&id, &network).await };
    Ok(Json(to_the_end(agent, join).await?))
}

/// End a sandbox's membership of a network. Doing it twice changes nothing.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/networks/{name}/members/{sandbox}", tag = "networks",
    params(("tenant" = String, Path), ("name" = String, Path), ("sandbox" = String, Path)),
    responses((status = OK, body = Sandbox), (status = 404, body = ErrorReply))
)]
pub(super) async fn leave(
    State(agent): State<Arc<Agent>>,
    Names((tenant, network, sandbox)): Names<(TenantName, NetworkName, SandboxName)>,
) -> Result<Json<Sandbox>, ApiError> {
    let id = SandboxId::new(tenant, sandbox);
    let leave = |agent: Arc<Agent>| async move { agent.leave_network(&id, &network).await };
    Ok(Json(to_the_end(agent, leave).await?))
}
