//! The HTTP API: JSON under `/v1`, metrics at `/metrics`, and the OpenAPI document that is made
//! from the same definitions as the routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::agent::Agent;

mod error;
mod extract;
pub mod model;
mod networks;
mod node;
mod policies;
mod sandboxes;
mod secrets;

#[cfg(test)]
mod tests;

pub(crate) use error::ApiError;

/// The largest body of a request, in bytes: the largest policy file, also inside of JSON.
const MAX_BODY: usize = causeway_policy::bounds::FILE + 1024 * 1024;

/// What the document says of the whole.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Causeway",
        description = "The network for sandboxes that run untrusted code. Every error has the \
                       form of `ErrorReply`; unknown fields in a request are errors."
    ),
    tags(
        (name = "sandboxes", description = "Sandboxes: addresses and wiring"),
        (name = "networks", description = "Private networks between sandboxes of one tenant"),
        (name = "policies", description = "Policies of tenants and guardrails of the operator"),
        (name = "secrets", description = "Secrets that the egress proxy adds on the way out"),
        (name = "node", description = "The node itself")
    )
)]
struct Document;

/// The routes and the document, from one definition.
fn parts() -> (Router<Arc<Agent>>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(sandboxes::create, sandboxes::list))
        .routes(routes!(sandboxes::show, sandboxes::delete))
        .routes(routes!(sandboxes::quarantine))
        .routes(routes!(sandboxes::release))
        .routes(routes!(networks::create, networks::list))
        .routes(routes!(networks::delete))
        .routes(routes!(networks::join, networks::leave))
        .routes(routes!(policies::check))
        .routes(routes!(policies::diff))
        .routes(routes!(policies::apply, policies::list))
        .routes(routes!(policies::delete_policy))
        .routes(routes!(policies::delete_guardrail))
        .routes(routes!(policies::explain))
        .routes(routes!(secrets::list))
        .routes(routes!(secrets::set, secrets::delete))
        .routes(routes!(node::trace))
        .routes(routes!(node::status))
        .routes(routes!(node::events))
        .routes(routes!(node::ca))
        .routes(routes!(node::leases))
        .routes(routes!(node::ipam))
        .routes(routes!(node::reconcile))
        .routes(routes!(node::openapi))
        .routes(routes!(node::metrics))
        .split_for_parts()
}

/// The OpenAPI document.
pub fn document() -> utoipa::openapi::OpenApi {
    parts().1
}

/// The API of an agent.
pub fn router(agent: Arc<Agent>) -> Router {
    let (router, _document) = parts();
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(agent)
}

async fn unknown_route(uri: http::Uri) -> Response {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "no_such_route",
        format!("there is no `{}` in this API", uri.path()),
    )
    .help("GET /v1/openapi.json describes what there is")
    .into_response()
}

async fn unknown_method(method: http::Method, uri: http::Uri) -> Response {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "no_such_method",
        format!("`{}` does not take {method}", uri.path()),
    )
    .help("GET /v1/openapi.json describes what there is")
    .into_response()
}

/// Runs a change to its end, also when whoever asked for it goes away in the middle.
async fn to_the_end<T, F>(
    agent: Arc<Agent>,
    change: impl FnOnce(Arc<Agent>) -> F,
) -> Result<T, ApiError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, crate::agent::Error>> + Send + 'static,
{
    match tokio::spawn(change(agent)).await {
        Ok(outcome) => outcome.map_err(ApiError::from),
        Err(panicked) => {
            tracing::error!(error = %panicked, "a request ended in a panic");
            Err(ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "the agent failed inside: see its log".to_owned(),
            ))
        }
    }
}
