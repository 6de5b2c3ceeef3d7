//! E2B: everything is allowed unless `denyOut` says otherwise, and `allowOut` beats `denyOut`.
//!
//! `*.x` has any depth and not `x` itself. Names count on ports 80 and 443 only. An empty list
//! is as if it were not there.

use ipnet::IpNet;

use super::draft::{Draft, DraftRule, To};
use super::foreign::{Place, Reader, Star, is_all, reference, split, texts, without};
use crate::wire::fields::{Fields, pairs};
use crate::yaml::{Node, Value};

const NETWORK: [&str; 12] = [
    "allowOut",
    "allow_out",
    "denyOut",
    "deny_out",
    "rules",
    "egressProxy",
    "egress_proxy",
    "allowPublicTraffic",
    "allow_public_traffic",
    "maskRequestHost",
    "mask_request_host",
    "allowInternetAccess",
];

pub(super) fn read(node: &Node, reader: &mut Reader<'_, '_>) -> Draft {
    let mut policy = reader.policy();
    let wrapped = matches!(&node.value, Value::Map(pairs) if pairs.iter().any(
        |(key, _)| matches!(&key.value, Value::Scalar(key) if key == "network")));
    let outer = if wrapped {
        let known = ["network", "allowInternetAccess", "allow_internet_access"];
        reader.fields(node, "the sandbox", &known)
    } else {
        None
    };
    let inner = match &outer {
        Some(outer) => outer.get("network"),
        None if wrapped => None,
        None => Some(node),
    };
    let known = [&NETWORK[..], &["allow_internet_access"]].concat();
    let Some(fields) = inner.and_then(|node| reader.fields(node, "network", &known)) else {
        return Draft::default();
    };
    let mut closed = false;
    for fields in outer.iter().chain([&fields]) {
        for key in ["allowInternetAccess", "allow_internet_access"] {
            if let Some(node) = fields.get(key) {
                closed |= reader.flag(node, key) == Some(false);
            }
        }
    }
    policy.egress = Some(egress(&fields, closed, reader));
    if let Some(rules) = fields.get("rules") {
        reader.hide(rules);
        for (host, key, rules) in pairs(rules, "rules", reader.problems).unwrap_or_default() {
            let Some(host) = reader.name_from(key.span.clone(), host, Star::AnyDepth) else {
                continue;
            };
            for rule in reader.list(rules, "the rules of a host") {
                transform(
                    rule,
                    std::slice::from_ref(&host),
                    &mut policy.secrets,
                    reader,
                );
            }
        }
    }
    inbound(&fields, reader);
    for key in ["egressProxy", "egress_proxy"] {
        reader.cannot(
            &fields,
            key,
            "there is no proxy of the tenant's on the way out",
        );
    }
    Draft {
        documents: vec![policy],
    }
}

fn either<'n>(fields: &Fields<'n>, one: &str, other: &str) -> Option<&'n Node> {
    fields.get(one).or_else(|| fields.get(other))
}

fn egress(fields: &Fields<'_>, closed: bool, reader: &mut Reader<'_, '_>) -> Vec<DraftRule> {
    let allowed = either(fields, "allowOut", "allow_out");
    let denied = either(fields, "denyOut", "deny_out");
    let nodes = allowed.map_or(&[][..], |node| reader.list(node, "allowOut"));
    let entries = nodes.iter().filter_map(|n| reader.entry(n, Star::AnyDepth));
    let (names, mut prefixes) = split(entries.collect());
    let nodes = denied.map_or(&[][..], |node| reader.list(node, "denyOut"));
    let denied: Vec<IpNet> = nodes.iter().filter_map(|n| reader.prefix(n)).collect();
    let allow_span = allowed.map(|node| node.span.clone());
    if closed || denied.iter().any(is_all) {
        let mut rules = Vec::new();
        if !names.is_empty() {
            rules.push(DraftRule::permit(To::Names(names), &["80", "443"]));
        }
        if prefixes.iter().any(is_all) {
            return DraftRule::everything();
        }
        if !prefixes.is_empty() {
            rules.push(DraftRule::permit(To::Prefixes(texts(&prefixes)), &["*"]));
        }
        return rules;
    }
    let mut rules = DraftRule::everything();
    if let (false, false, Some(span)) = (names.is_empty(), denied.is_empty(), &allow_span) {
        let help = "deny `0.0.0.0/0` to allow these names only, or remove them: everything else \
                    is allowed anyway";
        let message = "allowed names would have to open what `denyOut` denies, and deny wins here";
        reader.error(span.clone(), message, help);
    } else if let (true, Some(span)) = (denied.is_empty() && !nodes_empty(allowed), allow_span) {
        let help = "deny `0.0.0.0/0` as well, if only these were meant";
        let message =
            "`allowOut` without `denyOut` restricts nothing, and so everything is permitted";
        reader.changed(span, message, help);
    }
    // What is allowed is taken out of what is denied.
    prefixes.sort_unstable();
    let left: Vec<IpNet> = denied
        .iter()
        .flat_map(|prefix| without(*prefix, &prefixes))
        .collect();
    if !left.is_empty() {
        rules.push(DraftRule::deny(To::Prefixes(texts(&left))));
    }
    rules
}

fn nodes_empty(node: Option<&Node>) -> bool {
    node.is_none_or(super::foreign::is_empty_list)
}

fn transform(
    node: &Node,
    hosts: &[crate::model::NamePattern],
    secrets: &mut Vec<super::draft::DraftSecret>,
    reader: &mut Reader<'_, '_>,
) {
    let Some(rule) = reader.fields(node, "a rule", &["transform"]) else {
        return;
    };
    let transform = rule
        .get("transform")
        .and_then(|node| reader.fields(node, "transform", &["headers"]));
    if let Some(headers) = transform.and_then(|transform| transform.get("headers")) {
        secrets.extend(reader.headers(headers, hosts, place));
    }
}

fn place(text: &str) -> Place<'_> {
    reference(text, "${e2b.secrets.", "}", &["${"])
}

fn inbound(fields: &Fields<'_>, reader: &mut Reader<'_, '_>) {
    for key in ["allowPublicTraffic", "allow_public_traffic"] {
        let Some(node) = fields.get(key) else {
            continue;
        };
        if reader.flag(node, key) == Some(true) {
            let help = "write an ingress rule with `from: { cidr: […] }` for what is to be reached";
            let message = "there are no public URLs here: nobody outside gets in";
            reader.changed(node.span.clone(), message, help);
        }
    }
    for key in ["maskRequestHost", "mask_request_host"] {
        reader.cannot(
            fields,
            key,
            "there are no public URLs, and no requests from them",
        );
    }
}
