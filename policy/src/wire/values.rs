//! Values that several sections share: ports, prefixes, labels, rule names.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use causeway_types::{Labels, NAT64_PREFIX};
use ipnet::{IpNet, Ipv4Net};

use super::fields::{Fields, clip, list, pairs, parsed, text};
use crate::bounds;
use crate::model::{PortError, PortRange, PortSet, RuleName};
use crate::problems::Problems;
use crate::yaml::{Node, Value};

/// The rule's own name, or a number; each name once in a document.
pub(super) fn rule_name(
    fields: &Fields<'_>,
    section: &str,
    index: usize,
    names: &mut BTreeSet<RuleName>,
    problems: &mut Problems<'_>,
) -> RuleName {
    let node = fields.get("name");
    let name = node
        .and_then(|node| parsed(node, "the name", RuleName::new, problems))
        .unwrap_or_else(|| RuleName::numbered(section, index));
    if !names.insert(name.clone()) {
        let place = node.map_or_else(|| fields.span.clone(), |node| node.span.clone());
        let message = format!("the rule name `{name}` is taken by another rule of this document");
        problems.error(
            place,
            message,
            "logs and refusals name rules: give it another name",
        );
    }
    name
}

/// `ports`, with the place of each entry.
pub(super) fn ports<'n>(
    node: &'n Node,
    problems: &mut Problems<'_>,
) -> Option<(PortSet, Vec<(PortRange, &'n Node)>)> {
    let entries = list(node, "ports", bounds::PORTS, problems)?;
    let is_star = |node: &Node| matches!(&node.value, Value::Scalar(text) if text == "*");
    if let Some(star) = entries.iter().find(|node| is_star(node)) {
        if entries.len() > 1 {
            let help = "`*` is every port of every protocol: leave the other entries out";
            problems.error(star.span.clone(), "`*` stands beside other ports", help);
        }
        return Some((PortSet::Every, Vec::new()));
    }
    let ranges: Vec<_> = entries
        .iter()
        .filter_map(|node| Some((port(node, problems)?, node)))
        .collect();
    let set = PortSet::Ranges(ranges.iter().map(|(range, _)| *range).collect());
    Some((set, ranges))
}

fn port(node: &Node, problems: &mut Problems<'_>) -> Option<PortRange> {
    let text = text(node, "a port", problems)?;
    let error = match PortRange::parse(text) {
        Ok(range) => return Some(range),
        Err(error) => error,
    };
    let help = match error {
        PortError::OutOfRange | PortError::Backwards => {
            "ports are from 1 to 65535, lower end first"
        }
        PortError::NoPorts => "write `icmpv6`",
        PortError::UnknownProtocol | PortError::Malformed => {
            "write `443`, `tcp/443`, `udp/53`, `tcp/8000-8100`, `tcp/*`, `icmpv6`, or `*` for \
             everything"
        }
    };
    problems.error(
        node.span.clone(),
        format!("`{}`: {error}", clip(text)),
        help,
    );
    None
}

/// A prefix without host bits, in the one way to write it.
pub(super) fn prefix(node: &Node, problems: &mut Problems<'_>) -> Option<IpNet> {
    let text = text(node, "a prefix", problems)?;
    match check_prefix(text) {
        Ok(prefix) => Some(prefix),
        Err((message, help)) => {
            let message = format!("`{}` {message}", clip(text));
            problems.error_with(node.span.clone(), message, help);
            None
        }
    }
}

fn check_prefix(text: &str) -> Result<IpNet, (&'static str, String)> {
    let Ok(prefix) = text.parse::<IpNet>() else {
        return Err(match text.parse::<IpAddr>() {
            Ok(address) => (
                "has no length",
                format!("write `{}` for this one address", IpNet::from(address)),
            ),
            Err(_) => (
                "is not a prefix",
                "write for example `2001:db8:500::/48` or `192.0.2.0/24`; names go under `to`"
                    .to_owned(),
            ),
        });
    };
    if prefix.trunc() != prefix {
        return Err((
            "has bits set behind its length",
            format!("did you mean `{}`?", prefix.trunc()),
        ));
    }
    if let Some(inner) = inner_ipv4(&prefix) {
        return Err((
            "spells an IPv4 prefix in IPv6 form",
            format!("write `{inner}`: rules name IPv4 destinations by their own addresses"),
        ));
    }
    Ok(prefix)
}

/// The IPv4 prefix inside a mapped one or inside our translation prefix: what is dialled is
/// the IPv4 address, so such a rule would never match.
fn inner_ipv4(prefix: &IpNet) -> Option<Ipv4Net> {
    let IpNet::V6(v6) = prefix else { return None };
    let length = v6.prefix_len().checked_sub(96)?;
    let mapped = Ipv6Addr::from_bits(0xffff_0000_0000);
    let high = |address: Ipv6Addr| address.to_bits() >> 32;
    let address = v6.network();
    if high(address) != high(mapped) && !NAT64_PREFIX.contains(&address) {
        return None;
    }
    let [.., a, b, c, d] = address.octets();
    Ipv4Net::new([a, b, c, d].into(), length).ok()
}

/// Labels, each key once.
pub(crate) fn labels(node: &Node, what: &str, problems: &mut Problems<'_>) -> Option<Labels> {
    let mut good = Vec::new();
    for (key, key_node, value) in pairs(node, what, problems)? {
        let Some(text) = text(value, "a label's value", problems) else {
            continue;
        };
        let pair = (key.to_owned(), text.to_owned());
        match Labels::new([pair.clone()]) {
            Ok(_) => good.push(pair),
            Err(error) => {
                let place = key_node.span.start..value.span.end;
                problems.error(place, error.to_string(), None);
            }
        }
    }
    match Labels::new(good) {
        Ok(labels) => Some(labels),
        Err(error) => {
            problems.error(node.span.clone(), error.to_string(), None);
            None
        }
    }
}
