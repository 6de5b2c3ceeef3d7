//! Secrets into requests.

use bytes::Bytes;
use causeway_policy::Injection;
use causeway_types::Reason;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use zeroize::Zeroizing;

use crate::state::Secrets;

/// Sets the header of each injection, in place of whatever the client sent under its name, so
/// that exactly one arrives. Nothing is set when a secret has no value.
pub(super) fn apply<'a>(
    headers: &mut HeaderMap,
    injections: impl IntoIterator<Item = &'a Injection>,
    secrets: &Secrets,
) -> Result<Vec<HeaderName>, Reason> {
    let mut values = Vec::new();
    for injection in injections {
        let key = (injection.tenant.clone(), injection.secret.clone());
        let secret = secrets.get(&key).ok_or(Reason::SecretMissing)?;
        let name = HeaderName::try_from(injection.header.as_str())
            .map_err(|_malformed| Reason::SecretMissing)?;
        let format = &injection.format;
        let parts = [
            format.before().as_bytes(),
            secret.expose(),
            format.after().as_bytes(),
        ];
        let length = parts.iter().map(|part| part.len()).sum();
        let mut value = Zeroizing::new(Vec::with_capacity(length));
        for part in parts {
            value.extend_from_slice(part);
        }
        // A secret with a line end in it would be two headers.
        let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(Wiped(value)))
            .map_err(|_not_a_value| Reason::SecretMissing)?;
        // Neither shown by `Debug`, nor kept in a compression table.
        value.set_sensitive(true);
        values.push((name, value));
    }
    let names = values.iter().map(|(name, _value)| name.clone()).collect();
    for (name, value) in values {
        remove_alike(headers, &name);
        headers.insert(name, value);
    }
    Ok(names)
}

/// Removes headers that servers take for `name` which read `_` and `-` as one, as those do that
/// hand headers on as environment variables (RFC 3875, section 4.1.18).
fn remove_alike(headers: &mut HeaderMap, name: &HeaderName) {
    let plain = |name: &HeaderName| name.as_str().replace('_', "-");
    let wanted = plain(name);
    let alike: Vec<_> = headers
        .keys()
        .filter(|key| key.as_str().contains('_') && plain(key) == wanted)
        .cloned()
        .collect();
    for key in alike {
        headers.remove(key);
    }
}

/// A buffer that is wiped when the header value that shares it is gone.
struct Wiped(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for Wiped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use causeway_policy::model::{Format, HeaderName as PolicyHeader};

    use super::*;
    use crate::control::SecretValue;

    fn injection() -> Injection {
        Injection {
            tenant: "acme".parse().unwrap(),
            secret: "TOKEN".parse().unwrap(),
            header: PolicyHeader::parse("authorization").unwrap(),
            format: Format::parse("Bearer {secret}").unwrap(),
        }
    }

    fn secrets(value: &[u8]) -> Secrets {
        let key = ("acme".parse().unwrap(), "TOKEN".parse().unwrap());
        Secrets::from([(key, SecretValue::new(value.to_vec()).unwrap())])
    }

    #[test]
    fn exactly_one_header_arrives() {
        let mut headers = HeaderMap::new();
        headers.append("authorization", HeaderValue::from_static("Bearer forged"));
        headers.append("authorization", HeaderValue::from_static("Basic forged"));
        apply(&mut headers, [&injection()], &secrets(b"s3cr3t")).unwrap();
        let values: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(values, ["Bearer s3cr3t"]);
        assert!(!format!("{headers:?}").contains("s3cr3t"));
    }

    #[test]
    fn none_arrives_under_a_name_that_looks_the_same() {
        let name = |text| HeaderName::from_static(text);
        let own = HeaderValue::from_static("own");
        let mut headers = HeaderMap::from_iter([
            (name("x_api_key"), own.clone()),
            (name("x-api_key"), own.clone()),
            (name("x_apikey"), own),
        ]);
        let injection = Injection {
            header: PolicyHeader::parse("x-api-key").unwrap(),
            ..injection()
        };
        apply(&mut headers, [&injection], &secrets(b"s3cr3t")).unwrap();
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["x-api-key", "x_apikey"]);
    }

    #[test]
    fn a_secret_that_cannot_be_sent_changes_nothing() {
        let before = HeaderMap::from_iter([(
            HeaderName::from_static("authorization"),
            HeaderValue::from_static("own"),
        )]);
        for secrets in [Secrets::new(), secrets(b"two\r\nlines")] {
            let mut headers = before.clone();
            let refused = apply(&mut headers, [&injection()], &secrets);
            assert_eq!(refused, Err(Reason::SecretMissing));
            assert_eq!(headers, before);
        }
    }
}
