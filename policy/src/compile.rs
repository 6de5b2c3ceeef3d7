//! What applies to one sandbox, in the form that answers fast.

use std::net::IpAddr;
use std::sync::Arc;

use causeway_types::{DomainName, Reason};

use crate::decision::{
    Connect, ConnectPermit, Decision, Denial, Injection, Replacement, Request, RequestPermit,
};
use crate::l4::{L4Ingress, L4Rules};
use crate::model::{Guardrail, Limits, Policy};
use crate::reserved::Reserved;

/// What applies to one sandbox: all policies that select it, and all guardrails.
#[derive(Debug, Clone)]
pub struct Effective {
    limits: Limits,
}

impl Effective {
    /// Compiles the policies that select a sandbox. With none of them everything is denied.
    pub fn compile(
        _policies: &[Arc<Policy>],
        _guardrails: &[Arc<Guardrail>],
        _reserved: &Reserved,
    ) -> Self {
        Self {
            limits: Limits::default(),
        }
    }

    /// Whether the resolver answers for this name.
    pub fn resolves(&self, _name: &DomainName) -> bool {
        false
    }

    /// Whether an address may be reached on some port, as far as reserved ranges go: it is
    /// public, or rules open its range.
    pub fn opens(&self, _address: IpAddr) -> bool {
        false
    }

    /// Whether a connection may be opened.
    pub fn connect(&self, _connect: &Connect<'_>) -> Decision<ConnectPermit> {
        Err(Denial {
            reason: Reason::NoPolicy,
            rule: None,
        })
    }

    /// Whether a request may be sent, and which secrets go with it.
    pub fn request(&self, _request: &Request<'_>) -> Decision<RequestPermit> {
        Err(Denial {
            reason: Reason::NoPolicy,
            rule: None,
        })
    }

    /// The part that the dataplane enforces by itself.
    pub fn firewall(&self) -> L4Rules {
        L4Rules {
            ingress: L4Ingress::SharedNetworks,
            egress: Vec::new(),
            egress_deny: Vec::new(),
        }
    }

    /// The limits: of each, the strictest that any policy or guardrail sets.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Every secret that some request could take along in a header.
    pub fn injections(&self) -> impl Iterator<Item = &Arc<Injection>> {
        [].iter()
    }

    /// Every secret whose placeholder some request could have swapped.
    pub fn replacements(&self) -> impl Iterator<Item = &Arc<Replacement>> {
        [].iter()
    }
}
