//! Collecting problems while a file is read.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bounds;
use crate::error::{Problem, Severity};

/// The problems of one file so far, and where its lines begin.
#[derive(Debug)]
pub(crate) struct Problems<'a> {
    text: &'a str,
    lines: Vec<usize>,
    found: Vec<Problem>,
    /// One problem for each place is enough, since what follows from it is noise; but no warning
    /// hides an error.
    places: BTreeMap<(usize, usize), Severity>,
    left_out: usize,
    /// Whether an error was found, left out or not.
    errors: bool,
}

impl<'a> Problems<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            lines: std::iter::once(0).chain(breaks).collect(),
            found: Vec::new(),
            places: BTreeMap::new(),
            left_out: 0,
            errors: false,
        }
    }

    pub(crate) fn error(
        &mut self,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<Option<&'static str>>,
    ) {
        let help = help.into().map(str::to_owned);
        self.add(Severity::Error, span, message.into(), help);
    }

    /// An error whose help is made up for the case.
    pub(crate) fn error_with(&mut self, span: Range<usize>, message: String, help: String) {
        self.add(Severity::Error, span, message, Some(help));
    }

    pub(crate) fn warning(&mut self, span: Range<usize>, message: String, help: &'static str) {
        self.add(Severity::Warning, span, message, Some(help.to_owned()));
    }

    /// An error about the file as a whole.
    pub(crate) fn error_at(&mut self, message: String, help: Option<String>) {
        // Each has a place of its own, or only the first would be kept.
        let place = self.found.len().min(self.text.len());
        self.add(Severity::Error, place..place, message, help);
    }

    /// Whether an error was found.
    pub(crate) fn has_errors(&self) -> bool {
        self.errors
    }

    /// Whether anything was found.
    pub(crate) fn any(&self) -> bool {
        !self.found.is_empty()
    }

    fn add(
        &mut self,
        severity: Severity,
        span: Range<usize>,
        message: String,
        help: Option<String>,
    ) {
        let span = self.tighten(span);
        self.errors |= severity == Severity::Error;
        let place = (span.start, span.end);
        if self
            .places
            .get(&place)
            .is_some_and(|known| *known <= severity)
        {
            return;
        }
        self.places.insert(place, severity);
        if self.found.len() >= bounds::PROBLEMS {
            self.left_out += 1;
            return;
        }
        let (line, column) = self.position(span.start);
        let covered = self.text.get(span.clone()).unwrap_or_default();
        self.found.push(Problem {
            severity,
            line,
            column,
            offset: span.start,
            length: span.len(),
            text: covered
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(80)
                .collect(),
            message,
            help,
        });
    }

    /// Cuts white space at the end of a span, and keeps it inside the text.
    fn tighten(&self, span: Range<usize>) -> Range<usize> {
        let start = self.floor(span.start);
        let end = self.floor(span.end.max(start));
        let covered = self.text.get(start..end).unwrap_or_default();
        start..start + covered.trim_end().len()
    }

    fn floor(&self, at: usize) -> usize {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    fn position(&self, at: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= at);
        let start = self.lines.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..at).unwrap_or_default();
        (line, before.chars().count() + 1)
    }

    /// All problems in the order of the file.
    pub(crate) fn into_sorted(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|p| (p.offset, p.length));
        if let (1.., Some(last)) = (self.left_out, self.found.last()) {
            let more = Problem {
                message: format!("{} more problems are not shown", self.left_out),
                help: Some("correct those above first".to_owned()),
                ..last.clone()
            };
            // Errors that are not shown still refuse the file, and warnings never do.
            let severity = if self.errors {
                Severity::Error
            } else {
                Severity::Warning
            };
            self.found.push(Problem { severity, ..more });
        }
        self.found
    }
}

/// The known word that `text` was most likely meant to be.
pub(crate) fn closest<'k>(text: &str, known: &[&'k str]) -> Option<&'k str> {
    if text.len() > 40 {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    known
        .iter()
        .map(|word| (distance(&lower, &word.to_ascii_lowercase()), *word))
        .min()
        .filter(|(distance, word)| *distance <= (word.len() / 3).clamp(1, 3))
        .map(|(_, word)| word)
}

/// How many letters to insert, leave out, change or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_neither_hides_an_error_nor_refuses() {
        let mut problems = Problems::new("abc");
        problems.warning(0..1, "first".to_owned(), "help");
        problems.error(0..1, "second", None);
        problems.error(0..1, "third", None);
        let found = problems.into_sorted();
        let messages: Vec<_> = found.iter().map(|p| p.message.as_str()).collect();
        assert_eq!(messages, ["first", "second"]);

        let text = "a".repeat(bounds::PROBLEMS + 5);
        for errors in [0, 1] {
            let mut problems = Problems::new(&text);
            for at in 0..bounds::PROBLEMS + 3 {
                problems.warning(at..at, "w".to_owned(), "help");
            }
            for at in 0..errors {
                problems.error(at..at, "e", None);
            }
            let refused = problems
                .into_sorted()
                .iter()
                .any(|p| p.severity == Severity::Error);
            assert_eq!(refused, errors > 0);
        }
    }

    #[test]
    fn misspelt_words_are_recognised() {
        let known = ["egress", "ingress", "secrets", "selector"];
        for (text, expected) in [
            ("egres", Some("egress")),
            ("Egress", Some("egress")),
            ("ergess", Some("egress")),
            ("secret", Some("secrets")),
            ("frobnicate", None),
            ("", None),
        ] {
            assert_eq!(closest(text, &known), expected, "{text}");
        }
    }
}
