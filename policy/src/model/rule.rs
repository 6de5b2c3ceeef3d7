//! Egress and ingress rules.

use std::fmt;

use causeway_types::{Labels, NetworkName, PolicyRef};
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::{NamePattern, PathGlob, PortSet, serialize_display};

/// Why text is not the name of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a rule's name has 1 to 63 letters, digits, `-`, `_` and `.`")]
pub struct RuleNameError;

/// A rule's name, unique within its document: 1 to 63 letters, digits, `-`, `_` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuleName(String);

impl RuleName {
    /// Checks `text` and takes it.
    pub fn new(text: impl Into<String>) -> Result<Self, RuleNameError> {
        let text = text.into();
        let good = (1..=63).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        good.then_some(Self(text)).ok_or(RuleNameError)
    }

    /// The name of a rule that was given none: `egress-1` for the first one.
    pub(crate) fn numbered(section: &str, index: usize) -> Self {
        Self(format!("{section}-{}", index + 1))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A rule's full name, shown as `tenant/policy/rule` or `guardrail/policy/rule`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleRef {
    /// The document that has the rule.
    pub policy: PolicyRef,
    /// The rule in it.
    pub rule: RuleName,
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.policy, self.rule)
    }
}

serialize_display!(RuleRef);

/// What a rule does with what it matches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Lets it pass.
    #[default]
    Permit,
    /// Refuses it, whatever other rules say.
    Deny,
}

/// One rule on what sandboxes may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressRule {
    /// Its name.
    pub name: RuleName,
    /// What it does.
    pub action: Action,
    /// Where to.
    pub to: Destination,
    /// On which ports.
    pub ports: PortSet,
    /// When present, TLS is terminated, and only these requests are matched. Never empty, and
    /// only on rules with names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Vec<HttpRule>>,
}

/// Where an egress rule leads to. Neither list is ever empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// Hosts, by name.
    Names(Vec<NamePattern>),
    /// Addresses, whatever their names. No prefix has host bits.
    Prefixes(Vec<IpNet>),
}

/// Requests that an egress rule matches. Neither list is ever empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HttpRule {
    /// The methods.
    pub methods: Vec<Method>,
    /// The paths.
    pub paths: Vec<PathGlob>,
}

/// Why text is not a method of an http rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a method is an upper-case token of at most 32 characters")]
pub struct MethodError;

/// A method of an http rule (RFC 9110, section 9: methods are case-sensitive).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// `*`: every method.
    Any,
    /// This one.
    Exact(String),
}

impl Method {
    /// Reads `*` or an upper-case token.
    pub fn parse(text: &str) -> Result<Self, MethodError> {
        let token = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b"-_".contains(&b);
        match text {
            "*" => Ok(Self::Any),
            _ if !(1..=32).contains(&text.len()) || !text.bytes().all(token) => Err(MethodError),
            _ => Ok(Self::Exact(text.to_owned())),
        }
    }

    /// Whether a request's method is meant.
    pub fn matches(&self, method: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(exact) => exact == method,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "*",
            Self::Exact(method) => method,
        })
    }
}

serialize_display!(Method);

/// One rule on who may reach sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct IngressRule {
    /// Its name.
    pub name: RuleName,
    /// Who.
    pub from: IngressPeer,
    /// On which ports of the sandbox.
    pub ports: PortSet,
}

/// Who an ingress rule lets in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IngressPeer {
    /// Sandboxes on a network that they share with the destination.
    Network {
        /// Which network.
        network: NetworkChoice,
        /// Labels that the peer carries; none asks for none.
        labels: Labels,
    },
    /// Addresses outside. Never empty, and no prefix has host bits.
    Outside(Vec<Ipv6Net>),
}

/// Which of the networks that two sandboxes share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkChoice {
    /// `*`: any of them.
    AnyShared,
    /// This one, of the sandbox's own tenant.
    Named(NetworkName),
}

impl fmt::Display for NetworkChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnyShared => f.write_str("*"),
            Self::Named(name) => name.fmt(f),
        }
    }
}

serialize_display!(NetworkChoice);
