//! `ingress`.

use std::collections::BTreeSet;

use causeway_types::{Labels, NetworkName};
use ipnet::{IpNet, Ipv6Net};

use super::document::Kind;
use super::fields::{Fields, list, maybe_empty, parsed, text};
use super::values;
use crate::bounds;
use crate::model::{IngressPeer, IngressRule, NetworkChoice, RuleName};
use crate::problems::Problems;
use crate::yaml::Node;

pub(super) fn read(
    node: &Node,
    kind: Kind,
    names: &mut BTreeSet<RuleName>,
    problems: &mut Problems<'_>,
) -> Vec<IngressRule> {
    let rules = maybe_empty(node, "ingress", bounds::RULES, problems).unwrap_or_default();
    rules
        .iter()
        .enumerate()
        .filter_map(|(index, node)| rule(node, index, kind, names, problems))
        .collect()
}

fn rule(
    node: &Node,
    index: usize,
    kind: Kind,
    names: &mut BTreeSet<RuleName>,
    problems: &mut Problems<'_>,
) -> Option<IngressRule> {
    let known = ["name", "from", "ports"];
    let fields = Fields::read(node, "an ingress rule", &known, problems)?;
    let name = values::rule_name(&fields, "ingress", index, names, problems);
    let help = "write `from: { network: … }` or `from: { cidr: […] }`";
    let from = fields
        .require("from", "an ingress rule", help, problems)
        .and_then(|node| peer(node, kind, problems));
    let help =
        "list them, such as `[\"tcp/5432\"]`, or write `[\"*\"]` for every protocol and port";
    let ports = fields.require("ports", "an ingress rule", help, problems)?;
    let (ports, _) = values::ports(ports, problems)?;
    Some(IngressRule {
        name,
        from: from?,
        ports,
    })
}

fn peer(node: &Node, kind: Kind, problems: &mut Problems<'_>) -> Option<IngressPeer> {
    let fields = Fields::read(node, "from", &["network", "labels", "cidr"], problems)?;
    match (fields.key("network"), fields.key("cidr")) {
        (Some(_), Some(place)) => {
            let help = "split it into two rules, one with `network` and one with `cidr`";
            problems.error(place, "`from` has `network` or `cidr`, not both", help);
            None
        }
        (Some(_), None) => {
            let network = network(fields.get("network")?, kind, problems);
            let labels = match fields.get("labels") {
                Some(node) => values::labels(node, "labels", problems)?,
                None => Labels::default(),
            };
            Some(IngressPeer::Network {
                network: network?,
                labels,
            })
        }
        (None, Some(_)) => {
            if let Some(place) = fields.key("labels") {
                let help = "only sandboxes carry labels: remove them, or name a `network`";
                problems.error(place, "`labels` stands beside `cidr`", help);
            }
            outside(fields.get("cidr")?, problems)
        }
        (None, None) => {
            let help = "name a `network`, `\"*\"` for any shared one, or a `cidr` outside";
            let message = "`from` needs `network` or `cidr`";
            problems.error(fields.span.clone(), message, help);
            None
        }
    }
}

fn network(node: &Node, kind: Kind, problems: &mut Problems<'_>) -> Option<NetworkChoice> {
    if text(node, "network", problems)? == "*" {
        return Some(NetworkChoice::AnyShared);
    }
    if kind == Kind::Guardrail {
        let help = "write `\"*\"` for any network that the two sandboxes share";
        let message = "a guardrail cannot name a tenant's network";
        problems.error(node.span.clone(), message, help);
        return None;
    }
    parsed(node, "network", NetworkName::new, problems).map(NetworkChoice::Named)
}

fn outside(node: &Node, problems: &mut Problems<'_>) -> Option<IngressPeer> {
    let entries = list(node, "cidr", bounds::PREFIXES, problems)?;
    let prefixes = entries.iter().filter_map(|node| prefix(node, problems));
    Some(IngressPeer::Outside(prefixes.collect()))
}

fn prefix(node: &Node, problems: &mut Problems<'_>) -> Option<Ipv6Net> {
    match values::prefix(node, problems)? {
        IpNet::V6(prefix) => Some(prefix),
        IpNet::V4(prefix) => {
            let help = "sandboxes have IPv6 addresses only: name IPv6 sources";
            let message = format!("`{prefix}` cannot reach a sandbox");
            problems.error(node.span.clone(), message, help);
            None
        }
    }
}
