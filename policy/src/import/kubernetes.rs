//! Kubernetes `NetworkPolicy`: in each direction, a pod that no policy selects is open, and one
//! that some policy selects reaches and is reached by what the rules of all of them allow.

use causeway_types::Labels;
use ipnet::IpNet;

use super::draft::{Draft, DraftIngress, DraftPeer, DraftPolicy, DraftRule, To};
use super::foreign::{Reader, is_all, texts, without};
use crate::wire::fields::{Fields, clip, pairs, word};
use crate::wire::values;
use crate::yaml::{Node, Tree, Value};

pub(super) fn read(trees: &[Tree], reader: &mut Reader<'_, '_>) -> Draft {
    let mut found = Vec::new();
    for tree in trees {
        if matches!(tree.root.value, Value::Null) {
            continue;
        }
        let kinds = ["networking.k8s.io/v1", "NetworkPolicy"];
        let Some((name, spec)) = resource(&tree.root, kinds, reader) else {
            continue;
        };
        if let Some(policy) = spec.and_then(|spec| policy(name, spec, reader)) {
            found.push(policy);
        }
    }
    open_what_is_not_isolated(found, reader)
}

/// A policy, and whether it isolates what it selects.
pub(super) struct Isolating {
    pub(super) policy: DraftPolicy,
    pub(super) egress: bool,
}

/// Where no policy of the file isolates a pod's egress, the cluster leaves it open. With another
/// policy for the same pods that does, what is open to them depends on both.
pub(super) fn open_what_is_not_isolated(
    found: Vec<Isolating>,
    reader: &mut Reader<'_, '_>,
) -> Draft {
    let isolated: Vec<Labels> = found
        .iter()
        .filter(|one| one.egress)
        .map(|one| one.policy.selector.clone())
        .collect();
    let compatible = |a: &Labels, b: &Labels| {
        a.iter()
            .all(|(key, value)| b.get(key).is_none_or(|other| other == value))
    };
    let mut documents = Vec::new();
    for Isolating { mut policy, egress } in found {
        let covered = isolated.iter().any(|one| {
            // A policy for a superset of these pods isolates all of them.
            one.iter()
                .all(|(key, value)| policy.selector.get(key) == Some(value))
        });
        if !egress && !covered {
            if isolated.iter().any(|one| compatible(one, &policy.selector)) {
                let message = format!(
                    "`{}` leaves egress open to some of its pods, and another policy does not",
                    policy.name
                );
                let help = "give it `policyTypes: [Egress]` and the rules that are meant";
                reader.error(0..0, &message, help);
            }
            policy.egress = Some(DraftRule::everything());
        }
        documents.push(policy);
    }
    Draft { documents }
}

/// The name and the `spec` of a resource.
pub(super) fn resource<'n>(
    node: &'n Node,
    [version, kind]: [&'static str; 2],
    reader: &mut Reader<'_, '_>,
) -> Option<(String, Option<&'n Node>)> {
    let known = ["apiVersion", "kind", "metadata", "spec", "specs", "status"];
    let fields = reader.fields(node, "a resource", &known)?;
    let help = "only policies of this kind are read";
    for (key, expected) in [("apiVersion", version), ("kind", kind)] {
        if let Some(node) = fields.require(key, "a resource", help, reader.problems) {
            word(node, key, &[(expected, ())], reader.problems);
        }
    }
    let mut name = reader.options.name.to_string();
    if let Some(metadata) = fields.get("metadata") {
        let found = pairs(metadata, "metadata", reader.problems).unwrap_or_default();
        for (key, _, value) in found {
            match key {
                "name" => reader.text(value, "name")?.clone_into(&mut name),
                "namespace" => {
                    let namespace = reader.text(value, "namespace")?;
                    let tenant = &reader.options.tenant;
                    let message = format!("the namespace `{}` is `{tenant}` here", clip(namespace));
                    let help = "tenants never reach each other, whatever a policy says";
                    reader.changed(value.span.clone(), &message, help);
                }
                _ => {}
            }
        }
    }
    if let Some(place) = fields.key("specs") {
        reader.error(place, "`specs` is not read", "write one resource for each");
    }
    Some((name, fields.get("spec")))
}

fn policy(name: String, node: &Node, reader: &mut Reader<'_, '_>) -> Option<Isolating> {
    let known = ["podSelector", "policyTypes", "ingress", "egress"];
    let fields = reader.fields(node, "spec", &known)?;
    let mut policy = reader.policy();
    policy.name = name;
    let help = "write `podSelector: {}` for every pod";
    let selector = fields.require("podSelector", "spec", help, reader.problems)?;
    policy.selector = selected(selector, reader)?;
    let types: Vec<&str> = reader
        .list_of(&fields, "policyTypes")
        .iter()
        .filter_map(|node| reader.text(node, "a policy type"))
        .collect();
    let stated = fields.key("policyTypes").is_some();
    // Without the list, ingress is isolated always, and egress where there are rules on it.
    let egress = if stated {
        types.contains(&"Egress")
    } else {
        fields.key("egress").is_some()
    };
    if !stated || types.contains(&"Ingress") {
        let nodes = reader.list_of(&fields, "ingress");
        let rules = nodes.iter().flat_map(|node| ingress(node, reader));
        policy.ingress = Some(rules.collect());
    } else {
        let help = "write an ingress rule with `from: { cidr: [\"::/0\"] }` where that is wanted";
        let message = "members of shared networks get in, and nobody from outside";
        reader.changed(fields.span.clone(), message, help);
    }
    if egress {
        let nodes = reader.list_of(&fields, "egress");
        let rules = nodes.iter().flat_map(|node| self::egress(node, reader));
        policy.egress = Some(rules.collect());
    }
    Some(Isolating { policy, egress })
}

/// A selector that asks for labels with one value each.
pub(super) fn selected(node: &Node, reader: &mut Reader<'_, '_>) -> Option<Labels> {
    let fields = reader.fields(node, "a selector", &["matchLabels", "matchExpressions"])?;
    if let Some(place) = fields.key("matchExpressions") {
        let help = "a selector asks for labels with one value each: use `matchLabels`";
        reader.error(place, "`matchExpressions` cannot be expressed", help);
        return None;
    }
    match fields.get("matchLabels") {
        Some(node) => values::labels(node, "matchLabels", reader.problems),
        None => Some(Labels::default()),
    }
}

fn ingress(node: &Node, reader: &mut Reader<'_, '_>) -> Vec<DraftIngress> {
    let Some(fields) = reader.fields(node, "an ingress rule", &["from", "ports"]) else {
        return Vec::new();
    };
    let ports: Vec<String> = match ports(&fields, reader) {
        Some(ports) => ports,
        None => return Vec::new(),
    };
    let rule = |from| DraftIngress {
        from,
        ports: ports.clone(),
    };
    let peers = reader.list_of(&fields, "from");
    if peers.is_empty() {
        // No list, or an empty one: every source.
        let everyone = DraftPeer::Members(Labels::default());
        let outside = DraftPeer::Outside(vec!["::/0".to_owned()]);
        return vec![rule(everyone), rule(outside)];
    }
    peers
        .iter()
        .filter_map(|node| {
            let fields = peer(node, reader)?;
            if let Some(block) = fields.get("ipBlock") {
                let (v6, v4): (Vec<_>, Vec<_>) = block_of(block, reader)?
                    .into_iter()
                    .partition(|prefix| matches!(prefix, IpNet::V6(_)));
                if !v4.is_empty() {
                    let help = "sandboxes have IPv6 addresses only";
                    let message = "IPv4 sources reach no sandbox, and are left out";
                    reader.changed(block.span.clone(), message, help);
                }
                return (!v6.is_empty()).then(|| rule(DraftPeer::Outside(texts(&v6))));
            }
            let selector = fields.get("podSelector")?;
            Some(rule(DraftPeer::Members(selected(selector, reader)?)))
        })
        .collect()
}

fn peer<'n>(node: &'n Node, reader: &mut Reader<'_, '_>) -> Option<Fields<'n>> {
    let known = ["podSelector", "namespaceSelector", "ipBlock"];
    let fields = reader.fields(node, "a peer", &known)?;
    if let Some(place) = fields.key("namespaceSelector") {
        let help = "tenants never reach each other: select pods of the same namespace";
        reader.error(place, "`namespaceSelector` cannot be expressed", help);
        return None;
    }
    Some(fields)
}

/// The prefixes of an `ipBlock`.
fn block_of(node: &Node, reader: &mut Reader<'_, '_>) -> Option<Vec<IpNet>> {
    let fields = reader.fields(node, "ipBlock", &["cidr", "except"])?;
    let help = "name the prefix";
    let cidr = fields.require("cidr", "ipBlock", help, reader.problems)?;
    let prefix = reader.prefix(cidr)?;
    let nodes = reader.list_of(&fields, "except");
    let except: Vec<IpNet> = nodes.iter().filter_map(|n| reader.prefix(n)).collect();
    Some(without(prefix, &except))
}

fn egress(node: &Node, reader: &mut Reader<'_, '_>) -> Vec<DraftRule> {
    let Some(fields) = reader.fields(node, "an egress rule", &["to", "ports"]) else {
        return Vec::new();
    };
    let Some(ports) = ports(&fields, reader) else {
        return Vec::new();
    };
    let peers = reader.list_of(&fields, "to");
    if peers.is_empty() {
        return reach(None, &ports, &fields, reader);
    }
    let resolver = ports
        .iter()
        .all(|port| matches!(port.as_str(), "udp/53" | "tcp/53"));
    let mut rules = Vec::new();
    for node in peers {
        let known = ["podSelector", "namespaceSelector", "ipBlock"];
        let Some(peer) = reader.fields(node, "a peer", &known) else {
            continue;
        };
        if let Some(block) = peer.get("ipBlock") {
            if let Some(prefixes) = block_of(block, reader) {
                rules.extend(reach(Some(prefixes), &ports, &fields, reader));
            }
        } else if resolver {
            let help = "names that rules mention are answered by Causeway's own resolver";
            reader.changed(
                node.span.clone(),
                "the way to the cluster's resolver is left out",
                help,
            );
        } else {
            let help = "who reaches a sandbox is said by ingress rules of that sandbox";
            reader.error(
                node.span.clone(),
                "pods as destinations cannot be expressed",
                help,
            );
        }
    }
    rules
}

/// Rules for prefixes, or for everything, on these ports.
pub(super) fn reach(
    prefixes: Option<Vec<IpNet>>,
    ports: &[String],
    fields: &Fields<'_>,
    reader: &mut Reader<'_, '_>,
) -> Vec<DraftRule> {
    let every = ports.iter().any(|port| port == "*");
    let tcp: Vec<&str> = ports
        .iter()
        .map(String::as_str)
        .filter(|p| !p.starts_with("udp"))
        .collect();
    let all: Vec<&str> = ports.iter().map(String::as_str).collect();
    let mut rules = Vec::new();
    let everywhere = prefixes
        .as_ref()
        .is_none_or(|prefixes| prefixes.iter().any(is_all));
    let prefixes = match prefixes {
        Some(prefixes) => texts(&prefixes),
        None => vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
    };
    if everywhere {
        // Names stand for addresses that are all permitted.
        let names = To::Names(vec![crate::model::NamePattern::Any]);
        let ports = if every { vec!["tcp/*"] } else { tcp.clone() };
        if !ports.is_empty() {
            rules.push(DraftRule::permit(names, &ports));
        }
    }
    let (v6, v4): (Vec<String>, Vec<String>) = prefixes.into_iter().partition(|p| p.contains(':'));
    if !v6.is_empty() {
        rules.push(DraftRule::permit(To::Prefixes(v6), &all));
    }
    if !v4.is_empty() && tcp.len() < all.len() {
        let help = "sandboxes speak IPv6, and reach IPv4 addresses through the proxy, by TCP";
        let message = "UDP to IPv4 addresses is left out";
        reader.changed(fields.span.clone(), message, help);
    }
    if !v4.is_empty() && !tcp.is_empty() {
        rules.push(DraftRule::permit(To::Prefixes(v4), &tcp));
    }
    rules
}

/// Ports of a rule; every one where there is no list, and none where one cannot be read.
fn ports(fields: &Fields<'_>, reader: &mut Reader<'_, '_>) -> Option<Vec<String>> {
    let nodes = reader.list_of(fields, "ports");
    if nodes.is_empty() {
        return Some(vec!["*".to_owned()]);
    }
    nodes.iter().map(|node| port(node, reader)).collect()
}

fn port(node: &Node, reader: &mut Reader<'_, '_>) -> Option<String> {
    let fields = reader.fields(node, "a port", &["protocol", "port", "endPort"])?;
    let protocol = match fields.get("protocol") {
        None => "tcp",
        Some(node) => {
            let known = [("TCP", "tcp"), ("UDP", "udp")];
            word(node, "protocol", &known, reader.problems)?
        }
    };
    let mut number = |key| match fields.get(key) {
        None => Some(None),
        Some(node) => {
            let text = reader.text(node, key)?;
            if let Ok(port @ 1..) = text.parse::<u16>() {
                return Some(Some(port));
            }
            let message = format!("`{}` is not a port number", clip(text));
            let help = "ports with names are a container's: write the number";
            reader.error(node.span.clone(), &message, help);
            None
        }
    };
    let (first, last) = (number("port")?, number("endPort")?);
    Some(match (first, last) {
        (None, _) => format!("{protocol}/*"),
        (Some(first), None) => format!("{protocol}/{first}"),
        (Some(first), Some(last)) => format!("{protocol}/{first}-{last}"),
    })
}
