//! What a connection speaks, told from its first bytes.
//!
//! Pure: the bytes that arrived so far go in, a verdict or a wish for more comes out. Whoever
//! reads the bytes bounds how many and for how long; nothing here looks at more than
//! [`MAX_SNIFF`] bytes.

mod hello;

pub use hello::{ClientHello, HelloError, Sni, parse as parse_client_hello};

/// The most bytes that are looked at: a client hello with post-quantum key shares, large
/// tickets and padding stays well under this.
pub const MAX_SNIFF: usize = 64 * 1024;

/// What was recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sniffed {
    /// A whole TLS client hello.
    Tls(ClientHello),
    /// The start of an HTTP request, HTTP/1 or HTTP/2 with prior knowledge.
    Http,
    /// A `PostgreSQL` client that asks for encryption, by TLS or GSSAPI, and waits for a byte that
    /// says yes or no ([`POSTGRES_REQUEST`] bytes).
    Postgres,
    /// Something else.
    Opaque,
    /// It began as TLS, and is not acceptable.
    BadTls(HelloError),
}

/// The length of a `PostgreSQL` request for encryption: its length and a code.
pub const POSTGRES_REQUEST: usize = 8;
/// `SSLRequest` and `GSSENCRequest`.
const POSTGRES_REQUESTS: [[u8; POSTGRES_REQUEST]; 2] = [
    [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f],
    [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x30],
];

/// No method is this long: at so many bytes, what began like one is something else.
const MAX_METHOD: usize = 24;

/// Looks at the first bytes of a connection. None: more of them are needed.
pub fn sniff(bytes: &[u8]) -> Option<Sniffed> {
    match bytes.first()? {
        0x16 => match hello::parse(bytes) {
            Ok(None) => None,
            Ok(Some(hello)) => Some(Sniffed::Tls(hello)),
            Err(HelloError::NotTls) => Some(Sniffed::Opaque),
            Err(error) => Some(Sniffed::BadTls(error)),
        },
        0 => sniff_postgres(bytes),
        // Servers skip empty lines before a request (RFC 9112, section 2.2).
        b'\r' | b'\n' => {
            let empty = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n'));
            sniff_http(&bytes[empty.count()..])
        }
        _ => sniff_http(bytes),
    }
}

fn sniff_postgres(bytes: &[u8]) -> Option<Sniffed> {
    let known = bytes.len().min(POSTGRES_REQUEST);
    let begins = |request: &[u8; POSTGRES_REQUEST]| request[..known] == bytes[..known];
    if !POSTGRES_REQUESTS.iter().any(begins) {
        return Some(Sniffed::Opaque);
    }
    (known == POSTGRES_REQUEST).then_some(Sniffed::Postgres)
}

/// A request line begins with a method, a space, and one of the four forms of a target
/// (RFC 9112, section 3.2). `CONNECT` has the one that looks like nothing else.
fn sniff_http(bytes: &[u8]) -> Option<Sniffed> {
    let method_length = bytes
        .iter()
        .take(MAX_METHOD)
        .take_while(|byte| is_token(**byte))
        .count();
    let (method, rest) = bytes.split_at(method_length);
    match rest {
        _ if method_length == MAX_METHOD => Some(Sniffed::Opaque),
        [] => None,
        [b' ', target @ ..] if !method.is_empty() => {
            if method == b"CONNECT" {
                return Some(Sniffed::Http);
            }
            let http = match target {
                [] => None,
                [b'/' | b'*', ..] => Some(Sniffed::Http),
                _ => absolute_form(target),
            };
            let usual = |byte: &u8| byte.is_ascii_uppercase() || *byte == b'-';
            if http == Some(Sniffed::Http) && !method.iter().all(usual) {
                return sniff_version(target);
            }
            http
        }
        _ => Some(Sniffed::Opaque),
    }
}

/// With a method that nobody uses it is HTTP only if the line says so at its end: some servers
/// take any method, and other protocols have lines that begin in this way.
fn sniff_version(target: &[u8]) -> Option<Sniffed> {
    let end = target.iter().position(|byte| *byte == b'\n')?;
    let line = target[..end].trim_ascii_end();
    let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or(line);
    Some(if version.starts_with(b"HTTP/") {
        Sniffed::Http
    } else {
        Sniffed::Opaque
    })
}

/// What names are made of (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn absolute_form(target: &[u8]) -> Option<Sniffed> {
    let schemes: [&[u8]; 2] = [b"http://", b"https://"];
    let mut more = false;
    for scheme in schemes {
        let known = target.len().min(scheme.len());
        if target[..known].eq_ignore_ascii_case(&scheme[..known]) {
            if known == scheme.len() {
                return Some(Sniffed::Http);
            }
            more = true;
        }
    }
    if more { None } else { Some(Sniffed::Opaque) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn http_is_told_from_other_protocols() {
        for http in [
            "GET / HTTP/1.1\r\n",
            "M-SEARCH * HTTP/1.1\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "POST http://a.example/ HTTP/1.1\r\n",
            "GET HTTPS://a.example/",
            "CONNECT a.example:443 HTTP/1.1\r\n",
            "\r\n\nGET / HTTP/1.1\r\n",
            "get / HTTP/1.1\r\n",
            "m$get http://a.example/ HTTP/1.1 \n",
        ] {
            assert_eq!(sniff(http.as_bytes()), Some(Sniffed::Http), "{http}");
        }
        for other in [
            "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
            "EHLO host.example\r\n",
            "EHLO httpd\r\n",
            "\0\0\0\x08\x03",
            "get /key\r\n",
            "get / SMTP/1.1\r\n",
            " / HTTP/1.1",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1",
        ] {
            assert_eq!(sniff(other.as_bytes()), Some(Sniffed::Opaque), "{other:?}");
        }
        for part in [
            "",
            "G",
            "GET",
            "GET ",
            "GET h",
            "GET https:/",
            "\x16",
            "\r\n",
            "get / HTTP/1.1",
            "\0\0\0\x08\x04",
        ] {
            assert_eq!(sniff(part.as_bytes()), None, "{part:?}");
        }
    }

    #[test]
    fn a_method_is_too_long_at_the_same_byte_whatever_follows() {
        let longest = "A".repeat(MAX_METHOD - 1);
        assert_eq!(sniff(longest.as_bytes()), None);
        let request = format!("{longest} / HTTP/1.1\r\n");
        assert_eq!(sniff(request.as_bytes()), Some(Sniffed::Http));
        for tail in ["", " ", " / HTTP/1.1\r\n", "A"] {
            let text = format!("{longest}A{tail}");
            assert_eq!(sniff(text.as_bytes()), Some(Sniffed::Opaque), "{text:?}");
        }
    }

    #[test]
    fn postgresql_asks_for_encryption_in_eight_bytes() {
        for request in POSTGRES_REQUESTS {
            assert_eq!(sniff(&request), Some(Sniffed::Postgres));
            for cut in 1..request.len() {
                assert_eq!(sniff(&request[..cut]), None, "{cut}");
            }
        }
        // To cancel, and to begin without.
        for other in [[0, 0, 0, 16, 4, 210, 22, 46], [0, 0, 0, 8, 0, 3, 0, 0]] {
            assert_eq!(sniff(&other), Some(Sniffed::Opaque));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _verdict = sniff(&bytes);
        }

        #[test]
        fn a_verdict_does_not_change_with_more_bytes(
            text in "[A-Z]{1,30} [/*h]{1}[ -~]{0,40}",
            cut in 1_usize..50,
        ) {
            let cut = cut.min(text.len());
            if let Some(early) = sniff(&text.as_bytes()[..cut]) {
                prop_assert_eq!(sniff(text.as_bytes()), Some(early));
            }
        }
    }
}
