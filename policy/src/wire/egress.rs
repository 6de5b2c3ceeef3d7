//! `egress`.

use std::collections::BTreeSet;

use causeway_types::{AddressClass, DomainNameError, classify};
use ipnet::IpNet;

use super::fields::{Fields, clip, list, maybe_empty, parsed, text, word};
use super::values;
use crate::bounds;
use crate::model::{
    Action, Destination, EgressRule, HttpRule, Method, NamePattern, PathGlob, PatternError,
    PortRange, PortSet, Protocol, RuleName,
};
use crate::problems::Problems;
use crate::reserved::hides;
use crate::yaml::Node;

pub(super) fn read(
    node: &Node,
    names: &mut BTreeSet<RuleName>,
    problems: &mut Problems<'_>,
) -> Vec<EgressRule> {
    let rules = maybe_empty(node, "egress", bounds::RULES, problems).unwrap_or_default();
    let mut budget = Budget::default();
    rules
        .iter()
        .enumerate()
        .filter_map(|(index, node)| rule(node, index, &mut budget, names, problems))
        .collect()
}

/// What a document has used of its bounds.
#[derive(Default)]
struct Budget {
    names: usize,
    prefixes: usize,
}

fn rule(
    node: &Node,
    index: usize,
    budget: &mut Budget,
    names: &mut BTreeSet<RuleName>,
    problems: &mut Problems<'_>,
) -> Option<EgressRule> {
    let known = ["name", "action", "to", "cidr", "ports", "http"];
    let fields = Fields::read(node, "an egress rule", &known, problems)?;
    let name = values::rule_name(&fields, "egress", index, names, problems);
    let actions = [("permit", Action::Permit), ("deny", Action::Deny)];
    let action = fields
        .get("action")
        .and_then(|node| word(node, "action", &actions, problems))
        .unwrap_or_default();
    let to = destination(&fields, action, budget, problems);
    let ports = ports(&fields, to.as_ref(), action, problems);
    let http = fields.get("http").and_then(|node| http(node, problems));
    if let (Some(place), true) = (fields.key("http"), fields.key("cidr").is_some()) {
        let help = "requests are matched on hosts by name: write the rule with `to`";
        problems.error(place, "`http` stands beside `cidr`", help);
    }
    Some(EgressRule {
        name,
        action,
        to: to?,
        ports: ports?,
        http,
    })
}

fn destination(
    fields: &Fields<'_>,
    action: Action,
    budget: &mut Budget,
    problems: &mut Problems<'_>,
) -> Option<Destination> {
    match (fields.key("to"), fields.key("cidr")) {
        (Some(_), Some(place)) => {
            let help = "split it into two rules, one with `to` and one with `cidr`";
            problems.error(place, "an egress rule has `to` or `cidr`, not both", help);
            None
        }
        (Some(_), None) => to_names(fields.get("to")?, budget, problems),
        (None, Some(_)) => to_prefixes(fields.get("cidr")?, action, budget, problems),
        (None, None) => {
            let help = "write `to: [name, …]` or `cidr: [prefix, …]`";
            let message = "an egress rule needs `to` or `cidr`";
            problems.error(fields.span.clone(), message, help);
            None
        }
    }
}

fn to_names(node: &Node, budget: &mut Budget, problems: &mut Problems<'_>) -> Option<Destination> {
    let entries = list(node, "to", bounds::NAMES, problems)?;
    budget.names += entries.len();
    if budget.names > bounds::NAMES {
        let message = format!("more than {} names in one document", bounds::NAMES);
        problems.error(node.span.start..node.span.start, message, "use wildcards");
        return None;
    }
    let names = entries.iter().filter_map(|node| pattern(node, problems));
    Some(Destination::Names(names.collect()))
}

/// One name pattern.
pub(super) fn pattern(node: &Node, problems: &mut Problems<'_>) -> Option<NamePattern> {
    let text = text(node, "a name", problems)?;
    let error = match NamePattern::parse(text) {
        Ok(pattern) => return Some(pattern),
        Err(error) => error,
    };
    let help = match &error {
        PatternError::LoneStar => "write `**` for every name, or `*.example.com`",
        PatternError::MisplacedWildcard => {
            "`*.example.com` is one label and `**.example.com` one or more"
        }
        PatternError::Address => "write the address under `cidr`, with its length",
        PatternError::NotOnlyAName => "ports go under `ports`, and paths under `http`",
        PatternError::Name(DomainNameError::Numeric { .. }) => {
            "resolvers take it for an address: write it under `cidr`"
        }
        PatternError::Name(_) => "write a host name such as `api.example.com`",
    };
    let message = match &error {
        PatternError::Name(error) => error.to_string(),
        _ => format!("`{}`: {error}", clip(text)),
    };
    problems.error(node.span.clone(), message, help);
    None
}

fn to_prefixes(
    node: &Node,
    action: Action,
    budget: &mut Budget,
    problems: &mut Problems<'_>,
) -> Option<Destination> {
    let entries = list(node, "cidr", bounds::PREFIXES, problems)?;
    budget.prefixes += entries.len();
    if budget.prefixes > bounds::PREFIXES {
        let message = format!("more than {} prefixes in one document", bounds::PREFIXES);
        problems.error(
            node.span.start..node.span.start,
            message,
            "use shorter prefixes",
        );
        return None;
    }
    let mut prefixes = Vec::with_capacity(entries.len());
    for node in entries {
        let Some(prefix) = values::prefix(node, problems) else {
            continue;
        };
        if action == Action::Permit && never_reachable(&prefix) {
            let help = "remove it: no rule opens the host's own addresses or multicast";
            let message = format!("`{prefix}` is never reachable");
            problems.error(node.span.clone(), message, help);
        }
        prefixes.push(prefix);
    }
    Some(Destination::Prefixes(prefixes))
}

fn never_reachable(prefix: &IpNet) -> bool {
    let closed = |class| matches!(class, AddressClass::Host | AddressClass::Multicast);
    let (first, last) = (classify(prefix.network()), classify(prefix.broadcast()));
    closed(first) && first == last
}

fn ports(
    fields: &Fields<'_>,
    to: Option<&Destination>,
    action: Action,
    problems: &mut Problems<'_>,
) -> Option<PortSet> {
    let by_address = fields.key("cidr").is_some();
    if fields.key("ports").is_some() {
        let (set, ranges) = values::ports(fields.get("ports")?, problems)?;
        for (range, node) in ranges {
            refuse_unreachable(range, node, to, action, problems);
        }
        return Some(set);
    }
    match action {
        // What is denied without ports is denied on all of them.
        Action::Deny => Some(PortSet::Every),
        Action::Permit if by_address => {
            let help = "list them, such as `[\"tcp/5432\"]`, or write `[\"*\"]` for every protocol and port";
            let message = "a rule that permits addresses needs `ports`";
            problems.error(fields.span.clone(), message, help);
            None
        }
        Action::Permit => Some(PortSet::web()),
    }
}

/// A permit that nothing would ever use is a mistake: names are reached through the proxy, which
/// carries TCP, and the dataplane forwards IPv6 only.
fn refuse_unreachable(
    range: PortRange,
    node: &Node,
    to: Option<&Destination>,
    action: Action,
    problems: &mut Problems<'_>,
) {
    let place = node.span.clone();
    match to {
        _ if range.protocol() == Protocol::Tcp => {}
        Some(Destination::Names(_)) => {
            let help = "write a rule with `cidr`: the proxy, which knows names, carries TCP only";
            problems.error(place, format!("`{range}` cannot be matched by name"), help);
        }
        Some(Destination::Prefixes(prefixes))
            if action == Action::Permit
                && prefixes.iter().any(|prefix| matches!(prefix, IpNet::V4(_))) =>
        {
            let help = "sandboxes speak IPv6: IPv4 addresses are reached through the proxy, which \
                        carries TCP only";
            let message = format!("`{range}` does not reach IPv4 addresses");
            problems.error(place, message, help);
        }
        Some(Destination::Prefixes(prefixes)) if action == Action::Permit => {
            let hiding = |prefix: &&IpNet| match prefix {
                IpNet::V6(v6) => hides(v6) && v6.prefix_len() < v6.max_prefix_len(),
                IpNet::V4(_) => false,
            };
            if let Some(prefix) = prefixes.iter().find(hiding) {
                let help = "name each address in full, with `/128`: what such addresses lead to is \
                            an IPv4 address, which a prefix does not show";
                let message = format!("`{range}` does not reach `{prefix}`, which hides IPv4");
                problems.error(place, message, help);
            }
        }
        _ => {}
    }
}

fn http(node: &Node, problems: &mut Problems<'_>) -> Option<Vec<HttpRule>> {
    let entries = list(node, "http", bounds::HTTP, problems)?;
    Some(
        entries
            .iter()
            .filter_map(|node| http_rule(node, problems))
            .collect(),
    )
}

fn http_rule(node: &Node, problems: &mut Problems<'_>) -> Option<HttpRule> {
    let fields = Fields::read(node, "an http rule", &["methods", "paths"], problems)?;
    let help = "list them, or write `[\"*\"]` for every method";
    let methods = fields.require("methods", "an http rule", help, problems);
    let help = "list them, or write `[\"/**\"]` for every path";
    let paths = fields.require("paths", "an http rule", help, problems);
    let methods = list(methods?, "methods", bounds::HTTP, problems)?
        .iter()
        .filter_map(|node| method(node, problems))
        .collect();
    let paths = list(paths?, "paths", bounds::HTTP, problems)?
        .iter()
        .filter_map(|node| parsed(node, "a path", PathGlob::parse, problems))
        .collect();
    Some(HttpRule { methods, paths })
}

fn method(node: &Node, problems: &mut Problems<'_>) -> Option<Method> {
    let text = text(node, "a method", problems)?;
    match Method::parse(text) {
        Ok(method) => Some(method),
        Err(error) => {
            let upper = text.to_ascii_uppercase();
            let help = match Method::parse(&upper) {
                Ok(_) => format!("did you mean `{upper}`?"),
                Err(_) => "write for example `GET`, or `*` for every method".to_owned(),
            };
            let message = format!("`{}`: {error}", clip(text));
            problems.error_with(node.span.clone(), message, help);
            None
        }
    }
}
