//! Refusals that the code in the sandbox can read.

use bytes::Bytes;
use causeway_policy::Denial;
use causeway_types::{DomainName, Reason};
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue,
};
use http::{Method, Response, StatusCode};
use serde::Serialize;

use super::body::{Body, full};

/// The header that tells a refusal of ours from an answer of the upstream.
pub(super) const DENIED: HeaderName = HeaderName::from_static("x-causeway-denied");

#[derive(Debug, Serialize)]
struct Refusal<'a> {
    error: &'static str,
    reason: Reason,
    explanation: &'static str,
    rule: Option<String>,
    name: Option<&'a DomainName>,
    method: Option<&'a str>,
    path: Option<&'a str>,
    hint: &'static str,
}

/// What a refusal is about.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct About<'a> {
    pub(super) name: Option<&'a DomainName>,
    pub(super) method: Option<&'a str>,
    /// In canonical form, without the query.
    pub(super) path: Option<&'a str>,
}

/// The status for a reason.
pub(super) fn status(reason: Reason) -> StatusCode {
    match reason {
        Reason::NameMismatch => StatusCode::MISDIRECTED_REQUEST,
        Reason::BadName | Reason::AmbiguousRequest | Reason::AmbiguousPath => {
            StatusCode::BAD_REQUEST
        }
        Reason::LimitReached => StatusCode::TOO_MANY_REQUESTS,
        Reason::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Reason::Unsupported => StatusCode::NOT_IMPLEMENTED,
        Reason::UnreadableBody => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Reason::Unresolved
        | Reason::UpstreamUnreachable
        | Reason::UpstreamCertificate
        | Reason::UpstreamProtocol
        | Reason::TimedOut
        | Reason::UnreadableAnswer
        | Reason::SecretMissing => StatusCode::BAD_GATEWAY,
        _ => StatusCode::FORBIDDEN,
    }
}

/// The answer to a refused request.
pub(super) fn response(denial: &Denial, about: About<'_>) -> Response<Body> {
    let refusal = Refusal {
        error: "causeway_denied",
        reason: denial.reason,
        explanation: denial.reason.explanation(),
        rule: denial.rule.as_ref().map(ToString::to_string),
        name: about.name,
        method: about.method,
        path: about.path,
        hint: hint(denial.reason),
    };
    // Text and numbers always have a JSON form.
    let json = serde_json::to_vec(&refusal).unwrap_or_default();
    let length = HeaderValue::from(json.len());
    // An answer to HEAD has the headers alone; over HTTP/2 nobody else takes the body away.
    let body = if about.method == Some(Method::HEAD.as_str()) {
        Bytes::new()
    } else {
        Bytes::from(json)
    };
    let mut response = Response::new(full(body));
    *response.status_mut() = status(denial.reason);
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(DENIED, HeaderValue::from_static(denial.reason.name()));
    if denial.reason == Reason::AmbiguousRequest {
        // Where such a request ends can be read in two ways too.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// What to do about it, for whoever reads the answer.
fn hint(reason: Reason) -> &'static str {
    match reason {
        Reason::NoPolicy => "Apply a policy whose selector matches this sandbox.",
        Reason::NameDenied | Reason::AddressDenied | Reason::NoName => {
            "Add an egress rule for this destination to the sandbox's policy."
        }
        Reason::PortDenied => "Add this port to the egress rule.",
        Reason::DeniedByRule => "A deny rule wins over every other rule.",
        Reason::Guardrail => "Ask the operator: a guardrail does not permit it.",
        Reason::RequestDenied => "Add the method and path to the http rules of the egress rule.",
        Reason::NotPinned => {
            "Resolve the name with the sandbox's resolver and connect to its answer."
        }
        Reason::NameMismatch => "Use one connection for each name.",
        Reason::ReservedAddress => "Reserved ranges need a cidr rule that lies inside the range.",
        Reason::SecretMissing => "Set the secret that the policy names.",
        Reason::SecretOnPlaintext => "Use https.",
        Reason::SecretConflict => {
            "Give the secrets different hosts or places, or let one policy name each secret."
        }
        Reason::SecretMisplaced => {
            "A placeholder can stand in JSON, XML, forms and text, and in a URL if its secret stays \
             within one segment."
        }
        Reason::UnreadableBody => {
            "Send the body as it is, or in one of gzip, deflate, br and zstd."
        }
        Reason::UnreadableAnswer => {
            "Ask for the whole content: answers of hosts that are given a secret are searched for it."
        }
        Reason::LimitReached => "Wait, or raise the limits in the policy.",
        Reason::UpstreamCertificate => {
            "The upstream's certificate is not valid for the name, or its issuer is not trusted."
        }
        Reason::UpstreamUnreachable | Reason::Unresolved | Reason::UpstreamProtocol => {
            "The upstream failed, not the policy. Try again later."
        }
        Reason::AmbiguousPath => {
            "Send a path without dot segments, empty segments or double escapes."
        }
        _ => "See the reason.",
    }
}
