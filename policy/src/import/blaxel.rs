//! Blaxel: `forbiddenDomains` beats `allowedDomains`; without `allowedDomains` everything else
//! is reached.
//!
//! `*.x` has any depth and not `x` itself. Only what goes through the proxy is filtered there.

use super::draft::{Draft, DraftPolicy, DraftRule, To};
use super::foreign::{Place, Reader, Star, is_empty_list, reference};
use crate::model::NamePattern;
use crate::wire::fields::Fields;
use crate::yaml::{Node, Value};

pub(super) fn read(node: &Node, reader: &mut Reader<'_, '_>) -> Draft {
    let wrapped = match &node.value {
        Value::Map(pairs) => pairs
            .iter()
            .find(|(key, _)| matches!(&key.value, Value::Scalar(key) if key == "network")),
        _ => None,
    };
    let node = match wrapped {
        Some((_, network)) => {
            if let Value::Map(pairs) = &node.value
                && pairs.len() > 1
            {
                let message = "only `network` is read";
                let help = "the other keys of a sandbox are not about what it reaches";
                reader.changed(node.span.start..node.span.start, message, help);
            }
            network
        }
        None => node,
    };
    let known = ["allowedDomains", "forbiddenDomains", "proxy", "egress"];
    let Some(fields) = reader.fields(node, "network", &known) else {
        return Draft::default();
    };
    let mut policy = reader.policy();
    let start = fields.span.clone();
    let message = "everything that a sandbox sends is judged, proxy or not, and private addresses \
                   are closed";
    let help = "Blaxel filters what goes through its proxy, and never private addresses";
    reader.changed(start, message, help);
    policy.egress = Some(egress(&fields, reader));
    reader.cannot(&fields, "egress", "each sandbox has an address of its own");
    if let Some(proxy) = fields.get("proxy") {
        reader.hide(proxy);
        self::proxy(proxy, &mut policy, reader);
    }
    Draft {
        documents: vec![policy],
    }
}

fn egress(fields: &Fields<'_>, reader: &mut Reader<'_, '_>) -> Vec<DraftRule> {
    for key in ["allowedDomains", "forbiddenDomains"] {
        if let Some(node) = fields.get(key).filter(|node| is_empty_list(node)) {
            let help = "list what is meant, or remove the key: Blaxel does not say whether an \
                        empty list allows everything or nothing";
            reader.error(node.span.clone(), &format!("`{key}` is empty"), help);
        }
    }
    let mut names = |key| {
        let nodes = reader.list_of(fields, key);
        let names = nodes.iter().filter_map(|n| reader.name(n, Star::AnyDepth));
        names.collect::<Vec<NamePattern>>()
    };
    let (allowed, forbidden) = (names("allowedDomains"), names("forbiddenDomains"));
    let mut rules = if fields.key("allowedDomains").is_none() {
        DraftRule::everything()
    } else {
        vec![DraftRule::permit(To::Names(allowed), &["tcp/*"])]
    };
    if !forbidden.is_empty() {
        rules.push(DraftRule::deny(To::Names(forbidden)));
    }
    rules
}

fn proxy(node: &Node, policy: &mut DraftPolicy, reader: &mut Reader<'_, '_>) {
    let Some(proxy) = reader.fields(node, "proxy", &["routing", "bypass"]) else {
        return;
    };
    for rule in reader.list_of(&proxy, "routing") {
        routing(rule, policy, reader);
    }
    for node in reader.list_of(&proxy, "bypass") {
        let Some(name) = reader.name(node, Star::AnyDepth) else {
            continue;
        };
        let mut hosts = policy.secrets.iter().flat_map(|secret| &secret.hosts);
        if hosts.any(|host| host.overlaps(&name)) {
            let message = "a secret goes to this name, for which TLS has to be terminated";
            reader.error(node.span.clone(), message, "take it out of one of the two");
        }
        let message = "TLS is passed through here wherever no rule and no secret looks inside";
        reader.changed(node.span.clone(), message, "names are judged all the same");
    }
}

fn routing(node: &Node, policy: &mut DraftPolicy, reader: &mut Reader<'_, '_>) {
    let known = ["destinations", "headers", "body", "secrets"];
    let Some(rule) = reader.fields(node, "a routing rule", &known) else {
        return;
    };
    let help = "name the hosts that the headers go to";
    let Some(list) = rule.require("destinations", "a routing rule", help, reader.problems) else {
        return;
    };
    let nodes = reader.list(list, "destinations");
    if nodes.is_empty() {
        let message = "without destinations a secret would go nowhere, or everywhere";
        reader.error(list.span.clone(), message, help);
        return;
    }
    let hosts: Vec<NamePattern> = nodes
        .iter()
        .filter_map(|node| reader.name(node, Star::AnyDepth))
        .collect();
    reader.cannot(&rule, "body", "values are put into headers only");
    if let Some(place) = rule.key("secrets") {
        let help = "give secrets their values with `causeway secret set`: no file holds them";
        reader.changed(place, "the values of secrets are not in the result", help);
    }
    if let Some(headers) = rule.get("headers") {
        let message = "headers are set in place of what the client sent";
        let help = "Blaxel leaves a header that the client sent as it is";
        reader.changed(headers.span.start..headers.span.start, message, help);
        policy
            .secrets
            .extend(reader.headers(headers, &hosts, place));
    }
}

fn place(text: &str) -> Place<'_> {
    reference(text, "{{SECRET:", "}}", &["{{"])
}
