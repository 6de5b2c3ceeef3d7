//! Drawing problems with the lines that they are about.

use std::sync::Arc;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError,
    MietteSpanContents, SourceCode, SourceSpan, SpanContents,
};

use crate::error::{Problem, Severity, Style};

/// How much of a long line is shown on each side of a problem, in bytes.
const WINDOW: usize = 160;

/// Draws problems one below the other.
pub(crate) fn render(
    source_name: &str,
    text: &Arc<str>,
    problems: &[Problem],
    style: Style,
) -> String {
    let handler = match style {
        Style::Terminal { width } => {
            GraphicalReportHandler::new_themed(GraphicalTheme::unicode()).with_width(width)
        }
        Style::Plain => GraphicalReportHandler::new_themed(GraphicalTheme::none()).with_width(100),
    };
    let handler = handler
        .with_links(false)
        .with_context_lines(1)
        .with_primary_span_start();
    let mut drawn = String::new();
    for problem in problems {
        let shown = Shown {
            problem,
            source: Excerpt {
                source_name,
                text,
                problem,
            },
        };
        if handler.render_report(&mut drawn, &shown).is_err() {
            // Only a formatter that fails gets here, and a String does not.
            drawn.push_str(&problem.message);
        }
        drawn.push('\n');
    }
    drawn
}

#[derive(Debug)]
struct Shown<'a> {
    problem: &'a Problem,
    source: Excerpt<'a>,
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.problem.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'b>(&'b self) -> Option<Box<dyn std::fmt::Display + 'b>> {
        let help = self.problem.help.as_ref()?;
        Some(Box::new(help))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = (self.problem.offset, self.problem.length);
        let label = LabeledSpan::new_primary_with_span(None, span);
        Some(Box::new(std::iter::once(label)))
    }
}

/// The part of a file around one problem. The library's own source type walks the file from its
/// beginning for each problem and shows lines in full, however long.
#[derive(Debug)]
struct Excerpt<'a> {
    source_name: &'a str,
    text: &'a Arc<str>,
    problem: &'a Problem,
}

impl SourceCode for Excerpt<'_> {
    fn read_span<'b>(
        &'b self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'b> + 'b>, MietteError> {
        let end = span.offset() + span.len();
        if end > self.text.len() {
            return Err(MietteError::OutOfBounds);
        }
        // Without context the library asks for the place alone, to show its line and column.
        let (first, lines_before) = match before {
            0 => (span.offset(), 0),
            _ => self.back(span.offset(), before),
        };
        let last = self.forward(end, after);
        let shown = self.text.get(first..last).unwrap_or_default();
        let line_begin = before > 0
            && self
                .text
                .get(..first)
                .is_some_and(|t| t.is_empty() || t.ends_with('\n'));
        let column = if line_begin {
            0
        } else {
            let on_line = self.text.get(first..span.offset()).unwrap_or_default();
            (self.problem.column - 1).saturating_sub(on_line.chars().count())
        };
        Ok(Box::new(MietteSpanContents::new_named(
            self.source_name.to_owned(),
            shown.as_bytes(),
            SourceSpan::from((first, shown.len())),
            self.problem.line - 1 - lines_before,
            column,
            shown.lines().count(),
        )))
    }
}

impl Excerpt<'_> {
    /// Where the excerpt begins: at the start of a line, unless that is too far away; and how many
    /// lines lie between.
    fn back(&self, at: usize, lines: usize) -> (usize, usize) {
        let text = self.text.get(..at).unwrap_or_default();
        let mut begin = at;
        for passed in 0..=lines {
            let before = text.get(..begin).unwrap_or_default();
            let start = before.rfind('\n').map_or(0, |newline| newline + 1);
            if begin - start > WINDOW {
                return if passed == 0 {
                    (self.boundary(at - WINDOW), 0)
                } else {
                    (begin + 1, passed - 1)
                };
            }
            if start == 0 || passed == lines {
                return (start, passed);
            }
            begin = start - 1;
        }
        (begin, lines)
    }

    /// Where the excerpt ends, without the last newline.
    fn forward(&self, at: usize, lines: usize) -> usize {
        let limit = self.boundary((at + WINDOW * (lines + 1)).min(self.text.len()));
        let text = self.text.get(at..limit).unwrap_or_default();
        let mut newlines = text.match_indices('\n').map(|(newline, _)| at + newline);
        newlines.nth(lines).unwrap_or(limit)
    }

    fn boundary(&self, at: usize) -> usize {
        (0..=at)
            .rev()
            .find(|at| self.text.is_char_boundary(*at))
            .unwrap_or(0)
    }
}
