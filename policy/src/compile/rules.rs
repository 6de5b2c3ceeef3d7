//! The egress rules of several documents, judged together.

use std::net::IpAddr;
use std::sync::Arc;

use causeway_types::{DomainName, PolicyRef, Reason};

use super::index::{NameIndex, PrefixIndex};
use crate::decision::Denial;
use crate::model::{
    Action, CanonicalPath, Destination, EgressRule, HttpRule, Mode, PortSet, Protocol, RuleRef,
};
use crate::reserved::{Reserved, canonical, spellings};

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) name: Option<&'a DomainName>,
    /// None before the name was resolved: no rule on addresses matches then.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
    /// The method and path; none asks about the connection.
    pub(crate) http: Option<(&'a str, &'a CanonicalPath)>,
}

/// What the rules say together.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The first rule that denies.
    pub(super) deny: Option<u32>,
    /// The first rule that would deny, if its document enforced.
    pub(super) audit_deny: Option<u32>,
    /// The first rule that permits.
    pub(super) permit: Option<u32>,
    /// Some rule for this name and port matches requests.
    pub(super) inspect: bool,
    /// The rule that came closest to a permit, and what was missing.
    near: Option<(Near, u32)>,
}

/// What a rule was missing, the closest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Near {
    Port,
    Reserved,
    Request,
}

#[derive(Debug, Clone)]
struct Rule {
    reference: Arc<RuleRef>,
    action: Action,
    mode: Mode,
    ports: PortSet,
    http: Option<Vec<HttpRule>>,
}

/// What is compiled of a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) reference: &'a PolicyRef,
    pub(super) mode: Mode,
    pub(super) egress: Option<&'a [EgressRule]>,
}

/// Rules in the order of their documents, and within one in the order of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct RuleSet {
    rules: Vec<Rule>,
    names: NameIndex,
    prefixes: PrefixIndex,
}

impl RuleSet {
    /// Adds the egress rules of one document.
    pub(super) fn add(&mut self, document: Source<'_>) {
        for rule in document.egress.into_iter().flatten() {
            let Ok(number) = u32::try_from(self.rules.len()) else {
                return;
            };
            self.index(rule, number);
            self.rules.push(Rule {
                reference: Arc::new(RuleRef {
                    policy: document.reference.clone(),
                    rule: rule.name.clone(),
                }),
                action: rule.action,
                mode: document.mode,
                ports: rule.ports.clone(),
                http: rule.http.clone(),
            });
        }
    }

    fn index(&mut self, rule: &EgressRule, number: u32) {
        match &rule.to {
            Destination::Names(patterns) => {
                for pattern in patterns {
                    self.names.insert(pattern, number);
                }
            }
            Destination::Prefixes(prefixes) => {
                for prefix in prefixes {
                    self.prefixes.insert(*prefix, number);
                }
            }
        }
    }

    fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(number).ok()?)
    }

    /// The full name of a rule.
    pub(super) fn reference(&self, number: Option<u32>) -> Option<Arc<RuleRef>> {
        self.rule(number?).map(|rule| Arc::clone(&rule.reference))
    }

    /// What the rules say about a target.
    pub(super) fn judge(&self, target: &Target<'_>, reserved: &Reserved) -> Verdict {
        let mut verdict = Verdict::default();
        let closed = target.address.is_some_and(|a| reserved.contains(a));
        if let (Some(name), Protocol::Tcp) = (target.name, target.protocol) {
            for number in self.names.find(name) {
                if let Some(rule) = self.rule(number) {
                    verdict.take_named(rule, number, target, closed);
                }
            }
        }
        if let Some(address) = target.address {
            self.judge_address(canonical(address), target, reserved, &mut verdict);
        }
        verdict
    }

    /// Permits match the address that is dialled; denials also the one that it hides.
    fn judge_address(
        &self,
        dialled: IpAddr,
        target: &Target<'_>,
        reserved: &Reserved,
        verdict: &mut Verdict,
    ) {
        let closed = reserved.contains(dialled);
        for address in spellings(dialled) {
            for (prefix, numbers) in self.prefixes.find(address) {
                let opens =
                    address == dialled && reserved.permits(&prefix, dialled, target.protocol);
                let rules = numbers.iter().filter_map(|n| Some((*n, self.rule(*n)?)));
                for (number, rule) in rules {
                    verdict.take_addressed(rule, number, target, opens, closed);
                }
            }
        }
    }

    /// Whether some rule permits the name on some port.
    pub(super) fn permits_name(&self, name: &DomainName) -> bool {
        self.named(name).any(|rule| rule.action == Action::Permit)
    }

    /// Whether a rule denies the name whatever is asked of it.
    pub(super) fn denies_name(&self, name: &DomainName) -> bool {
        self.named(name).any(|rule| {
            rule.action == Action::Deny
                && rule.mode == Mode::Enforce
                && rule.http.is_none()
                && rule.ports == PortSet::Every
        })
    }

    fn named(&self, name: &DomainName) -> impl Iterator<Item = &Rule> {
        let numbers = self.names.find(name);
        numbers.into_iter().filter_map(|number| self.rule(number))
    }

    /// Whether some rule permits a reserved address on some port.
    pub(super) fn opens(&self, address: IpAddr, reserved: &Reserved) -> bool {
        let address = canonical(address);
        self.prefixes.find(address).any(|(prefix, numbers)| {
            let permit = |number: &u32| {
                self.rule(*number)
                    .is_some_and(|rule| rule.action == Action::Permit)
            };
            reserved.opened_by(&prefix, address) && numbers.iter().any(permit)
        })
    }

    /// Whether some rule speaks of addresses.
    pub(super) fn has_prefixes(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Why nothing permits the target, with the rule that came closest.
    pub(super) fn nearest(&self, verdict: &Verdict, target: &Target<'_>, closed: bool) -> Denial {
        let (reason, number) = match verdict.near {
            Some((Near::Request, number)) => (Reason::RequestDenied, Some(number)),
            Some((Near::Reserved, number)) => (Reason::ReservedAddress, Some(number)),
            Some((Near::Port, number)) => (Reason::PortDenied, Some(number)),
            None if target.name.is_some() && target.protocol == Protocol::Tcp => {
                (Reason::NameDenied, None)
            }
            None if closed => (Reason::ReservedAddress, None),
            None if target.protocol == Protocol::Tcp => (Reason::NoName, None),
            None => (Reason::AddressDenied, None),
        };
        Denial {
            reason,
            rule: self.reference(number),
        }
    }
}

impl Rule {
    fn covers(&self, target: &Target<'_>) -> bool {
        self.ports.contains(target.protocol, target.port)
    }

    fn matches_request(&self, method: &str, path: &CanonicalPath) -> bool {
        self.http
            .iter()
            .flatten()
            .any(|rule| rule.matches(self.action, method, path))
    }
}

impl HttpRule {
    /// Whether a rule with this action matches a request. A denial also matches the path as a
    /// server reads it that drops parameters from segments.
    pub(crate) fn matches(&self, action: Action, method: &str, path: &CanonicalPath) -> bool {
        self.methods.iter().any(|m| m.matches(method))
            && self.paths.iter().any(|glob| {
                glob.matches(path)
                    || (action == Action::Deny && glob.matches_without_parameters(path))
            })
    }
}

impl Verdict {
    fn take_named(&mut self, rule: &Rule, number: u32, target: &Target<'_>, closed: bool) {
        if !rule.covers(target) {
            return self.missed(rule, Near::Port, number);
        }
        self.inspect |= rule.http.is_some();
        let matched = match (&rule.http, target.http) {
            (None, _) => true,
            (Some(_), None) => rule.action == Action::Permit,
            (Some(_), Some((method, path))) => rule.matches_request(method, path),
        };
        match (matched, rule.action) {
            (true, Action::Permit) if closed => self.missed(rule, Near::Reserved, number),
            (true, _) => self.matched(rule, number),
            (false, _) => self.missed(rule, Near::Request, number),
        }
    }

    fn take_addressed(
        &mut self,
        rule: &Rule,
        number: u32,
        target: &Target<'_>,
        opens: bool,
        closed: bool,
    ) {
        match (rule.covers(target), rule.action) {
            (true, Action::Permit) if opens => self.matched(rule, number),
            (true, Action::Permit) if closed => self.missed(rule, Near::Reserved, number),
            (true, Action::Permit) => {}
            (true, Action::Deny) => self.matched(rule, number),
            (false, _) => self.missed(rule, Near::Port, number),
        }
    }

    fn matched(&mut self, rule: &Rule, number: u32) {
        let place = match (rule.action, rule.mode) {
            (Action::Permit, _) => &mut self.permit,
            (Action::Deny, Mode::Enforce) => &mut self.deny,
            (Action::Deny, Mode::Audit) => &mut self.audit_deny,
        };
        *place = Some(place.map_or(number, |first| first.min(number)));
    }

    fn missed(&mut self, rule: &Rule, near: Near, number: u32) {
        if rule.action == Action::Deny {
            return;
        }
        let better = |(best, first): (Near, u32)| near > best || (near == best && number < first);
        if self.near.is_none_or(better) {
            self.near = Some((near, number));
        }
    }
}
