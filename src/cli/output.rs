//! What commands print: text for people, JSON for programs, errors on standard error.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::CliError;

/// Where results go, and in which form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether programs read it.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Prints a result as JSON, or as the text that `text` makes of it.
    pub(crate) fn show<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), CliError> {
        let line = if self.json {
            serde_json::to_string_pretty(value).map_err(CliError::Json)?
        } else {
            text(value)
        };
        self.line(&line)
    }

    /// Says that something was done.
    pub(crate) fn done(self, what: &str) -> Result<(), CliError> {
        if self.json {
            self.line(&json!({ "done": what }).to_string())
        } else {
            self.line(what)
        }
    }

    /// Prints text as it is. A reader who has seen enough, such as `head`, is no failure.
    #[expect(
        clippy::unused_self,
        reason = "results are printed through the value that knows their form"
    )]
    pub(crate) fn line(self, text: &str) -> Result<(), CliError> {
        let text = text.trim_end_matches('\n');
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(CliError::Output(error))
            }
            _ => Ok(()),
        }
    }

    /// Prints what is no result, on standard error.
    #[expect(
        clippy::unused_self,
        reason = "everything is printed through the value that knows the form"
    )]
    pub(crate) fn note(self, text: &str) {
        // There is nowhere left to say that this failed.
        drop(writeln!(std::io::stderr(), "{}", text.trim_end()));
    }

    /// Prints an error, and what to do.
    pub(crate) fn error(self, error: &CliError) {
        let message = crate::chain(error);
        let text = if self.json {
            let mut body = json!({ "code": error.code(), "message": message });
            if let Some(help) = error.help() {
                body["help"] = help.into();
            }
            if let Some(details) = error.details() {
                body["details"] = details;
            }
            json!({ "error": body }).to_string()
        } else {
            match error.help() {
                Some(help) => format!("error: {message}\n  help: {help}"),
                None => format!("error: {message}"),
            }
        };
        // There is nowhere left to say that this failed.
        drop(writeln!(std::io::stderr(), "{text}"));
    }

    /// Shows that something takes its time, on a terminal and for people only.
    pub(crate) fn progress(self, what: &'static str) -> indicatif::ProgressBar {
        const TICK: Duration = Duration::from_millis(80);
        if self.json || !std::io::stderr().is_terminal() {
            return indicatif::ProgressBar::hidden();
        }
        let bar = indicatif::ProgressBar::new_spinner().with_message(what);
        bar.enable_steady_tick(TICK);
        bar
    }
}

/// A table with aligned columns; a line instead when it has no rows.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>], empty: &str) -> String {
    if rows.is_empty() {
        return empty.to_owned();
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(head.get(column).map_or(0, |title| title.len()))
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    let titles: Vec<String> = head.iter().map(|title| (*title).to_owned()).collect();
    let mut lines = vec![line(&titles)];
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".to_owned(), "long cell".to_owned()],
            vec!["bb".to_owned(), String::new()],
        ];
        assert_eq!(
            table(&["NAME", "X"], &rows, "none"),
            "NAME  X\na     long cell\nbb"
        );
        assert_eq!(table(&["NAME"], &[], "none"), "none");
    }
}
