//! Requests that a client signed with keys of no value, signed anew.

use std::sync::Arc;

use bytes::Bytes;
use causeway_types::Reason;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http_body_util::{BodyExt, Full};

use super::request::{MOST_GATHERED, gather};
use super::{Carried, RequestBody, wiped};
use crate::engine::body::Watched;
use crate::engine::http::Entry;
use crate::secrets::sigv4::chunked::Chunks;
use crate::secrets::sigv4::{ALGORITHM, Credentials, Scope, Signed, Signer, sha256};
use crate::state::Shared;

const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const CONTENT: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// What the client's signature says.
struct Claim {
    scope: Scope,
    time: String,
    names: Vec<String>,
    presigned: bool,
}

/// What the body is to the signature.
enum Payload {
    /// Stands for itself: a digest that the client gave, or a word.
    Given(String),
    /// Each chunk is signed.
    Chunked { word: String, with_trailers: bool },
    /// The digest has to be made.
    Digest,
}

/// A request that is about to be signed.
pub(in crate::engine) struct Unsigned<'a> {
    pub(in crate::engine) method: &'a str,
    pub(in crate::engine) authority: &'a str,
    pub(in crate::engine) target: PathAndQuery,
}

impl Carried {
    /// Whether requests are signed.
    pub(in crate::engine) fn signs(&self) -> bool {
        self.signature.is_some()
    }

    /// Signs the request anew, when the client has signed it. Gives the path and query, and the
    /// body, that go upstream.
    pub(in crate::engine) async fn sign(
        &self,
        request: Unsigned<'_>,
        headers: &mut HeaderMap,
        body: Watched<Arc<Entry>>,
        shared: &Shared,
    ) -> Result<(PathAndQuery, RequestBody), Reason> {
        let Some(secret) = &self.signature else {
            return Ok((request.target, RequestBody::Plain(body)));
        };
        let query = request.target.query().unwrap_or_default();
        let Some(claim) = claim(headers, query)? else {
            return Ok((request.target, RequestBody::Plain(body)));
        };
        let credentials =
            Credentials::parse(secret.expose()).map_err(|_malformed| Reason::SecretMisplaced)?;
        let payload = payload(&claim, headers)?;
        let (body, payload, chunked) = match payload {
            Payload::Given(word) => (RequestBody::Plain(body), word, None),
            Payload::Chunked {
                word,
                with_trailers,
            } => (RequestBody::Plain(body), word, Some(with_trailers)),
            Payload::Digest => {
                let (bytes, digest) = digested(headers, body, shared).await?;
                (bytes, digest, None)
            }
        };
        let signer = Signer::new(&credentials, claim.scope.clone(), &claim.time);
        let signer = signer.ok_or(Reason::Unsupported)?;
        shared.metrics.injections_total.add(1);
        if claim.presigned {
            if chunked.is_some() {
                return Err(Reason::Unsupported);
            }
            let target = presign(&request, &claim, &credentials, &signer, headers, &payload)?;
            return Ok((target, body));
        }
        let signature = sign_header(&request, &claim, &credentials, &signer, headers, &payload)?;
        let body = match (chunked, body) {
            (Some(with_trailers), RequestBody::Plain(body)) => {
                RequestBody::chunked(body, Chunks::new(signer, signature, with_trailers))
            }
            (_, body) => body,
        };
        Ok((request.target, body))
    }
}

/// Reads the client's signature. Algorithms that cannot be made here are refused.
fn claim(headers: &HeaderMap, query: &str) -> Result<Option<Claim>, Reason> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let header = match (fields.next(), fields.next()) {
        (_, Some(_second)) => return Err(Reason::AmbiguousRequest),
        (Some(value), None) => Some(value.to_str().map_err(|_binary| Reason::Unsupported)?),
        (None, None) => None,
    };
    let in_query = parameter(query, "X-Amz-Algorithm")?;
    match (header, in_query) {
        (Some(_), Some(_)) => Err(Reason::AmbiguousRequest),
        (None, None) => Ok(None),
        (Some(value), None) => {
            let (algorithm, rest) = value.split_once(' ').ok_or(Reason::Unsupported)?;
            if algorithm != ALGORITHM {
                return Err(Reason::Unsupported);
            }
            let part = |name: &str| {
                let mut parts = rest.split(',').map(str::trim);
                parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
            };
            let scope = part("Credential").and_then(Scope::parse);
            let time = headers.get(DATE).and_then(|time| time.to_str().ok());
            let names = part("SignedHeaders");
            made(scope, time, names, false).map(Some)
        }
        (None, Some(algorithm)) => {
            if algorithm != ALGORITHM {
                return Err(Reason::Unsupported);
            }
            let scope = parameter(query, "X-Amz-Credential")?;
            let time = parameter(query, "X-Amz-Date")?;
            let names = parameter(query, "X-Amz-SignedHeaders")?;
            let scope = scope.as_deref().and_then(Scope::parse);
            made(scope, time.as_deref(), names.as_deref(), true).map(Some)
        }
    }
}

fn made(
    scope: Option<Scope>,
    time: Option<&str>,
    names: Option<&str>,
    presigned: bool,
) -> Result<Claim, Reason> {
    let (Some(scope), Some(time), Some(names)) = (scope, time, names) else {
        return Err(Reason::Unsupported);
    };
    Ok(Claim {
        scope,
        time: time.to_owned(),
        names: names.split(';').map(str::to_ascii_lowercase).collect(),
        presigned,
    })
}

/// The value of a parameter that is there at most once.
fn parameter(query: &str, name: &str) -> Result<Option<String>, Reason> {
    let mut found = query.split('&').filter_map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        key.eq_ignore_ascii_case(name).then_some(value)
    });
    match (found.next(), found.next()) {
        (_, Some(_second)) => Err(Reason::AmbiguousRequest),
        (Some(value), None) => {
            let value = value.replace("%2F", "/").replace("%2f", "/");
            Ok(Some(value.replace("%3B", ";").replace("%3b", ";")))
        }
        (None, None) => Ok(None),
    }
}

fn payload(claim: &Claim, headers: &HeaderMap) -> Result<Payload, Reason> {
    let Some(given) = headers.get(CONTENT) else {
        return Ok(if claim.presigned && claim.scope.service == "s3" {
            Payload::Given(UNSIGNED.to_owned())
        } else {
            Payload::Digest
        });
    };
    let given = given.to_str().map_err(|_binary| Reason::Unsupported)?;
    let digest = given.len() == 64 && given.bytes().all(|byte| byte.is_ascii_hexdigit());
    match given {
        UNSIGNED | "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Ok(Payload::Given(given.to_owned())),
        _ if digest => Ok(Payload::Given(given.to_owned())),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Ok(Payload::Chunked {
            word: given.to_owned(),
            with_trailers: false,
        }),
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Ok(Payload::Chunked {
            word: given.to_owned(),
            with_trailers: true,
        }),
        _ => Err(Reason::Unsupported),
    }
}

/// Reads the body, and makes its digest.
async fn digested(
    headers: &HeaderMap,
    body: Watched<Arc<Entry>>,
    shared: &Shared,
) -> Result<(RequestBody, String), Reason> {
    if http_body::Body::is_end_stream(&body) {
        return Ok((RequestBody::Plain(body), sha256(b"")));
    }
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok())
        .unwrap_or(MOST_GATHERED);
    if length > MOST_GATHERED {
        return Err(Reason::TooLarge);
    }
    let pieces = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
    let room = Arc::clone(&shared.body_room).try_acquire_many_owned(pieces);
    let room = room.map_err(|_full| Reason::LimitReached)?;
    let bytes: Bytes = gather(body.boxed_unsync(), MOST_GATHERED).await?;
    let digest = sha256(&bytes);
    Ok((RequestBody::Whole(Full::new(bytes), Some(room)), digest))
}

/// The headers that the signature covers: those that the client named and that are sent, and every
/// header of AWS's own.
fn covered(
    claim: &Claim,
    headers: &HeaderMap,
    authority: &str,
) -> Result<Vec<(String, String)>, Reason> {
    let mut covered = vec![("host".to_owned(), authority.to_owned())];
    for (name, value) in headers {
        let own = name.as_str().starts_with("x-amz-") && !claim.presigned;
        let named = claim.names.iter().any(|named| named == name.as_str());
        if name != HOST && name != AUTHORIZATION && (own || named) {
            let value = value.to_str().map_err(|_binary| Reason::Unsupported)?;
            covered.push((name.as_str().to_owned(), value.to_owned()));
        }
    }
    Ok(covered)
}

fn names(covered: &[(String, String)]) -> String {
    let mut names: Vec<_> = covered.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(";")
}

/// Signs in the header, and gives the signature.
fn sign_header(
    request: &Unsigned<'_>,
    claim: &Claim,
    credentials: &Credentials,
    signer: &Signer,
    headers: &mut HeaderMap,
    payload: &str,
) -> Result<String, Reason> {
    headers.remove(TOKEN);
    if let Some(token) = credentials.token() {
        headers.insert(TOKEN, sensitive(token)?);
    }
    let covered = covered(claim, headers, request.authority)?;
    let signature = signer.request(&Signed {
        method: request.method,
        path: request.target.path(),
        query: request.target.query().unwrap_or_default(),
        headers: &covered,
        payload,
    });
    let value = format!(
        "{ALGORITHM} Credential={}/{}, SignedHeaders={}, Signature={signature}",
        credentials.id(),
        claim.scope.text(),
        names(&covered),
    );
    headers.insert(AUTHORIZATION, sensitive(&value)?);
    Ok(signature)
}

fn sensitive(text: &str) -> Result<HeaderValue, Reason> {
    let value = HeaderValue::from_maybe_shared(wiped(text.as_bytes().to_vec()));
    let mut value = value.map_err(|_not_a_value| Reason::SecretMisplaced)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Signs in the query.
fn presign(
    request: &Unsigned<'_>,
    claim: &Claim,
    credentials: &Credentials,
    signer: &Signer,
    headers: &HeaderMap,
    payload: &str,
) -> Result<PathAndQuery, Reason> {
    let covered = covered(claim, headers, request.authority)?;
    let escaped = |text: &str| {
        text.replace('%', "%25")
            .replace('/', "%2F")
            .replace('+', "%2B")
            .replace('=', "%3D")
            .replace(';', "%3B")
            .replace('&', "%26")
    };
    let replaced = [
        "X-Amz-Credential",
        "X-Amz-Signature",
        "X-Amz-Security-Token",
        "X-Amz-SignedHeaders",
    ];
    let asked = request.target.query().unwrap_or_default();
    let mut parts: Vec<String> = asked
        .split('&')
        .filter(|part| {
            let key = part.split('=').next().unwrap_or(part);
            !part.is_empty() && !replaced.iter().any(|name| key.eq_ignore_ascii_case(name))
        })
        .map(ToOwned::to_owned)
        .collect();
    let credential = format!("{}/{}", credentials.id(), claim.scope.text());
    parts.push(format!("X-Amz-Credential={}", escaped(&credential)));
    parts.push(format!("X-Amz-SignedHeaders={}", escaped(&names(&covered))));
    if let Some(token) = credentials.token() {
        parts.push(format!("X-Amz-Security-Token={}", escaped(token)));
    }
    let query = parts.join("&");
    let signature = signer.request(&Signed {
        method: request.method,
        path: request.target.path(),
        query: &query,
        headers: &covered,
        payload,
    });
    let target = format!(
        "{}?{query}&X-Amz-Signature={signature}",
        request.target.path()
    );
    PathAndQuery::from_maybe_shared(wiped(target.into_bytes()))
        .map_err(|_too_long| Reason::TooLarge)
}
