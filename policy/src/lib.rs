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
mod cases;
mod compile;
mod decision;
mod diff;
mod error;
mod explain;
pub mod import;
mod l4;
pub mod model;
mod problems;
mod render;
mod reserved;
mod suggest;
mod summary;
mod wire;
mod yaml;

pub use cases::{Case, CaseResult, Cases, Expected, MAX_CASES, parse_cases};
pub use compile::{Effective, select};
pub use decision::{
    Connect, ConnectPermit, Decision, Denial, Injection, Replacement, Request, RequestPermit,
    Signature,
};
pub use diff::{
    Change, DestinationChange, DocumentChange, EntryChange, PolicyDiff, PolicySet, SandboxesChange,
    Subject, diff, subjects_of,
};
pub use error::{PolicyErrors, Problem, Report, Severity, Style};
pub use explain::{DocumentTrace, Explanation, Outcome, Query, RuleTrace, explain};
pub use l4::{L4Egress, L4Ingress, L4Rules};
pub use model::{
    CanonicalPath, Document, Guardrail, Limits, Mode, PathError, Policy, Protocol, RuleRef,
};
pub use reserved::Reserved;
pub use suggest::{Observation, suggest};
pub use summary::{Section, Stated, Summary};

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

/// A JSON Schema (draft 2020-12) of policy files, for editors. It accepts all that [`check`]
/// accepts, and refuses what has the wrong shape.
pub const SCHEMA: &str = include_str!("../schema/policy.json");
