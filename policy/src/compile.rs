//! What applies to one sandbox, in the form that answers fast.

mod eval;
mod firewall;
mod index;
mod rules;
mod secrets;

use std::net::IpAddr;
use std::sync::Arc;

use causeway_types::{DomainName, Labels, TenantName};

use self::rules::{RuleSet, Source};
use self::secrets::Secrets;
use crate::decision::{Injection, Replacement};
use crate::l4::L4Rules;
use crate::model::{Guardrail, Limits, Mode, Policy};
use crate::reserved::Reserved;

pub(crate) use self::rules::Target;

/// What applies to one sandbox: all policies that select it, and all guardrails.
///
/// Its size follows that of the documents, so sandboxes that the same policies select share one.
#[derive(Debug, Clone)]
pub struct Effective {
    selection: Selection,
    bound: Bound,
    policies: RuleSet,
    guardrails: RuleSet,
    secrets: Secrets,
    reserved: Reserved,
    firewall: L4Rules,
    limits: Limits,
}

/// What the policies are that select a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selection {
    /// There are none: everything is denied.
    None,
    /// All are in audit mode: what none permits passes and is marked.
    AllAudit,
    /// At least one enforces: what none permits is denied.
    Enforced,
}

impl Selection {
    fn of(modes: impl Iterator<Item = Mode>) -> Self {
        modes.fold(Self::None, |selection, mode| match (selection, mode) {
            (_, Mode::Enforce) | (Self::Enforced, _) => Self::Enforced,
            (_, Mode::Audit) => Self::AllAudit,
        })
    }
}

/// Whether guardrails bound egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// None says anything on egress.
    None,
    /// Those that do are in audit mode.
    Audit,
    /// At least one enforces.
    Enforced,
}

impl Bound {
    fn of<'a>(guardrails: impl Iterator<Item = &'a Guardrail>) -> Self {
        let stated = guardrails.filter(|guardrail| guardrail.egress.is_some());
        match Selection::of(stated.map(|guardrail| guardrail.mode)) {
            Selection::None => Self::None,
            Selection::AllAudit => Self::Audit,
            Selection::Enforced => Self::Enforced,
        }
    }
}

/// The policies that select a sandbox of `tenant` with `labels`.
pub fn select<'a>(
    policies: impl IntoIterator<Item = &'a Arc<Policy>>,
    tenant: &TenantName,
    labels: &Labels,
) -> Vec<Arc<Policy>> {
    let selected = policies.into_iter().filter(|p| p.selects(tenant, labels));
    selected.cloned().collect()
}

impl Effective {
    /// Compiles the policies that select a sandbox ([`select`] finds them). With none of them
    /// everything is denied. The order of the arguments does not matter.
    pub fn compile(
        policies: &[Arc<Policy>],
        guardrails: &[Arc<Guardrail>],
        reserved: &Reserved,
    ) -> Self {
        let mut policies: Vec<&Policy> = policies.iter().map(AsRef::as_ref).collect();
        policies.sort_by_key(|policy| &policy.reference);
        let mut guardrails: Vec<&Guardrail> = guardrails.iter().map(AsRef::as_ref).collect();
        guardrails.sort_by_key(|guardrail| &guardrail.reference);
        let mut secrets = Secrets::default();
        let mut limits = Limits::default();
        for policy in &policies {
            secrets.add(policy);
            limits = limits.tightest(policy.limits);
        }
        for guardrail in &guardrails {
            limits = limits.tightest(guardrail.limits);
        }
        Self {
            selection: Selection::of(policies.iter().map(|policy| policy.mode)),
            bound: Bound::of(guardrails.iter().copied()),
            policies: rule_set(policies.iter().map(|policy| Source {
                reference: &policy.reference,
                mode: policy.mode,
                egress: policy.egress.as_deref(),
            })),
            guardrails: rule_set(guardrails.iter().map(|guardrail| Source {
                reference: &guardrail.reference,
                mode: guardrail.mode,
                egress: guardrail.egress.as_deref(),
            })),
            secrets,
            firewall: firewall::rules(&policies, &guardrails, reserved),
            reserved: reserved.clone(),
            limits,
        }
    }

    /// Whether the resolver answers for this name: some rule permits it on some port, and no rule
    /// denies it as a whole.
    pub fn resolves(&self, name: &DomainName) -> bool {
        let permitted = match self.selection {
            Selection::None => false,
            Selection::AllAudit => true,
            Selection::Enforced => self.policies.permits_name(name),
        };
        // A guardrail that permits addresses may permit the one that the name turns out to have.
        let in_bounds = self.bound != Bound::Enforced
            || self.guardrails.permits_name(name)
            || self.guardrails.has_prefixes();
        let denied = self.policies.denies_name(name) || self.guardrails.denies_name(name);
        permitted && in_bounds && !denied
    }

    /// Whether an address may be reached on some port, as far as reserved ranges go: it is
    /// public, or rules open its range.
    pub fn opens(&self, address: IpAddr) -> bool {
        let opened = |set: &RuleSet| set.opens(address, &self.reserved);
        !self.reserved.contains(address)
            || (opened(&self.policies)
                && (self.bound != Bound::Enforced || opened(&self.guardrails)))
    }

    /// The part that the dataplane enforces by itself.
    pub fn firewall(&self) -> &L4Rules {
        &self.firewall
    }

    /// The limits: of each, the strictest that any policy or guardrail sets.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Every secret that some request could take along in a header.
    pub fn injections(&self) -> impl Iterator<Item = &Arc<Injection>> {
        self.secrets.injections()
    }

    /// Every secret whose placeholder some request could have swapped.
    pub fn replacements(&self) -> impl Iterator<Item = &Arc<Replacement>> {
        self.secrets.replacements()
    }
}

fn rule_set<'a>(documents: impl Iterator<Item = Source<'a>>) -> RuleSet {
    let mut set = RuleSet::default();
    documents.for_each(|document| set.add(document));
    set
}
