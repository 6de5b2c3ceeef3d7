//! The syntaxes that a placeholder stands in, and how a secret is written in each.

/// What the bytes around a placeholder are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// Plain text: the secret is written as it is.
    Text,
    /// A part of a URL's path or query (RFC 3986).
    Url,
    /// `application/x-www-form-urlencoded`.
    Form,
    /// JSON text (RFC 8259).
    Json,
    /// XML text or attributes.
    Xml,
    /// Something that a secret cannot be written into: lengths or checks may surround it.
    Opaque,
}

/// A secret was to be written where it cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a placeholder stands where no secret can be written")]
pub struct Unwritable;

/// One character of a syntax, as far as placeholders go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// A byte, and how many bytes it is written with.
    Byte(u8, usize),
    /// An escape whose end has not come yet.
    Partial,
}

impl Syntax {
    /// The syntax of a body, by its media type (RFC 9110, section 8.3.1).
    ///
    /// Text of any kind takes the secret as it is, and so do the parts of a form with files, which
    /// have no lengths. What is not known to be text is opaque.
    pub fn of_media_type(content_type: Option<&[u8]>) -> Self {
        let text = content_type.map(|t| t.split(|byte| *byte == b';').next().unwrap_or(t));
        let Some(text) = text.and_then(|text| std::str::from_utf8(text).ok()) else {
            return Self::Opaque;
        };
        let essence = text.trim().to_ascii_lowercase();
        let Some((kind, subtype)) = essence.split_once('/') else {
            return Self::Opaque;
        };
        let suffix = subtype.rsplit_once('+').map(|(_, suffix)| suffix);
        match (kind, subtype, suffix) {
            ("application", "x-www-form-urlencoded", _) => Self::Form,
            // Each message of gRPC has its length before it.
            ("application", _, _) if subtype.starts_with("grpc") => Self::Opaque,
            (_, _, Some("json")) | (_, "json", _) => Self::Json,
            (
                "application",
                "x-ndjson" | "ndjson" | "jsonl" | "jsonlines" | "json-lines" | "x-jsonlines"
                | "json-seq" | "csp-report" | "jose",
                _,
            ) => Self::Json,
            (_, _, Some("xml")) | (_, "xml", _) => Self::Xml,
            ("text", ..) | ("multipart", "form-data", _) => Self::Text,
            (
                "application",
                "yaml" | "x-yaml" | "toml" | "graphql" | "javascript" | "sql" | "x-sh" | "jwt",
                _,
            )
            | (_, _, Some("yaml")) => Self::Text,
            _ => Self::Opaque,
        }
    }

    /// The bytes besides `c` that can begin a placeholder.
    pub(super) fn escape(self) -> Option<u8> {
        match self {
            Self::Url | Self::Form => Some(b'%'),
            Self::Json => Some(b'\\'),
            Self::Text | Self::Xml | Self::Opaque => None,
        }
    }

    /// The first character of `bytes`, which are not empty.
    pub(super) fn unit(self, bytes: &[u8]) -> Unit {
        let first = bytes.first().copied().unwrap_or_default();
        if Some(first) != self.escape() {
            return Unit::Byte(first, 1);
        }
        match (self, bytes.get(1)) {
            (_, None) => Unit::Partial,
            (Self::Json, Some(b'u')) => escaped(bytes, 2, 4),
            // No other escape of JSON means a character of placeholders.
            (Self::Json, Some(_)) => Unit::Byte(first, 2),
            _ => escaped(bytes, 1, 2),
        }
    }

    /// Writes a secret.
    pub(super) fn write(self, secret: &[u8], out: &mut Vec<u8>) -> Result<(), Unwritable> {
        match self {
            Self::Text => out.extend_from_slice(secret),
            Self::Url => percent(secret, b"-._~:@", false, out),
            Self::Form => percent(secret, b"-._*", true, out),
            Self::Json => secret.iter().for_each(|byte| json(*byte, out)),
            Self::Xml => secret.iter().for_each(|byte| xml(*byte, out)),
            Self::Opaque => return Err(Unwritable),
        }
        Ok(())
    }
}

/// The character of `count` hexadecimal digits from `from` on. What is no escape is one byte.
fn escaped(bytes: &[u8], from: usize, count: usize) -> Unit {
    let first = bytes.first().copied().unwrap_or_default();
    let mut value = 0u32;
    for at in from..from + count {
        let Some(byte) = bytes.get(at) else {
            return Unit::Partial;
        };
        match char::from(*byte).to_digit(16) {
            Some(digit) => value = value << 4 | digit,
            None => return Unit::Byte(first, 1),
        }
    }
    match u8::try_from(value) {
        Ok(byte) if byte.is_ascii() => Unit::Byte(byte, from + count),
        _ => Unit::Byte(first, from + count),
    }
}

const UPPER: &[u8; 16] = b"0123456789ABCDEF";

fn percent(secret: &[u8], plain: &[u8], plus: bool, out: &mut Vec<u8>) {
    for byte in secret {
        match byte {
            b' ' if plus => out.push(b'+'),
            _ if byte.is_ascii_alphanumeric() || plain.contains(byte) => out.push(*byte),
            _ => out.extend_from_slice(&[
                b'%',
                UPPER[usize::from(byte >> 4)],
                UPPER[usize::from(byte & 15)],
            ]),
        }
    }
}

fn json(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        0..0x20 | 0x7f => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[UPPER[usize::from(byte >> 4)], UPPER[usize::from(byte & 15)]]);
        }
        _ => out.push(byte),
    }
}

fn xml(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'&' => out.extend_from_slice(b"&amp;"),
        b'<' => out.extend_from_slice(b"&lt;"),
        b'>' => out.extend_from_slice(b"&gt;"),
        b'"' => out.extend_from_slice(b"&quot;"),
        b'\'' => out.extend_from_slice(b"&#39;"),
        _ => out.push(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types() {
        for (text, syntax) in [
            ("application/json", Syntax::Json),
            ("Application/JSON; charset=utf-8", Syntax::Json),
            ("application/vnd.api+json", Syntax::Json),
            ("application/x-ndjson", Syntax::Json),
            ("application/x-www-form-urlencoded", Syntax::Form),
            ("text/plain", Syntax::Text),
            ("text/xml", Syntax::Xml),
            ("application/soap+xml", Syntax::Xml),
            ("multipart/form-data; boundary=x", Syntax::Text),
            ("multipart/mixed; boundary=x", Syntax::Opaque),
            ("application/octet-stream", Syntax::Opaque),
            ("application/grpc", Syntax::Opaque),
            ("application/grpc+json", Syntax::Opaque),
            ("json", Syntax::Opaque),
            ("", Syntax::Opaque),
        ] {
            assert_eq!(
                Syntax::of_media_type(Some(text.as_bytes())),
                syntax,
                "{text}"
            );
        }
        assert_eq!(Syntax::of_media_type(None), Syntax::Opaque);
    }

    #[test]
    fn a_secret_is_written_so_that_it_is_read_as_it_is() {
        let secret = "a\"\\/ &<>'+%é\t".as_bytes();
        let written = |syntax: Syntax| {
            let mut out = Vec::new();
            syntax.write(secret, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(Syntax::Text).as_bytes(), secret);
        assert_eq!(
            written(Syntax::Url),
            "a%22%5C%2F%20%26%3C%3E%27%2B%25%C3%A9%09"
        );
        assert_eq!(
            written(Syntax::Form),
            "a%22%5C%2F+%26%3C%3E%27%2B%25%C3%A9%09"
        );
        let json: String = serde_json::from_str(&format!("\"{}\"", written(Syntax::Json))).unwrap();
        assert_eq!(json.as_bytes(), secret);
        assert_eq!(written(Syntax::Xml), "a&quot;\\/ &amp;&lt;&gt;&#39;+%é\t");
        assert_eq!(
            Syntax::Opaque.write(secret, &mut Vec::new()),
            Err(Unwritable)
        );
    }
}
