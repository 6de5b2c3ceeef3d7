//! `causeway policy diff`.

use std::path::PathBuf;

use bytes::Bytes;
use causeway_policy::{PolicySet, Reserved, subjects_of};
use clap::Args;
use http::Method;
use serde_json::Value;

use super::offline::load;
use super::{CliError, Context, Output, name_of, read, refused};
use crate::api::model::PolicyDiffReply;

/// Files to compare.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The file that would be applied; `-` for standard input.
    file: PathBuf,
    /// Compare with this file, without an agent, for a sandbox of each selector.
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
}

impl Diff {
    /// Whether an agent is asked.
    pub(crate) fn offline(&self) -> bool {
        self.against.is_some()
    }

    /// Compares two files.
    pub(crate) fn compare(&self, output: Output) -> Result<(), CliError> {
        let old = self.against.iter().cloned().collect::<Vec<_>>();
        let sets: [PolicySet; 2] = [load(&old)?, load(std::slice::from_ref(&self.file))?];
        let [before, after] = &sets;
        let subjects = subjects_of([before, after]);
        let found = causeway_policy::diff(before, after, &subjects, &Reserved::default());
        output.show(&found, ToString::to_string)
    }

    /// Compares a file with what the agent has.
    pub(crate) async fn run(self, context: &Context) -> Result<(), CliError> {
        let text = read(&self.file)?;
        // Errors drawn here show the file's name and lines.
        if let Err(errors) = causeway_policy::parse(&name_of(&self.file), &text) {
            return Err(refused(&errors));
        }
        let reply = context
            .client
            .upload(
                Method::POST,
                "/v1/policies/diff",
                "application/yaml",
                Bytes::from(text),
            )
            .await?;
        let found: PolicyDiffReply = serde_json::from_slice(&reply).map_err(CliError::Json)?;
        let json: Value = found.diff;
        context.output.show(&json, |_| found.text.clone())
    }
}
