//! What a document says, in one glance: for each section whether it is absent, empty, reaches
//! everything, or lists something, and what follows from that.

use std::fmt;

use causeway_types::{PolicyRef, Selector};
use ipnet::IpNet;
use serde::Serialize;

use crate::model::{
    Action, Destination, Document, EgressRule, IngressPeer, IngressRule, Limits, Mode, NamePattern,
    NetworkChoice,
};

/// How a section is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stated {
    /// Not at all.
    Absent,
    /// As a list without entries.
    Empty,
    /// With an entry that stands for everything.
    Wildcard,
    /// With entries.
    Listed,
}

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "absent",
            Self::Empty => "empty",
            Self::Wildcard => "wildcard",
            Self::Listed => "listed",
        })
    }
}

/// A section, and what follows from how it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Section {
    /// How it is written.
    pub stated: Stated,
    /// What that means, in words.
    pub meaning: String,
}

/// What a document says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Its full name.
    pub document: String,
    /// Its mode.
    pub mode: Mode,
    /// Which sandboxes it is for. A guardrail is for all of them, and says nothing here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<Section>,
    /// What sandboxes reach.
    pub egress: Section,
    /// Who reaches sandboxes.
    pub ingress: Section,
    /// The secrets and their hosts, one line each.
    pub secrets: Vec<String>,
    /// The limits.
    pub limits: Limits,
}

impl Document {
    /// What the document says.
    pub fn summary(&self) -> Summary {
        let (reference, mode, egress, ingress, limits) = match self {
            Self::Policy(p) => (&p.reference, p.mode, &p.egress, &p.ingress, p.limits),
            Self::Guardrail(g) => (&g.reference, g.mode, &g.egress, &g.ingress, g.limits),
        };
        let bounds = matches!(self, Self::Guardrail(_));
        let (selector, secrets) = match self {
            Self::Guardrail(_) => (None, Vec::new()),
            Self::Policy(policy) => {
                let secrets = policy.secrets.iter().map(|(name, secret)| {
                    let hosts: Vec<_> = secret.hosts.iter().map(ToString::to_string).collect();
                    format!("{name} to {}", hosts.join(", "))
                });
                (
                    Some(selector(&policy.selector, reference)),
                    secrets.collect(),
                )
            }
        };
        Summary {
            document: reference.to_string(),
            mode,
            selector,
            egress: egress_section(egress.as_deref(), bounds),
            ingress: ingress_section(ingress.as_deref(), bounds),
            secrets,
            limits,
        }
    }
}

fn selector(selector: &Selector, reference: &PolicyRef) -> Section {
    let (stated, meaning) = match selector {
        Selector::Nothing => (Stated::Absent, "selects no sandbox".to_owned()),
        Selector::Matching(labels) if labels.is_empty() => {
            let tenant = reference.tenant.as_ref().map(ToString::to_string);
            let meaning = format!("selects every sandbox of {}", tenant.unwrap_or_default());
            (Stated::Wildcard, meaning)
        }
        Selector::Matching(labels) => {
            let pairs: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            (
                Stated::Listed,
                format!("selects sandboxes with {}", pairs.join(", ")),
            )
        }
    };
    Section { stated, meaning }
}

pub(crate) fn egress_section(rules: Option<&[EgressRule]>, bounds: bool) -> Section {
    let count = |action| {
        let rules = rules.into_iter().flatten();
        rules.filter(|rule| rule.action == action).count()
    };
    let (permits, denials) = (count(Action::Permit), count(Action::Deny));
    let (stated, meaning) = match rules {
        None if bounds => (Stated::Absent, "bounds nothing".to_owned()),
        None => (Stated::Absent, "permits nothing".to_owned()),
        Some([]) if bounds => (
            Stated::Empty,
            "lets nothing pass, whatever policies permit".to_owned(),
        ),
        Some([]) => (Stated::Empty, "permits nothing".to_owned()),
        Some(rules) => {
            let wide: Vec<_> = rules.iter().filter_map(everything).collect();
            let counted = format!("rules that permit: {permits}, that deny: {denials}");
            if wide.is_empty() {
                (Stated::Listed, counted)
            } else {
                (Stated::Wildcard, format!("{counted}; {}", wide.join("; ")))
            }
        }
    };
    Section { stated, meaning }
}

/// What a rule that permits everything of a kind says.
fn everything(rule: &EgressRule) -> Option<String> {
    if rule.action == Action::Deny {
        return None;
    }
    let what = match &rule.to {
        Destination::Names(names) if names.contains(&NamePattern::Any) => "every name",
        Destination::Prefixes(prefixes) => {
            let all = |v4: bool| {
                let whole = |p: &&IpNet| p.prefix_len() == 0 && matches!(p, IpNet::V4(_)) == v4;
                prefixes.iter().any(|prefix| whole(&prefix))
            };
            match (all(true), all(false)) {
                (true, true) => "every public address",
                (true, false) => "every public IPv4 address",
                (false, true) => "every public IPv6 address",
                (false, false) => return None,
            }
        }
        Destination::Names(_) => return None,
    };
    let requests = if rule.http.is_some() {
        ", certain requests"
    } else {
        ""
    };
    Some(format!(
        "`{}` permits {what} on {}{requests}",
        rule.name, rule.ports
    ))
}

pub(crate) fn ingress_section(rules: Option<&[IngressRule]>, bounds: bool) -> Section {
    let (stated, meaning) = match rules {
        None if bounds => (Stated::Absent, "bounds nothing".to_owned()),
        None => (
            Stated::Absent,
            "says nothing: members of shared networks get in".to_owned(),
        ),
        Some([]) => (Stated::Empty, "lets nobody in".to_owned()),
        Some(rules) => {
            let wide: Vec<_> = rules.iter().filter_map(everyone).collect();
            let counted = format!("rules that let in: {}", rules.len());
            if wide.is_empty() {
                (Stated::Listed, counted)
            } else {
                (Stated::Wildcard, format!("{counted}; {}", wide.join("; ")))
            }
        }
    };
    Section { stated, meaning }
}

fn everyone(rule: &IngressRule) -> Option<String> {
    let who = match &rule.from {
        IngressPeer::Network {
            network: NetworkChoice::AnyShared,
            labels,
        } if labels.is_empty() => "every member of a shared network",
        IngressPeer::Outside(prefixes) if prefixes.iter().any(|p| p.prefix_len() == 0) => {
            "everybody outside"
        }
        _ => return None,
    };
    Some(format!("`{}` lets in {who} on {}", rule.name, rule.ports))
}

impl fmt::Display for Summary {
    /// One line for each section.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.document, self.mode)?;
        let sections = [
            ("selector", self.selector.as_ref()),
            ("egress", Some(&self.egress)),
            ("ingress", Some(&self.ingress)),
        ];
        for (name, section) in sections {
            if let Some(Section { stated, meaning }) = section {
                write!(f, "\n  {name:<9} {stated}: {meaning}")?;
            }
        }
        for secret in &self.secrets {
            write!(f, "\n  secret    {secret}")?;
        }
        let Limits {
            connections,
            requests_per_second,
            bandwidth,
            ..
        } = self.limits;
        if let Some(count) = connections {
            write!(f, "\n  limit     {count} connections")?;
        }
        if let Some(count) = requests_per_second {
            write!(f, "\n  limit     {count} requests in a second")?;
        }
        if let Some(rate) = bandwidth {
            write!(f, "\n  limit     {rate} in each direction")?;
        }
        Ok(())
    }
}
