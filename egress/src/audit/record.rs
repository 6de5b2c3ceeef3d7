//! One audit record.

use std::net::{IpAddr, Ipv6Addr};
use std::time::SystemTime;

use causeway_types::{DomainName, Generation, Reason, SandboxId, TenantName};
use serde::{Deserialize, Serialize};

use super::Timestamp;

/// What was spoken, as far as the proxy looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// A connection of which nothing is known but its destination.
    Tcp,
    /// TLS, passed through without looking inside.
    Tls,
    /// One HTTP request.
    Http,
    /// One name query.
    Dns,
}

impl Protocol {
    /// All of them, in the order of their values.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Tls, Self::Http, Self::Dns];

    /// As it is written in records and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Dns => "dns",
        }
    }
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A rule permits it.
    Permit,
    /// It was refused.
    Deny,
    /// It would have been refused, but the policy only watches.
    Audit,
}

impl Outcome {
    /// All of them, in the order of their values.
    pub const ALL: [Self; 3] = [Self::Permit, Self::Deny, Self::Audit];

    /// As it is written in records and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permit => "permit",
            Self::Deny => "deny",
            Self::Audit => "audit",
        }
    }
}

/// One decision. It never holds a query string, a header, a body or a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditRecord {
    /// When the decision was taken or, for what was permitted, when the flow ended.
    pub time: Timestamp,
    /// The generation that was in effect.
    pub generation: Generation,
    /// The sandbox's owner; none when the source is no sandbox.
    pub tenant: Option<TenantName>,
    /// The sandbox, as `tenant/name`.
    pub sandbox: Option<String>,
    /// The source address.
    pub address: Ipv6Addr,
    /// What was spoken.
    pub protocol: Protocol,
    /// The name asked for, when there is a well-formed one.
    pub name: Option<DomainName>,
    /// The address that the sandbox connected to.
    pub destination: Option<IpAddr>,
    /// The port that the sandbox connected to.
    pub port: Option<u16>,
    /// The HTTP method, or the type of a name query.
    pub method: Option<String>,
    /// The HTTP path in canonical form, without its query.
    pub path: Option<String>,
    /// What was decided.
    pub decision: Outcome,
    /// The rule that decided, as `tenant/policy/rule`.
    pub rule: Option<String>,
    /// The policy of that rule, as `tenant/policy`.
    pub policy: Option<String>,
    /// Why it was refused, or would have been.
    pub reason: Option<Reason>,
    /// The address that was dialled.
    pub upstream: Option<IpAddr>,
    /// The HTTP status that the sandbox got.
    pub status: Option<u16>,
    /// Bytes towards the sandbox.
    pub bytes_in: Option<u64>,
    /// Bytes from the sandbox.
    pub bytes_out: Option<u64>,
    /// How long it took, in milliseconds.
    pub duration_ms: Option<u64>,
}

impl AuditRecord {
    /// A record with what is known of every decision.
    pub fn new(
        time: SystemTime,
        generation: Generation,
        address: Ipv6Addr,
        sandbox: Option<&SandboxId>,
        protocol: Protocol,
        decision: Outcome,
    ) -> Self {
        Self {
            time: Timestamp::from_system(time),
            generation,
            tenant: sandbox.map(|id| id.tenant.clone()),
            sandbox: sandbox.map(ToString::to_string),
            address,
            protocol,
            name: None,
            destination: None,
            port: None,
            method: None,
            path: None,
            decision,
            rule: None,
            policy: None,
            reason: None,
            upstream: None,
            status: None,
            bytes_in: None,
            bytes_out: None,
            duration_ms: None,
        }
    }
}
