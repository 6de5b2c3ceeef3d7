//! Vercel Sandbox: `allow-all`, `deny-all`, or lists beyond which everything is denied.
//!
//! Names are found in TLS on every port; `*.x` has any depth and not `x` itself, and `*` is every
//! name. Denied subnets beat everything, and allowed ones hold whatever the name. An empty list
//! allows nothing.

use super::draft::{Draft, DraftPolicy, DraftRule, To};
use super::foreign::{Place, Reader, Star, texts};
use crate::model::NamePattern;
use crate::wire::fields::{Fields, clip, pairs};
use crate::yaml::{Node, Value};

pub(super) fn read(node: &Node, reader: &mut Reader<'_, '_>) -> Draft {
    let mut policy = reader.policy();
    let node = match &node.value {
        Value::Map(pairs) => match pairs.as_slice() {
            [(key, inner)] if matches!(&key.value, Value::Scalar(key) if key == "networkPolicy") => {
                inner
            }
            _ => node,
        },
        _ => node,
    };
    match &node.value {
        Value::Scalar(mode) => policy.egress = base(mode, node, reader),
        Value::Map(pairs)
            if pairs
                .iter()
                .any(|(key, _)| matches!(&key.value, Value::Scalar(key) if key == "mode")) =>
        {
            rest(node, &mut policy, reader);
        }
        _ => sdk(node, &mut policy, reader),
    }
    Draft {
        documents: vec![policy],
    }
}

fn base(mode: &str, node: &Node, reader: &mut Reader<'_, '_>) -> Option<Vec<DraftRule>> {
    match mode {
        "allow-all" => Some(DraftRule::everything()),
        "deny-all" => Some(Vec::new()),
        other => {
            let message = format!("`{}` is not a policy of Vercel's", clip(other));
            let help = "`allow-all`, `deny-all`, or an object";
            reader.error(node.span.clone(), &message, help);
            None
        }
    }
}

fn rest(node: &Node, policy: &mut DraftPolicy, reader: &mut Reader<'_, '_>) {
    let known = [
        "mode",
        "allowedDomains",
        "allowedCIDRs",
        "deniedCIDRs",
        "injectionRules",
    ];
    let Some(fields) = reader.fields(node, "the policy", &known) else {
        return;
    };
    let Some(mode) = fields.get("mode") else {
        return;
    };
    let Some(word) = reader.text(mode, "mode") else {
        return;
    };
    let mut rules = match word {
        "custom" | "default-deny" => Vec::new(),
        "default-allow" => DraftRule::everything(),
        word => {
            for key in ["allowedDomains", "allowedCIDRs", "deniedCIDRs"] {
                if let Some(place) = fields.key(key) {
                    let message = format!("`{key}` beside the mode `{}`", clip(word));
                    let help = "lists hold in the mode `custom` only: remove them, or say `custom`";
                    reader.error(place, &message, help);
                }
            }
            base(word, mode, reader).unwrap_or_default()
        }
    };
    let nodes = reader.list_of(&fields, "allowedDomains");
    let names = nodes.iter().filter_map(|n| reader.name(n, Star::AnyDepth));
    let names: Vec<NamePattern> = names.collect();
    names_rule(names, &mut rules);
    subnets(&fields, ["allowedCIDRs", "deniedCIDRs"], &mut rules, reader);
    policy.egress = Some(rules);
    if let Some(rules) = fields.get("injectionRules") {
        reader.hide(rules);
    }
    for rule in reader.list_of(&fields, "injectionRules") {
        let Some(rule) = reader.fields(rule, "an injection rule", &["domain", "headers"]) else {
            continue;
        };
        let host = rule
            .get("domain")
            .and_then(|n| reader.name(n, Star::AnyDepth));
        if let (Some(host), Some(headers)) = (host, rule.get("headers")) {
            policy
                .secrets
                .extend(reader.headers(headers, &[host], place));
        }
    }
}

fn sdk(node: &Node, policy: &mut DraftPolicy, reader: &mut Reader<'_, '_>) {
    let Some(fields) = reader.fields(node, "the policy", &["allow", "subnets"]) else {
        return;
    };
    let mut rules = Vec::new();
    match fields.get("allow") {
        Some(node) if matches!(node.value, Value::Map(_)) => {
            reader.hide(node);
            let mut names = Vec::new();
            for (host, key, list) in pairs(node, "allow", reader.problems).unwrap_or_default() {
                let Some(host) = reader.name_from(key.span.clone(), host, Star::AnyDepth) else {
                    continue;
                };
                for rule in reader.list(list, "the rules of a host") {
                    transform(rule, &host, policy, reader);
                }
                names.push(host);
            }
            names_rule(names, &mut rules);
        }
        Some(node) => {
            let nodes = reader.list(node, "allow");
            let names = nodes.iter().filter_map(|n| reader.name(n, Star::AnyDepth));
            names_rule(names.collect(), &mut rules);
        }
        None => {}
    }
    if let Some(subnets) = fields.get("subnets")
        && let Some(fields) = reader.fields(subnets, "subnets", &["allow", "deny"])
    {
        self::subnets(&fields, ["allow", "deny"], &mut rules, reader);
    }
    policy.egress = Some(rules);
}

fn names_rule(names: Vec<NamePattern>, rules: &mut Vec<DraftRule>) {
    if !names.is_empty() {
        rules.push(DraftRule::permit(To::Names(names), &["tcp/*"]));
    }
}

fn subnets(
    fields: &Fields<'_>,
    [allow, deny]: [&str; 2],
    rules: &mut Vec<DraftRule>,
    reader: &mut Reader<'_, '_>,
) {
    let mut prefixes = |key| {
        let nodes = reader.list_of(fields, key);
        nodes
            .iter()
            .filter_map(|n| reader.prefix(n))
            .collect::<Vec<_>>()
    };
    let (allowed, denied) = (prefixes(allow), prefixes(deny));
    if !allowed.is_empty() {
        rules.push(DraftRule::permit(To::Prefixes(texts(&allowed)), &["*"]));
    }
    if !denied.is_empty() {
        rules.push(DraftRule::deny(To::Prefixes(texts(&denied))));
    }
}

fn transform(
    node: &Node,
    host: &NamePattern,
    policy: &mut DraftPolicy,
    reader: &mut Reader<'_, '_>,
) {
    let Some(rule) = reader.fields(node, "a rule", &["match", "transform", "forwardURL"]) else {
        return;
    };
    reader.cannot(
        &rule,
        "forwardURL",
        "there is no proxy of the tenant's on the way out",
    );
    if let Some(place) = rule.key("match") {
        // Without its condition the secret would go further than it was meant to.
        let message = "`match` cannot be expressed: a header is set on every request to its host";
        reader.error(place, message, "remove the rule, or its condition");
        return;
    }
    let Some(transform) = rule.get("transform") else {
        return;
    };
    let transforms = match &transform.value {
        Value::List(entries) => entries.as_slice(),
        _ => std::slice::from_ref(transform),
    };
    for node in transforms {
        let fields = reader.fields(node, "transform", &["headers"]);
        if let Some(headers) = fields.and_then(|fields| fields.get("headers")) {
            let secrets = reader.headers(headers, std::slice::from_ref(host), place);
            policy.secrets.extend(secrets);
        }
    }
}

/// Values are written out: there are no references.
fn place(_text: &str) -> Place<'_> {
    Place::Literal
}
