//! Policy files: reading, validating, compiling, deciding and explaining.
//!
//! A file goes through four forms. [`parse`] reads the wire form, with the place of every key and
//! value, and reports every problem at once. What passes is the validated [`model`]. All that applies
//! to one sandbox is compiled into [`Effective`], which answers in time that does not depend on how
//! many names there are. [`explain`] answers the same questions from the model, rule by rule,
//! for people.
//!
//! The crate is pure: no files, no network, no clock. It never holds a secret's value.

pub mod bounds;
mod compile;
mod decision;
mod error;
mod explain;
mod l4;
pub mod model;
mod problems;
mod render;
mod reserved;
mod wire;
mod yaml;

pub use compile::{Effective, select};
pub use decision::{
    Connect, ConnectPermit, Decision, Denial, Injection, Replacement, Request, RequestPermit,
};
pub use error::{PolicyErrors, Problem, Report, Severity, Style};
pub use explain::{DocumentTrace, Explanation, Outcome, Query, RuleTrace, explain};
pub use l4::{L4Egress, L4Ingress, L4Rules};
pub use model::{
    CanonicalPath, Document, Guardrail, Limits, Mode, PathError, Policy, Protocol, RuleRef,
};
pub use reserved::Reserved;

/// Reads a policy file and reports every document and every problem, warnings included.
/// `source_name` is what errors call the file.
pub fn check(source_name: &str, text: &str) -> Report {
    wire::read(source_name, text)
}

/// Reads a policy file: its documents, or every problem when one of them is an error.
/// `source_name` is what errors call the file.
pub fn parse(source_name: &str, text: &str) -> Result<Vec<Document>, PolicyErrors> {
    check(source_name, text).into_result()
}
