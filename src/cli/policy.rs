//! `causeway policy`.

mod diff;
mod offline;

use std::fmt::Write as _;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use causeway_policy::{PolicyErrors, Style};
use causeway_types::{Labels, PolicyName, TenantName};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::output::{Output, table};
use super::sandbox::SandboxArgument;
use super::{CliError, Context};
use crate::api::model::{ExplainRequest, PolicyApplied, PolicyCheck, PolicyInfo};

/// The largest policy file, in bytes.
const MAX_FILE: u64 = causeway_policy::bounds::FILE as u64;

/// What is done to policies.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check a policy file, without an agent.
    Check(File),
    /// Apply every document of a policy file, or none of them.
    Apply(File),
    /// List policies and guardrails.
    List(List),
    /// Delete a policy or guardrail.
    Delete(Delete),
    /// Ask what the policies of a sandbox make of a request, rule by rule.
    Explain(Explain),
    /// Show what a file would change, in sandboxes and destinations.
    Diff(diff::Diff),
    /// Try cases with the verdict that is expected, without an agent.
    Test(offline::Test),
    /// Make a policy file from another system's, without an agent.
    Import(offline::Import),
    /// Draft a policy from what a sandbox was seen to do, without an agent.
    Suggest(offline::Suggest),
    /// Print a JSON Schema of policy files, for editors.
    Schema,
}

/// A policy file.
#[derive(Debug, Args)]
pub(crate) struct File {
    /// The file; `-` for standard input.
    file: PathBuf,
}

/// Whose policies.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only this tenant's.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: Option<TenantName>,
}

/// A policy or guardrail.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Its name.
    name: PolicyName,
    /// The policy's owner.
    #[arg(long, value_name = "TENANT", required_unless_present = "guardrail")]
    tenant: Option<TenantName>,
    /// It is a guardrail.
    #[arg(long, conflicts_with = "tenant")]
    guardrail: bool,
}

/// A question.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The sandbox, as NAME with `--tenant`, or as TENANT/NAME.
    sandbox: SandboxArgument,
    /// A host name or address, with or without a port: `api.github.com:443`, `[2001:db8::1]:53`.
    destination: String,
    /// The sandbox's owner.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: Option<TenantName>,
    /// The protocol: tcp, udp or icmpv6.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// The method of an HTTP request.
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// The path of an HTTP request.
    #[arg(long, value_name = "PATH", requires = "method")]
    path: Option<String>,
    /// Answer as if this file were applied; nothing is changed.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Ask no agent: only the file counts, for a sandbox with the labels given here.
    #[arg(long, requires = "file")]
    offline: bool,
    /// A label of the sandbox, which then need not exist; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = Labels::parse_pair,
        requires = "offline")]
    labels: Vec<(String, String)>,
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Check(file) => file.run(context.output),
            Self::Apply(file) => file.apply(context).await,
            Self::List(list) => list.run(context).await,
            Self::Delete(delete) => delete.run(context).await,
            Self::Explain(explain) => explain.run(context).await,
            Self::Diff(diff) => diff.run(context).await,
            // These need no agent, and were run before one was looked for.
            Self::Test(_) | Self::Import(_) | Self::Suggest(_) | Self::Schema => Ok(()),
        }
    }

    /// Runs what needs no agent; gives back what does.
    pub(crate) fn offline(self, output: Output) -> Result<Option<Self>, CliError> {
        match self {
            Self::Check(file) => file.run(output),
            Self::Explain(explain) if explain.offline => explain.alone(output),
            Self::Diff(diff) if diff.offline() => diff.compare(output),
            Self::Test(test) => test.run(output),
            Self::Import(import) => import.run(output),
            Self::Suggest(suggest) => suggest.run(output),
            Self::Schema => output.line(causeway_policy::SCHEMA),
            online => return Ok(Some(online)),
        }
        .map(|()| None)
    }
}

impl File {
    /// Checks the file here: a tenant needs no agent for it.
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let text = read(&self.file)?;
        let report = causeway_policy::check(&self.name(), &text);
        if report.problems.has_errors() {
            return Err(refused(&report.problems));
        }
        let warnings = report.problems.render(style());
        if !report.problems.problems().is_empty() && !output.is_json() {
            output.note(&warnings);
        }
        let checked = PolicyCheck::of(&report.documents);
        output.show(&checked, |checked| {
            let mut lines = vec![format!("good: {}", checked.documents.join(", "))];
            let summaries = report
                .documents
                .iter()
                .map(causeway_policy::Document::summary);
            lines.extend(summaries.map(|summary| summary.to_string()));
            lines.join("\n")
        })
    }

    async fn apply(&self, context: &Context) -> Result<(), CliError> {
        let text = read(&self.file)?;
        // Errors drawn here show the file's name and lines.
        if let Err(errors) = causeway_policy::parse(&self.name(), &text) {
            return Err(refused(&errors));
        }
        let progress = context.output.progress("applying");
        let reply = context
            .client
            .upload(
                Method::PUT,
                "/v1/policies",
                "application/yaml",
                Bytes::from(text),
            )
            .await;
        progress.finish_and_clear();
        let applied: PolicyApplied = serde_json::from_slice(&reply?).map_err(CliError::Json)?;
        context.output.show(&applied, |applied| {
            format!(
                "applied {} to {} sandboxes (generation {})",
                applied.documents.join(", "),
                applied.sandboxes,
                applied.generation
            )
        })
    }

    fn name(&self) -> String {
        name_of(&self.file)
    }
}

/// What problems call a file.
fn name_of(file: &Path) -> String {
    if file.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    }
}

fn style() -> Style {
    const WIDTH: usize = 100;
    if std::io::stderr().is_terminal() {
        Style::Terminal { width: WIDTH }
    } else {
        Style::Plain
    }
}

fn refused(errors: &PolicyErrors) -> CliError {
    CliError::Policy {
        drawn: format!("nothing was changed\n{}", errors.render(style())),
        problems: json!({ "problems": errors.problems() }),
    }
}

fn read(path: &Path) -> Result<String, CliError> {
    let failed = |source| CliError::Read {
        path: path.to_owned(),
        source,
    };
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(failed)?)
    };
    let mut text = String::new();
    input
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(CliError::TooLarge {
            path: path.to_owned(),
            max: MAX_FILE,
        });
    }
    Ok(text)
}

impl List {
    async fn run(self, context: &Context) -> Result<(), CliError> {
        let path = super::with_tenant("/v1/policies", self.tenant.as_ref());
        let policies: Vec<PolicyInfo> = context.client.get(&path).await?;
        context.output.show(&policies, |policies| {
            let rows: Vec<Vec<String>> = policies.iter().map(row).collect();
            table(&["POLICY", "KIND", "SELECTS"], &rows, "no policies")
        })
    }
}

fn row(policy: &PolicyInfo) -> Vec<String> {
    const SHOWN: usize = 4;
    let mut selects = policy
        .selects
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>();
    match policy.selects.len() {
        0 => selects.push("nothing".to_owned()),
        count if count > SHOWN => selects.push(format!("and {} more", count - SHOWN)),
        _ => {}
    }
    vec![
        match &policy.tenant {
            Some(tenant) => format!("{tenant}/{}", policy.name),
            None => policy.name.clone(),
        },
        policy.kind.clone(),
        selects.join(", "),
    ]
}

impl Delete {
    async fn run(self, context: &Context) -> Result<(), CliError> {
        let path = match self.tenant {
            Some(tenant) => format!("/v1/tenants/{tenant}/policies/{}", self.name),
            None => format!("/v1/guardrails/{}", self.name),
        };
        context.client.change(Method::DELETE, &path).await?;
        context.output.done("deleted")
    }
}

impl Explain {
    /// Answers from a file alone.
    fn alone(self, output: Output) -> Result<(), CliError> {
        let files: Vec<PathBuf> = self.file.into_iter().collect();
        let set = offline::load(&files)?;
        let (tenant, _sandbox) = self.sandbox.resolve(self.tenant);
        let labels = match Labels::new(self.labels) {
            Ok(labels) => labels,
            Err(error) => super::usage(&error.to_string()),
        };
        let (destination, port) = split_port(&self.destination);
        let question = crate::agent::Question {
            destination: &destination,
            port,
            protocol: self.protocol.as_deref(),
            method: self.method,
            path: self.path,
        };
        let query = match question.query(tenant, labels) {
            Ok(query) => query,
            Err(error) => super::usage(&error.to_string()),
        };
        let reserved = causeway_policy::Reserved::default();
        let answer = causeway_policy::explain(&set.policies, &set.guardrails, &reserved, &query);
        let answer = serde_json::to_value(&answer).map_err(CliError::Json)?;
        output.show(&answer, explanation)
    }

    async fn run(self, context: &Context) -> Result<(), CliError> {
        let file = match &self.file {
            None => None,
            Some(file) => {
                let text = read(file)?;
                if let Err(errors) = causeway_policy::parse(&name_of(file), &text) {
                    return Err(refused(&errors));
                }
                Some(text)
            }
        };
        let (tenant, sandbox) = self.sandbox.resolve(self.tenant);
        let (destination, port) = split_port(&self.destination);
        let request = ExplainRequest {
            tenant,
            sandbox,
            destination,
            port,
            protocol: self.protocol,
            method: self.method,
            path: self.path,
            file,
        };
        let answer: Value = context
            .client
            .post("/v1/policies/explain", &request)
            .await?;
        context.output.show(&answer, explanation)
    }
}

/// Splits `HOST:PORT`. A bare IPv6 address has colons, and no port.
pub(super) fn split_port(text: &str) -> (String, Option<u16>) {
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return (text.to_owned(), None);
    }
    match text.rsplit_once(':') {
        Some((host, port)) => match port.parse() {
            Ok(port) => (host.to_owned(), Some(port)),
            Err(_no_port) => (text.to_owned(), None),
        },
        None => (text.to_owned(), None),
    }
}

fn explanation(answer: &Value) -> String {
    let word = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let mut text = word("outcome");
    for key in ["rule", "reason"] {
        if let Some(value) = answer[key].as_str() {
            // Writing to a string does not fail.
            let _ = write!(text, "  {key} {value}");
        }
    }
    for document in answer["documents"].as_array().into_iter().flatten() {
        let name = document["document"].as_str().unwrap_or_default();
        let _ = write!(text, "\n{name}");
        if let Some(why) = document["not_selected"].as_str() {
            let _ = write!(text, ": does not apply, {why}");
        } else if document["rules"].as_array().is_none_or(Vec::is_empty) {
            let word = |key: &str| document["egress"][key].as_str().unwrap_or_default();
            let _ = write!(text, ": egress {}, {}", word("stated"), word("meaning"));
        }
        for rule in document["rules"].as_array().into_iter().flatten() {
            let mark = if rule["matches"] == true { "✓" } else { "·" };
            let name = rule["rule"].as_str().unwrap_or_default();
            let why = rule["why"].as_str().unwrap_or_default();
            let _ = write!(text, "\n  {mark} {name}: {why}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_split_off() {
        for (text, host, port) in [
            ("api.github.com", "api.github.com", None),
            ("api.github.com:8443", "api.github.com", Some(8443)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]:53", "[2001:db8::1]", Some(53)),
            ("192.0.2.1:80", "192.0.2.1", Some(80)),
            ("acme/web:22", "acme/web", Some(22)),
        ] {
            assert_eq!(split_port(text), (host.to_owned(), port), "{text}");
        }
    }
}
