//! Host names in their one canonical form.

use std::borrow::Cow;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why text is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainNameError {
    /// There is no text, or only a dot.
    #[error("a host name is empty")]
    Empty,
    /// Longer than 253 characters in its ASCII form (RFC 1035, section 2.3.4).
    #[error("a host name of {length} characters is too long: 253 is the most")]
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// A label is empty, longer than 63 characters, or begins or ends with a hyphen.
    #[error("`{label}` in `{name}` is not a host name label")]
    BadLabel {
        /// The whole name, escaped.
        name: String,
        /// The label, escaped.
        label: String,
    },
    /// A character that no host name has: a control character, a space, `@`, `:`, `%` and so on.
    #[error("`{name}` has {found:?}, which no host name has")]
    BadCharacter {
        /// The whole name, escaped.
        name: String,
        /// The character.
        found: char,
    },
    /// The name cannot be mapped to ASCII (UTS #46).
    #[error("`{name}` is not a valid internationalised name")]
    BadIdna {
        /// The whole name, escaped.
        name: String,
    },
    /// The name is an IPv4 address in one of the spellings that resolvers accept.
    #[error("`{name}` is an address and not a name")]
    Numeric {
        /// The whole name.
        name: String,
    },
}

/// A host name: lower case, ASCII (international labels as `xn--`), no trailing dot, 1 to 253
/// bytes, letters, digits, hyphens and underscores, and never an address in disguise.
///
/// Policy, DNS, injection, dialling and logs all compare this one form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DomainName(Arc<str>);

impl DomainName {
    /// The longest name, in bytes.
    pub const MAX: usize = 253;

    /// Brings `text` into canonical form: maps case and international forms, and drops one
    /// trailing dot.
    pub fn parse(text: &str) -> Result<Self, DomainNameError> {
        let escaped = || text.escape_debug().take(Self::MAX).collect::<String>();
        if text.len() > 4 * Self::MAX {
            return Err(DomainNameError::TooLong { length: text.len() });
        }
        // Checked before mapping: UTS #46 would fold some of these away.
        if let Some(found) = text.chars().find(|c| forbidden(*c)) {
            return Err(DomainNameError::BadCharacter {
                name: escaped(),
                found,
            });
        }
        // Every request of a connection names its host, and nearly all are written so.
        let ascii = if is_plain(text) {
            Cow::Borrowed(text)
        } else {
            let mapped = idna::domain_to_ascii_cow(text.as_bytes(), idna::AsciiDenyList::EMPTY);
            mapped.map_err(|_invalid| DomainNameError::BadIdna { name: escaped() })?
        };
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        if name.is_empty() {
            return Err(DomainNameError::Empty);
        }
        if name.len() > Self::MAX {
            return Err(DomainNameError::TooLong { length: name.len() });
        }
        for label in name.split('.') {
            check_label(name, label)?;
        }
        if is_numeric(name) {
            return Err(DomainNameError::Numeric {
                name: name.to_owned(),
            });
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The labels from the right: `com`, `example`, `api`.
    pub fn labels_from_root(&self) -> impl Iterator<Item = &str> {
        self.0.rsplit('.')
    }
}

fn forbidden(c: char) -> bool {
    c.is_control() || c.is_whitespace() || "@:/?#[]\\%<>^`{|}\"!$&'()*+,;=~".contains(c)
}

/// Whether UTS #46 leaves the name as it is: lower case in ASCII, and no label that it would decode.
fn is_plain(text: &str) -> bool {
    let plain = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    text.bytes().all(plain) && !text.split('.').any(|label| label.starts_with("xn--"))
}

fn check_label(name: &str, label: &str) -> Result<(), DomainNameError> {
    let good = !label.is_empty()
        && label.len() <= 63
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
    if good {
        Ok(())
    } else {
        Err(DomainNameError::BadLabel {
            name: name.escape_debug().to_string(),
            label: label.escape_debug().to_string(),
        })
    }
}

/// Whether `inet_aton` or a URL parser would take the name for an IPv4 address: its last label
/// is a number, decimal, octal or hexadecimal (WHATWG URL, "ends in a number").
fn is_numeric(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let decimal = last.bytes().all(|b| b.is_ascii_digit());
    let hexadecimal = last
        .strip_prefix("0x")
        .is_some_and(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
    decimal || hexadecimal || name.parse::<Ipv4Addr>().is_ok()
}

impl FromStr for DomainName {
    type Err = DomainNameError;

    fn from_str(text: &str) -> Result<Self, DomainNameError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for DomainName {
    type Error = DomainNameError;

    fn try_from(text: String) -> Result<Self, DomainNameError> {
        Self::parse(&text)
    }
}

impl From<DomainName> for String {
    fn from(name: DomainName) -> String {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_form_for_every_spelling() {
        for spelling in ["api.example.com", "API.Example.COM", "api.example.com."] {
            assert_eq!(
                DomainName::parse(spelling).unwrap().as_str(),
                "api.example.com"
            );
        }
        let unicode = DomainName::parse("bücher.example").unwrap();
        assert_eq!(unicode, DomainName::parse("xn--bcher-kva.example").unwrap());
        // Fullwidth letters and the ideographic full stop are the same name.
        assert_eq!(
            DomainName::parse("ａpi。example").unwrap().as_str(),
            "api.example"
        );
        assert!(DomainName::parse("_srv.example").is_ok());
    }

    #[test]
    fn what_can_be_read_two_ways_is_refused() {
        let bad = [
            "",
            ".",
            "a..b",
            ".a",
            "a..",
            "-a.b",
            "a-.b",
            "a b",
            "a\0.b",
            "a%00.b",
            "u@a.b",
            "a.b:80",
            "[a.b]",
            "a/b",
            "a\\b",
            "a\tb",
            "*.a.b",
            "xn--a.example",
            &"a".repeat(64),
            &"a.".repeat(128),
        ];
        for text in bad {
            assert!(DomainName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn addresses_are_not_names() {
        for text in [
            "127.0.0.1",
            "127.0.0.1.",
            "2130706433",
            "0x7f000001",
            "127.1",
            "0177.0.0.1",
            "0x",
        ] {
            assert!(
                matches!(
                    DomainName::parse(text),
                    Err(DomainNameError::Numeric { .. })
                ),
                "{text}"
            );
        }
        assert!(DomainName::parse("1.example").is_ok());
    }

    proptest! {
        #[test]
        fn the_short_way_changes_nothing(text in "[a-z0-9._-]{0,30}|(xn|ab)--[a-z0-9.-]{0,10}") {
            if is_plain(&text) {
                prop_assert_eq!(idna::domain_to_ascii(&text).unwrap(), text);
            }
        }

        #[test]
        fn canonical_form_is_a_fixed_point(text in "\\PC{0,40}") {
            if let Ok(name) = DomainName::parse(&text) {
                prop_assert_eq!(&DomainName::parse(name.as_str()).unwrap(), &name);
            }
        }
    }
}
