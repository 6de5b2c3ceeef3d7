//! Cilium `CiliumNetworkPolicy`: as Kubernetes', and denials beat what is allowed.
//!
//! In `matchPattern`, `*` stays within a label, `**.` at the front is one label or more, and `*`
//! alone is every name. An empty list of rules is as if it were not there; `[{}]` allows nothing.
//! Paths and methods of requests are regular expressions that match the whole.

use causeway_types::Labels;
use ipnet::IpNet;

use super::draft::{Draft, DraftIngress, DraftPeer, DraftRule, To};
use super::foreign::{Reader, Star, texts, without};
use super::kubernetes::{self, Isolating};
use crate::model::NamePattern;
use crate::wire::fields::{Fields, clip, pairs, word};
use crate::yaml::{Node, Tree, Value};

pub(super) fn read(trees: &[Tree], reader: &mut Reader<'_, '_>) -> Draft {
    let mut found = Vec::new();
    for tree in trees {
        if matches!(tree.root.value, Value::Null) {
            continue;
        }
        let kinds = ["cilium.io/v2", "CiliumNetworkPolicy"];
        let Some((name, spec)) = kubernetes::resource(&tree.root, kinds, reader) else {
            continue;
        };
        if let Some(policy) = spec.and_then(|spec| policy(name, spec, reader)) {
            found.push(policy);
        }
    }
    kubernetes::open_what_is_not_isolated(found, reader)
}

fn policy(name: String, node: &Node, reader: &mut Reader<'_, '_>) -> Option<Isolating> {
    let known = [
        "endpointSelector",
        "egress",
        "egressDeny",
        "ingress",
        "ingressDeny",
        "description",
        "labels",
        "enableDefaultDeny",
    ];
    let fields = reader.fields(node, "spec", &known)?;
    if let Some(place) = fields.key("enableDefaultDeny") {
        let help = "what no policy permits is denied";
        reader.error(place, "`enableDefaultDeny` cannot be expressed", help);
    }
    if let Some(place) = fields.key("ingressDeny") {
        let help = "who is not let in is kept out: write what is allowed";
        reader.error(place, "`ingressDeny` cannot be expressed", help);
    }
    let help = "write `endpointSelector: {}` for every endpoint";
    let selector = fields.require("endpointSelector", "spec", help, reader.problems)?;
    let mut policy = reader.policy();
    policy.name = name;
    policy.selector = labels(selector, reader)?;
    let mut rules = Vec::new();
    for node in reader.list_of(&fields, "egress") {
        egress(node, false, &mut rules, reader);
    }
    for node in reader.list_of(&fields, "egressDeny") {
        egress(node, true, &mut rules, reader);
    }
    // An empty list is as if it were not there, and denials isolate as well.
    let mut some = |key| !reader.list_of(&fields, key).is_empty();
    let isolates = some("egress") || some("egressDeny");
    if isolates {
        policy.egress = Some(rules);
    }
    let nodes = reader.list_of(&fields, "ingress");
    if !nodes.is_empty() {
        let rules = nodes.iter().flat_map(|node| ingress(node, reader));
        policy.ingress = Some(rules.collect());
    }
    Some(Isolating {
        policy,
        egress: isolates,
    })
}

/// Labels of a selector, without the prefixes that say where a label is from.
fn labels(node: &Node, reader: &mut Reader<'_, '_>) -> Option<Labels> {
    let fields = reader.fields(node, "a selector", &["matchLabels", "matchExpressions"])?;
    if let Some(place) = fields.key("matchExpressions") {
        let help = "a selector asks for labels with one value each: use `matchLabels`";
        reader.error(place, "`matchExpressions` cannot be expressed", help);
        return None;
    }
    let Some(node) = fields.get("matchLabels") else {
        return Some(Labels::default());
    };
    let mut found = Vec::new();
    for (key, place, value) in pairs(node, "matchLabels", reader.problems)? {
        let bare = ["k8s:", "any:"]
            .iter()
            .find_map(|prefix| key.strip_prefix(prefix));
        let key = bare.unwrap_or(key);
        if key.contains(':') || key.starts_with("io.kubernetes.pod.namespace") {
            let help = "tenants never reach each other, and only labels of sandboxes are known";
            reader.error(place.span.clone(), "this label cannot be expressed", help);
            continue;
        }
        found.push((key.to_owned(), reader.text(value, "a label")?.to_owned()));
    }
    match Labels::new(found) {
        Ok(labels) => Some(labels),
        Err(error) => {
            reader.error(node.span.clone(), &error.to_string(), "use shorter labels");
            None
        }
    }
}

fn egress(node: &Node, deny: bool, rules: &mut Vec<DraftRule>, reader: &mut Reader<'_, '_>) {
    let known = [
        "toFQDNs",
        "toCIDR",
        "toCIDRSet",
        "toEntities",
        "toEndpoints",
        "toPorts",
    ];
    let Some(fields) = reader.fields(node, "an egress rule", &known) else {
        return;
    };
    let Some(ports) = ports(&fields, reader) else {
        return;
    };
    let first = rules.len();
    if let Some(node) = fields.get("toEndpoints") {
        let resolver =
            !ports.list.is_empty() && ports.list.iter().all(|port| port.ends_with("/53"));
        if resolver {
            let help = "names that rules mention are answered by Causeway's own resolver";
            let message = "the way to the cluster's resolver is left out";
            reader.changed(node.span.clone(), message, help);
        } else {
            let help = "who reaches a sandbox is said by ingress rules of that sandbox";
            let message = "endpoints as destinations cannot be expressed";
            reader.error(node.span.clone(), message, help);
        }
        return;
    }
    for node in reader.list_of(&fields, "toEntities") {
        if word(node, "toEntities", &[("world", ())], reader.problems).is_some() {
            let all = vec![
                IpNet::V4(ipnet::Ipv4Net::default()),
                IpNet::V6(ipnet::Ipv6Net::default()),
            ];
            rules.extend(kubernetes::reach(
                Some(all),
                &ports.or_all(),
                &fields,
                reader,
            ));
        }
    }
    let mut prefixes: Vec<IpNet> = Vec::new();
    for node in reader.list_of(&fields, "toCIDR") {
        prefixes.extend(reader.prefix(node));
    }
    for node in reader.list_of(&fields, "toCIDRSet") {
        prefixes.extend(set(node, reader));
    }
    if !prefixes.is_empty() {
        rules.extend(kubernetes::reach(
            Some(prefixes),
            &ports.or_all(),
            &fields,
            reader,
        ));
    }
    let names: Vec<NamePattern> = reader
        .list_of(&fields, "toFQDNs")
        .iter()
        .filter_map(|node| fqdn(node, reader))
        .collect();
    if !names.is_empty() {
        rules.extend(named(names, &ports, &fields, reader));
    }
    if !ports.http.is_empty() && rules[first..].iter().any(|rule| rule.http.is_empty()) {
        let help = "requests are matched on hosts by name: use `toFQDNs`";
        reader.error(fields.span.clone(), "rules on requests without names", help);
    }
    let unbound = ["toFQDNs", "toCIDR", "toCIDRSet", "toEntities"];
    if unbound.iter().all(|key| fields.key(key).is_none()) && fields.key("toPorts").is_some() {
        // Ports alone: every destination, and other endpoints are a matter of their ingress.
        rules.extend(kubernetes::reach(None, &ports.or_all(), &fields, reader));
    }
    for rule in &mut rules[first..] {
        rule.deny = deny;
    }
}

fn named(
    names: Vec<NamePattern>,
    ports: &Ports,
    fields: &Fields<'_>,
    reader: &mut Reader<'_, '_>,
) -> Option<DraftRule> {
    let tcp: Vec<&str> = match ports.list.as_slice() {
        [] => {
            let help = "the proxy, which knows names, carries TCP only";
            reader.changed(fields.span.clone(), "names are reached by TCP only", help);
            vec!["tcp/*"]
        }
        list => list.iter().map(String::as_str).collect(),
    };
    if let Some(udp) = tcp.iter().find(|port| port.starts_with("udp")) {
        let message = format!("`{udp}` cannot be matched by name");
        let help = "the proxy, which knows names, carries TCP only: use `toCIDR`";
        reader.error(fields.span.clone(), &message, help);
        return None;
    }
    Some(DraftRule {
        http: ports.http.clone(),
        ..DraftRule::permit(To::Names(names), &tcp)
    })
}

fn fqdn(node: &Node, reader: &mut Reader<'_, '_>) -> Option<NamePattern> {
    let fields = reader.fields(node, "a name", &["matchName", "matchPattern"])?;
    match (fields.get("matchName"), fields.get("matchPattern")) {
        (Some(name), None) => {
            if reader.text(name, "matchName")?.contains('*') {
                let help = "use `matchPattern`";
                reader.error(name.span.clone(), "`matchName` takes no wildcard", help);
                return None;
            }
            reader.name(name, Star::OneLabel)
        }
        (None, Some(pattern)) => reader.name(pattern, Star::OneLabel),
        _ => {
            let help = "each has a `matchName` or a `matchPattern`";
            reader.error(fields.span.clone(), "not one name", help);
            None
        }
    }
}

fn set(node: &Node, reader: &mut Reader<'_, '_>) -> Vec<IpNet> {
    let Some(fields) = reader.fields(node, "a prefix", &["cidr", "except"]) else {
        return Vec::new();
    };
    let nodes = reader.list_of(&fields, "except");
    let except: Vec<IpNet> = nodes.iter().filter_map(|n| reader.prefix(n)).collect();
    let help = "name the prefix";
    let cidr = fields.require("cidr", "a prefix", help, reader.problems);
    let prefix = cidr.and_then(|node| reader.prefix(node));
    prefix
        .map(|prefix| without(prefix, &except))
        .unwrap_or_default()
}

/// What `toPorts` says. No port is every port.
#[derive(Default)]
struct Ports {
    list: Vec<String>,
    http: Vec<(Vec<String>, Vec<String>)>,
}

impl Ports {
    fn or_all(&self) -> Vec<String> {
        match self.list.as_slice() {
            [] => vec!["*".to_owned()],
            list => list.to_vec(),
        }
    }
}

fn ports(fields: &Fields<'_>, reader: &mut Reader<'_, '_>) -> Option<Ports> {
    let mut found = Ports::default();
    let entries = reader.list_of(fields, "toPorts");
    for node in entries {
        let known = ["ports", "rules", "terminatingTLS", "originatingTLS"];
        let entry = reader.fields(node, "toPorts", &known)?;
        for key in ["terminatingTLS", "originatingTLS"] {
            if let Some(place) = entry.key(key) {
                let help = "Causeway makes certificates itself, and checks those of servers";
                reader.changed(place, &format!("`{key}` is left out"), help);
            }
        }
        for node in reader.list_of(&entry, "ports") {
            found.list.extend(port(node, reader)?);
        }
        let Some(rules) = entry.get("rules") else {
            continue;
        };
        let rules = reader.fields(rules, "rules", &["http", "dns"])?;
        let requests = reader.list_of(&rules, "http");
        if !requests.is_empty() && entries.len() > 1 {
            let help = "split it into several rules";
            let message = "rules on requests for some ports of several";
            reader.error(node.span.start..node.span.start, message, help);
        }
        for node in requests {
            found.http.push(http(node, reader)?);
        }
    }
    Some(found)
}

fn port(node: &Node, reader: &mut Reader<'_, '_>) -> Option<Vec<String>> {
    let fields = reader.fields(node, "a port", &["port", "endPort", "protocol"])?;
    let protocols: &[&str] = match fields.get("protocol") {
        None => &["tcp", "udp"],
        Some(node) => {
            let known: [(&str, &[&str]); 3] = [
                ("TCP", &["tcp"]),
                ("UDP", &["udp"]),
                ("ANY", &["tcp", "udp"]),
            ];
            word(node, "protocol", &known, reader.problems)?
        }
    };
    let mut number = |key| match fields.get(key) {
        None => Some(None),
        Some(node) => {
            let text = reader.text(node, key)?;
            if let Ok(port) = text.parse::<u16>() {
                return Some(Some(port));
            }
            let message = format!("`{}` is not a port number", clip(text));
            let help = "ports with names are a container's: write the number";
            reader.error(node.span.clone(), &message, help);
            None
        }
    };
    let ports = match (number("port")?, number("endPort")?) {
        (None | Some(0), _) => "*".to_owned(),
        (Some(first), None | Some(0)) => first.to_string(),
        (Some(first), Some(last)) => format!("{first}-{last}"),
    };
    Some(protocols.iter().map(|p| format!("{p}/{ports}")).collect())
}

fn http(node: &Node, reader: &mut Reader<'_, '_>) -> Option<(Vec<String>, Vec<String>)> {
    let fields = reader.fields(node, "a request", &["method", "path"])?;
    let mut read = |key, translate: fn(&str) -> Option<Vec<String>>, any: &str| {
        let Some(node) = fields.get(key) else {
            return Some(vec![any.to_owned()]);
        };
        let text = reader.text(node, key)?;
        let found = translate(text);
        if found.is_none() {
            let message = format!("the expression `{}` cannot be expressed", clip(text));
            let help = "words with `|` between them, and paths that are written out or end with \
                        `/.*`, can be";
            reader.error(node.span.clone(), &message, help);
        }
        found
    };
    Some((read("method", methods, "*")?, read("path", paths, "/**")?))
}

fn methods(text: &str) -> Option<Vec<String>> {
    if text == ".*" {
        return Some(vec!["*".to_owned()]);
    }
    let word = |word: &str| word.bytes().all(|b| b.is_ascii_uppercase()) && !word.is_empty();
    text.split('|')
        .map(|one| word(one).then(|| one.to_owned()))
        .collect()
}

/// Expressions whose meaning a glob has: a path that is written out, `/` and anything at the end,
/// and one segment of anything.
fn paths(text: &str) -> Option<Vec<String>> {
    if matches!(text, ".*" | "/.*") {
        return Some(vec!["/**".to_owned()]);
    }
    text.split('|').map(path).collect()
}

fn path(text: &str) -> Option<String> {
    let text = text.strip_prefix('^').unwrap_or(text);
    let text = text.strip_suffix('$').unwrap_or(text);
    let segments: Vec<&str> = text.strip_prefix('/')?.split('/').collect();
    // `[^/]+` has a slash of its own.
    let mut glob = String::new();
    let mut rest = segments.iter().peekable();
    while let Some(segment) = rest.next() {
        glob.push('/');
        match *segment {
            ".*" if rest.peek().is_none() => glob.push_str("**"),
            "[^" if rest.peek() == Some(&&"]+") => {
                rest.next();
                glob.push('*');
            }
            literal => glob.push_str(&unescaped(literal)?),
        }
    }
    Some(glob)
}

/// A segment without anything special in it; a dot has to be escaped.
fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                c @ ('.' | '-' | '_' | '+') => plain.push(c),
                _ => return None,
            },
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '~' | '@' | ':' | ',' | '=' => {
                plain.push(c);
            }
            _ => return None,
        }
    }
    Some(plain)
}

fn ingress(node: &Node, reader: &mut Reader<'_, '_>) -> Vec<DraftIngress> {
    let known = [
        "fromEndpoints",
        "fromCIDR",
        "fromCIDRSet",
        "fromEntities",
        "toPorts",
    ];
    let Some(fields) = reader.fields(node, "an ingress rule", &known) else {
        return Vec::new();
    };
    let Some(ports) = ports(&fields, reader) else {
        return Vec::new();
    };
    if !ports.http.is_empty() {
        let help = "who gets in is judged by packets: remove the rules on requests";
        reader.error(fields.span.clone(), "rules on requests that come in", help);
    }
    let mut peers = Vec::new();
    for node in reader.list_of(&fields, "fromEndpoints") {
        peers.extend(labels(node, reader).map(DraftPeer::Members));
    }
    let mut prefixes: Vec<IpNet> = Vec::new();
    for node in reader.list_of(&fields, "fromCIDR") {
        prefixes.extend(reader.prefix(node));
    }
    for node in reader.list_of(&fields, "fromCIDRSet") {
        prefixes.extend(set(node, reader));
    }
    for node in reader.list_of(&fields, "fromEntities") {
        if word(node, "fromEntities", &[("world", ())], reader.problems).is_some() {
            prefixes.push(IpNet::V6(ipnet::Ipv6Net::default()));
        }
    }
    let (v6, v4): (Vec<_>, Vec<_>) = prefixes
        .into_iter()
        .partition(|prefix| matches!(prefix, IpNet::V6(_)));
    if !v4.is_empty() {
        let help = "sandboxes have IPv6 addresses only";
        let message = "IPv4 sources reach no sandbox, and are left out";
        reader.changed(fields.span.clone(), message, help);
    }
    if !v6.is_empty() {
        peers.push(DraftPeer::Outside(texts(&v6)));
    }
    let sources = ["fromEndpoints", "fromCIDR", "fromCIDRSet", "fromEntities"];
    if sources.iter().all(|key| fields.key(key).is_none()) && fields.key("toPorts").is_some() {
        peers.push(DraftPeer::Members(Labels::default()));
        peers.push(DraftPeer::Outside(vec!["::/0".to_owned()]));
    }
    let rule = |from| DraftIngress {
        from,
        ports: ports.or_all(),
    };
    peers.into_iter().map(rule).collect()
}
