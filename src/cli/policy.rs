//! `causeway policy`.

use std::fmt::Write as _;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use causeway_policy::{PolicyErrors, Style};
use causeway_types::{PolicyName, TenantName};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::output::{Output, table};
use super::sandbox::SandboxArgument;
use super::{CliError, Context};
use crate::api::model::{ExplainRequest, PolicyApplied, PolicyCheck, PolicyInfo};

/// The largest policy file, in bytes: what the agent takes.
const MAX_FILE: u64 = 1024 * 1024;

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
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::Check(file) => file.run(context.output),
            Self::Apply(file) => file.apply(context).await,
            Self::List(list) => list.run(context).await,
            Self::Delete(delete) => delete.run(context).await,
            Self::Explain(explain) => explain.run(context).await,
        }
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
        let checked = PolicyCheck {
            documents: report
                .documents
                .iter()
                .map(|document| document.reference().to_string())
                .collect(),
        };
        output.show(&checked, |checked| {
            format!("good: {}", checked.documents.join(", "))
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
        if self.file.as_os_str() == "-" {
            "standard input".to_owned()
        } else {
            self.file.display().to_string()
        }
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
        drawn: format!("nothing was applied\n{}", errors.render(style())),
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
    async fn run(self, context: &Context) -> Result<(), CliError> {
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
