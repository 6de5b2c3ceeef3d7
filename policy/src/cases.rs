//! Files of cases: requests with the verdict that is expected, for `policy test`.

use std::net::IpAddr;

use causeway_types::{DomainName, Labels, Reason, TenantName};
use serde::Serialize;

use crate::bounds;
use crate::error::PolicyErrors;
use crate::explain::{Explanation, Outcome, Query};
use crate::model::{Method, PortRange, Protocol};
use crate::problems::Problems;
use crate::wire::fields::{Fields, clip, list, parsed, text, word};
use crate::wire::values;
use crate::yaml::{self, Node};

/// The most cases in one file.
pub const MAX_CASES: usize = 10_000;

/// A file of cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cases {
    /// The policy files that are tested, as written: relative to the file of cases.
    pub policies: Vec<String>,
    /// The cases, in the order of the file.
    pub cases: Vec<Case>,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// What it is called; its number when it has no name.
    pub name: String,
    /// Its line in the file, counted from 1.
    pub line: usize,
    /// What is asked.
    pub query: Query,
    /// What is expected.
    pub expected: Expected,
}

/// What a case expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// What happens.
    pub outcome: Outcome,
    /// The rule that decides, as `tenant/policy/rule`; none for whichever.
    pub rule: Option<String>,
    /// Why it is refused; none for whatever reason.
    pub reason: Option<Reason>,
}

/// How a case went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseResult {
    /// The case's name.
    pub name: String,
    /// Its line in the file.
    pub line: usize,
    /// What was expected and did not happen; none when the case holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What the policies say.
    pub explanation: Explanation,
}

impl Case {
    /// Compares an answer with what is expected.
    pub fn judge(&self, explanation: Explanation) -> CaseResult {
        let Expected {
            outcome,
            rule,
            reason,
        } = &self.expected;
        let found_rule = explanation.rule.as_ref().map(ToString::to_string);
        let failure = if explanation.outcome != *outcome {
            Some(format!(
                "expected {}, and it is {}",
                outcome.word(),
                explanation.outcome.word()
            ))
        } else if rule.is_some() && *rule != found_rule {
            Some(format!(
                "expected the rule {}, and it is {}",
                rule.as_deref().unwrap_or_default(),
                found_rule.as_deref().unwrap_or("none")
            ))
        } else if reason.is_some() && *reason != explanation.reason {
            Some(format!(
                "expected the reason {}, and it is {}",
                reason.map_or_else(String::new, |reason| reason.to_string()),
                explanation
                    .reason
                    .map_or_else(|| "none".to_owned(), |reason| reason.to_string())
            ))
        } else {
            None
        };
        CaseResult {
            name: self.name.clone(),
            line: self.line,
            failure,
            explanation,
        }
    }
}

/// Reads a file of cases. `source_name` is what problems call it.
pub fn parse_cases(source_name: &str, file: &str) -> Result<Cases, PolicyErrors> {
    let mut problems = Problems::new(if file.len() > bounds::FILE { "" } else { file });
    let mut cases = Cases {
        policies: Vec::new(),
        cases: Vec::new(),
    };
    if file.len() > bounds::FILE {
        let message = format!("the file has more than {} bytes", bounds::FILE);
        problems.error(0..0, message, "split it into several files");
    } else {
        let trees = yaml::read(file, &mut problems);
        match trees.as_slice() {
            [tree] => read(&tree.root, file, &mut cases, &mut problems),
            _ => problems.error(0..0, "one document is expected", "write one"),
        }
    }
    let errors = PolicyErrors {
        source_name: source_name.to_owned(),
        text: file.into(),
        problems: problems.into_sorted(),
    };
    if errors.has_errors() {
        Err(errors)
    } else {
        Ok(cases)
    }
}

fn read(root: &Node, file: &str, cases: &mut Cases, problems: &mut Problems<'_>) {
    let known = ["apiVersion", "kind", "policies", "sandbox", "cases"];
    let Some(fields) = Fields::read(root, "a file of cases", &known, problems) else {
        return;
    };
    for (key, value) in [("apiVersion", "causeway/v1"), ("kind", "PolicyTest")] {
        let help = "write `apiVersion: causeway/v1` and `kind: PolicyTest`";
        if let Some(node) = fields.require(key, "a file of cases", help, problems) {
            word(node, key, &[(value, ())], problems);
        }
    }
    if let Some(node) = fields.get("policies") {
        let nodes = list(node, "policies", bounds::DOCUMENTS, problems).unwrap_or_default();
        let names = nodes
            .iter()
            .filter_map(|n| text(n, "a file name", problems));
        cases.policies = names.map(str::to_owned).collect();
    }
    let default = fields
        .get("sandbox")
        .and_then(|node| sandbox(node, problems));
    let help = "list the cases";
    let Some(node) = fields.require("cases", "a file of cases", help, problems) else {
        return;
    };
    let nodes = list(node, "cases", MAX_CASES, problems).unwrap_or_default();
    let mut line = 1;
    let mut seen = 0;
    for (index, node) in nodes.iter().enumerate() {
        let before = file.get(seen..node.span.start).unwrap_or_default();
        line += before.matches('\n').count();
        seen = node.span.start.max(seen);
        if let Some(case) = case(node, index, line, default.as_ref(), problems) {
            cases.cases.push(case);
        }
    }
}

type Sandbox = (TenantName, Labels);

fn sandbox(node: &Node, problems: &mut Problems<'_>) -> Option<Sandbox> {
    let fields = Fields::read(node, "sandbox", &["tenant", "labels"], problems)?;
    let help = "name the tenant that owns it";
    let tenant = fields.require("tenant", "sandbox", help, problems)?;
    let tenant = parsed(tenant, "the tenant", TenantName::new, problems)?;
    let labels = match fields.get("labels") {
        Some(node) => values::labels(node, "labels", problems)?,
        None => Labels::default(),
    };
    Some((tenant, labels))
}

fn case(
    node: &Node,
    index: usize,
    line: usize,
    default: Option<&Sandbox>,
    problems: &mut Problems<'_>,
) -> Option<Case> {
    let known = [
        "name", "sandbox", "to", "address", "port", "tls", "method", "path", "expect", "rule",
        "reason",
    ];
    let fields = Fields::read(node, "a case", &known, problems)?;
    let name = match fields.get("name") {
        Some(node) => text(node, "the name", problems)?.to_owned(),
        None => format!("case {}", index + 1),
    };
    let sandbox = match fields.get("sandbox") {
        Some(node) => sandbox(node, problems),
        None if default.is_none() => {
            let help = "say it for each case, or once for the file";
            problems.error(fields.span.clone(), "a case needs `sandbox`", help);
            None
        }
        None => default.cloned(),
    };
    let help = "name the host or address that is asked for";
    let to = fields.require("to", "a case", help, problems);
    let to = to.and_then(|node| destination(node, problems));
    let address = match fields.get("address") {
        Some(node) => Some(parsed(node, "the address", str::parse::<IpAddr>, problems)?),
        None => None,
    };
    let (protocol, port) = match fields.get("port") {
        Some(node) => port(node, problems)?,
        None => (Protocol::Tcp, 443),
    };
    let tls = match fields.get("tls") {
        Some(node) => word(node, "tls", &[("true", true), ("false", false)], problems)?,
        None => port != 80,
    };
    let (method, path) = request(&fields, problems);
    let help = "say `permit`, `deny` or `audit`";
    let words = [
        ("permit", Outcome::Permit),
        ("deny", Outcome::Deny),
        ("audit", Outcome::Audit),
    ];
    let expect = fields.require("expect", "a case", help, problems);
    let outcome = expect.and_then(|node| word(node, "expect", &words, problems));
    let rule = match fields.get("rule") {
        Some(node) => Some(text(node, "the rule", problems)?.to_owned()),
        None => None,
    };
    let reason = match fields.get("reason") {
        Some(node) => Some(reason(node, problems)?),
        None => None,
    };
    let (tenant, labels) = sandbox?;
    let (name_asked, literal) = to?;
    Some(Case {
        name,
        line,
        query: Query {
            tenant,
            labels,
            name: name_asked,
            address: address.or(literal),
            port,
            protocol,
            tls,
            method,
            path,
        },
        expected: Expected {
            outcome: outcome?,
            rule,
            reason,
        },
    })
}

fn request(fields: &Fields<'_>, problems: &mut Problems<'_>) -> (Option<String>, Option<String>) {
    let method = fields.get("method").and_then(|node| {
        let method = text(node, "the method", problems)?;
        match Method::parse(method) {
            Ok(Method::Exact(method)) => Some(method),
            Ok(Method::Any) | Err(_) => {
                let message = format!("`{}` is not a method", clip(method));
                problems.error(node.span.clone(), message, "a case asks with one method");
                None
            }
        }
    });
    let path = fields.get("path").and_then(|node| {
        let path = text(node, "the path", problems)?;
        Some(path.to_owned())
    });
    if let (Some(place), true) = (fields.key("path"), fields.key("method").is_none()) {
        problems.error(place, "`path` without `method`", "say the method as well");
    }
    (method, path)
}

fn destination(
    node: &Node,
    problems: &mut Problems<'_>,
) -> Option<(Option<DomainName>, Option<IpAddr>)> {
    let to = text(node, "the destination", problems)?;
    if let Ok(address) = to.parse::<IpAddr>() {
        return Some((None, Some(address)));
    }
    let name = parsed(node, "the destination", DomainName::parse, problems)?;
    Some((Some(name), None))
}

fn port(node: &Node, problems: &mut Problems<'_>) -> Option<(Protocol, u16)> {
    let written = text(node, "the port", problems)?;
    match PortRange::parse(written) {
        Ok(range) if range.first() == range.last() => Some((range.protocol(), range.first())),
        _ => {
            let message = format!("`{}` is not one port", clip(written));
            let help = "write for example `443`, `udp/53` or `icmpv6`";
            problems.error(node.span.clone(), message, help);
            None
        }
    }
}

fn reason(node: &Node, problems: &mut Problems<'_>) -> Option<Reason> {
    let written = text(node, "the reason", problems)?;
    match written.parse() {
        Ok(reason) => Some(reason),
        Err(error) => {
            let error: causeway_types::UnknownReason = error;
            let help = "write a reason as audit records have it, such as `name_denied`";
            problems.error(node.span.clone(), error.to_string(), help);
            None
        }
    }
}
