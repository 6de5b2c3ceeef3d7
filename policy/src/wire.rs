//! The wire form.

use crate::error::{PolicyErrors, Problem, Report, Severity};

pub(crate) fn read(source_name: &str, text: &str) -> Report {
    let problem = Problem {
        severity: Severity::Error,
        line: 1,
        column: 1,
        offset: 0,
        length: 0,
        text: String::new(),
        message: "this build reads no policy files".to_owned(),
        help: None,
    };
    Report {
        documents: Vec::new(),
        problems: PolicyErrors {
            source_name: source_name.to_owned(),
            text: text.into(),
            problems: vec![problem],
        },
    }
}
