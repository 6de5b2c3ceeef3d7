//! Escapes undone in a stream, byte by byte, with the place where each character began.

/// What is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// Nothing.
    None,
    /// `%XX`.
    Percent,
    /// What stands behind a backslash in JSON and in many other languages.
    Backslash,
}

/// A byte of text, and where its spelling begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) byte: u8,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The longest escape: a pair of `\uXXXX`.
const LONGEST: usize = 12;

/// Undoes one kind of escapes.
#[derive(Debug)]
pub(super) struct Unescape {
    pub(super) escapes: Escapes,
    /// An escape that is not complete.
    pending: [u8; LONGEST],
    length: usize,
    start: u64,
}

enum Step {
    /// The escape needs more bytes.
    More,
    /// It is these bytes of text.
    Text([u8; 4], usize),
    /// It is none.
    Literal,
}

impl Unescape {
    pub(super) fn new(escapes: Escapes) -> Self {
        Self {
            escapes,
            pending: [0; LONGEST],
            length: 0,
            start: 0,
        }
    }

    /// Where an escape began that is not complete.
    pub(super) fn pending(&self) -> Option<u64> {
        (self.length > 0).then_some(self.start)
    }

    /// Takes the byte at `at`, and gives what is complete with it.
    pub(super) fn push(&mut self, byte: u8, at: u64, give: &mut impl FnMut(Unit)) {
        let lead = match self.escapes {
            Escapes::None => None,
            Escapes::Percent => Some(b'%'),
            Escapes::Backslash => Some(b'\\'),
        };
        if self.length == 0 {
            if Some(byte) == lead {
                self.pending[0] = byte;
                (self.length, self.start) = (1, at);
            } else {
                let (start, end) = (at, at + 1);
                give(Unit { byte, start, end });
            }
            return;
        }
        self.pending[self.length] = byte;
        self.length += 1;
        let escape = &self.pending[..self.length];
        let step = if self.escapes == Escapes::Percent {
            percent(escape)
        } else {
            backslash(escape)
        };
        let start = self.start;
        match step {
            Step::More => {}
            Step::Text(text, length) => {
                self.length = 0;
                let end = at + 1;
                let bytes = text[..length].iter();
                bytes.for_each(|&byte| give(Unit { byte, start, end }));
            }
            Step::Literal => self.literal(give),
        }
    }

    /// The stream ends: an escape that is not complete is none.
    pub(super) fn finish(&mut self, give: &mut impl FnMut(Unit)) {
        while self.length > 0 {
            self.literal(give);
        }
    }

    /// The first byte of what is pending is itself, and the rest is looked at again.
    fn literal(&mut self, give: &mut impl FnMut(Unit)) {
        let (escape, length, start) = (self.pending, self.length, self.start);
        self.length = 0;
        let end = start + 1;
        give(Unit {
            byte: escape[0],
            start,
            end,
        });
        for (byte, place) in escape[1..length].iter().zip(end..) {
            self.push(*byte, place, give);
        }
    }
}

fn percent(escape: &[u8]) -> Step {
    match hexadecimal(&escape[1..]) {
        None => Step::Literal,
        Some(_) if escape.len() < 3 => Step::More,
        Some(value) => Step::Text([u8::try_from(value).unwrap_or_default(), 0, 0, 0], 1),
    }
}

fn backslash(escape: &[u8]) -> Step {
    let one = |byte| Step::Text([byte, 0, 0, 0], 1);
    match escape[1] {
        b'u' => unicode(escape),
        b'n' => one(b'\n'),
        b'r' => one(b'\r'),
        b't' => one(b'\t'),
        b'b' => one(8),
        b'f' => one(12),
        byte @ (b'"' | b'\'' | b'\\' | b'/') => one(byte),
        _ => Step::Literal,
    }
}

/// `\uXXXX`, or two of them that are one character.
fn unicode(escape: &[u8]) -> Step {
    let (first, second) = escape.split_at(escape.len().min(6));
    let Some(value) = hexadecimal(&first[2..]) else {
        return Step::Literal;
    };
    if first.len() < 6 {
        return Step::More;
    }
    if !(0xd800..0xdc00).contains(&value) {
        return text(value);
    }
    let introduced = second.iter().zip(b"\\u").all(|(a, b)| a == b);
    let Some(low) = hexadecimal(second.get(2..).unwrap_or_default()).filter(|_| introduced) else {
        return Step::Literal;
    };
    if second.len() < 6 {
        return Step::More;
    }
    match low.checked_sub(0xdc00) {
        Some(low) if low < 0x400 => text(0x1_0000 + ((value - 0xd800) << 10) + low),
        _ => Step::Literal,
    }
}

fn text(value: u32) -> Step {
    match char::from_u32(value) {
        Some(character) => {
            let mut bytes = [0; 4];
            let length = character.encode_utf8(&mut bytes).len();
            Step::Text(bytes, length)
        }
        None => Step::Literal,
    }
}

/// The value of hexadecimal digits; 0 for none, nothing when there is another byte.
fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, byte| {
        char::from(*byte)
            .to_digit(16)
            .map(|digit| value << 4 | digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undone(escapes: Escapes, text: &[u8]) -> Vec<(u8, u64, u64)> {
        let mut unescape = Unescape::new(escapes);
        let mut units = Vec::new();
        for (at, byte) in text.iter().enumerate() {
            unescape.push(*byte, at as u64, &mut |unit: Unit| {
                units.push((unit.byte, unit.start, unit.end));
            });
        }
        unescape.finish(&mut |unit: Unit| units.push((unit.byte, unit.start, unit.end)));
        units
    }

    fn bytes(escapes: Escapes, text: &str) -> Vec<u8> {
        undone(escapes, text.as_bytes())
            .into_iter()
            .map(|(byte, ..)| byte)
            .collect()
    }

    #[test]
    fn escapes_are_undone_and_everything_else_is_itself() {
        let percent = |text| bytes(Escapes::Percent, text);
        assert_eq!(percent("a%41%e2b"), b"aA\xe2b");
        assert_eq!(percent("%%41%4%zz%4g%4"), b"%A%4%zz%4g%4");
        let backslash = |text| String::from_utf8(bytes(Escapes::Backslash, text)).unwrap();
        assert_eq!(backslash(r#"a\n\"\\\/\u0041\u00e9"#), "a\n\"\\/Aé");
        assert_eq!(backslash(r"\ud83d\ude00!"), "😀!");
        assert_eq!(
            backslash(r"\x\u00g1\ud83dx\ud83d\u0041\ude00."),
            r"\x\u00g1\ud83dx\ud83dA\ude00."
        );
        assert_eq!(bytes(Escapes::None, r"%41\n"), br"%41\n");
    }

    #[test]
    fn each_byte_says_where_its_spelling_is() {
        assert_eq!(
            undone(Escapes::Percent, b"a%41%4%42"),
            [
                (b'a', 0, 1),
                (b'A', 1, 4),
                (b'%', 4, 5),
                (b'4', 5, 6),
                (b'B', 6, 9)
            ]
        );
        assert_eq!(
            undone(Escapes::Backslash, br"\u00e9\n"),
            [(0xc3, 0, 6), (0xa9, 0, 6), (b'\n', 6, 8)]
        );
    }
}
