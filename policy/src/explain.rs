//! Why a request passes or not, rule by rule, for people.

use std::net::IpAddr;
use std::sync::Arc;

use causeway_types::{DomainName, Labels, Reason, SecretName, TenantName};
use serde::{Deserialize, Serialize};

use crate::model::{Guardrail, Mode, Policy, Protocol, RuleRef};
use crate::reserved::Reserved;

/// What is asked: would this pass?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// The sandbox's tenant.
    pub tenant: TenantName,
    /// The sandbox's labels.
    #[serde(default)]
    pub labels: Labels,
    /// The host, if the destination has a name.
    #[serde(default)]
    pub name: Option<DomainName>,
    /// The address, if it is known. A name without one is taken to have a public address.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// The port; 0 for ICMPv6.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether the client speaks TLS.
    pub tls: bool,
    /// The request's method; none asks about the connection only.
    #[serde(default)]
    pub method: Option<String>,
    /// The request's path, as sent; `/` when there is a method and no path.
    #[serde(default)]
    pub path: Option<String>,
}

/// The answer, with all that led to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What happens.
    pub outcome: Outcome,
    /// Why it is refused, or would be if the mode were `enforce`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<RuleRef>>,
    /// Whether TLS is terminated.
    pub inspect: bool,
    /// The secrets that go along.
    pub secrets: Vec<SecretName>,
    /// Every policy and guardrail that was looked at.
    pub documents: Vec<DocumentTrace>,
}

/// What happens to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It passes.
    Permit,
    /// It passes and is marked, since the mode is `audit`.
    Audit,
    /// It is refused.
    Deny,
}

/// What one policy or guardrail says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentTrace {
    /// Its full name.
    pub document: String,
    /// Its mode.
    pub mode: Mode,
    /// Why it does not apply to the sandbox; none when it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_selected: Option<String>,
    /// Its egress rules, in the order of the file.
    pub rules: Vec<RuleTrace>,
}

/// What one rule says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleTrace {
    /// The rule's name in its document.
    pub rule: String,
    /// Whether it matches.
    pub matches: bool,
    /// What it does, or why it does not match, in words.
    pub why: String,
}

/// Answers a query from any set of policies, applied or not.
pub fn explain(
    _policies: &[Arc<Policy>],
    _guardrails: &[Arc<Guardrail>],
    _reserved: &Reserved,
    _query: &Query,
) -> Explanation {
    Explanation {
        outcome: Outcome::Deny,
        reason: Some(Reason::NoPolicy),
        rule: None,
        inspect: false,
        secrets: Vec::new(),
        documents: Vec::new(),
    }
}
