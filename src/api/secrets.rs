//! Secrets. Their values come in as they are and never go out.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use causeway_types::{SecretName, TenantName};
use http::StatusCode;

use super::extract::{Names, Raw};
use super::model::{ErrorReply, SecretInfo};
use super::{ApiError, to_the_end};
use crate::agent::{Agent, Error};
use crate::secrets::SecretValue;

/// List the names of a tenant's secrets.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/secrets", tag = "secrets",
    params(("tenant" = String, Path)),
    responses((status = OK, body = Vec<SecretInfo>), (status = 400, body = ErrorReply))
)]
pub(super) async fn list(
    State(agent): State<Arc<Agent>>,
    Names(tenant): Names<TenantName>,
) -> Json<Vec<SecretInfo>> {
    Json(agent.secrets(&tenant))
}

/// Set a secret, or replace its value. The body is the value as it is; one trailing line break
/// is dropped.
#[utoipa::path(
    put, path = "/v1/tenants/{tenant}/secrets/{name}", tag = "secrets",
    params(("tenant" = String, Path), ("name" = String, Path)),
    request_body(content = String, content_type = "application/octet-stream"),
    responses(
        (status = OK, body = SecretInfo),
        (status = 413, body = ErrorReply), (status = 422, body = ErrorReply),
    )
)]
pub(super) async fn set(
    State(agent): State<Arc<Agent>>,
    Names((tenant, name)): Names<(TenantName, SecretName)>,
    Raw(body): Raw,
) -> Result<Json<SecretInfo>, ApiError> {
    let value = SecretValue::new(&body).map_err(Error::from)?;
    wipe(body);
    let set = |agent: Arc<Agent>| async move { agent.set_secret(tenant, name, value).await };
    Ok(Json(to_the_end(agent, set).await?))
}

/// Overwrites the bytes that came in, where nobody else holds them.
fn wipe(body: bytes::Bytes) {
    if let Ok(mut bytes) = body.try_into_mut() {
        zeroize::Zeroize::zeroize(&mut bytes[..]);
    }
}

/// Delete a secret. Requests that need it are refused from then on.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/secrets/{name}", tag = "secrets",
    params(("tenant" = String, Path), ("name" = String, Path)),
    responses((status = NO_CONTENT), (status = 404, body = ErrorReply))
)]
pub(super) async fn delete(
    State(agent): State<Arc<Agent>>,
    Names((tenant, name)): Names<(TenantName, SecretName)>,
) -> Result<StatusCode, ApiError> {
    let delete = |agent: Arc<Agent>| async move { agent.delete_secret(&tenant, &name).await };
    to_the_end(agent, delete).await?;
    Ok(StatusCode::NO_CONTENT)
}
