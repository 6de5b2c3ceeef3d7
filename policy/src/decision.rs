//! What is asked of a policy, and what it answers.

use std::net::IpAddr;
use std::sync::Arc;

use causeway_types::{DomainName, Reason, SecretName, TenantName};
use serde::Serialize;

use crate::model::{CanonicalPath, Format, Place, Protocol, RuleRef, Signing, Slot};

/// A connection that a sandbox wants to open.
#[derive(Debug, Clone, Copy)]
pub struct Connect<'a> {
    /// The host asked for by CONNECT, SNI, Host or `:authority`; none when none was shown.
    pub name: Option<&'a DomainName>,
    /// The address that would be dialled: the IPv4 address itself where the sandbox used the
    /// translation prefix.
    pub address: IpAddr,
    /// The destination port; 0 for a protocol without ports.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether the client speaks TLS.
    pub tls: bool,
}

/// An HTTP request on a connection.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The connection that the request arrived on. Its name is the request's name too.
    pub connect: Connect<'a>,
    /// The method, as sent.
    pub method: &'a str,
    /// The path without the query.
    pub path: &'a CanonicalPath,
}

/// A permit, or why there is none.
pub type Decision<P> = Result<P, Denial>;

/// Why something is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{reason}")]
pub struct Denial {
    /// The reason.
    pub reason: Reason,
    /// The rule that refuses, or that came closest: a deny rule, or the rule whose port, path or
    /// method did not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Arc<RuleRef>>,
}

/// A connection may be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectPermit {
    /// The rule that permits it; none when it passes in audit mode only.
    pub rule: Option<Arc<RuleRef>>,
    /// Requests have to be looked into: a rule for this name and port matches requests, or a secret
    /// goes to this name. TLS is terminated, and [`crate::Effective::request`] asked for each request.
    pub inspect: bool,
    /// A rule for this name and port matches requests, so that what is no request is not permitted.
    pub requests: bool,
    /// Set when it passes only because the mode is `audit`: what `enforce` would have said.
    pub audit: Option<Denial>,
}

/// A request may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPermit {
    /// The rule that permits it; none when it passes in audit mode only.
    pub rule: Option<Arc<RuleRef>>,
    /// The headers and parameters to set, each in place of any that the client sent; never two
    /// that a server could take for one.
    pub injections: Vec<Arc<Injection>>,
    /// The placeholders to swap, each secret once, and none that is injected.
    pub replacements: Vec<Arc<Replacement>>,
    /// The signature to make anew.
    pub signature: Option<Arc<Signature>>,
    /// Set when it passes only because the mode is `audit`: what `enforce` would have said.
    pub audit: Option<Denial>,
}

/// A secret that goes into a header or parameter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Injection {
    /// The tenant that owns it.
    pub tenant: TenantName,
    /// The secret.
    pub secret: SecretName,
    /// Where.
    pub into: Slot,
    /// What is written there.
    pub format: Format,
}

/// A secret that is swapped for its placeholder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Replacement {
    /// The tenant that owns it.
    pub tenant: TenantName,
    /// The secret.
    pub secret: SecretName,
    /// Where; sorted.
    pub places: Vec<Place>,
}

/// A secret that requests are signed with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Signature {
    /// The tenant that owns it.
    pub tenant: TenantName,
    /// The secret.
    pub secret: SecretName,
    /// How.
    pub signing: Signing,
}

impl RequestPermit {
    /// The secrets that go along, with their owners.
    pub fn secrets(&self) -> impl Iterator<Item = (&TenantName, &SecretName)> {
        let injected = self.injections.iter().map(|i| (&i.tenant, &i.secret));
        let swapped = self.replacements.iter().map(|r| (&r.tenant, &r.secret));
        let signed = self.signature.iter().map(|s| (&s.tenant, &s.secret));
        injected.chain(swapped).chain(signed)
    }
}
