//! Which secrets leave, where to, and in which shape. Values are nowhere in this crate.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{NamePattern, serialize_display};

/// How a policy uses one secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretUse {
    /// The hosts that it may go to; never empty.
    pub hosts: Vec<NamePattern>,
    /// What is done.
    #[serde(flatten)]
    pub treatment: Treatment,
}

/// What is done with a secret on the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// A header or parameter is set, in place of any that the client sent.
    Inject {
        /// Which one.
        #[serde(flatten)]
        into: Slot,
        /// Its value, with the secret's place.
        format: Format,
    },
    /// The placeholder that the sandbox holds is swapped for the secret in these places.
    Replace(Vec<Place>),
    /// A signature that the client made with keys of no value is made anew with the secret.
    Sign(Signing),
}

/// A way of signing requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signing {
    /// AWS Signature Version 4. The secret is `KEY_ID:SECRET_KEY`, with `:SESSION_TOKEN` for
    /// temporary keys.
    AwsSigv4,
}

impl Signing {
    /// Every way, with its name in files.
    pub const ALL: [(&'static str, Self); 1] = [("aws_sigv4", Self::AwsSigv4)];
}

/// Where a secret is set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Slot {
    /// A header.
    Header(HeaderName),
    /// A parameter of the URL's query.
    Query(ParameterName),
}

impl Slot {
    /// Whether a server could take one for the other.
    pub fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Header(a), Self::Header(b)) => a.0.replace('_', "-") == b.0.replace('_', "-"),
            (Self::Query(a), Self::Query(b)) => a.0.eq_ignore_ascii_case(&b.0),
            _ => false,
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(header) => write!(f, "the header `{header}`"),
            Self::Query(parameter) => write!(f, "the query parameter `{parameter}`"),
        }
    }
}

/// Text is not the name of a query parameter that a secret can be put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a parameter's name has 1 to 128 of the characters A-Z, a-z, 0-9, `-`, `.`, `_` and `~`")]
pub struct ParameterNameError;

/// The name of a query parameter: characters that are never escaped (RFC 3986, section 2.3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParameterName(String);

impl ParameterName {
    /// Checks a name. Case is kept.
    pub fn parse(text: &str) -> Result<Self, ParameterNameError> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        if (1..=128).contains(&text.len()) && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParameterNameError)
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ParameterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A part of a request in which a placeholder is swapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Header values.
    Header,
    /// The query of the URL.
    Query,
    /// The path of the URL.
    Path,
    /// The body.
    Body,
}

impl Place {
    /// Every place, with its name in files.
    pub const ALL: [(&'static str, Self); 4] = [
        ("header", Self::Header),
        ("query", Self::Query),
        ("path", Self::Path),
        ("body", Self::Body),
    ];
}

/// Why a header is not one that a secret can be put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderNameError {
    /// Not a token (RFC 9110, section 5.1), or longer than 128 bytes.
    #[error("not a header name")]
    Malformed,
    /// A header that says where a message goes or ends, or that belongs to one hop.
    #[error("this header steers the connection or the message and cannot carry a secret")]
    Forbidden,
}

/// A header that secrets may be put into, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeaderName(String);

impl HeaderName {
    /// Headers of routing, framing and single hops (RFC 9110, section 7.6.1).
    const FORBIDDEN: [&'static str; 18] = [
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "forwarded",
        "host",
        "http2-settings",
        "keep-alive",
        "max-forwards",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-causeway-denied",
    ];

    /// Checks a header name and brings it to lower case.
    pub fn parse(text: &str) -> Result<Self, HeaderNameError> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if !(1..=128).contains(&text.len()) || !text.bytes().all(token) {
            return Err(HeaderNameError::Malformed);
        }
        let lower = text.to_ascii_lowercase();
        if Self::FORBIDDEN.contains(&lower.as_str()) {
            return Err(HeaderNameError::Forbidden);
        }
        Ok(Self(lower))
    }

    /// The name in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why text is not the format of an injected value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// `{secret}` does not appear exactly once.
    #[error("`{{secret}}` appears {count} times, and exactly once is needed")]
    Places {
        /// How often it appears.
        count: usize,
    },
    /// A character that no header value has: CR, LF, NUL, another control or non-ASCII one.
    #[error("{found:?} cannot be in a header")]
    BadCharacter {
        /// The character.
        found: char,
    },
    /// Longer than 1,024 bytes.
    #[error("a format has at most 1024 bytes")]
    TooLong,
}

/// The value of an injected header or parameter: text with the secret's place in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Format {
    before: String,
    after: String,
}

impl Format {
    const PLACE: &'static str = "{secret}";

    /// Reads text that has `{secret}` exactly once.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        if text.len() > 1024 {
            return Err(FormatError::TooLong);
        }
        if let Some(found) = text.chars().find(|c| !(' '..='~').contains(c)) {
            return Err(FormatError::BadCharacter { found });
        }
        let count = text.matches(Self::PLACE).count();
        match text.split_once(Self::PLACE) {
            Some((before, after)) if count == 1 => Ok(Self {
                before: before.to_owned(),
                after: after.to_owned(),
            }),
            _ => Err(FormatError::Places { count }),
        }
    }

    /// What stands before the secret.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// What stands after the secret.
    pub fn after(&self) -> &str {
        &self.after
    }
}

impl Default for Format {
    /// The secret and nothing else.
    fn default() -> Self {
        Self {
            before: String::new(),
            after: String::new(),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.before, Self::PLACE, self.after)
    }
}

serialize_display!(HeaderName, ParameterName, Format);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_tokens_and_not_framing() {
        let header = HeaderName::parse("X-Api-Key").unwrap();
        assert_eq!(header.as_str(), "x-api-key");
        for bad in ["", "a b", "a:", "a\r\nb", "ä", ":path", &"a".repeat(129)] {
            let result = HeaderName::parse(bad);
            assert_eq!(result, Err(HeaderNameError::Malformed), "{bad:?}");
        }
        for bad in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "Connection",
            "TE",
        ] {
            let result = HeaderName::parse(bad);
            assert_eq!(result, Err(HeaderNameError::Forbidden), "{bad}");
        }
    }

    #[test]
    fn parameters_need_no_escapes() {
        assert_eq!(ParameterName::parse("api_Key").unwrap().as_str(), "api_Key");
        for bad in [
            "",
            "a b",
            "a&b",
            "a=b",
            "a[]",
            "a%20",
            "ä",
            &"a".repeat(129),
        ] {
            assert_eq!(ParameterName::parse(bad), Err(ParameterNameError), "{bad}");
        }
    }

    #[test]
    fn slots_that_a_server_could_take_for_each_other_are_alike() {
        let header = |name| Slot::Header(HeaderName::parse(name).unwrap());
        let query = |name| Slot::Query(ParameterName::parse(name).unwrap());
        assert!(header("x-api-key").is_alike(&header("X-API_KEY")));
        assert!(query("key").is_alike(&query("KEY")));
        assert!(!query("key").is_alike(&query("key2")));
        assert!(!query("key").is_alike(&header("key")));
    }

    #[test]
    fn a_format_has_one_place() {
        let format = Format::parse("Bearer {secret}!").unwrap();
        assert_eq!((format.before(), format.after()), ("Bearer ", "!"));
        assert_eq!(format.to_string(), "Bearer {secret}!");
        assert_eq!(Format::parse("x"), Err(FormatError::Places { count: 0 }));
        assert_eq!(
            Format::parse("{secret}{secret}"),
            Err(FormatError::Places { count: 2 })
        );
        for found in ['\r', '\n', '\0', '\t', 'é'] {
            let text = format!("a{found}{{secret}}");
            assert_eq!(
                Format::parse(&text),
                Err(FormatError::BadCharacter { found })
            );
        }
    }
}
