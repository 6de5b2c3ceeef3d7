//! A policy file that is being written.

use std::fmt::{self, Write as _};

use causeway_types::Labels;

use crate::model::NamePattern;

/// A file with one or more documents.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) documents: Vec<DraftPolicy>,
}

/// A policy.
#[derive(Debug, Default)]
pub(crate) struct DraftPolicy {
    pub(crate) tenant: String,
    pub(crate) name: String,
    pub(crate) selector: Labels,
    pub(crate) mode: Option<&'static str>,
    pub(crate) egress: Option<Vec<DraftRule>>,
    pub(crate) ingress: Option<Vec<DraftIngress>>,
    pub(crate) secrets: Vec<DraftSecret>,
}

/// Where a rule leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum To {
    Names(Vec<NamePattern>),
    Prefixes(Vec<String>),
}

/// An egress rule. Without ports it has none, which only a denial may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DraftRule {
    pub(crate) name: Option<String>,
    pub(crate) deny: bool,
    pub(crate) to: To,
    pub(crate) ports: Vec<String>,
    /// Methods and paths.
    pub(crate) http: Vec<(Vec<String>, Vec<String>)>,
    /// A line above the rule.
    pub(crate) comment: Option<String>,
}

impl DraftRule {
    pub(crate) fn permit(to: To, ports: &[&str]) -> Self {
        Self {
            name: None,
            deny: false,
            to,
            ports: ports.iter().map(|&port| port.to_owned()).collect(),
            http: Vec::new(),
            comment: None,
        }
    }

    pub(crate) fn deny(to: To) -> Self {
        Self {
            deny: true,
            ..Self::permit(to, &[])
        }
    }

    /// Rules that permit all that there is.
    pub(crate) fn everything() -> Vec<Self> {
        vec![
            Self::permit(To::Names(vec![NamePattern::Any]), &["tcp/*"]),
            Self::permit(To::everywhere(), &["*"]),
        ]
    }
}

impl To {
    pub(crate) fn everywhere() -> Self {
        Self::Prefixes(vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()])
    }
}

/// An ingress rule.
#[derive(Debug)]
pub(crate) struct DraftIngress {
    pub(crate) from: DraftPeer,
    pub(crate) ports: Vec<String>,
}

/// Who an ingress rule lets in.
#[derive(Debug)]
pub(crate) enum DraftPeer {
    /// Members of any shared network with these labels.
    Members(Labels),
    Outside(Vec<String>),
}

/// A secret that goes into a header.
#[derive(Debug)]
pub(crate) struct DraftSecret {
    pub(crate) name: String,
    pub(crate) hosts: Vec<NamePattern>,
    pub(crate) header: String,
    pub(crate) format: String,
}

impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, document) in self.documents.iter().enumerate() {
            if index > 0 {
                f.write_str("---\n")?;
            }
            document.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for DraftPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, name, .. } = self;
        writeln!(f, "apiVersion: causeway/v1\nkind: Policy")?;
        let (name, tenant) = (quoted(name), quoted(tenant));
        writeln!(f, "metadata: {{ name: {name}, tenant: {tenant} }}\nspec:")?;
        writeln!(f, "  selector: {}", labels(&self.selector))?;
        if let Some(mode) = self.mode {
            writeln!(f, "  mode: {mode}")?;
        }
        match self.egress.as_deref() {
            None => {}
            Some([]) => f.write_str("  egress: []\n")?,
            Some(rules) => {
                f.write_str("  egress:\n")?;
                rules.iter().try_for_each(|rule| rule.fmt(f))?;
            }
        }
        match self.ingress.as_deref() {
            None => {}
            Some([]) => f.write_str("  ingress: []\n")?,
            Some(rules) => {
                f.write_str("  ingress:\n")?;
                rules.iter().try_for_each(|rule| rule.fmt(f))?;
            }
        }
        if !self.secrets.is_empty() {
            f.write_str("  secrets:\n")?;
        }
        self.secrets.iter().try_for_each(|secret| secret.fmt(f))
    }
}

impl fmt::Display for DraftRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(comment) = &self.comment {
            writeln!(f, "    # {}", one_line(comment))?;
        }
        let to = match &self.to {
            To::Names(names) => format!("to: {}", list(names.iter().map(ToString::to_string))),
            To::Prefixes(prefixes) => format!("cidr: {}", list(prefixes.iter().cloned())),
        };
        f.write_str("    - ")?;
        if let Some(name) = &self.name {
            write!(f, "name: {}\n      ", quoted(name))?;
        }
        if self.deny {
            f.write_str("action: deny\n      ")?;
        }
        writeln!(f, "{to}")?;
        if !self.ports.is_empty() {
            writeln!(f, "      ports: {}", list(self.ports.iter().cloned()))?;
        }
        if !self.http.is_empty() {
            f.write_str("      http:\n")?;
        }
        for (methods, paths) in &self.http {
            let methods = list(methods.iter().cloned());
            let paths = list(paths.iter().cloned());
            writeln!(f, "        - {{ methods: {methods}, paths: {paths} }}")?;
        }
        Ok(())
    }
}

impl fmt::Display for DraftIngress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match &self.from {
            DraftPeer::Members(carried) if carried.is_empty() => "network: \"*\"".to_owned(),
            DraftPeer::Members(carried) => {
                format!("network: \"*\", labels: {}", labels(carried))
            }
            DraftPeer::Outside(prefixes) => format!("cidr: {}", list(prefixes.iter().cloned())),
        };
        let ports = list(self.ports.iter().cloned());
        writeln!(f, "    - {{ from: {{ {from} }}, ports: {ports} }}")
    }
}

impl fmt::Display for DraftSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = list(self.hosts.iter().map(ToString::to_string));
        let (header, format) = (quoted(&self.header), quoted(&self.format));
        writeln!(f, "    {}:\n      hosts: {hosts}", quoted(&self.name))?;
        writeln!(f, "      inject: {{ header: {header}, format: {format} }}")
    }
}

fn list(entries: impl Iterator<Item = String>) -> String {
    let quoted: Vec<_> = entries.map(|entry| quoted(&entry)).collect();
    format!("[{}]", quoted.join(", "))
}

fn labels(labels: &Labels) -> String {
    let pairs = labels.iter();
    let pairs: Vec<_> = pairs
        .map(|(key, value)| format!("{}: {}", quoted(key), quoted(value)))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Text as a YAML scalar that is read back as the same text.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => {
                // Writing to a string does not fail.
                let _infallible = write!(quoted, "\\U{:08X}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
