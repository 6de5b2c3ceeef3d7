//! Why a request passes or not, rule by rule, for people.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use causeway_types::{DomainName, Labels, Reason, SecretName, TenantName};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::compile::{Effective, Target, select};
use crate::decision::Denial;
use crate::model::{
    Action, CanonicalPath, Destination, EgressRule, Guardrail, Mode, NamePattern, Policy, Protocol,
    RuleRef,
};
use crate::reserved::{Reserved, canonical, spellings};
use crate::summary::{Section, egress_section};

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
    /// The address, if it is known. Without it rules on addresses do not match, and nothing is said
    /// about reserved ranges.
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
    /// The rule that decided, or that came closest.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
    /// How its `egress` is written, and what follows from that.
    pub egress: Section,
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

/// Answers a query from any set of policies, applied or not. The outcome is the one that
/// [`Effective`] gives.
pub fn explain(
    policies: &[Arc<Policy>],
    guardrails: &[Arc<Guardrail>],
    reserved: &Reserved,
    query: &Query,
) -> Explanation {
    let selected = select(policies, &query.tenant, &query.labels);
    let effective = Effective::compile(&selected, guardrails, reserved);
    let path = query.path.as_deref().unwrap_or("/");
    let (path, bad_path) = match CanonicalPath::parse(path) {
        Ok(path) => (Some(path), false),
        Err(_) => (None, query.method.is_some()),
    };
    let asked = Asked {
        query,
        http: query.method.as_deref().zip(path.as_ref()),
        reserved,
    };
    let mut explanation = asked.decide(&effective);
    if bad_path && explanation.outcome != Outcome::Deny {
        explanation.outcome = Outcome::Deny;
        explanation.reason = Some(Reason::AmbiguousPath);
        explanation.rule = None;
    }
    let policies = policies.iter().map(|policy| asked.trace_policy(policy));
    let guardrails = guardrails.iter().map(|guardrail| DocumentTrace {
        document: guardrail.reference.to_string(),
        mode: guardrail.mode,
        not_selected: None,
        egress: egress_section(guardrail.egress.as_deref(), true),
        rules: asked.trace_rules(guardrail.egress.as_deref()),
    });
    explanation.documents = policies.chain(guardrails).collect();
    explanation
}

/// A query with its request in canonical form.
struct Asked<'a> {
    query: &'a Query,
    http: Option<(&'a str, &'a CanonicalPath)>,
    reserved: &'a Reserved,
}

impl Asked<'_> {
    fn decide(&self, effective: &Effective) -> Explanation {
        let target = Target {
            name: self.query.name.as_ref(),
            address: self.query.address,
            port: self.query.port,
            protocol: self.query.protocol,
            http: None,
        };
        let connected = match effective.connect_to(&target) {
            Ok(permit) => permit,
            Err(denial) => return refused(denial, false),
        };
        let mut passed = Explanation {
            outcome: Outcome::Permit,
            reason: None,
            rule: connected.rule,
            inspect: connected.inspect,
            secrets: Vec::new(),
            documents: Vec::new(),
        };
        let mut audit = connected.audit;
        if self.http.is_some() {
            let target = Target {
                http: self.http,
                ..target
            };
            match effective.send_to(&target, self.query.tls) {
                Err(denial) => return refused(denial, connected.inspect),
                Ok(permit) => {
                    let secrets = permit.secrets().map(|(_owner, name)| name.clone());
                    passed.secrets = secrets.collect();
                    passed.rule = permit.rule;
                    audit = permit.audit;
                }
            }
        }
        if let Some(denial) = audit {
            passed.outcome = Outcome::Audit;
            passed.reason = Some(denial.reason);
            passed.rule = denial.rule;
        }
        passed
    }

    fn trace_policy(&self, policy: &Policy) -> DocumentTrace {
        let query = self.query;
        let not_selected = if policy.tenant != query.tenant {
            Some(format!("it belongs to the tenant `{}`", policy.tenant))
        } else if !policy.selector.selects(&query.labels) {
            Some(format!("it selects {}", policy.selector))
        } else {
            None
        };
        let rules = match not_selected {
            Some(_) => Vec::new(),
            None => self.trace_rules(policy.egress.as_deref()),
        };
        DocumentTrace {
            document: policy.reference.to_string(),
            mode: policy.mode,
            not_selected,
            egress: egress_section(policy.egress.as_deref(), false),
            rules,
        }
    }

    fn trace_rules(&self, egress: Option<&[EgressRule]>) -> Vec<RuleTrace> {
        let rules = egress.into_iter().flatten();
        rules
            .map(|rule| {
                let missed = self.missed(rule);
                RuleTrace {
                    rule: rule.name.to_string(),
                    matches: missed.is_none(),
                    why: missed.unwrap_or_else(|| match rule.action {
                        Action::Permit => "permits it".to_owned(),
                        Action::Deny => "denies it".to_owned(),
                    }),
                }
            })
            .collect()
    }

    /// Why a rule does not match, or nothing when it does.
    fn missed(&self, rule: &EgressRule) -> Option<String> {
        let Query { port, protocol, .. } = *self.query;
        let missed = match &rule.to {
            Destination::Names(patterns) => self.missed_name(patterns),
            Destination::Prefixes(prefixes) => self.missed_address(prefixes, rule.action),
        };
        if missed.is_some() {
            return missed;
        }
        if !rule.ports.contains(protocol, port) {
            return Some(format!(
                "{protocol}/{port} is not one of its ports ({})",
                rule.ports
            ));
        }
        let http = rule.http.as_ref()?;
        match self.http {
            Some((method, path)) if !http.iter().any(|h| h.matches(rule.action, method, path)) => {
                Some(format!("`{method} {path}` is none of its requests"))
            }
            None if rule.action == Action::Deny => {
                Some("it denies certain requests only".to_owned())
            }
            _ => None,
        }
    }

    fn missed_name(&self, patterns: &[NamePattern]) -> Option<String> {
        if self.query.protocol != Protocol::Tcp {
            return Some("rules on names hold for TCP only".to_owned());
        }
        let Some(name) = &self.query.name else {
            return Some("there is no name".to_owned());
        };
        let matched = patterns.iter().any(|pattern| pattern.matches(name));
        (!matched).then(|| format!("`{name}` is none of its names"))
    }

    fn missed_address(&self, prefixes: &[IpNet], action: Action) -> Option<String> {
        let Some(address) = self.query.address.map(canonical) else {
            return Some("the address is not known".to_owned());
        };
        let around: Vec<_> = match action {
            Action::Permit => prefixes.iter().filter(|p| p.contains(&address)).collect(),
            Action::Deny => prefixes
                .iter()
                .filter(|p| spellings(address).any(|a| p.contains(&a)))
                .collect(),
        };
        if around.is_empty() {
            return Some(format!("{address} is in none of its prefixes"));
        }
        let opened = |prefix: &&IpNet| self.reserved.permits(prefix, address, self.query.protocol);
        if action == Action::Permit && !around.iter().any(opened) {
            return Some(match (self.query.protocol, address) {
                (Protocol::Udp | Protocol::Icmpv6, IpAddr::V4(_)) => {
                    "sandboxes reach IPv4 addresses through the proxy, by TCP only".to_owned()
                }
                _ => format!(
                    "{address} is in a reserved range, which only a prefix inside that range opens"
                ),
            });
        }
        None
    }
}

fn refused(denial: Denial, inspect: bool) -> Explanation {
    Explanation {
        outcome: Outcome::Deny,
        reason: Some(denial.reason),
        rule: denial.rule,
        inspect,
        secrets: Vec::new(),
        documents: Vec::new(),
    }
}

impl Outcome {
    /// The word in files and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Audit => "audit",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Permit => "permitted",
            Self::Audit => "passes, and marked: the mode is audit",
            Self::Deny => "denied",
        })
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.outcome.fmt(f)?;
        if let Some(rule) = &self.rule {
            write!(f, " ({rule})")?;
        }
        if let Some(reason) = self.reason {
            write!(f, "\n  {reason}: {}", reason.explanation())?;
        }
        if self.inspect {
            f.write_str("\n  requests are looked into, so TLS is terminated")?;
        }
        for secret in &self.secrets {
            write!(f, "\n  the secret {secret} goes along")?;
        }
        self.documents
            .iter()
            .try_for_each(|document| write!(f, "\n{document}"))
    }
}

impl fmt::Display for DocumentTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.document, self.mode)?;
        if let Some(why) = &self.not_selected {
            return write!(f, ": does not apply: {why}");
        }
        if self.rules.is_empty() {
            write!(
                f,
                "\n  egress {}: {}",
                self.egress.stated, self.egress.meaning
            )?;
        }
        for RuleTrace { rule, matches, why } in &self.rules {
            let sign = if *matches { '+' } else { '-' };
            write!(f, "\n  {sign} {rule}: {why}")?;
        }
        Ok(())
    }
}
