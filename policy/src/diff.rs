//! What another set of policies would change: for which sandboxes, and for which destinations.
//!
//! Decisions can only differ at places that some rule of the two sets speaks of. Each name, wildcard,
//! prefix, glob and stretch of ports that occurs has a representative, and both sets are asked
//! about all of them; what is printed are the rules' own words for what the representative
//! stands for.

mod probes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use causeway_types::{Labels, PolicyRef, TenantName};
use serde::Serialize;

use self::probes::{Asker, Probes};
use crate::compile::{Effective, select};
use crate::explain::Outcome;
use crate::l4::L4Ingress;
use crate::model::{Guardrail, Policy};
use crate::reserved::Reserved;

/// Policies and guardrails that are in effect together.
#[derive(Debug, Clone, Default)]
pub struct PolicySet {
    /// The policies, of any tenants.
    pub policies: Vec<Arc<Policy>>,
    /// The guardrails.
    pub guardrails: Vec<Arc<Guardrail>>,
}

/// A sandbox that the difference is looked at for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// What it is called in the result.
    pub name: String,
    /// Its owner.
    pub tenant: TenantName,
    /// Its labels.
    pub labels: Labels,
}

/// What would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyDiff {
    /// The documents that differ.
    pub documents: Vec<DocumentChange>,
    /// What differs for sandboxes, those together for which it is the same.
    pub changes: Vec<SandboxesChange>,
    /// Sandboxes for which nothing differs.
    pub unchanged: usize,
    /// False when there was too much to ask about, so that more may differ than is listed.
    pub complete: bool,
}

/// A document that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentChange {
    /// Its full name.
    pub document: String,
    /// What happens to it.
    pub change: Change,
}

/// What happens to a document or an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Added,
    /// It says something else.
    Changed,
    /// It is gone.
    Removed,
}

/// What differs for some sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxesChange {
    /// The sandboxes.
    pub sandboxes: Vec<String>,
    /// Policies that select them and did not.
    pub gained: Vec<String>,
    /// Policies that no longer select them.
    pub lost: Vec<String>,
    /// Destinations with another outcome.
    pub destinations: Vec<DestinationChange>,
    /// Who gets in, or no longer does; in words.
    pub ingress: Vec<EntryChange>,
    /// Secrets that go along, or no longer do; in words.
    pub secrets: Vec<EntryChange>,
    /// Limits, in words.
    pub limits: Vec<EntryChange>,
}

/// A destination with another outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DestinationChange {
    /// The name, wildcard or prefix, as a rule has it.
    pub to: String,
    /// The ports.
    pub ports: String,
    /// The method and path of requests; none for connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// What happens now.
    pub before: Outcome,
    /// What would happen.
    pub after: Outcome,
    /// The rule that decides afterwards, or that comes closest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// An entry that is new or gone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct EntryChange {
    /// Which of the two.
    pub change: Change,
    /// The entry.
    pub entry: String,
}

/// Compares two sets of policies for some sandboxes.
pub fn diff(
    before: &PolicySet,
    after: &PolicySet,
    subjects: &[Subject],
    reserved: &Reserved,
) -> PolicyDiff {
    let mut groups: BTreeMap<(Vec<PolicyRef>, Vec<PolicyRef>), Vec<&Subject>> = BTreeMap::new();
    for subject in subjects {
        let selected = |set: &PolicySet| {
            let selected = select(&set.policies, &subject.tenant, &subject.labels);
            selected.iter().map(|p| p.reference.clone()).collect()
        };
        let key = (selected(before), selected(after));
        groups.entry(key).or_default().push(subject);
    }
    let mut found = PolicyDiff {
        documents: documents(before, after),
        changes: Vec::new(),
        unchanged: 0,
        complete: true,
    };
    for members in groups.into_values() {
        let Some(first) = members.first() else {
            continue;
        };
        let sides = [before, after].map(|set| Side::new(set, first, reserved));
        match compare(&sides, &mut found.complete) {
            None => found.unchanged += members.len(),
            Some(change) => found.changes.push(SandboxesChange {
                sandboxes: members.iter().map(|subject| subject.name.clone()).collect(),
                ..change
            }),
        }
    }
    found
}

/// A sandbox for each selector that occurs, for comparing files where no sandboxes are known.
pub fn subjects_of(sets: [&PolicySet; 2]) -> Vec<Subject> {
    let mut kinds = BTreeSet::new();
    for policy in sets.into_iter().flat_map(|set| &set.policies) {
        if let causeway_types::Selector::Matching(labels) = &policy.selector {
            kinds.insert((policy.tenant.clone(), labels.clone()));
        }
    }
    let named = |(tenant, labels): (TenantName, Labels)| {
        let pairs: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        Subject {
            name: if pairs.is_empty() {
                format!("{tenant}, without labels")
            } else {
                format!("{tenant} with {}", pairs.join(", "))
            },
            tenant,
            labels,
        }
    };
    kinds.into_iter().map(named).collect()
}

fn documents(before: &PolicySet, after: &PolicySet) -> Vec<DocumentChange> {
    fn sources(set: &PolicySet) -> BTreeMap<&PolicyRef, &str> {
        let policies = set.policies.iter();
        let policies = policies.map(|p| (&p.reference, p.source.as_str()));
        let guardrails = set.guardrails.iter();
        policies
            .chain(guardrails.map(|g| (&g.reference, g.source.as_str())))
            .collect()
    }
    let (before, after) = (sources(before), sources(after));
    let names: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    let change = |name: &PolicyRef| match (before.get(name), after.get(name)) {
        (None, _) => Some(Change::Added),
        (_, None) => Some(Change::Removed),
        (one, other) => (one != other).then_some(Change::Changed),
    };
    names
        .into_iter()
        .filter_map(|name| {
            Some(DocumentChange {
                document: name.to_string(),
                change: change(name)?,
            })
        })
        .collect()
}

/// What applies to a sandbox on one side of the comparison.
struct Side {
    policies: Vec<Arc<Policy>>,
    guardrails: Vec<Arc<Guardrail>>,
    effective: Effective,
}

impl Side {
    fn new(set: &PolicySet, subject: &Subject, reserved: &Reserved) -> Self {
        let policies = select(&set.policies, &subject.tenant, &subject.labels);
        let effective = Effective::compile(&policies, &set.guardrails, reserved);
        Self {
            policies,
            guardrails: set.guardrails.clone(),
            effective,
        }
    }

    fn names(&self) -> BTreeSet<String> {
        let names = self
            .policies
            .iter()
            .map(|policy| policy.reference.to_string());
        names.collect()
    }

    /// Whether both sides say the same, word by word.
    fn same(&self, other: &Self) -> bool {
        let policies = |side: &Self| -> Vec<String> {
            side.policies.iter().map(|p| p.source.clone()).collect()
        };
        let guardrails = |side: &Self| -> Vec<String> {
            side.guardrails.iter().map(|g| g.source.clone()).collect()
        };
        policies(self) == policies(other) && guardrails(self) == guardrails(other)
    }
}

fn compare(sides: &[Side; 2], complete: &mut bool) -> Option<SandboxesChange> {
    let [before, after] = sides;
    if before.same(after) {
        return None;
    }
    let (had, has) = (before.names(), after.names());
    let probes = Probes::new(sides.iter().flat_map(|side| {
        let policies = side.policies.iter().filter_map(|p| p.egress.as_deref());
        policies.chain(side.guardrails.iter().filter_map(|g| g.egress.as_deref()))
    }));
    let mut asker = Asker::new([&before.effective, &after.effective], &probes);
    let destinations = asker.ask();
    *complete &= asker.complete;
    let change = SandboxesChange {
        sandboxes: Vec::new(),
        gained: has.difference(&had).cloned().collect(),
        lost: had.difference(&has).cloned().collect(),
        destinations,
        ingress: entries(sides.each_ref().map(ingress)),
        secrets: entries(sides.each_ref().map(secrets)),
        limits: entries(sides.each_ref().map(limits)),
    };
    let nothing = change.gained.is_empty()
        && change.lost.is_empty()
        && change.destinations.is_empty()
        && change.ingress.is_empty()
        && change.secrets.is_empty()
        && change.limits.is_empty();
    (!nothing).then_some(change)
}

fn entries([before, after]: [BTreeSet<String>; 2]) -> Vec<EntryChange> {
    let entry = |change| {
        move |entry: &String| EntryChange {
            change,
            entry: entry.clone(),
        }
    };
    let removed = before.difference(&after).map(entry(Change::Removed));
    removed
        .chain(after.difference(&before).map(entry(Change::Added)))
        .collect()
}

fn ingress(side: &Side) -> BTreeSet<String> {
    use crate::model::IngressPeer::{Network, Outside};
    let rules = match &side.effective.firewall().ingress {
        L4Ingress::SharedNetworks => {
            return BTreeSet::from(["every member of a shared network, on every port".to_owned()]);
        }
        L4Ingress::Rules(rules) => rules,
    };
    let described = rules.iter().map(|rule| {
        let who = match &rule.from {
            Outside(prefixes) => {
                let prefixes: Vec<_> = prefixes.iter().map(ToString::to_string).collect();
                format!("{} outside", prefixes.join(", "))
            }
            Network { network, labels } => {
                let pairs: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
                if pairs.is_empty() {
                    format!("members of the network {network}")
                } else {
                    format!("members of the network {network} with {}", pairs.join(", "))
                }
            }
        };
        format!("{who}, on {}", rule.ports)
    });
    described.collect()
}

fn secrets(side: &Side) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for policy in &side.policies {
        for (name, used) in &policy.secrets {
            for host in &used.hosts {
                found.insert(format!("{name} to {host}"));
            }
        }
    }
    found
}

fn limits(side: &Side) -> BTreeSet<String> {
    let limits = side.effective.limits();
    let counts = [
        ("connections", limits.connections),
        ("requests_per_second", limits.requests_per_second),
    ];
    let counts = counts
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    let bandwidth = limits.bandwidth.map(|rate| format!("bandwidth {rate}"));
    counts.chain(bandwidth).collect()
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Added => "+",
            Self::Changed => "~",
            Self::Removed => "-",
        })
    }
}

impl fmt::Display for PolicyDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.documents.is_empty() {
            return f.write_str("nothing changes");
        }
        for (index, DocumentChange { document, change }) in self.documents.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{change} {document}")?;
        }
        for change in &self.changes {
            write!(f, "\n\n{change}")?;
        }
        if self.changes.is_empty() {
            f.write_str("\n\nno sandbox is affected")?;
        } else if self.unchanged > 0 {
            write!(
                f,
                "\n\nnothing changes for {} more sandboxes",
                self.unchanged
            )?;
        }
        if !self.complete {
            f.write_str("\nthere is too much to compare: more may change than is listed")?;
        }
        Ok(())
    }
}

impl fmt::Display for SandboxesChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let shown: Vec<_> = self.sandboxes.iter().take(SHOWN).cloned().collect();
        f.write_str(&shown.join(", "))?;
        if self.sandboxes.len() > SHOWN {
            write!(f, " and {} more", self.sandboxes.len() - SHOWN)?;
        }
        for policy in &self.gained {
            write!(f, "\n  + selected by {policy}")?;
        }
        for policy in &self.lost {
            write!(f, "\n  - no longer selected by {policy}")?;
        }
        for destination in &self.destinations {
            let DestinationChange {
                to,
                ports,
                request,
                before,
                after,
                rule,
            } = destination;
            let sign = match after {
                Outcome::Deny => '-',
                Outcome::Audit | Outcome::Permit => '+',
            };
            write!(f, "\n  {sign} {to} {ports}")?;
            if let Some(request) = request {
                write!(f, " {request}")?;
            }
            write!(f, ": {} instead of {}", after.word(), before.word())?;
            if let Some(rule) = rule {
                write!(f, " ({rule})")?;
            }
        }
        let sections = [
            ("in", &self.ingress),
            ("secret", &self.secrets),
            ("limit", &self.limits),
        ];
        for (name, entries) in sections {
            for EntryChange { change, entry } in entries {
                write!(f, "\n  {change} {name}: {entry}")?;
            }
        }
        Ok(())
    }
}
