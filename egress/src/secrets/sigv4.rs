//! AWS Signature Version 4, made anew: what a client signed with keys of its own invention is
//! signed with the real ones.
//!
//! After "Signature Version 4 for API requests" in the AWS General Reference, and "Signature
//! Calculations for the Authorization Header: Transferring Payload in Multiple Chunks" of S3.

pub mod chunked;

use std::fmt::{self, Write as _};

use ring::{digest, hmac};
use zeroize::Zeroizing;

/// The algorithm that is signed with here.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Why a value holds no credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("credentials are `KEY_ID:SECRET_KEY`, or `KEY_ID:SECRET_KEY:SESSION_TOKEN`")]
pub struct CredentialsError;

/// The keys to sign with.
pub struct Credentials {
    id: String,
    key: Zeroizing<String>,
    token: Option<Zeroizing<String>>,
}

impl Credentials {
    /// Reads `KEY_ID:SECRET_KEY` or `KEY_ID:SECRET_KEY:SESSION_TOKEN`.
    pub fn parse(secret: &[u8]) -> Result<Self, CredentialsError> {
        let text = std::str::from_utf8(secret).map_err(|_binary| CredentialsError)?;
        let mut parts = text.trim().splitn(3, ':');
        let (Some(id), Some(key)) = (parts.next(), parts.next()) else {
            return Err(CredentialsError);
        };
        let token = parts.next();
        let plain = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b':')
        };
        let word = id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !plain(id) || !word || !plain(key) || !token.is_none_or(plain) {
            return Err(CredentialsError);
        }
        Ok(Self {
            id: id.to_owned(),
            key: Zeroizing::new(key.to_owned()),
            token: token.map(|token| Zeroizing::new(token.to_owned())),
        })
    }

    /// The identifier of the key, which is no secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The token of temporary credentials.
    pub fn token(&self) -> Option<&str> {
        self.token.as_ref().map(|token| token.as_str())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// What a signature is valid for: `date/region/service/aws4_request`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    date: String,
    /// The region, such as `eu-west-1`.
    pub region: String,
    /// The service, such as `s3`.
    pub service: String,
}

impl Scope {
    /// Reads the scope behind the key's identifier, as it stands in `Credential`.
    pub fn parse(credential: &str) -> Option<Self> {
        let mut parts = credential.rsplit('/');
        let end = parts.next()?;
        let (service, region, date) = (parts.next()?, parts.next()?, parts.next()?);
        parts.next()?;
        let word = |text: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            (1..=64).contains(&text.len()) && text.bytes().all(plain)
        };
        let day = date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit());
        (end == "aws4_request" && word(service) && word(region) && day).then(|| Self {
            date: date.to_owned(),
            region: region.to_owned(),
            service: service.to_owned(),
        })
    }

    /// As it stands in `Credential`, behind the key's identifier.
    pub fn text(&self) -> String {
        format!(
            "{}/{}/{}/aws4_request",
            self.date, self.region, self.service
        )
    }

    /// Whether S3's own rules for paths hold.
    fn is_s3(&self) -> bool {
        ["s3", "s3express", "s3-object-lambda", "s3-outposts"].contains(&self.service.as_str())
    }
}

/// A request, as far as a signature covers it.
#[derive(Debug, Clone, Copy)]
pub struct Signed<'a> {
    /// The method.
    pub method: &'a str,
    /// The path as it is sent, without the query.
    pub path: &'a str,
    /// The query as it is sent, without a signature in it.
    pub query: &'a str,
    /// The headers that are signed, with names in lower case; one entry for each value.
    pub headers: &'a [(String, String)],
    /// The digest of the body in hexadecimal, or the word that stands for it.
    pub payload: &'a str,
}

/// Signs requests of one scope at one time.
pub struct Signer {
    key: hmac::Key,
    scope: Scope,
    time: String,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("scope", &self.scope)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

impl Signer {
    /// For a time in the form `20260102T030405Z`, which has to lie on the scope's day.
    pub fn new(credentials: &Credentials, scope: Scope, time: &str) -> Option<Self> {
        let (day, clock) = time.split_once('T')?;
        let clock = clock.strip_suffix('Z')?;
        let digits = clock.len() == 6 && clock.bytes().all(|byte| byte.is_ascii_digit());
        if day != scope.date || !digits {
            return None;
        }
        let secret = Zeroizing::new(format!("AWS4{}", credentials.key.as_str()));
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        for part in [&scope.date, &scope.region, &scope.service, "aws4_request"] {
            let next = hmac::sign(&key, part.as_bytes());
            key = hmac::Key::new(hmac::HMAC_SHA256, next.as_ref());
        }
        Some(Self {
            key,
            scope,
            time: time.to_owned(),
        })
    }

    /// The signature of a request.
    pub fn request(&self, signed: &Signed<'_>) -> String {
        let canonical = self.canonical(signed);
        let lines = [
            ALGORITHM,
            &self.time,
            &self.scope.text(),
            &sha256(canonical.as_bytes()),
        ];
        self.sign(&lines)
    }

    /// The signature of a chunk of the body, behind the signature of what comes before it.
    pub fn chunk(&self, previous: &str, data: &[u8]) -> String {
        self.sign(&[
            "AWS4-HMAC-SHA256-PAYLOAD",
            &self.time,
            &self.scope.text(),
            previous,
            &sha256(b""),
            &sha256(data),
        ])
    }

    /// The signature of the trailers behind the last chunk, each a line `name:value\n`.
    pub fn trailer(&self, previous: &str, lines: &[u8]) -> String {
        self.sign(&[
            "AWS4-HMAC-SHA256-TRAILER",
            &self.time,
            &self.scope.text(),
            previous,
            &sha256(lines),
        ])
    }

    fn sign(&self, lines: &[&str]) -> String {
        hex(hmac::sign(&self.key, lines.join("\n").as_bytes()).as_ref())
    }

    fn canonical(&self, signed: &Signed<'_>) -> String {
        let path = if self.scope.is_s3() {
            escape(&unescape(signed.path), true)
        } else {
            escape(signed.path.as_bytes(), true)
        };
        let mut headers: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut sorted: Vec<_> = signed.headers.iter().collect();
        // Several values of one header stay in their order.
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, value) in sorted {
            match headers.last_mut() {
                Some((last, values)) if last == name => values.push(value),
                _ => headers.push((name, vec![value])),
            }
        }
        let mut lines = String::new();
        for (name, values) in &headers {
            let values: Vec<_> = values.iter().map(|value| collapsed(value)).collect();
            lines.push_str(name);
            lines.push(':');
            lines.push_str(&values.join(","));
            lines.push('\n');
        }
        let names: Vec<_> = headers.iter().map(|(name, _)| *name).collect();
        [
            signed.method,
            &path,
            &canonical_query(signed.query),
            &lines,
            &names.join(";"),
            signed.payload,
        ]
        .join("\n")
    }
}

/// The digest of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        let _written = write!(text, "{byte:02x}");
    }
    text
}

/// A header's value without spaces around it, and with one where there are several.
fn collapsed(value: &str) -> String {
    value.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn canonical_query(query: &str) -> String {
    let mut parts: Vec<(String, String)> = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (
                escape(&unescape(name), false),
                escape(&unescape(value), false),
            )
        })
        .collect();
    parts.sort();
    let parts: Vec<_> = parts
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    parts.join("&")
}

/// Escapes all but unreserved characters, and slashes where those stay.
fn escape(bytes: &[u8], slashes: bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if plain || (slashes && byte == b'/') {
            text.push(char::from(byte));
        } else {
            let _written = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digit = |place: usize| char::from(*bytes.get(place)?).to_digit(16);
        if let (b'%', Some(high), Some(low)) = (byte, digit(at + 1), digit(at + 2)) {
            out.push(u8::try_from(high << 4 | low).unwrap_or_default());
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    out
}

#[cfg(test)]
#[path = "sigv4/tests.rs"]
mod tests;
