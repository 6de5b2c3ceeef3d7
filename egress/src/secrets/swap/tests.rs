use proptest::prelude::*;

use super::*;
use crate::secrets::PlaceholderKey;
use causeway_types::SandboxUid;

fn placeholder(name: &str) -> Placeholder {
    PlaceholderKey::new([1; 16]).placeholder(SandboxUid::from_random(1), &name.parse().unwrap())
}

fn swaps(secret: &[u8]) -> Swaps {
    let value = Arc::new(SecretValue::new(secret.to_vec()).unwrap());
    let other = Arc::new(SecretValue::new(b"0ther".to_vec()).unwrap());
    Swaps::new([(placeholder("A"), value), (placeholder("B"), other)])
}

fn streamed(swaps: &Swaps, syntax: Syntax, pieces: &[&[u8]], most: usize) -> Vec<u8> {
    let mut swapper = Swapper::new(swaps.clone(), syntax);
    let mut whole = Vec::new();
    let mut take = |swapper: &mut Swapper, last| {
        loop {
            let mut out = Vec::new();
            let more = swapper.take(&mut out, most, last).unwrap();
            whole.extend_from_slice(&out);
            if !more {
                break;
            }
        }
    };
    for piece in pieces {
        swapper.push(piece);
        take(&mut swapper, false);
        assert!(
            swapper.held.len() <= 300,
            "{} bytes held",
            swapper.held.len()
        );
    }
    take(&mut swapper, true);
    whole
}

/// The same by search and replace on the whole text, in which nothing is escaped.
fn naive(text: &str, syntax: Syntax, secret: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    syntax.write(secret, &mut written).unwrap();
    let a = String::from_utf8(written).unwrap();
    text.split(placeholder("A").as_str())
        .map(|part| part.replace(placeholder("B").as_str(), "0ther"))
        .collect::<Vec<_>>()
        .join(&a)
        .into_bytes()
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(placeholder("A").to_string()),
        Just(placeholder("B").to_string()),
        Just(placeholder("UNKNOWN").to_string()),
        (0..48usize).prop_map(|n| placeholder("A").as_str()[..n].to_owned()),
        (0..48usize).prop_map(|n| placeholder("A").as_str()[n..].to_owned()),
        "[a-z_0-9 \"{}:,é]{0,12}",
    ]
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        words in prop::collection::vec(word(), 0..12),
        cuts in prop::collection::vec(0..600usize, 0..8),
        most in 1..200usize,
        secret in "[ -~é]{1,80}",
    ) {
        let text = words.concat();
        let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut <= text.len()).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let bytes = text.as_bytes();
        let pieces: Vec<_> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
        let swaps = swaps(secret.as_bytes());
        for syntax in [Syntax::Text, Syntax::Url, Syntax::Form, Syntax::Json, Syntax::Xml] {
            let expected = naive(&text, syntax, secret.as_bytes());
            let got = streamed(&swaps, syntax, &pieces, most);
            prop_assert_eq!(String::from_utf8(got), String::from_utf8(expected), "{:?}", syntax);
        }
    }

    #[test]
    fn escaped_placeholders_are_found_and_nothing_else_changes(
        escape in prop::collection::vec(any::<bool>(), 48),
        before in "[a-z]{0,8}",
        cut in 0..100usize,
    ) {
        let swaps = swaps(b"v&lue");
        for (syntax, value, odd) in [(Syntax::Form, "v%26lue", "%%"), (Syntax::Json, "v&lue", "\\n")] {
            let mut text = format!("{before}{odd}").into_bytes();
            for (byte, escape) in placeholder("A").as_str().bytes().zip(&escape) {
                match (escape, syntax) {
                    (false, _) => text.push(byte),
                    (true, Syntax::Json) => text.extend(format!("\\u{byte:04X}").bytes()),
                    (true, _) => text.extend(format!("%{byte:02x}").bytes()),
                }
            }
            // `%` before a letter that is a digit, too, would be another escape.
            let text = String::from_utf8(text).unwrap().replace("%%c", "%%%63").into_bytes();
            let (a, b) = text.split_at(cut.min(text.len()));
            let got = streamed(&swaps, syntax, &[a, b], 7);
            prop_assert_eq!(String::from_utf8(got).unwrap(), format!("{before}{odd}{value}"));
        }
    }
}

#[test]
fn an_escaped_backslash_begins_no_escape() {
    let swaps = swaps(b"value");
    let a = placeholder("A");
    let text = format!(r#"{{"a":"\\{a}","b":"\\u0063{}"}}"#, &a.as_str()[1..]);
    let got = swaps.swap(text.as_bytes(), Syntax::Json).unwrap().unwrap();
    let expected = format!(r#"{{"a":"\\value","b":"\\u0063{}"}}"#, &a.as_str()[1..]);
    assert_eq!(String::from_utf8(got).unwrap(), expected);
}

#[test]
fn one_may_begin_in_the_digits_of_what_is_none() {
    let a = placeholder("A").to_string();
    let text = format!("{}{a}", &a[..46]);
    let got = swaps(b"value").swap(text.as_bytes(), Syntax::Text);
    let expected = format!("{}value", &a[..46]);
    assert_eq!(got, Ok(Some(expected.into_bytes())));
}

#[test]
fn basic_credentials_are_composed_anew() {
    let swaps = swaps("pä:ss".as_bytes());
    let value = basic::encode(format!("user:{}", placeholder("A")).as_bytes());
    let swapped = swaps.swap_header(&value).unwrap();
    assert_eq!(swapped, basic::encode("user:pä:ss".as_bytes()));
    let bearer = format!("Bearer {}", placeholder("B"));
    assert_eq!(
        swaps.swap_header(bearer.as_bytes()).unwrap(),
        b"Bearer 0ther"
    );
    for untouched in [
        basic::encode(b"user:pass"),
        basic::encode(placeholder("UNKNOWN").as_str().as_bytes()),
        b"Basic !!".to_vec(),
    ] {
        assert_eq!(swaps.swap_header(&untouched), None);
    }
}

#[test]
fn where_no_secret_can_be_written_a_placeholder_is_an_error() {
    let swaps = swaps(b"value");
    let text = format!("\0{}", placeholder("A"));
    assert_eq!(swaps.swap(text.as_bytes(), Syntax::Opaque), Err(Unwritable));
    let foreign = format!("\0{}", placeholder("UNKNOWN"));
    assert_eq!(swaps.swap(foreign.as_bytes(), Syntax::Opaque), Ok(None));
}

#[test]
fn what_comes_out_at_once_is_bounded() {
    let secret = vec![b'x'; 60_000];
    let mut swapper = Swapper::new(swaps(&secret), Syntax::Text);
    swapper.push(placeholder("A").as_str().repeat(100).as_bytes());
    let mut whole = 0;
    loop {
        let mut out = Vec::new();
        let more = swapper.take(&mut out, 1000, true).unwrap();
        assert!(out.len() <= 1000 + secret.len());
        whole += out.len();
        if !more {
            break;
        }
    }
    assert_eq!(whole, 100 * secret.len());
}
