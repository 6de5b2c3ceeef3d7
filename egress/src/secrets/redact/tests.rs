use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::*;

fn needles(secret: &[u8]) -> Arc<Needles> {
    Arc::new(Needles::new(secret).unwrap())
}

fn whole(secrets: &[&[u8]], text: &[u8]) -> Vec<u8> {
    let needles: Vec<_> = secrets.iter().map(|secret| needles(secret)).collect();
    let mut redactor = Redactor::new(&needles).unwrap();
    redactor.whole(text).unwrap_or_else(|| text.to_vec())
}

/// The characters of a text in which one kind of escapes is undone, each with its place. By
/// looking ahead, where the stream's form looks back.
fn characters(text: &[u8], escapes: Escapes) -> Vec<(u8, usize, usize)> {
    let digits = |from: usize, count: usize| {
        let digits = text.get(from..from + count)?;
        let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let escaped: Option<(Vec<u8>, usize)> = match (escapes, text[at]) {
            (Escapes::Percent, b'%') => {
                digits(at + 1, 2).map(|v| (vec![u8::try_from(v).unwrap()], 3))
            }
            (Escapes::Backslash, b'\\') => match text.get(at + 1) {
                Some(b'u') => digits(at + 2, 4).and_then(|value| {
                    let (value, length) = if (0xd800..0xdc00).contains(&value) {
                        let low = (text.get(at + 6..at + 8) == Some(b"\\u"))
                            .then(|| digits(at + 8, 4))
                            .flatten()
                            .filter(|low| (0xdc00..0xe000).contains(low))?;
                        (0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00), 12)
                    } else {
                        (value, 6)
                    };
                    let character = char::from_u32(value)?;
                    Some((character.to_string().into_bytes(), length))
                }),
                Some(letter) => {
                    let place = b"nrtbf\"'\\/".iter().position(|l| l == letter);
                    place.map(|place| (vec![b"\n\r\t\x08\x0c\"'\\/"[place]], 2))
                }
                None => None,
            },
            _ => None,
        };
        let (bytes, length) = escaped.unwrap_or_else(|| (vec![text[at]], 1));
        out.extend(bytes.into_iter().map(|byte| (byte, at, at + length)));
        at += length;
    }
    out
}

/// Every byte of every spelling, found by comparing at each place.
fn naive(secrets: &[&[u8]], text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    for secret in secrets {
        for escapes in [Escapes::None, Escapes::Percent, Escapes::Backslash] {
            let characters = characters(text, escapes);
            let needles = needles(secret);
            let plain = if escapes == Escapes::Percent {
                &needles.form
            } else {
                &needles.exact
            };
            for needle in needles.base64.iter().chain([plain]) {
                for start in 0..characters.len() {
                    let matched = characters[start..]
                        .iter()
                        .zip(needle.text())
                        .take_while(|((byte, ..), letter)| needle.alphabet.fold(*byte) == **letter)
                        .count();
                    if matched >= needle.enough() {
                        let end = characters[start + matched - 1].2;
                        out[characters[start].1..end].fill(FILLER);
                    }
                }
            }
        }
    }
    out
}

fn percent(text: &[u8], escape: &[bool]) -> Vec<u8> {
    let spell = |(at, byte): (usize, &u8)| {
        if escape[at % escape.len()] {
            format!("%{byte:02x}").into_bytes()
        } else {
            vec![*byte]
        }
    };
    text.iter().enumerate().flat_map(spell).collect()
}

fn json(text: &str, escape: &[bool]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, character) in text.chars().enumerate() {
        let mut units = [0; 2];
        match character {
            '"' | '\\' if !escape[at % escape.len()] => out.extend([b'\\', character as u8]),
            _ if escape[at % escape.len()] => {
                for unit in character.encode_utf16(&mut units) {
                    out.extend(format!("\\u{unit:04X}").bytes());
                }
            }
            _ => out.extend(character.to_string().bytes()),
        }
    }
    out
}

/// A spelling of the secret.
fn spelling(secret: String) -> impl Strategy<Value = Vec<u8>> {
    (
        0..7usize,
        prop::collection::vec(any::<bool>(), 1..9),
        "[ -~]{0,5}",
    )
        .prop_map(move |(form, escape, before)| {
            let behind = format!("{before}{secret}x");
            match form {
                0 => secret.clone().into_bytes(),
                1 => STANDARD.encode(behind).into_bytes(),
                2 => URL_SAFE_NO_PAD.encode(behind).into_bytes(),
                3 => percent(secret.as_bytes(), &escape),
                4 => json(&secret, &escape),
                5 => percent(STANDARD.encode(behind).as_bytes(), &escape),
                _ => json(&STANDARD.encode(behind), &escape),
            }
        })
}

/// Text with secrets, parts of them, and what looks like them.
fn text(secret: String) -> impl Strategy<Value = Vec<u8>> {
    let (head, tail) = (secret.clone(), secret.clone());
    let piece = prop_oneof![
        spelling(secret),
        prop::collection::vec(any::<u8>(), 0..6),
        "[a-z%\\\\u0-9*]{0,8}".prop_map(String::into_bytes),
        (0..9usize).prop_map(move |n| head.bytes().take(n).collect()),
        (0..9usize).prop_map(move |n| tail.bytes().skip(n).collect()),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn case() -> impl Strategy<Value = (String, Vec<u8>)> {
    let secret = prop_oneof![
        "[a-zA-Z0-9]{8,30}",
        "[ -~]{8,20}",
        "[ab]{8,20}",
        "[aé😀%\\\\+ \"]{8,20}",
        "[a-c]{60,100}",
        "a{60,140}b{0,3}",
    ];
    secret.prop_flat_map(|secret| {
        let text = text(secret.clone());
        (Just(secret), text)
    })
}

proptest! {
    #[test]
    fn exactly_the_spellings_are_overwritten((secret, text) in case(), other in "[a-b]{8,12}") {
        let secrets = [secret.as_bytes(), other.as_bytes()];
        prop_assert_eq!(whole(&secrets, &text), naive(&secrets, &text));
    }

    #[test]
    fn pieces_make_no_difference(
        (secret, text) in case(),
        cuts in prop::collection::vec(0..300usize, 0..8),
    ) {
        let mut cuts: Vec<_> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut redactor = Redactor::new(&[needles(secret.as_bytes())]).unwrap();
        let mut out = Vec::new();
        for cut in cuts.windows(2) {
            out.extend(redactor.push(&text[cut[0]..cut[1]]));
            prop_assert!(redactor.held.len() <= 12 * (Needles::WINDOW + 1));
        }
        out.extend(redactor.finish());
        prop_assert_eq!(out, whole(&[secret.as_bytes()], &text));
    }

    #[test]
    fn no_spelling_is_left(secret in "[!-~é]{8,80}", spelled in any::<prop::sample::Index>()) {
        let escapes = [vec![true], vec![false], vec![true, false, false]];
        let escape = &escapes[spelled.index(3)];
        for before in ["", "u:", "user:"] {
            let basic = STANDARD.encode(format!("{before}{secret}"));
            let spellings = [
                secret.clone().into_bytes(),
                percent(secret.as_bytes(), escape),
                json(&secret, escape),
                basic.clone().into_bytes(),
                percent(basic.as_bytes(), escape),
                json(&basic, escape),
            ];
            for spelling in spellings {
                let text = [b"<", &spelling[..], b">"].concat();
                let out = whole(&[secret.as_bytes()], &text);
                prop_assert_eq!(out.len(), text.len());
                // A character of Base64 at either end belongs to a neighbour as well, and so
                // does what pads it.
                let left = out.iter().filter(|byte| **byte != FILLER).count();
                let most = 2 + (before.len() + 3) * 12 + 24;
                prop_assert!(left <= most, "{}", String::from_utf8_lossy(&out));
                prop_assert!(out.contains(&FILLER));
            }
        }
    }
}

#[test]
fn nothing_is_held_back_that_begins_no_secret() {
    let mut redactor = Redactor::new(&[needles(b"s3cr3t-v4lue")]).unwrap();
    assert_eq!(
        redactor.push(b"data: {\"a\":1}\n\n"),
        b"data: {\"a\":1}\n\n"
    );
    assert_eq!(redactor.push(b"data: s3cr"), b"data: ");
    assert_eq!(redactor.push(b"3t-v4"), b"");
    assert_eq!(redactor.push(b"xs3cr3t-v4lue"), b"s3cr3t-v4x************");
    assert_eq!(redactor.push(b" s3c"), b" ");
    assert_eq!(redactor.finish(), b"s3c");
}

#[test]
fn a_pause_shows_a_few_characters_at_most() {
    let mut redactor = Redactor::new(&[needles(b"s3cr3t-v4lue")]).unwrap();
    assert_eq!(redactor.push(b"frame s3"), b"frame ");
    assert_eq!(redactor.release(), b"s3");
    assert!(!redactor.holds());
    assert_eq!(redactor.push(b"cr3"), b"");
    assert_eq!(redactor.release(), b"", "too much of it by now");
    assert_eq!(redactor.push(b"t-v4lue!"), b"**********!");
    assert_eq!(redactor.push(b"s3%"), b"");
    assert_eq!(redactor.release(), b"s3%");
    assert_eq!(redactor.push(b"63r3t-v4lue!"), b"***********!");
    assert_eq!(redactor.push(b"s3c%7"), b"");
    assert_eq!(redactor.release(), b"s3c%7");
    assert_eq!(redactor.finish(), b"");
}

#[test]
fn overlapping_secrets_are_both_gone() {
    let out = whole(&[b"abcdefgh", b"efghijkl"], b"<abcdefghijkl>");
    assert_eq!(out, b"<************>");
}

#[test]
fn a_long_secret_is_taken_out_from_its_beginning_on() {
    let secret: Vec<u8> = (0..60_000u32)
        .map(|i| b'a' + u8::try_from(i * i % 23).unwrap())
        .collect();
    let text = [b"[", &secret[..], b"]", &secret[..100], b"]", &secret[..63]].concat();
    let out = whole(&[&secret], &text);
    let expected = [
        b"[",
        &vec![FILLER; 60_000][..],
        b"]",
        &[FILLER; 100],
        b"]",
        &secret[..63],
    ]
    .concat();
    assert!(out == expected);
}
