//! What is done with policy files without an agent: test, import, suggest, schema.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_egress::audit::{AuditRecord, Outcome, Protocol};
use causeway_policy::import::{Dialect, ImportOptions, UnknownDialect};
use causeway_policy::{
    CanonicalPath, CaseResult, Document, Observation, PolicySet, Reserved, explain, parse_cases,
};
use causeway_types::{Labels, PolicyName, SandboxId, TenantName};
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::{CliError, MAX_FILE, Output, name_of, read, refused, style};
use crate::cli::sandbox::SandboxArgument;

/// Cases to try.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// The file of cases; `-` for standard input.
    cases: PathBuf,
    /// A policy file to test, beside those that the file of cases names.
    #[arg(long = "policy", value_name = "FILE")]
    policies: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Tested {
    passed: usize,
    failed: usize,
    cases: Vec<CaseResult>,
}

impl Test {
    /// Tries each case, and fails when one does not hold.
    pub(crate) fn run(&self, output: Output) -> Result<(), CliError> {
        let text = read(&self.cases)?;
        let cases = parse_cases(&name_of(&self.cases), &text).map_err(|errors| refused(&errors))?;
        let folder = self.cases.parent().unwrap_or(Path::new("."));
        let named = cases.policies.iter().map(|name| folder.join(name));
        let files: Vec<PathBuf> = named.chain(self.policies.iter().cloned()).collect();
        if files.is_empty() {
            super::super::usage(
                "name the policy files: `policies: […]` in the file, or `--policy`",
            );
        }
        let set = load(&files)?;
        let reserved = Reserved::default();
        let results: Vec<CaseResult> = cases
            .cases
            .iter()
            .map(|case| {
                let answer = explain(&set.policies, &set.guardrails, &reserved, &case.query);
                case.judge(answer)
            })
            .collect();
        let failed = results.iter().filter(|r| r.failure.is_some()).count();
        let tested = Tested {
            passed: results.len() - failed,
            failed,
            cases: results,
        };
        output.show(&tested, |tested| tested_text(&self.cases, tested))?;
        match failed {
            0 => Ok(()),
            failed => Err(CliError::Cases { failed }),
        }
    }
}

fn tested_text(file: &Path, tested: &Tested) -> String {
    let mut lines = Vec::new();
    for case in &tested.cases {
        if let Some(failure) = &case.failure {
            lines.push(format!(
                "✗ {}:{} {}: {failure}",
                name_of(file),
                case.line,
                case.name
            ));
            let why = case.explanation.to_string();
            lines.extend(why.lines().map(|line| format!("    {line}")));
        }
    }
    lines.push(format!(
        "{} cases hold, {} do not",
        tested.passed, tested.failed
    ));
    lines.join("\n")
}

/// Reads policy files as one set.
pub(super) fn load(files: &[PathBuf]) -> Result<PolicySet, CliError> {
    let mut documents = BTreeMap::new();
    for file in files {
        let parsed = causeway_policy::parse(&name_of(file), &read(file)?);
        for document in parsed.map_err(|errors| refused(&errors))? {
            let reference = document.reference().clone();
            if documents.insert(reference.clone(), document).is_some() {
                return Err(CliError::PolicyTwice {
                    name: reference.to_string(),
                });
            }
        }
    }
    let mut set = PolicySet::default();
    for document in documents.into_values() {
        match document {
            Document::Policy(policy) => set.policies.push(Arc::new(policy)),
            Document::Guardrail(guardrail) => set.guardrails.push(Arc::new(guardrail)),
        }
    }
    Ok(set)
}

/// A foreign file.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Where it comes from: e2b, openshell, vercel, blaxel, srt, kubernetes or cilium.
    #[arg(long, value_name = "DIALECT", value_parser = dialect)]
    from: Dialect,
    /// The file; `-` for standard input.
    file: PathBuf,
    /// The owner of the policy.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: TenantName,
    /// The policy's name, where the file gives none.
    #[arg(long, value_name = "NAME", default_value = "imported")]
    name: PolicyName,
    /// A label that sandboxes are selected by, where the file does not say; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = Labels::parse_pair)]
    labels: Vec<(String, String)>,
    /// Go on without a key that cannot be expressed; may be given several times.
    #[arg(long = "drop", value_name = "KEY")]
    drop: Vec<String>,
}

fn dialect(text: &str) -> Result<Dialect, UnknownDialect> {
    text.parse()
}

impl Import {
    /// Prints the policy file, and what was changed on standard error.
    pub(crate) fn run(self, output: Output) -> Result<(), CliError> {
        let text = read(&self.file)?;
        let options = ImportOptions {
            tenant: self.tenant,
            name: self.name,
            selector: labels(self.labels),
            drop: self.drop.into_iter().collect(),
        };
        let name = name_of(&self.file);
        let imported = causeway_policy::import::import(self.from, &name, &text, &options)
            .map_err(|errors| refused(&errors))?;
        if !imported.changes.problems().is_empty() && !output.is_json() {
            output.note(&imported.changes.render(style()));
        }
        let result = json!({
            "policy": imported.text,
            "changes": imported.changes.problems(),
        });
        output.show(&result, |_| imported.text.clone())
    }
}

fn labels(pairs: Vec<(String, String)>) -> Labels {
    match Labels::new(pairs) {
        Ok(labels) => labels,
        Err(error) => super::super::usage(&error.to_string()),
    }
}

/// What a sandbox was seen to do.
#[derive(Debug, Args)]
pub(crate) struct Suggest {
    /// The sandbox, as NAME with `--tenant`, or as TENANT/NAME.
    sandbox: SandboxArgument,
    /// The sandbox's owner.
    #[arg(long, value_name = "TENANT", env = "CAUSEWAY_TENANT")]
    tenant: Option<TenantName>,
    /// The audit log, or the output of `causeway events --json`; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    audit_log: PathBuf,
    /// The name of the policy.
    #[arg(long, value_name = "NAME", default_value = "suggested")]
    name: PolicyName,
    /// A label that the policy selects by; may be given several times. None selects every sandbox.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = Labels::parse_pair)]
    labels: Vec<(String, String)>,
    /// Permit what was refused as well.
    #[arg(long)]
    refused: bool,
}

impl Suggest {
    /// Prints a draft.
    pub(crate) fn run(self, output: Output) -> Result<(), CliError> {
        let (tenant, name) = self.sandbox.resolve(self.tenant);
        let sandbox = SandboxId::new(tenant.clone(), name).to_string();
        let failed = |source| CliError::Read {
            path: self.audit_log.clone(),
            source,
        };
        let input: Box<dyn Read> = if self.audit_log.as_os_str() == "-" {
            Box::new(std::io::stdin())
        } else {
            Box::new(std::fs::File::open(&self.audit_log).map_err(failed)?)
        };
        let (mut observed, mut skipped) = (Vec::new(), 0_usize);
        for line in lines(BufReader::new(input)) {
            let line = line.map_err(failed)?;
            // Other kinds of events, and lines cut short by a crash, are not decisions.
            let Ok(record) = record(&line) else {
                skipped += usize::from(!line.is_empty());
                continue;
            };
            if record.sandbox.as_deref() == Some(&sandbox) {
                observed.extend(observation(record, self.refused));
            }
        }
        if observed.is_empty() {
            output.note(&format!(
                "nothing that {sandbox} did is in this log ({skipped} lines are no decisions)"
            ));
        }
        let text = causeway_policy::suggest(&tenant, &self.name, &labels(self.labels), observed);
        output.show(&json!({ "policy": text }), |_| text.clone())
    }
}

/// Lines of bounded length: a longer one is no record.
fn lines(mut input: impl BufRead) -> impl Iterator<Item = std::io::Result<String>> {
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        match input.by_ref().take(MAX_FILE).read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(Ok(String::from_utf8_lossy(&line).trim_end().to_owned())),
            Err(error) => Some(Err(error)),
        }
    })
}

/// A record of the audit log, or of the stream of events, which adds a kind.
fn record(line: &str) -> serde_json::Result<AuditRecord> {
    let mut value: serde_json::Value = serde_json::from_str(line)?;
    if let Some(object) = value.as_object_mut() {
        object.remove("kind");
    }
    serde_json::from_value(value)
}

fn observation(record: AuditRecord, refused: bool) -> Option<Observation> {
    let counts = match record.decision {
        Outcome::Permit | Outcome::Audit => true,
        Outcome::Deny => refused,
    };
    if !counts || record.protocol == Protocol::Dns {
        return None;
    }
    let request = match (record.protocol, record.method, record.path) {
        (Protocol::Http, Some(method), Some(path)) => {
            Some((method, CanonicalPath::parse(&path).ok()?))
        }
        _ => None,
    };
    Some(Observation {
        name: record.name,
        address: record.upstream.or(record.destination),
        port: record.port?,
        request,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"time":"2026-01-01T00:00:00.000Z","generation":1,"tenant":"acme",
        "sandbox":"acme/a","address":"2001:db8::1","protocol":"http","name":"api.test",
        "destination":"2600::1","port":443,"method":"GET","path":"/v1","decision":"audit",
        "rule":null,"policy":null,"reason":"name_denied","upstream":"2600::1","status":200,
        "bytes_in":1,"bytes_out":1,"duration_ms":1}"#;

    #[test]
    fn records_of_log_and_stream_are_observations() {
        for line in [
            LINE.to_owned(),
            LINE.replacen('{', r#"{"kind":"decision","#, 1),
        ] {
            let seen = observation(record(&line).unwrap(), false).unwrap();
            assert_eq!(seen.name.unwrap().as_str(), "api.test");
            assert_eq!(seen.request.unwrap().0, "GET");
        }
        let denied = LINE.replace("\"audit\"", "\"deny\"");
        assert!(observation(record(&denied).unwrap(), false).is_none());
        assert!(observation(record(&denied).unwrap(), true).is_some());
        let query = LINE.replace("\"http\"", "\"dns\"");
        assert!(observation(record(&query).unwrap(), true).is_none());
        for line in ["", "{}", "[1", "{\"kind\":\"missed\",\"count\":3}"] {
            assert!(record(line).is_err(), "{line}");
        }
    }
}
