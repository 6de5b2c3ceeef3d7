//! Policies of other systems, read with the meaning that they have there.
//!
//! What cannot be said here is an error, and what is said in other words is a warning at its
//! place. Keys that this version does not know are errors whatever the other system does with
//! them, since one of them could be a rule.

mod blaxel;
mod cilium;
pub(crate) mod draft;
mod e2b;
mod foreign;
mod kubernetes;
mod openshell;
mod srt;
mod vercel;

use std::collections::BTreeSet;
use std::str::FromStr;

use causeway_types::{Labels, PolicyName, TenantName};

use crate::bounds;
use crate::error::PolicyErrors;
use crate::problems::Problems;
use crate::yaml::{self, Tree};

use self::draft::Draft;
use self::foreign::Reader;

/// A system whose policies can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// The `network` object of E2B, and of what follows it.
    E2b,
    /// A sandbox policy of NVIDIA `OpenShell`, version 1.
    OpenShell,
    /// A network policy of Vercel Sandbox, in the form of its SDK or of its REST API.
    Vercel,
    /// The `network` object of Blaxel.
    Blaxel,
    /// Settings of Anthropic's sandbox-runtime.
    Srt,
    /// Kubernetes `NetworkPolicy`.
    Kubernetes,
    /// Cilium `CiliumNetworkPolicy`.
    Cilium,
}

impl Dialect {
    /// Every dialect with its name on the command line.
    pub const ALL: [(&'static str, Self); 7] = [
        ("e2b", Self::E2b),
        ("openshell", Self::OpenShell),
        ("vercel", Self::Vercel),
        ("blaxel", Self::Blaxel),
        ("srt", Self::Srt),
        ("kubernetes", Self::Kubernetes),
        ("cilium", Self::Cilium),
    ];
}

/// No dialect has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no dialect is called `{0}`: e2b, openshell, vercel, blaxel, srt, kubernetes, cilium")]
pub struct UnknownDialect(String);

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, UnknownDialect> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        let (_, dialect) = found.ok_or_else(|| UnknownDialect(text.to_owned()))?;
        Ok(dialect)
    }
}

/// What a foreign file does not say.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    /// The owner of the policies.
    pub tenant: TenantName,
    /// The policy's name, where the file gives none.
    pub name: PolicyName,
    /// Which sandboxes it selects, where the file does not say; none selects every one.
    pub selector: Labels,
    /// Keys that cannot be expressed and may be left out all the same: they are named in the
    /// errors that ask for them.
    pub drop: BTreeSet<String>,
}

/// A policy file made from a foreign one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The file, which [`crate::parse`] accepts.
    pub text: String,
    /// What was changed, at its place in the foreign file.
    pub changes: PolicyErrors,
}

/// Reads a foreign policy file. `source_name` is what problems call it.
pub fn import(
    dialect: Dialect,
    source_name: &str,
    text: &str,
    options: &ImportOptions,
) -> Result<Imported, PolicyErrors> {
    let mut problems = Problems::new(if text.len() > bounds::FILE { "" } else { text });
    let mut draft = Draft::default();
    let mut shown = text.to_owned();
    if text.len() > bounds::FILE {
        let message = format!("the file has more than {} bytes", bounds::FILE);
        problems.error(0..0, message, "split it into several files");
    } else {
        let trees = yaml::read(text, &mut problems);
        let mut reader = Reader {
            options,
            problems: &mut problems,
            hidden: Vec::new(),
        };
        draft = read(dialect, &trees, &mut reader);
        shown = masked(text, &reader.hidden);
    }
    let written = draft.to_string();
    if !problems.has_errors() {
        // Problems of the result are problems of what it was made from.
        for problem in crate::check("the result", &written).problems.problems() {
            if problem.severity == crate::Severity::Error {
                let message = format!("this cannot be a policy: {}", problem.message);
                problems.error_at(message, problem.help.clone());
            }
        }
    }
    let mut problems = problems.into_sorted();
    for problem in &mut problems {
        let covered = shown.get(problem.offset..problem.offset + problem.length);
        let line = covered.unwrap_or_default().lines().next();
        problem.text = line.unwrap_or_default().chars().take(80).collect();
    }
    let found = PolicyErrors {
        source_name: source_name.to_owned(),
        text: shown.into(),
        problems,
    };
    if found.has_errors() {
        return Err(found);
    }
    Ok(Imported {
        text: written,
        changes: found,
    })
}

/// Text with stars in some places, as long as before.
fn masked(text: &str, hidden: &[std::ops::Range<usize>]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for byte in hidden
        .iter()
        .filter_map(|range| bytes_of(range, text))
        .flatten()
    {
        if let Some(byte) = bytes.get_mut(byte) {
            // Line breaks stay, so that lines keep their numbers.
            if *byte != b'\n' {
                *byte = b'*';
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}

fn bytes_of(range: &std::ops::Range<usize>, text: &str) -> Option<std::ops::Range<usize>> {
    text.get(range.clone()).map(|_| range.clone())
}

fn read(dialect: Dialect, trees: &[Tree], reader: &mut Reader<'_, '_>) -> Draft {
    let several = matches!(dialect, Dialect::Kubernetes | Dialect::Cilium);
    let [first, rest @ ..] = trees else {
        reader.error(0..0, "the file is empty", "an empty file says nothing");
        return Draft::default();
    };
    if let (false, [second, ..]) = (several, rest) {
        let message = "the file has more than one document";
        reader.error(second.span.start..second.span.start, message, "split it");
    }
    match dialect {
        Dialect::E2b => e2b::read(&first.root, reader),
        Dialect::OpenShell => openshell::read(&first.root, reader),
        Dialect::Vercel => vercel::read(&first.root, reader),
        Dialect::Blaxel => blaxel::read(&first.root, reader),
        Dialect::Srt => srt::read(&first.root, reader),
        Dialect::Kubernetes => kubernetes::read(trees, reader),
        Dialect::Cilium => cilium::read(trees, reader),
    }
}
