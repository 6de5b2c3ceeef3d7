//! Decisions.

use std::sync::Arc;

use causeway_types::Reason;

use super::rules::{Target, Verdict};
use super::secrets::Taken;
use super::{Bound, Effective, Selection};
use crate::decision::{Connect, ConnectPermit, Decision, Denial, Request, RequestPermit};
use crate::model::{Protocol, RuleRef};

/// A target that passes.
struct Passed {
    rule: Option<Arc<RuleRef>>,
    inspect: bool,
    audit: Option<Denial>,
}

impl Effective {
    /// Whether a connection may be opened. Where [`ConnectPermit::inspect`] is set, each
    /// request on it is asked for with [`Effective::request`].
    pub fn connect(&self, connect: &Connect<'_>) -> Decision<ConnectPermit> {
        self.connect_to(&target(connect))
    }

    /// Whether a request may be sent, and which secrets go with it.
    pub fn request(&self, request: &Request<'_>) -> Decision<RequestPermit> {
        let target = Target {
            http: Some((request.method, request.path)),
            ..target(&request.connect)
        };
        self.send_to(&target, request.connect.tls)
    }

    pub(crate) fn connect_to(&self, target: &Target<'_>) -> Decision<ConnectPermit> {
        let passed = self.decide(target)?;
        let secrets = target.name.is_some_and(|name| self.secrets.go_to(name));
        Ok(ConnectPermit {
            rule: passed.rule,
            inspect: passed.inspect || secrets,
            requests: passed.inspect,
            audit: passed.audit,
        })
    }

    pub(crate) fn send_to(&self, target: &Target<'_>, tls: bool) -> Decision<RequestPermit> {
        let passed = self.decide(target)?;
        let taken = match target.name {
            None => Taken::default(),
            Some(name) => {
                let taken = self.secrets.for_request(name, tls);
                taken.map_err(|reason| Denial { reason, rule: None })?
            }
        };
        Ok(RequestPermit {
            rule: passed.rule,
            injections: taken.injections,
            replacements: taken.replacements,
            signature: taken.signatures.into_iter().next(),
            audit: passed.audit,
        })
    }

    fn decide(&self, target: &Target<'_>) -> Decision<Passed> {
        if self.selection == Selection::None {
            return Err(Denial {
                reason: Reason::NoPolicy,
                rule: None,
            });
        }
        let own = self.policies.judge(target, &self.reserved);
        let bounds = self.guardrails.judge(target, &self.reserved);
        let denied = self.denied(own.deny, bounds.deny);
        denied.map_or(Ok(()), Err)?;
        let mut audit = self.denied(own.audit_deny, bounds.audit_deny);
        if own.permit.is_none() {
            audit = audit.or(Some(self.unpermitted(&own, target)?));
        }
        if self.bound != Bound::None && bounds.permit.is_none() {
            let denial = self.out_of_bounds(&bounds, target);
            if self.bound == Bound::Enforced {
                return Err(denial);
            }
            audit = audit.or(Some(denial));
        }
        Ok(Passed {
            rule: self.policies.reference(own.permit),
            inspect: own.inspect || bounds.inspect,
            audit,
        })
    }

    /// What no policy permits: refused, or only marked where all policies are in audit mode.
    /// That opens neither reserved ranges nor what the dataplane forwards by itself.
    fn unpermitted(&self, own: &Verdict, target: &Target<'_>) -> Decision<Denial> {
        let closed = self.is_closed(target);
        let denial = self.policies.nearest(own, target, closed);
        match self.selection {
            Selection::AllAudit if closed => Err(Denial {
                reason: Reason::ReservedAddress,
                ..denial
            }),
            Selection::AllAudit if target.protocol == Protocol::Tcp => Ok(denial),
            _ => Err(denial),
        }
    }

    fn is_closed(&self, target: &Target<'_>) -> bool {
        target.address.is_some_and(|a| self.reserved.contains(a))
    }

    /// The denial of a policy's rule, or else that of a guardrail's.
    fn denied(&self, policy: Option<u32>, guardrail: Option<u32>) -> Option<Denial> {
        if policy.is_some() {
            return Some(Denial {
                reason: Reason::DeniedByRule,
                rule: self.policies.reference(policy),
            });
        }
        guardrail.map(|_| Denial {
            reason: Reason::Guardrail,
            rule: self.guardrails.reference(guardrail),
        })
    }

    /// No guardrail permits it; the rule that came closest is named.
    fn out_of_bounds(&self, bounds: &Verdict, target: &Target<'_>) -> Denial {
        let closed = self.is_closed(target);
        Denial {
            reason: Reason::Guardrail,
            ..self.guardrails.nearest(bounds, target, closed)
        }
    }
}

fn target<'a>(connect: &Connect<'a>) -> Target<'a> {
    Target {
        name: connect.name,
        address: Some(connect.address),
        port: connect.port,
        protocol: connect.protocol,
        http: None,
    }
}
