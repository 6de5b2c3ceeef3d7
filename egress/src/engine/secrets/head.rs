//! Secrets in the head of a request.

use causeway_policy::CanonicalPath;
use causeway_policy::model::{Format, HeaderName as PolicyHeader, Slot};
use causeway_types::Reason;
use http::header::{
    ACCEPT_CHARSET, ACCEPT_ENCODING, HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE,
    SEC_WEBSOCKET_EXTENSIONS,
};
use http::uri::PathAndQuery;
use zeroize::Zeroizing;

use super::{Carried, wiped};
use crate::secrets::syntax::Unwritable;
use crate::secrets::{Swaps, Syntax, query};

/// The most bytes of a head's values with secrets in them.
const MAX_WRITTEN: usize = 256 * 1024;

/// What was written into a head.
pub(in crate::engine) struct Written {
    /// The path and query that go upstream.
    pub(in crate::engine) target: PathAndQuery,
    /// The headers that were set, which must not come again as trailers.
    pub(in crate::engine) injected: Vec<HeaderName>,
    /// How many secrets were set.
    pub(in crate::engine) injections: u64,
    /// In how many headers, paths and queries placeholders were swapped.
    pub(in crate::engine) replacements: u64,
}

impl Carried {
    /// Swaps and sets what belongs into the head, and asks for an answer that can be searched.
    /// The headers stay as they were when something cannot be written.
    pub(in crate::engine) fn write_head(
        &self,
        headers: &mut HeaderMap,
        path: &CanonicalPath,
        asked_query: Option<&str>,
    ) -> Result<Written, Reason> {
        let (target, in_target) = self.target(path, asked_query)?;
        let swapped = swap_headers(&self.header, headers)?;
        let set = self.injected_headers()?;
        let injected: Vec<_> = set.iter().map(|(name, _value)| name.clone()).collect();
        let replacements = in_target + swapped.len() as u64;
        put(headers, swapped);
        for (name, value) in set {
            remove_alike(headers, &name);
            headers.insert(name, value);
        }
        if !self.needles.is_empty() {
            ask_for_searchable(headers);
        }
        Ok(Written {
            target,
            injected,
            injections: self.injections.len() as u64,
            replacements,
        })
    }

    /// The path and query with their secrets, and how many of the two had placeholders.
    fn target(
        &self,
        path: &CanonicalPath,
        asked_query: Option<&str>,
    ) -> Result<(PathAndQuery, u64), Reason> {
        let swap = |swaps: &Swaps, text: &str| {
            let swapped = swaps.swap(text.as_bytes(), Syntax::Url);
            let swapped = swapped.map_err(|Unwritable| Reason::SecretMisplaced)?;
            let text = swapped.map(|bytes| String::from_utf8(bytes).map(Zeroizing::new));
            text.transpose()
                .map_err(|_not_a_url| Reason::SecretMisplaced)
        };
        let new_path = swap(&self.path, path.as_str())?;
        if let Some(new_path) = &new_path {
            stays_in_place(path, new_path)?;
        }
        let new_query = asked_query.map(|q| swap(&self.query, q)).transpose()?;
        let mut new_query = new_query.flatten();
        let replacements = u64::from(new_path.is_some()) + u64::from(new_query.is_some());
        for (into, format, secret) in &self.injections {
            if let Slot::Query(name) = into {
                let value = formatted(format, secret.expose());
                let known = new_query.as_ref().map(|query| query.as_str());
                let set = query::set(known.or(asked_query), name.as_str(), &value);
                new_query = Some(set);
            }
        }
        let path = new_path
            .as_ref()
            .map_or(path.as_str(), |path| path.as_str());
        let query = new_query.as_ref().map(|query| query.as_str());
        let query = query.or(asked_query);
        let length = path.len() + query.map_or(0, |query| query.len() + 1);
        let mut target = Vec::with_capacity(length);
        target.extend_from_slice(path.as_bytes());
        if let Some(query) = query {
            target.push(b'?');
            target.extend_from_slice(query.as_bytes());
        }
        match PathAndQuery::from_maybe_shared(wiped(target)) {
            Ok(target) => Ok((target, replacements)),
            Err(_too_long) => Err(Reason::TooLarge),
        }
    }

    fn injected_headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, Reason> {
        let mut values = Vec::new();
        for (into, format, secret) in &self.injections {
            let Slot::Header(name) = into else { continue };
            let name = HeaderName::try_from(name.as_str())
                .map_err(|_malformed| Reason::SecretMisplaced)?;
            values.push((name, sensitive(formatted(format, secret.expose()))?));
        }
        Ok(values)
    }

    /// Swaps placeholders in trailers, and takes out what a header was set for.
    pub(super) fn write_trailers(&self, trailers: &mut HeaderMap) -> Result<(), Reason> {
        let swapped = swap_headers(&self.header, trailers)?;
        put(trailers, swapped);
        Ok(())
    }
}

/// The value with a secret in it.
fn formatted(format: &Format, secret: &[u8]) -> Vec<u8> {
    [
        format.before().as_bytes(),
        secret,
        format.after().as_bytes(),
    ]
    .concat()
}

/// A header's value that is neither shown by `Debug` nor kept in a compression table.
fn sensitive(value: Vec<u8>) -> Result<HeaderValue, Reason> {
    // A secret with a line end in it would be two headers.
    let value = HeaderValue::from_maybe_shared(wiped(value));
    let mut value = value.map_err(|_not_a_value| Reason::SecretMisplaced)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The values with placeholders swapped, by their place in the order of the headers.
fn swap_headers(swaps: &Swaps, headers: &HeaderMap) -> Result<Vec<(usize, HeaderValue)>, Reason> {
    if swaps.is_empty() {
        return Ok(Vec::new());
    }
    let mut swapped = Vec::new();
    let mut written = 0;
    for (at, (name, value)) in headers.iter().enumerate() {
        // No secret goes where none could be injected: what steers a message stays as it is.
        if PolicyHeader::parse(name.as_str()).is_err() {
            continue;
        }
        if let Some(value) = swaps.swap_header(value.as_bytes()) {
            written += value.len();
            if written > MAX_WRITTEN {
                return Err(Reason::TooLarge);
            }
            swapped.push((at, sensitive(value)?));
        }
    }
    Ok(swapped)
}

fn put(headers: &mut HeaderMap, values: Vec<(usize, HeaderValue)>) {
    let mut values = values.into_iter().peekable();
    for (at, (_name, place)) in headers.iter_mut().enumerate() {
        if let Some((_at, value)) = values.next_if(|(index, _value)| *index == at) {
            *place = value;
        }
    }
}

/// The path is judged with the placeholder in it, so the secret must not change what the path
/// means: it stays within its segment, and the path is in canonical form.
fn stays_in_place(judged: &CanonicalPath, written: &str) -> Result<(), Reason> {
    let canonical = CanonicalPath::parse(written);
    let same = canonical.is_ok_and(|canonical| {
        canonical.as_str() == written && canonical.segments().count() == judged.segments().count()
    });
    if same {
        Ok(())
    } else {
        Err(Reason::SecretMisplaced)
    }
}

/// Asks for whole answers in a coding that is undone here. A range would cut a secret in two,
/// and so would the compression that WebSocket and gRPC add themselves.
fn ask_for_searchable(headers: &mut HeaderMap) {
    let gzip = headers.get_all(ACCEPT_ENCODING).iter().any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.split(',').any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let refused = ["q=0", "q=0.0", "q=0.00", "q=0.000"].contains(&weight.trim());
            name.trim().eq_ignore_ascii_case("gzip") && !refused
        })
    });
    let coding = if gzip { "gzip" } else { "identity" };
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(coding));
    for name in [
        RANGE,
        IF_RANGE,
        ACCEPT_CHARSET,
        SEC_WEBSOCKET_EXTENSIONS,
        HeaderName::from_static("a-im"),
        HeaderName::from_static("grpc-accept-encoding"),
        HeaderName::from_static("connect-accept-encoding"),
    ] {
        headers.remove(name);
    }
}

/// Removes headers that servers take for `name` which read `_` and `-` as one, as those do that
/// hand headers on as environment variables (RFC 3875, section 4.1.18).
pub(in crate::engine) fn remove_alike(headers: &mut HeaderMap, name: &HeaderName) {
    let plain = |name: &HeaderName| name.as_str().replace('_', "-");
    let wanted = plain(name);
    let alike: Vec<_> = headers
        .keys()
        .filter(|key| plain(key) == wanted)
        .cloned()
        .collect();
    for key in alike {
        headers.remove(key);
    }
}

#[cfg(test)]
#[path = "head/tests.rs"]
mod tests;
