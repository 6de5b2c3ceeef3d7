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
    /// Something else.
    Opaque,
    /// It began as TLS, and is not acceptable.
    BadTls(HelloError),
}

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
        _ => sniff_http(bytes),
    }
}

/// A request line begins with a method in capitals, a space, and one of the four forms of a
/// target (RFC 9112, section 3.2). `CONNECT` has the one that looks like nothing else.
fn sniff_http(bytes: &[u8]) -> Option<Sniffed> {
    let method_length = bytes
        .iter()
        .take(MAX_METHOD)
        .take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-')
        .count();
    let (method, rest) = bytes.split_at(method_length);
    match rest {
        _ if method_length == MAX_METHOD => Some(Sniffed::Opaque),
        [] => None,
        [b' ', target @ ..] if !method.is_empty() => {
            if method == b"CONNECT" {
                return Some(Sniffed::Http);
            }
            match target {
                [] => None,
                [b'/' | b'*', ..] => Some(Sniffed::Http),
                _ => absolute_form(target),
            }
        }
        _ => Some(Sniffed::Opaque),
    }
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
        ] {
            assert_eq!(sniff(http.as_bytes()), Some(Sniffed::Http), "{http}");
        }
        for other in [
            "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
            "EHLO host.example\r\n",
            "EHLO httpd\r\n",
            "\0\0\0\x08\x04",
            "get / HTTP/1.1\r\n",
            " / HTTP/1.1",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1",
        ] {
            assert_eq!(sniff(other.as_bytes()), Some(Sniffed::Opaque), "{other:?}");
        }
        for part in ["", "G", "GET", "GET ", "GET h", "GET https:/", "\x16"] {
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
