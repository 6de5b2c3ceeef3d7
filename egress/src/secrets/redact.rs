//! Secrets taken out of a stream of bytes.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::Needles;
use super::needle::Needle;
use super::unescape::{Escapes, Unescape, Unit};

/// What stands where a secret was, byte for byte, so that no length changes.
pub const FILLER: u8 = b'*';

/// Overwrites secrets in bytes that come in pieces, as they are and in Base64, each also
/// with percent or backslash escapes anywhere in it.
///
/// Every byte that belongs to some spelling of a secret is overwritten. Only what may be the
/// beginning of one is held back, at most [`Needles::WINDOW`] characters with their escapes. The
/// work for each byte does not depend on how often secrets nearly match.
pub struct Redactor {
    layers: [Layer; 3],
    /// The bytes that can begin a secret or an escape, and those that can follow as its second.
    first: [bool; 256],
    second: [bool; 256],
    /// What is not given out yet, and where it begins.
    held: Vec<u8>,
    base: u64,
    /// Up to where the stream was looked at.
    at: u64,
    redacted: u64,
}

/// The stream with one kind of escapes undone.
struct Layer {
    unescape: Unescape,
    searches: Vec<Search>,
    recent: Recent,
}

/// One needle, and how much of it matches at the moment.
struct Search {
    needles: Arc<Needles>,
    which: Which,
    matched: usize,
}

#[derive(Debug, Clone, Copy)]
enum Which {
    Exact,
    Form,
    Base64(usize),
}

/// Where the last characters begin.
struct Recent {
    starts: [u64; Needles::WINDOW],
    next: usize,
}

impl Recent {
    fn push(&mut self, start: u64) {
        self.starts[self.next] = start;
        self.next = (self.next + 1) % Needles::WINDOW;
    }

    /// Where the last `count` characters begin; at most [`Needles::WINDOW`].
    fn start(&self, count: usize) -> u64 {
        self.starts[(self.next + Needles::WINDOW - count) % Needles::WINDOW]
    }
}

impl Search {
    fn needle(&self) -> &Needle {
        match self.which {
            Which::Exact => &self.needles.exact,
            Which::Form => &self.needles.form,
            Which::Base64(before) => &self.needles.base64[before],
        }
    }
}

impl Layer {
    fn new(escapes: Escapes, secrets: &[Arc<Needles>]) -> Self {
        let plain = match escapes {
            Escapes::Percent => Which::Form,
            Escapes::None | Escapes::Backslash => Which::Exact,
        };
        let forms = [plain, Which::Base64(0), Which::Base64(1), Which::Base64(2)];
        let searches = secrets.iter().flat_map(|needles| {
            forms.map(|which| Search {
                needles: Arc::clone(needles),
                which,
                matched: 0,
            })
        });
        Self {
            unescape: Unescape::new(escapes),
            searches: searches.collect(),
            recent: Recent {
                starts: [0; Needles::WINDOW],
                next: 0,
            },
        }
    }

    /// Takes a byte, and gives the place of a secret that ends with it.
    fn push(&mut self, byte: u8, at: u64) -> Option<Range<u64>> {
        let mut place = None;
        let (searches, recent) = (&mut self.searches, &mut self.recent);
        let mut take = |unit| search(searches, recent, unit, &mut place);
        self.unescape.push(byte, at, &mut take);
        place
    }

    /// The stream ends: gives the place of a secret that ends with it.
    fn finish(&mut self) -> Option<Range<u64>> {
        let mut place = None;
        let (searches, recent) = (&mut self.searches, &mut self.recent);
        let mut take = |unit| search(searches, recent, unit, &mut place);
        self.unescape.finish(&mut take);
        self.searches
            .iter_mut()
            .for_each(|search| search.matched = 0);
        place
    }

    /// From where on bytes may belong to a secret that is not complete.
    fn open(&self) -> Option<u64> {
        let searches = self.searches.iter().filter_map(|search| {
            let partial = (1..search.needle().enough()).contains(&search.matched);
            partial.then(|| self.recent.start(search.matched))
        });
        searches.chain(self.unescape.pending()).min()
    }

    /// How many characters of a secret that is not complete there are at most.
    fn open_length(&self) -> usize {
        let matched = self.searches.iter().map(|search| {
            let partial = search.matched < search.needle().enough();
            search.matched * usize::from(partial)
        });
        matched.max().unwrap_or_default() + usize::from(self.unescape.pending().is_some())
    }

    fn is_idle(&self) -> bool {
        self.unescape.pending().is_none() && self.searches.iter().all(|search| search.matched == 0)
    }
}

/// Takes a character, and widens `place` by a secret that ends with it.
fn search(
    searches: &mut [Search],
    recent: &mut Recent,
    unit: Unit,
    place: &mut Option<Range<u64>>,
) {
    recent.push(unit.start);
    for search in searches {
        let needle = search.needle();
        let (matched, enough) = (needle.step(search.matched, unit.byte), needle.enough());
        search.matched = matched;
        if matched >= enough {
            let start = recent.start(enough);
            let start = place.as_ref().map_or(start, |known| known.start.min(start));
            *place = Some(start..unit.end);
        }
    }
}

impl Redactor {
    /// How much of the beginning of a secret may be given out when the stream pauses in it.
    pub const SHOWN: usize = 4;

    /// Looks for these secrets; none when there are none.
    pub fn new(secrets: &[Arc<Needles>]) -> Option<Self> {
        if secrets.is_empty() {
            return None;
        }
        let layers = [Escapes::None, Escapes::Percent, Escapes::Backslash]
            .map(|escapes| Layer::new(escapes, secrets));
        let (mut first, mut second) = ([false; 256], [false; 256]);
        for search in layers.iter().flat_map(|layer| &layer.searches) {
            let needle = search.needle();
            for (table, letter) in [(&mut first, 0), (&mut second, 1)] {
                for byte in needle.alphabet.spellings(&needle.text()[letter]) {
                    table[usize::from(*byte)] = true;
                }
            }
        }
        for escape in [b'%', b'\\'] {
            first[usize::from(escape)] = true;
            second[usize::from(escape)] = true;
        }
        Some(Self {
            layers,
            first,
            second,
            held: Vec::new(),
            base: 0,
            at: 0,
            redacted: 0,
        })
    }

    /// How many bytes were overwritten.
    pub fn redacted(&self) -> u64 {
        self.redacted
    }

    /// Takes the next bytes, and gives those that are certain.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut next = self.index(self.at);
        while next < self.held.len() {
            if self.layers.iter().all(Layer::is_idle) {
                next += self.innocent(&self.held[next..]);
                if next == self.held.len() {
                    break;
                }
            }
            let (byte, at) = (self.held[next], self.base + next as u64);
            for layer in 0..self.layers.len() {
                if let Some(place) = self.layers[layer].push(byte, at) {
                    self.overwrite(&place);
                }
            }
            next += 1;
        }
        self.at = self.base + self.held.len() as u64;
        let open = self.layers.iter().filter_map(Layer::open).min();
        let certain = open.map_or(self.held.len(), |open| self.index(open));
        self.give(certain)
    }

    /// Whether something is held back.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Gives what is held back although the stream goes on, because it pauses: its other end
    /// may wait for exactly these bytes. Only the first [`Self::SHOWN`] characters of a
    /// secret come out in this way; what follows of it is overwritten.
    pub fn release(&mut self) -> Vec<u8> {
        if self
            .layers
            .iter()
            .all(|layer| layer.open_length() <= Self::SHOWN)
        {
            self.give(self.held.len())
        } else {
            Vec::new()
        }
    }

    /// The rest, at the end of the stream. What is pushed afterwards is another stream.
    pub fn finish(&mut self) -> Vec<u8> {
        for layer in 0..self.layers.len() {
            if let Some(place) = self.layers[layer].finish() {
                self.overwrite(&place);
            }
        }
        (self.base, self.at) = (0, 0);
        std::mem::take(&mut self.held)
    }

    /// A text without the secrets; none when it has none. Only between two streams.
    pub fn whole(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        if self.innocent(text) == text.len() {
            return None;
        }
        let before = self.redacted;
        let mut out = self.push(text);
        out.extend_from_slice(&self.finish());
        (self.redacted > before).then_some(out)
    }

    fn index(&self, place: u64) -> usize {
        // What was given out already begins no secret any more, or was overwritten.
        usize::try_from(place.saturating_sub(self.base)).unwrap_or(usize::MAX)
    }

    fn overwrite(&mut self, place: &Range<u64>) {
        // What was looked at is not looked at again, so the filler disturbs no search.
        let (start, end) = (self.index(place.start), self.index(place.end));
        for byte in &mut self.held[start..end] {
            self.redacted += u64::from(*byte != FILLER);
            *byte = FILLER;
        }
    }

    fn give(&mut self, count: usize) -> Vec<u8> {
        self.base += count as u64;
        if count == self.held.len() {
            return std::mem::take(&mut self.held);
        }
        let rest = self.held.split_off(count);
        std::mem::replace(&mut self.held, rest)
    }

    /// How many bytes at the beginning of `bytes` begin no secret.
    fn innocent(&self, bytes: &[u8]) -> usize {
        let begins = |(at, byte): (usize, &u8)| {
            self.first[usize::from(*byte)]
                && match bytes.get(at + 1) {
                    Some(next) if !matches!(byte, b'%' | b'\\') => self.second[usize::from(*next)],
                    _ => true,
                }
        };
        let next = bytes.iter().enumerate().position(begins);
        next.unwrap_or(bytes.len())
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "redact/tests.rs"]
mod tests;
