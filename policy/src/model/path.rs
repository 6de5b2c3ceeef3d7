//! Request paths in one canonical form, and the globs that match them.

mod glob;

use std::fmt;
use std::sync::Arc;

use super::serialize_display;

pub use glob::{PathGlob, PathGlobError};

/// Why a path is refused: a server behind the proxy could read it in another way than we do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("a path begins with `/`")]
    NotAbsolute,
    /// Longer than 8,192 bytes.
    #[error("a path has at most 8192 bytes")]
    TooLong,
    /// A space, a control character, a byte outside ASCII, `?`, `#` or a backslash.
    #[error("byte {byte:#04x} cannot be in a path")]
    BadByte {
        /// The byte, as sent.
        byte: u8,
    },
    /// `%` without two hexadecimal digits.
    #[error("`%` is not followed by two hexadecimal digits")]
    BadEscape,
    /// An escaped slash, backslash or control character.
    #[error("an escaped {byte:#04x} can be read in two ways")]
    BadEscapedByte {
        /// The byte that was escaped.
        byte: u8,
    },
    /// What remains after decoding is itself an escape.
    #[error("the path is escaped twice")]
    DoubleEscape,
    /// Escaped bytes that are not UTF-8, overlong forms among them.
    #[error("the escaped bytes are not UTF-8")]
    BadUtf8,
    /// `.` or `..`, escaped or with parameters.
    #[error("`.` and `..` segments are not taken")]
    DotSegment,
    /// `//`.
    #[error("empty segments are not taken")]
    EmptySegment,
}

/// A request's path, without the query, in canonical form (RFC 3986, section 6.2.2): escapes of
/// unreserved characters are undone, the others are in upper case, and there are no
/// dot segments, empty segments, or anything that a server could decode a second time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CanonicalPath(Arc<str>);

impl CanonicalPath {
    /// The longest path, in bytes, as it was sent and in canonical form, which goes upstream and
    /// may be longer.
    pub const MAX: usize = 8192;

    /// Brings the path of a request target into canonical form.
    pub fn parse(raw: &str) -> Result<Self, PathError> {
        if raw.len() > Self::MAX {
            return Err(PathError::TooLong);
        }
        let rest = raw.strip_prefix('/').ok_or(PathError::NotAbsolute)?;
        let mut canonical = String::with_capacity(raw.len());
        for (index, segment) in rest.split('/').enumerate() {
            if index > 0 && canonical.ends_with('/') {
                return Err(PathError::EmptySegment);
            }
            canonical.push('/');
            normalise_segment(segment, &mut canonical)?;
        }
        if canonical.len() > Self::MAX {
            return Err(PathError::TooLong);
        }
        Ok(Self(canonical.into()))
    }

    /// The path as text; this is what goes upstream.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The segments: one, empty, for `/`.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').skip(1)
    }
}

impl fmt::Display for CanonicalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serialize_display!(CanonicalPath);

/// Appends the canonical form of one segment.
fn normalise_segment(segment: &str, canonical: &mut String) -> Result<(), PathError> {
    let start = canonical.len();
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        let (byte, escaped) = match byte {
            b'%' => (unescape(&mut bytes)?, true),
            _ => (byte, false),
        };
        check_byte(byte, escaped)?;
        decoded.push(byte);
        push_byte(byte, escaped, canonical);
    }
    if std::str::from_utf8(&decoded).is_err() {
        return Err(PathError::BadUtf8);
    }
    let segment = canonical.get(start..).unwrap_or_default();
    if is_double_escape(segment) {
        return Err(PathError::DoubleEscape);
    }
    match segment.split(';').next().map(before_parameters) {
        Some("." | "..") => Err(PathError::DotSegment),
        _ => Ok(()),
    }
}

fn unescape(bytes: &mut std::str::Bytes<'_>) -> Result<u8, PathError> {
    let mut digit = || {
        let digit = char::from(bytes.next()?).to_digit(16)?;
        u8::try_from(digit).ok()
    };
    match (digit(), digit()) {
        (Some(high), Some(low)) => Ok(high << 4 | low),
        _ => Err(PathError::BadEscape),
    }
}

fn check_byte(byte: u8, escaped: bool) -> Result<(), PathError> {
    match (byte, escaped) {
        (0..0x20 | 0x7f | b'/' | b'\\', true) => Err(PathError::BadEscapedByte { byte }),
        (0..=b' ' | 0x7f.. | b'?' | b'#' | b'\\', false) => Err(PathError::BadByte { byte }),
        _ => Ok(()),
    }
}

fn push_byte(byte: u8, escaped: bool, canonical: &mut String) {
    const HEX: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    // RFC 3986, section 3.3: these are part of a segment without being escaped, and
    // whether they are escaped may mean something to the server.
    let plain = !escaped && b"!$&'()*+,;=:@".contains(&byte);
    if unreserved || plain {
        canonical.push(char::from(byte));
    } else {
        canonical.push('%');
        canonical.push(HEX[usize::from(byte >> 4)]);
        canonical.push(HEX[usize::from(byte & 0xf)]);
    }
}

/// Whether an escaped `%` is followed by what makes it an escape again.
fn is_double_escape(segment: &str) -> bool {
    segment.match_indices("%25").any(|(at, escape)| {
        let mut rest = segment.bytes().skip(at + escape.len());
        let mut hex = || rest.next().is_some_and(|b| b.is_ascii_hexdigit());
        hex() && hex()
    })
}

/// The segment up to an escaped `;`.
fn before_parameters(segment: &str) -> &str {
    segment.split("%3B").next().unwrap_or(segment)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_form_for_every_spelling() {
        for (raw, canonical) in [
            ("/", "/"),
            ("/a/b/", "/a/b/"),
            ("/%70rojects", "/projects"),
            ("/%7euser/%41", "/~user/A"),
            ("/a%20b", "/a%20b"),
            ("/%c3%a9", "/%C3%A9"),
            ("/a%3bb;c", "/a%3Bb;c"),
            ("/{id}|\"", "/%7Bid%7D%7C%22"),
            ("/100%25", "/100%25"),
            ("/a:b@c!$&'()*+,=", "/a:b@c!$&'()*+,="),
            ("/...", "/..."),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(
                CanonicalPath::parse(raw).unwrap().as_str(),
                canonical,
                "{raw}"
            );
        }
    }

    #[test]
    fn what_can_be_read_two_ways_is_refused() {
        use PathError as E;
        for (raw, error) in [
            ("", E::NotAbsolute),
            ("*", E::NotAbsolute),
            ("a/b", E::NotAbsolute),
            ("https://a/b", E::NotAbsolute),
            ("//secret", E::EmptySegment),
            ("/a//b", E::EmptySegment),
            ("/a//", E::EmptySegment),
            ("/public/../secret", E::DotSegment),
            ("/public/%2e%2e/secret", E::DotSegment),
            ("/public/.%2E/secret", E::DotSegment),
            ("/./a", E::DotSegment),
            ("/a/..", E::DotSegment),
            ("/a/..;x/secret", E::DotSegment),
            ("/a/..;/secret", E::DotSegment),
            ("/a/.;x=1", E::DotSegment),
            ("/a/..%3bx/secret", E::DotSegment),
            ("/a%2fb", E::BadEscapedByte { byte: b'/' }),
            ("/a%5c..%5cb", E::BadEscapedByte { byte: b'\\' }),
            ("/a%00", E::BadEscapedByte { byte: 0 }),
            ("/a%0d%0ab", E::BadEscapedByte { byte: b'\r' }),
            ("/a%7f", E::BadEscapedByte { byte: 0x7f }),
            ("/a\\..\\b", E::BadByte { byte: b'\\' }),
            ("/a b", E::BadByte { byte: b' ' }),
            ("/a?b", E::BadByte { byte: b'?' }),
            ("/a#b", E::BadByte { byte: b'#' }),
            ("/é", E::BadByte { byte: 0xc3 }),
            ("/%", E::BadEscape),
            ("/%2", E::BadEscape),
            ("/%u002e", E::BadEscape),
            ("/%+2", E::BadEscape),
            ("/%252e%252e/secret", E::DoubleEscape),
            ("/%25252e", E::DoubleEscape),
            ("/%25%32%65", E::DoubleEscape),
            ("/%c0%ae%c0%ae/secret", E::BadUtf8),
            ("/%c0%af", E::BadUtf8),
            ("/%ff", E::BadUtf8),
        ] {
            assert_eq!(CanonicalPath::parse(raw), Err(error), "{raw}");
        }
        let longest = format!("/{}", "a".repeat(CanonicalPath::MAX - 1));
        assert!(CanonicalPath::parse(&longest).is_ok());
        assert_eq!(
            CanonicalPath::parse(&format!("{longest}a")),
            Err(E::TooLong)
        );
        // A quote is one byte as sent and three in canonical form.
        let grows = format!("/{}", "\"".repeat(CanonicalPath::MAX / 3));
        assert_eq!(
            CanonicalPath::parse(&grows).map(|path| path.as_str().len()),
            Ok(CanonicalPath::MAX - 1)
        );
        assert_eq!(CanonicalPath::parse(&format!("{grows}\"")), Err(E::TooLong));
    }

    proptest! {
        #[test]
        fn canonical_form_is_a_fixed_point(raw in "/[a-z%2-7.;/A-F]{0,24}") {
            if let Ok(path) = CanonicalPath::parse(&raw) {
                prop_assert_eq!(&CanonicalPath::parse(path.as_str()).unwrap(), &path);
            }
        }

        #[test]
        fn anything_is_answered(raw in "\\PC{0,40}") {
            if let Ok(path) = CanonicalPath::parse(&raw) {
                prop_assert!(path.as_str().is_ascii() && path.as_str().starts_with('/'));
            }
        }
    }
}
