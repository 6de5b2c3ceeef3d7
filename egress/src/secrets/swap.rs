//! Placeholders swapped for secrets in a stream of bytes.

use std::fmt;
use std::sync::Arc;

use super::syntax::{Syntax, Unit, Unwritable};
use super::{Placeholder, basic};
use crate::control::SecretValue;

/// The placeholders that are swapped in one request, and what for.
#[derive(Clone, Default)]
pub struct Swaps(Vec<(Placeholder, Arc<SecretValue>)>);

impl Swaps {
    /// Placeholders with their secrets.
    pub fn new(pairs: impl IntoIterator<Item = (Placeholder, Arc<SecretValue>)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// Whether there is nothing to swap.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn secret(&self, placeholder: Placeholder) -> Option<&[u8]> {
        let known = self.0.iter().find(|(known, _)| *known == placeholder);
        known.map(|(_, secret)| secret.expose())
    }

    /// `text` with its placeholders swapped; none when it has none.
    pub fn swap(&self, text: &[u8], syntax: Syntax) -> Result<Option<Vec<u8>>, Unwritable> {
        let mut swapper = Swapper::new(self.clone(), syntax);
        swapper.push(text);
        let mut out = Vec::new();
        swapper.take(&mut out, usize::MAX, true)?;
        Ok((swapper.swapped() > 0).then_some(out))
    }

    /// A header's value with its placeholders swapped, inside `Basic` credentials too; none
    /// when it has none.
    pub fn swap_header(&self, value: &[u8]) -> Option<Vec<u8>> {
        if let Some(credentials) = basic::decode(value)
            && let Ok(Some(swapped)) = self.swap(&credentials, Syntax::Text)
        {
            return Some(basic::encode(&zeroize::Zeroizing::new(swapped)));
        }
        self.swap(value, Syntax::Text).ok().flatten()
    }
}

impl fmt::Debug for Swaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(p, _)| p))
            .finish()
    }
}

/// Swaps placeholders in bytes that come in pieces. It holds back only what may be the beginning
/// of a placeholder: less than 300 bytes, beside what was pushed and not taken yet.
#[derive(Debug)]
pub struct Swapper {
    swaps: Swaps,
    syntax: Syntax,
    held: Vec<u8>,
    swapped: u64,
}

/// What stands at a place.
enum Found {
    /// A placeholder that was written with this many bytes.
    Placeholder(Placeholder, usize),
    /// None.
    Nothing,
    /// It depends on what follows.
    Unclear,
}

impl Swapper {
    /// Swaps in bytes of one syntax.
    pub fn new(swaps: Swaps, syntax: Syntax) -> Self {
        Self {
            swaps,
            syntax,
            held: Vec::new(),
            swapped: 0,
        }
    }

    /// How many placeholders were swapped.
    pub fn swapped(&self) -> u64 {
        self.swapped
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Appends what is ready to `out`, and stops soon after `most` bytes: whether there is more.
    /// `last` is whether nothing follows what was pushed.
    pub fn take(&mut self, out: &mut Vec<u8>, most: usize, last: bool) -> Result<bool, Unwritable> {
        let mut at = 0;
        let mut more = false;
        while at < self.held.len() {
            if out.len() >= most {
                more = true;
                break;
            }
            let rest = &self.held[at..];
            let run = self.plain(rest).min(most - out.len());
            out.extend_from_slice(&rest[..run]);
            at += run;
            let rest = &self.held[at..];
            if rest.is_empty() || out.len() >= most {
                continue;
            }
            let known = match find(self.syntax, rest) {
                Found::Unclear if !last => break,
                Found::Nothing | Found::Unclear => None,
                // The digits of one that is not known may hold the beginning of one that is.
                Found::Placeholder(placeholder, length) => self
                    .swaps
                    .secret(placeholder)
                    .map(|secret| (secret, length)),
            };
            if let Some((secret, length)) = known {
                self.syntax.write(secret, out)?;
                self.swapped += 1;
                at += length;
            } else {
                let length = match self.syntax.unit(rest) {
                    Unit::Byte(_, length) => length,
                    Unit::Partial => 1,
                };
                out.extend_from_slice(&rest[..length]);
                at += length;
            }
        }
        self.held.drain(..at);
        Ok(more)
    }

    /// How many bytes at the beginning of `bytes` begin no placeholder, for certain.
    fn plain(&self, bytes: &[u8]) -> usize {
        let first = Placeholder::PREFIX[0];
        let next = match self.syntax.escape() {
            None => memchr::memchr(first, bytes),
            Some(escape) => memchr::memchr2(first, escape, bytes),
        };
        next.unwrap_or(bytes.len())
    }
}

/// Looks for a placeholder that begins where `bytes` do.
fn find(syntax: Syntax, bytes: &[u8]) -> Found {
    let mut text = [0; Placeholder::LENGTH];
    let mut at = 0;
    for (place, letter) in text.iter_mut().enumerate() {
        let rest = &bytes[at..];
        if rest.is_empty() {
            return Found::Unclear;
        }
        match syntax.unit(rest) {
            Unit::Byte(byte, length) if Placeholder::fits(place, byte) => {
                *letter = byte;
                at += length;
            }
            Unit::Byte(..) => return Found::Nothing,
            Unit::Partial => return Found::Unclear,
        }
    }
    match Placeholder::parse(&text) {
        Some(placeholder) => Found::Placeholder(placeholder, at),
        None => Found::Nothing,
    }
}

#[cfg(test)]
#[path = "swap/tests.rs"]
mod tests;
