//! What is wrong with a policy file, and where.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::model::Document;
use crate::render;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file is not accepted.
    Error,
    /// The file is accepted, and probably does not do what was meant.
    Warning,
}

/// One problem in a policy file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The first byte, counted from 0.
    pub offset: usize,
    /// How many bytes it spans; 0 for a place between characters.
    pub length: usize,
    /// The offending text, cut to 80 characters.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// What reading a file gave: all of its good documents, and all problems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The documents, in the order of the file; empty when any problem is an error.
    pub documents: Vec<Document>,
    /// The problems, in the order of the file.
    pub problems: PolicyErrors,
}

impl Report {
    /// The documents, or the problems when one of them is an error.
    pub fn into_result(self) -> Result<Vec<Document>, PolicyErrors> {
        if self.problems.has_errors() {
            Err(self.problems)
        } else {
            Ok(self.documents)
        }
    }
}

/// How problems are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// With colours and line-drawing characters, for a terminal this many columns wide.
    Terminal {
        /// The columns.
        width: usize,
    },
    /// In ASCII, without colours.
    Plain,
}

/// Every problem of a file that was not accepted, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyErrors {
    pub(crate) source_name: String,
    pub(crate) text: Arc<str>,
    pub(crate) problems: Vec<Problem>,
}

impl PolicyErrors {
    /// The file's name, as given to [`crate::parse`].
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// The problems, warnings included.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Whether one of the problems is an error.
    pub fn has_errors(&self) -> bool {
        self.problems
            .iter()
            .any(|problem| problem.severity == Severity::Error)
    }

    /// Draws each problem with the lines of the file that it is about.
    pub fn render(&self, style: Style) -> String {
        render::render(&self.source_name, &self.text, &self.problems, style)
    }
}

impl fmt::Display for PolicyErrors {
    /// One line for each problem: `file:line:column: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            let Problem {
                line,
                column,
                message,
                ..
            } = problem;
            write!(
                f,
                "{newline}{}:{line}:{column}: {message}",
                self.source_name
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyErrors {}
