//! How errors look to clients.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};

use super::model::{ErrorBody, ErrorReply};
use crate::agent::Error;

/// An error on its way to a client.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &str, message: String) -> Self {
        Self {
            status,
            body: ErrorBody {
                code: code.to_owned(),
                message,
                help: None,
                details: None,
            },
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.body.help = Some(help.into());
        self
    }

    pub(crate) fn details(mut self, details: Value) -> Self {
        self.body.details = Some(details);
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorReply { error: self.body })).into_response()
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let status = status(&error);
        if status.is_server_error() {
            tracing::error!(error = %crate::chain(&error), code = error.code(), "request failed");
        }
        let mut reply = Self::new(status, error.code(), crate::chain(&error));
        reply.body.help = error.help();
        if let Error::Policy(errors) = &error {
            reply = reply.details(json!({ "problems": errors.problems() }));
            reply.body.message = errors.to_string();
        }
        reply
    }
}

fn status(error: &Error) -> StatusCode {
    match error {
        Error::NotFound { .. } => StatusCode::NOT_FOUND,
        Error::Exists { .. } | Error::NetworkInUse { .. } => StatusCode::CONFLICT,
        Error::Wiring(_)
        | Error::Question { .. }
        | Error::PrefixLength { .. }
        | Error::Policy(_)
        | Error::PolicyTwice { .. }
        | Error::PolicyEmpty
        | Error::TooManyPolicies { .. }
        | Error::PoliciesTooLarge { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Error::SecretValue(crate::secrets::SecretValueError::TooLong { .. }) => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        Error::SecretValue(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Error::Allocate(_) | Error::Owner(_) => StatusCode::CONFLICT,
        Error::Attach { .. } if error.is_callers_fault() => StatusCode::UNPROCESSABLE_ENTITY,
        Error::Stopped(_) | Error::Store(_) | Error::NotInEffect { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Error::Attach { .. }
        | Error::Detach { .. }
        | Error::Dataplane(_)
        | Error::NotDurable { .. }
        | Error::Seal(_)
        | Error::Random(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
