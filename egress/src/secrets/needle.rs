//! What is looked for in answers: a secret, and its Base64 form at each alignment.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

/// Which spellings count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alphabet {
    /// Every byte is itself.
    Exact,
    /// `+` and a space are one, as in forms.
    Form,
    /// The two alphabets of Base64 are one (RFC 4648, section 5); a `+` may have become a space.
    Base64,
}

impl Alphabet {
    /// The byte that stands for all that count as the same.
    pub(super) fn fold(self, byte: u8) -> u8 {
        match (self, byte) {
            (Self::Form, b'+') => b' ',
            (Self::Base64, b'-' | b' ') => b'+',
            (Self::Base64, b'_') => b'/',
            _ => byte,
        }
    }

    /// The bytes that count as the same as `byte`, which stands for them.
    pub(super) fn spellings(self, byte: &u8) -> &[u8] {
        match (self, byte) {
            (Self::Form, b' ') => b" +",
            (Self::Base64, b'+') => b"+- ",
            (Self::Base64, b'/') => b"/_",
            _ => std::slice::from_ref(byte),
        }
    }
}

/// A text that is looked for, with the table of Knuth, Morris and Pratt: where to go on
/// after a mismatch.
pub(super) struct Needle {
    pub(super) alphabet: Alphabet,
    text: Zeroizing<Vec<u8>>,
    back: Vec<u32>,
}

impl Needle {
    fn new(alphabet: Alphabet, mut text: Zeroizing<Vec<u8>>) -> Self {
        for byte in text.iter_mut() {
            *byte = alphabet.fold(*byte);
        }
        let mut needle = Self {
            alphabet,
            back: vec![0; text.len()],
            text,
        };
        let mut length = 0;
        for at in 1..needle.text.len() {
            length = needle.advance(length, needle.text[at]);
            // A secret has at most 64 KiB.
            needle.back[at] = u32::try_from(length).unwrap_or_default();
        }
        needle
    }

    /// How much must have matched before it is taken out: all of it, or its beginning when it is
    /// long.
    pub(super) fn enough(&self) -> usize {
        self.text.len().min(Needles::WINDOW)
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// How many bytes match after `byte`, when `matched` did before it.
    pub(super) fn step(&self, matched: usize, byte: u8) -> usize {
        let byte = self.alphabet.fold(byte);
        if matched == self.text.len() {
            self.advance(self.shorter(matched), byte)
        } else {
            self.advance(matched, byte)
        }
    }

    fn advance(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.text[matched] != byte {
            matched = self.shorter(matched);
        }
        matched + usize::from(self.text[matched] == byte)
    }

    /// The longest beginning of the text that the first `matched` bytes end with, too.
    fn shorter(&self, matched: usize) -> usize {
        let back = self.back.get(matched - 1).copied().unwrap_or_default();
        usize::try_from(back).unwrap_or_default()
    }
}

/// The forms of one secret.
pub struct Needles {
    /// As it is, where nothing or JSON is undone.
    pub(super) exact: Needle,
    /// As it is, where a form's escapes are undone.
    pub(super) form: Needle,
    /// In Base64: behind 0, 1 and 2 other bytes.
    pub(super) base64: [Needle; 3],
}

impl Needles {
    /// The shortest secret that is looked for, in bytes. Shorter ones are parts of innocent text.
    pub const SHORTEST: usize = 8;
    /// A long secret is taken out from this many characters on, so that no more is held back.
    pub const WINDOW: usize = 64;

    /// The forms of a secret; none for one that is too short to look for.
    pub fn new(secret: &[u8]) -> Option<Self> {
        Self::written(secret, |text| text)
    }

    /// The forms of a secret where everything is written in lower case.
    pub fn in_lower_case(secret: &[u8]) -> Option<Self> {
        Self::written(secret, |mut text| {
            text.make_ascii_lowercase();
            text
        })
    }

    fn written(
        secret: &[u8],
        write: impl Fn(Zeroizing<Vec<u8>>) -> Zeroizing<Vec<u8>>,
    ) -> Option<Self> {
        if secret.len() < Self::SHORTEST {
            return None;
        }
        let plain = || write(Zeroizing::new(secret.to_vec()));
        let base64 = |before| Needle::new(Alphabet::Base64, write(encoded(secret, before)));
        Some(Self {
            exact: Needle::new(Alphabet::Exact, plain()),
            form: Needle::new(Alphabet::Form, plain()),
            base64: [0, 1, 2].map(base64),
        })
    }
}

impl fmt::Debug for Needles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Needles(redacted)")
    }
}

/// The characters of Base64 that a secret behind `before` other bytes determines alone. A
/// character at either end may have up to four bits of the secret beside others; it is left out.
fn encoded(secret: &[u8], before: usize) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(before + secret.len()));
    bytes.resize(before, 0);
    bytes.extend_from_slice(secret);
    let mut text = Zeroizing::new(vec![0; bytes.len().div_ceil(3) * 4]);
    // The buffer is as long as the padded form.
    let written = STANDARD_NO_PAD
        .encode_slice(&*bytes, &mut text)
        .unwrap_or_default();
    let first = (before * 8).div_ceil(6);
    let last = (bytes.len() * 8 / 6).min(written);
    Zeroizing::new(text[first..last].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_what_any_neighbours_leave() {
        use base64::engine::general_purpose::STANDARD;
        for length in 8..14 {
            let secret: Vec<u8> = (0..length).map(|i| b'a' + i).collect();
            for before in 0..3 {
                let needle = encoded(&secret, before);
                for (neighbour, after) in [(0u8, 0), (0xff, 1), (0x5a, 2), (0xa5, 5)] {
                    let mut bytes = vec![neighbour; before + 3];
                    bytes.extend_from_slice(&secret);
                    bytes.extend(vec![!neighbour; after]);
                    let text = STANDARD.encode(bytes);
                    let found = text
                        .as_bytes()
                        .windows(needle.len())
                        .any(|w| w == &**needle);
                    assert!(found, "{length} {before} {text}");
                }
                assert!(needle.len() >= secret.len());
            }
        }
    }

    #[test]
    fn short_secrets_are_not_looked_for() {
        assert!(Needles::new(b"1234567").is_none());
        let needles = Needles::new(b"12345678").unwrap();
        assert!(!format!("{needles:?}").contains("1234"));
    }
}
