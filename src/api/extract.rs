//! Takes requests apart, with errors in our own form.

use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::ApiError;

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T, S> FromRequest<S> for Body<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let rejected = match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(value)) => return Ok(Self(value)),
            Err(rejected) => rejected,
        };
        // The text quotes at most the field or the value's kind, and no secret comes in JSON.
        let message = rejected.body_text();
        Err(match rejected {
            JsonRejection::MissingJsonContentType(_) => ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not_json",
                "the body is not said to be JSON".to_owned(),
            )
            .help("send `content-type: application/json`"),
            JsonRejection::BytesRejection(bytes) => too_large(&bytes),
            _ => ApiError::new(StatusCode::BAD_REQUEST, "invalid", message)
                .help("GET /v1/openapi.json describes what is expected"),
        })
    }
}

/// A body of bytes.
pub(super) struct Raw(pub(super) Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        match Bytes::from_request(request, state).await {
            Ok(bytes) => Ok(Self(bytes)),
            Err(rejected) => Err(too_large(&rejected)),
        }
    }
}

fn too_large(rejected: &BytesRejection) -> ApiError {
    if rejected.status() == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the body is larger than {} bytes", super::MAX_BODY),
        )
        .help("nothing was changed; split it into smaller ones")
    } else {
        ApiError::new(rejected.status(), "invalid", rejected.body_text())
    }
}

/// The names in a path.
pub(super) struct Names<T>(pub(super) T);

impl<T, S> FromRequestParts<S> for Names<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(rejected) => Err(bad_path(&rejected)),
        }
    }
}

fn bad_path(rejected: &PathRejection) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid", rejected.body_text())
}

/// The query of a request.
pub(super) struct Filter<T>(pub(super) T);

impl<T, S> FromRequestParts<S> for Filter<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejected) => Err(bad_query(&rejected)),
        }
    }
}

fn bad_query(rejected: &QueryRejection) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid", rejected.body_text())
}
