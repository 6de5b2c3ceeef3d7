//! Anthropic's sandbox-runtime: only `allowedDomains` is reached, and `deniedDomains` wins.
//!
//! `*.x` has any depth and not `x` itself. An entry may end with a port; without, it holds for
//! every port. Lists that are empty or not there allow nothing.

use super::draft::{Draft, DraftRule, To};
use super::foreign::{Entry, Reader, Star, split, texts};
use crate::wire::fields::clip;
use crate::yaml::Node;

const ROOT: [&str; 9] = [
    "filesystem",
    "ignoreViolations",
    "enableWeakerNestedSandbox",
    "enableWeakerNetworkIsolation",
    "allowAppleEvents",
    "allowPty",
    "mandatoryDenySearchDepth",
    "ripgrep",
    "seccomp",
];
const LOCAL: [&str; 8] = [
    "allowUnixSockets",
    "allowAllUnixSockets",
    "allowLocalBinding",
    "allowMachLookup",
    "httpProxyPort",
    "socksProxyPort",
    "deniedDomainReasons",
    "strictAllowlist",
];

pub(super) fn read(node: &Node, reader: &mut Reader<'_, '_>) -> Draft {
    let known = [&["network"][..], &ROOT].concat();
    let Some(root) = reader.fields(node, "the settings", &known) else {
        return Draft::default();
    };
    reader.elsewhere(&root, &ROOT);
    let help = "there is no `network`, and so nothing to import: srt allows nothing then";
    let Some(network) = root.require("network", "the settings", help, reader.problems) else {
        return Draft::default();
    };
    let known = [
        &[
            "allowedDomains",
            "deniedDomains",
            "tlsTerminate",
            "mitmProxy",
            "parentProxy",
        ][..],
        &LOCAL,
    ]
    .concat();
    let Some(fields) = reader.fields(network, "network", &known) else {
        return Draft::default();
    };
    reader.elsewhere(&fields, &LOCAL);
    for key in ["mitmProxy", "parentProxy"] {
        reader.cannot(
            &fields,
            key,
            "there is no proxy of the tenant's on the way out",
        );
    }
    reader.cannot(
        &fields,
        "tlsTerminate",
        "TLS is terminated here where a rule or a secret needs it, with Causeway's own certificate",
    );
    let mut rules = Vec::new();
    for node in reader.list_of(&fields, "allowedDomains") {
        if let Some((entry, ports)) = entry(node, reader) {
            if entry == Entry::Name(crate::model::NamePattern::Any) {
                let help = "`*` alone denies everything, and allows nothing in particular";
                reader.error(
                    node.span.clone(),
                    "`*` is not taken in allowedDomains",
                    help,
                );
            }
            add(&mut rules, entry, &ports, false);
        }
    }
    for node in reader.list_of(&fields, "deniedDomains") {
        if let Some((entry, ports)) = entry(node, reader) {
            if entry == Entry::Name(crate::model::NamePattern::Any) {
                let mut rule = DraftRule::deny(To::everywhere());
                rule.ports.clone_from(&ports);
                rules.push(rule);
            }
            add(&mut rules, entry, &ports, true);
        }
    }
    let mut policy = reader.policy();
    policy.egress = Some(rules);
    Draft {
        documents: vec![policy],
    }
}

/// An entry and its ports; none for every port.
fn entry(node: &Node, reader: &mut Reader<'_, '_>) -> Option<(Entry, Vec<String>)> {
    let text = reader.text(node, "a domain")?;
    let literal = text.starts_with('[');
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !literal || host.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let ports: Vec<String> = match port {
        None => Vec::new(),
        Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => vec![port.to_owned()],
        Some(port) => {
            let message = format!("`{}` is not a port", clip(port));
            let help = "a port is from 1 to 65535; IPv6 addresses stand in brackets";
            reader.error(node.span.clone(), &message, help);
            return None;
        }
    };
    if host.eq_ignore_ascii_case("localhost") {
        let message = "a sandbox has no way to this machine's own services";
        reader.error(node.span.clone(), message, "remove it");
        return None;
    }
    let bare = Node {
        span: node.span.clone(),
        value: crate::yaml::Value::Scalar(host.to_owned()),
    };
    Some((reader.entry(&bare, Star::AnyDepth)?, ports))
}

/// Adds an entry, to the rule for the same ports if there is one.
fn add(rules: &mut Vec<DraftRule>, entry: Entry, ports: &[String], deny: bool) {
    let ports = match (ports, deny) {
        ([], false) => vec!["tcp/*".to_owned()],
        (ports, _) => ports.to_vec(),
    };
    let (names, prefixes) = split(vec![entry]);
    for rule in rules.iter_mut() {
        match &mut rule.to {
            To::Names(known) if rule.deny == deny && rule.ports == ports && !names.is_empty() => {
                return known.extend(names);
            }
            _ => {}
        }
    }
    let to = if names.is_empty() {
        To::Prefixes(texts(&prefixes))
    } else {
        To::Names(names)
    };
    rules.push(DraftRule {
        ports,
        ..if deny {
            DraftRule::deny(to)
        } else {
            DraftRule::permit(to, &[])
        }
    });
}
