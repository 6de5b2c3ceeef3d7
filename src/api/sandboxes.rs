//! Sandboxes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use causeway_types::{SandboxId, SandboxName, TenantName};
use http::StatusCode;

use super::extract::{Body, Filter, Names};
use super::model::{ErrorReply, Sandbox, SandboxCreate, TenantFilter};
use super::{ApiError, to_the_end};
use crate::agent::Agent;

/// Create a sandbox and wire it. When the reply arrives, its address is usable.
#[utoipa::path(
    post, path = "/v1/sandboxes", tag = "sandboxes", request_body = SandboxCreate,
    responses(
        (status = CREATED, body = Sandbox),
        (status = 400, body = ErrorReply), (status = 404, body = ErrorReply),
        (status = 409, body = ErrorReply), (status = 422, body = ErrorReply),
    )
)]
pub(super) async fn create(
    State(agent): State<Arc<Agent>>,
    Body(request): Body<SandboxCreate>,
) -> Result<(StatusCode, Json<Sandbox>), ApiError> {
    let create = |agent: Arc<Agent>| async move { agent.create_sandbox(request).await };
    let sandbox = to_the_end(agent, create).await?;
    Ok((StatusCode::CREATED, Json(sandbox)))
}

/// List sandboxes.
#[utoipa::path(
    get, path = "/v1/sandboxes", tag = "sandboxes", params(TenantFilter),
    responses((status = OK, body = Vec<Sandbox>), (status = 400, body = ErrorReply))
)]
pub(super) async fn list(
    State(agent): State<Arc<Agent>>,
    Filter(filter): Filter<TenantFilter>,
) -> Json<Vec<Sandbox>> {
    Json(agent.sandboxes(filter.tenant.as_ref()))
}

/// Show a sandbox.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/sandboxes/{name}", tag = "sandboxes",
    params(("tenant" = String, Path), ("name" = String, Path)),
    responses((status = OK, body = Sandbox), (status = 404, body = ErrorReply))
)]
pub(super) async fn show(
    State(agent): State<Arc<Agent>>,
    Names((tenant, name)): Names<(TenantName, SandboxName)>,
) -> Result<Json<Sandbox>, ApiError> {
    let id = SandboxId::new(tenant, name);
    Ok(Json(agent.sandbox_counted(&id).await?))
}

/// Delete a sandbox. Its address rests for the time of the lease quarantine.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/sandboxes/{name}", tag = "sandboxes",
    params(("tenant" = String, Path), ("name" = String, Path)),
    responses((status = NO_CONTENT), (status = 404, body = ErrorReply))
)]
pub(super) async fn delete(
    State(agent): State<Arc<Agent>>,
    Names((tenant, name)): Names<(TenantName, SandboxName)>,
) -> Result<StatusCode, ApiError> {
    let id = SandboxId::new(tenant, name);
    to_the_end(
        agent,
        |agent| async move { agent.delete_sandbox(&id).await },
    )
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cut a sandbox off from everything, live flows included.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/sandboxes/{name}/quarantine", tag = "sandboxes",
    params(("tenant" = String, Path), ("name" = String, Path)),
    responses((status = OK, body = Sandbox), (status = 404, body = ErrorReply))
)]
pub(super) async fn quarantine(
    State(agent): State<Arc<Agent>>,
    Names((tenant, name)): Names<(TenantName, SandboxName)>,
) -> Result<Json<Sandbox>, ApiError> {
    set_quarantine(agent, SandboxId::new(tenant, name), true).await
}

/// Let a sandbox out of quarantine.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/sandboxes/{name}/release", tag = "sandboxes",
    params(("tenant" = String, Path), ("name" = String, Path)),
    responses((status = OK, body = Sandbox), (status = 404, body = ErrorReply))
)]
pub(super) async fn release(
    State(agent): State<Arc<Agent>>,
    Names((tenant, name)): Names<(TenantName, SandboxName)>,
) -> Result<Json<Sandbox>, ApiError> {
    set_quarantine(agent, SandboxId::new(tenant, name), false).await
}

async fn set_quarantine(
    agent: Arc<Agent>,
    id: SandboxId,
    quarantined: bool,
) -> Result<Json<Sandbox>, ApiError> {
    let change = |agent: Arc<Agent>| async move { agent.set_quarantine(&id, quarantined).await };
    Ok(Json(to_the_end(agent, change).await?))
}
