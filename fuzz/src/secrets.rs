//! Placeholders on their way out, secrets on their way back.

use std::sync::Arc;

use causeway_egress::control::SecretValue;
use causeway_egress::secrets::{Needles, PlaceholderKey, Redactor, Swapper, Swaps, Syntax, query};
use causeway_types::SandboxUid;

/// Text of a fuzzer's bytes, with `word` wherever it has 0xfe.
fn with_words(data: &[u8], word: &[u8]) -> Vec<u8> {
    let bytes = data.iter().flat_map(|byte| match byte {
        0xfe => word,
        byte => std::slice::from_ref(byte),
    });
    bytes.copied().collect()
}

/// Pieces make no difference, what has no placeholder stays as it is, and no placeholder is left.
pub fn placeholder_swap(data: &[u8]) {
    let [syntax, cut, most, rest @ ..] = data else {
        return;
    };
    let all = [
        Syntax::Text,
        Syntax::Url,
        Syntax::Form,
        Syntax::Json,
        Syntax::Xml,
    ];
    let syntax = all[usize::from(*syntax) % all.len()];
    let name = "TOKEN".parse().expect("a secret's name");
    let placeholder = PlaceholderKey::new([3; 16]).placeholder(SandboxUid::from_random(1), &name);
    let value = SecretValue::new(b"v4lue &\"".to_vec()).expect("a short secret");
    let swaps = Swaps::new([(placeholder, Arc::new(value))]);
    let text = with_words(rest, placeholder.as_str().as_bytes());
    let whole = swaps.swap(&text, syntax).expect("it can be written");
    let mut swapper = Swapper::new(swaps, syntax);
    let (a, b) = text.split_at(usize::from(*cut).min(text.len()));
    let mut pieces = Vec::new();
    for (piece, last) in [(a, false), (b, true)] {
        swapper.push(piece);
        loop {
            let mut out = Vec::new();
            let most = usize::from(*most).max(1);
            let more = swapper.take(&mut out, most, last).expect("the same");
            pieces.extend_from_slice(&out);
            if !more {
                break;
            }
        }
    }
    let known = placeholder.as_str().as_bytes();
    // An escape in front may take its first letters: what is read then is no placeholder.
    let lead = match syntax {
        Syntax::Url | Syntax::Form => Some(b'%'),
        Syntax::Json => Some(b'\\'),
        Syntax::Text | Syntax::Xml | Syntax::Opaque => None,
    };
    let left = |text: &[u8]| {
        let mut places = text.windows(known.len()).enumerate();
        places.any(|(at, window)| {
            let before = &text[at.saturating_sub(5)..at];
            window == known && !before.iter().any(|byte| Some(*byte) == lead)
        })
    };
    match whole {
        Some(whole) => assert_eq!(whole, pieces),
        None => assert_eq!(text, pieces),
    }
    assert!(!left(&pieces));
    if let Ok(text) = std::str::from_utf8(&text) {
        let set = query::set(Some(text), "key", b"v4lue");
        assert!(set.ends_with("key=v4lue"));
        assert_eq!(query::set(Some(&set), "key", b"v4lue"), set);
    }
}

/// Pieces make no difference, no length changes, and no secret is left.
pub fn redaction(data: &[u8]) {
    let [length, cut, rest @ ..] = data else {
        return;
    };
    let length = 8 + usize::from(*length) % 90;
    let Some((secret, rest)) = rest.split_at_checked(length) else {
        return;
    };
    let needles = Arc::new(Needles::new(secret).expect("it is long enough"));
    let text = with_words(rest, secret);
    let redactor = || Redactor::new(&[Arc::clone(&needles)]).expect("there is a secret");
    let mut one = redactor();
    let whole = one.whole(&text).unwrap_or_else(|| text.clone());
    assert_eq!(whole.len(), text.len());
    let mut two = redactor();
    let (a, b) = text.split_at(usize::from(*cut).min(text.len()));
    let mut pieces = two.push(a);
    pieces.extend(two.push(b));
    pieces.extend(two.finish());
    assert_eq!(whole, pieces);
    // The filler beside what follows may look like a secret that has it, too.
    let filler = secret.contains(&causeway_egress::secrets::redact::FILLER);
    assert!(filler || !whole.windows(secret.len()).any(|window| window == secret));
}
