//! Queries of URLs.

use zeroize::Zeroizing;

use super::Syntax;

/// Sets a parameter in place of every one that a server could take for it: of the same name
/// in whatever case and escapes, with or without an index (`key[]`), behind `&` or `;`.
pub fn set(query: Option<&str>, name: &str, value: &[u8]) -> Zeroizing<String> {
    let rest = query.unwrap_or_default();
    let written = name.len() + 1 + 3 * value.len();
    let mut new = Zeroizing::new(String::with_capacity(rest.len() + 1 + written));
    for part in rest.split('&') {
        let mut begun = false;
        for piece in part.split(';').filter(|piece| !is_alike(piece, name)) {
            if begun {
                new.push(';');
            } else if !new.is_empty() {
                new.push('&');
            }
            begun = true;
            new.push_str(piece);
        }
    }
    if !new.is_empty() {
        new.push('&');
    }
    new.push_str(name);
    new.push('=');
    let mut bytes = Zeroizing::new(Vec::with_capacity(3 * value.len()));
    // A URL can hold every byte.
    let _writable = Syntax::Url.write(value, &mut bytes);
    new.push_str(std::str::from_utf8(&bytes).unwrap_or_default());
    new
}

/// Whether a server could take the parameter for `name`.
fn is_alike(parameter: &str, name: &str) -> bool {
    let (key, _) = parameter.split_once('=').unwrap_or((parameter, ""));
    let key = unescape(key);
    let key = key.trim_ascii();
    let key = key.split(|byte| *byte == b'[').next().unwrap_or(key);
    key.eq_ignore_ascii_case(name.as_bytes())
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let mut ahead = bytes.clone();
                let mut digit = || char::from(ahead.next()?).to_digit(16);
                match (digit(), digit()) {
                    (Some(high), Some(low)) => {
                        out.push(u8::try_from(high << 4 | low).unwrap_or_default());
                        bytes = ahead;
                    }
                    _ => out.push(byte),
                }
            }
            // A server that stops reading at NUL sees what stands before it.
            _ => out.push(byte),
        }
    }
    match out.iter().position(|byte| *byte == 0) {
        Some(end) => out[..end].to_vec(),
        None => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_arrives() {
        for (query, expected) in [
            (None, "key=s%26x"),
            (Some(""), "key=s%26x"),
            (Some("a=1&b=2"), "a=1&b=2&key=s%26x"),
            (Some("key=forged"), "key=s%26x"),
            (Some("key"), "key=s%26x"),
            (Some("a=1&KEY=forged&b=2"), "a=1&b=2&key=s%26x"),
            (Some("%6bey=forged&a"), "a&key=s%26x"),
            (Some("k%65%79=forged&a"), "a&key=s%26x"),
            (Some("key[]=forged&key%5B0%5D=forged"), "key=s%26x"),
            (Some("a=1;key=forged;b"), "a=1;b&key=s%26x"),
            (Some("+key=forged&key%20=forged&key%00x=f"), "key=s%26x"),
            (Some("keys=1&a=key"), "keys=1&a=key&key=s%26x"),
            (Some("%zz=1&%=2"), "%zz=1&%=2&key=s%26x"),
            (Some("a&&b"), "a&&b&key=s%26x"),
        ] {
            assert_eq!(*set(query, "key", b"s&x"), expected, "{query:?}");
        }
    }
}
