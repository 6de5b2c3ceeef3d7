//! Policies and guardrails.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use causeway_types::{PolicyName, PolicyRef, TenantName};
use http::StatusCode;

use super::extract::{Body, Filter, Names, Raw};
use super::model::{
    ErrorReply, ExplainRequest, PolicyApplied, PolicyCheck, PolicyDiffReply, PolicyInfo,
    TenantFilter,
};
use super::{ApiError, to_the_end};
use crate::agent::{Agent, read_policies};

/// What errors call a file that came over the API.
const SOURCE: &str = "policy";

/// Check a policy file, and change nothing.
#[utoipa::path(
    post, path = "/v1/policies/check", tag = "policies",
    request_body(content = String, content_type = "application/yaml"),
    responses(
        (status = OK, body = PolicyCheck),
        (status = 413, body = ErrorReply), (status = 422, body = ErrorReply),
    )
)]
pub(super) async fn check(Raw(body): Raw) -> Result<Json<PolicyCheck>, ApiError> {
    let documents = read_policies(SOURCE, text(&body)?)?;
    Ok(Json(PolicyCheck::of(&documents)))
}

/// Ask what a policy file would change, for the sandboxes that there are. Nothing is changed.
#[utoipa::path(
    post, path = "/v1/policies/diff", tag = "policies",
    request_body(content = String, content_type = "application/yaml"),
    responses(
        (status = OK, body = PolicyDiffReply),
        (status = 413, body = ErrorReply), (status = 422, body = ErrorReply),
    )
)]
pub(super) async fn diff(
    State(agent): State<Arc<Agent>>,
    Raw(body): Raw,
) -> Result<Json<PolicyDiffReply>, ApiError> {
    let found = agent.diff_policies(SOURCE, text(&body)?)?;
    Ok(Json(PolicyDiffReply {
        text: found.to_string(),
        diff: serde_json::to_value(&found).unwrap_or_default(),
    }))
}

/// Apply every document of a policy file, or none of them.
#[utoipa::path(
    put, path = "/v1/policies", tag = "policies",
    request_body(content = String, content_type = "application/yaml"),
    responses(
        (status = OK, body = PolicyApplied),
        (status = 413, body = ErrorReply), (status = 422, body = ErrorReply),
    )
)]
pub(super) async fn apply(
    State(agent): State<Arc<Agent>>,
    Raw(body): Raw,
) -> Result<Json<PolicyApplied>, ApiError> {
    let file = text(&body)?.to_owned();
    let apply = |agent: Arc<Agent>| async move { agent.apply_policies(SOURCE, &file).await };
    Ok(Json(to_the_end(agent, apply).await?))
}

/// List policies and guardrails with their text.
#[utoipa::path(
    get, path = "/v1/policies", tag = "policies", params(TenantFilter),
    responses((status = OK, body = Vec<PolicyInfo>), (status = 400, body = ErrorReply))
)]
pub(super) async fn list(
    State(agent): State<Arc<Agent>>,
    Filter(filter): Filter<TenantFilter>,
) -> Json<Vec<PolicyInfo>> {
    Json(agent.policies(filter.tenant.as_ref()))
}

/// Delete a policy.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}/policies/{name}", tag = "policies",
    params(("tenant" = String, Path), ("name" = String, Path)),
    responses((status = NO_CONTENT), (status = 404, body = ErrorReply))
)]
pub(super) async fn delete_policy(
    State(agent): State<Arc<Agent>>,
    Names((tenant, name)): Names<(TenantName, PolicyName)>,
) -> Result<StatusCode, ApiError> {
    let reference = PolicyRef {
        tenant: Some(tenant),
        name,
    };
    remove(agent, reference).await
}

/// Delete a guardrail.
#[utoipa::path(
    delete, path = "/v1/guardrails/{name}", tag = "policies",
    params(("name" = String, Path)),
    responses((status = NO_CONTENT), (status = 404, body = ErrorReply))
)]
pub(super) async fn delete_guardrail(
    State(agent): State<Arc<Agent>>,
    Names(name): Names<PolicyName>,
) -> Result<StatusCode, ApiError> {
    remove(agent, PolicyRef { tenant: None, name }).await
}

async fn remove(agent: Arc<Agent>, reference: PolicyRef) -> Result<StatusCode, ApiError> {
    let remove = |agent: Arc<Agent>| async move { agent.delete_policy(&reference).await };
    to_the_end(agent, remove).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ask what the policies of a sandbox make of a connection or request, rule by rule.
#[utoipa::path(
    post, path = "/v1/policies/explain", tag = "policies", request_body = ExplainRequest,
    responses(
        (status = OK, body = Object, description = "outcome, reason, rule, and every rule looked at"),
        (status = 400, body = ErrorReply), (status = 404, body = ErrorReply),
        (status = 422, body = ErrorReply),
    )
)]
pub(super) async fn explain(
    State(agent): State<Arc<Agent>>,
    Body(request): Body<ExplainRequest>,
) -> Result<Json<causeway_policy::Explanation>, ApiError> {
    Ok(Json(agent.explain(&request)?))
}

fn text(body: &[u8]) -> Result<&str, ApiError> {
    std::str::from_utf8(body).map_err(|error| {
        ApiError::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "policy_invalid",
            format!(
                "the policy file is not UTF-8 text, from byte {} on",
                error.valid_up_to()
            ),
        )
        .help("nothing was applied; save it as UTF-8")
    })
}
