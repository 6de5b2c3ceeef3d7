//! What the dialects have in common: wildcards, address lists, values of headers.

use std::net::IpAddr;
use std::ops::Range;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::ImportOptions;
use super::draft::{DraftPolicy, DraftSecret};
use crate::bounds;
use crate::model::{HeaderName, NamePattern};
use crate::problems::Problems;
use crate::wire::fields::{self, Fields, clip};
use crate::yaml::{Node, Value};

/// What is read with, and where problems go.
pub(super) struct Reader<'r, 't> {
    pub(super) options: &'r ImportOptions,
    pub(super) problems: &'r mut Problems<'t>,
    /// Where values of secrets may be: they are never shown.
    pub(super) hidden: Vec<Range<usize>>,
}

/// What `*.example.com` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Star {
    /// One label, and `**` one or more.
    OneLabel,
    /// One label or more.
    AnyDepth,
}

/// A destination in a list that mixes names and addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    Name(NamePattern),
    Prefix(IpNet),
}

impl Reader<'_, '_> {
    pub(super) fn error(&mut self, span: Range<usize>, message: &str, help: &'static str) {
        self.problems.error(span, message, help);
    }

    /// Something was said in other words, or left out.
    pub(super) fn changed(&mut self, span: Range<usize>, message: &str, help: &'static str) {
        self.problems.warning(span, message.to_owned(), help);
    }

    /// The mapping of a node.
    pub(super) fn fields<'n>(
        &mut self,
        node: &'n Node,
        what: &str,
        known: &[&str],
    ) -> Option<Fields<'n>> {
        Fields::read(node, what, known, self.problems)
    }

    pub(super) fn text<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n str> {
        fields::text(node, what, self.problems)
    }

    /// A list, which may be empty.
    pub(super) fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        fields::maybe_empty(node, what, bounds::NAMES, self.problems).unwrap_or_default()
    }

    /// A list of a key, empty when the key is not there.
    pub(super) fn list_of<'n>(&mut self, fields: &Fields<'n>, key: &str) -> &'n [Node] {
        match fields.get(key) {
            Some(node) => self.list(node, key),
            None => &[],
        }
    }

    pub(super) fn flag(&mut self, node: &Node, what: &str) -> Option<bool> {
        fields::word(
            node,
            what,
            &[("true", true), ("false", false)],
            self.problems,
        )
    }

    /// A key that cannot be expressed: an error, unless it may be dropped.
    pub(super) fn cannot(&mut self, fields: &Fields<'_>, key: &'static str, why: &str) {
        let Some(place) = fields.key(key) else { return };
        if self.options.drop.contains(key) {
            let message = format!("`{key}` is left out: {why}");
            self.changed(place, &message, "it was asked for with `--drop`");
        } else {
            let message = format!("`{key}` cannot be expressed: {why}");
            let help = format!("remove it, or import with `--drop {key}` to go on without it");
            self.problems.error_with(place, message, help);
        }
    }

    /// A key that is about something else than the network.
    pub(super) fn elsewhere(&mut self, fields: &Fields<'_>, keys: &[&str]) {
        for key in keys {
            if let Some(place) = fields.key(key) {
                let message = format!("`{key}` is left out");
                let help = "it is not about what a sandbox reaches over the network";
                self.changed(place, &message, help);
            }
        }
    }

    /// Hides the values below a node, as problems are drawn with the lines around them.
    pub(super) fn hide(&mut self, node: &Node) {
        match &node.value {
            Value::List(entries) => entries.iter().for_each(|entry| self.hide(entry)),
            Value::Map(pairs) => {
                for (_, value) in pairs {
                    match value.value {
                        Value::Scalar(_) => self.hidden.push(value.span.clone()),
                        _ => self.hide(value),
                    }
                }
            }
            _ => {}
        }
    }

    /// A policy with what the command line says.
    pub(super) fn policy(&self) -> DraftPolicy {
        DraftPolicy {
            tenant: self.options.tenant.to_string(),
            name: self.options.name.to_string(),
            selector: self.options.selector.clone(),
            ..DraftPolicy::default()
        }
    }

    /// A name with the dialect's wildcards. `*` alone is every name, unless the dialect has no
    /// such thing.
    pub(super) fn name(&mut self, node: &Node, star: Star) -> Option<NamePattern> {
        let text = self.text(node, "a name")?;
        self.name_from(node.span.clone(), text, star)
    }

    pub(super) fn name_from(
        &mut self,
        span: Range<usize>,
        text: &str,
        star: Star,
    ) -> Option<NamePattern> {
        let native = match (text, star) {
            ("*", _) => "**".to_owned(),
            (text, Star::AnyDepth) => match text.strip_prefix("*.") {
                Some(rest) => format!("**.{rest}"),
                None => text.to_owned(),
            },
            (text, Star::OneLabel) => text.to_owned(),
        };
        match NamePattern::parse(&native) {
            Ok(pattern) => {
                if native != text {
                    let message = format!("`{}` is written `{pattern}` here", clip(text));
                    let help = "`*` is one label here, and `**` one or more";
                    self.changed(span, &message, help);
                }
                Some(pattern)
            }
            Err(error) => {
                let message = format!("`{}`: {error}", clip(text));
                let help = "only a wildcard for whole labels at the front can be expressed";
                self.problems.error(span, message, help);
                None
            }
        }
    }

    /// An address, a prefix or a name.
    pub(super) fn entry(&mut self, node: &Node, star: Star) -> Option<Entry> {
        let text = self.text(node, "a destination")?;
        match prefix(text) {
            Some(prefix) => Some(Entry::Prefix(self.truncated(node, prefix))),
            None => self.name(node, star).map(Entry::Name),
        }
    }

    /// A prefix, or an address as one.
    pub(super) fn prefix(&mut self, node: &Node) -> Option<IpNet> {
        let text = self.text(node, "a prefix")?;
        if let Some(prefix) = prefix(text) {
            return Some(self.truncated(node, prefix));
        }
        let message = format!("`{}` is not an address or a prefix", clip(text));
        self.error(
            node.span.clone(),
            &message,
            "write for example `192.0.2.0/24`",
        );
        None
    }

    fn truncated(&mut self, node: &Node, prefix: IpNet) -> IpNet {
        if prefix.trunc() != prefix {
            let message = format!("`{prefix}` is written `{}` here", prefix.trunc());
            let help = "a prefix has no bits behind its length";
            self.changed(node.span.clone(), &message, help);
        }
        prefix.trunc()
    }

    /// Headers with values, as secrets for `hosts`. `place` finds the name of a stored secret
    /// in a value.
    pub(super) fn headers(
        &mut self,
        node: &Node,
        hosts: &[NamePattern],
        place: fn(&str) -> Place<'_>,
    ) -> Vec<DraftSecret> {
        let mut secrets = Vec::new();
        let pairs = fields::pairs(node, "headers", self.problems).unwrap_or_default();
        for (header, key, value) in pairs {
            if let Err(error) = HeaderName::parse(header) {
                let message = format!("`{}`: {error}", clip(header));
                self.error(key.span.clone(), &message, "remove it");
                continue;
            }
            let Some(text) = self.text(value, "the value of a header") else {
                continue;
            };
            if let Some(secret) = self.header(value, header, text, hosts, place(text)) {
                secrets.push(secret);
            }
        }
        secrets
    }

    fn header(
        &mut self,
        node: &Node,
        header: &str,
        text: &str,
        hosts: &[NamePattern],
        place: Place<'_>,
    ) -> Option<DraftSecret> {
        let span = node.span.clone();
        let (name, format) = match place {
            Place::Stored {
                before,
                name,
                after,
            } => {
                let message = format!("`{}` is a secret of Causeway's now", clip(name));
                let help = "give it its value with `causeway secret set`";
                self.changed(span.clone(), &message, help);
                (identifier(name), format!("{before}{{secret}}{after}"))
            }
            Place::Other => {
                let help = "only a value with one stored secret can be expressed";
                self.error(span, "this value cannot be expressed", help);
                return None;
            }
            Place::Literal => {
                // What looks like a scheme stays, and the rest is nowhere in the result.
                let scheme = ["Bearer ", "Basic ", "Token ", "token "]
                    .into_iter()
                    .find(|scheme| text.starts_with(scheme));
                let host = hosts.first().map(ToString::to_string).unwrap_or_default();
                let name = identifier(&format!("{host}_{header}"));
                let message = format!("this value is not in the result: it is the secret `{name}`");
                let help = "give it its value with `causeway secret set`: no file holds values";
                // The place is the header's, so that no value is ever shown.
                self.changed(span.start..span.start, &message, help);
                (name, format!("{}{{secret}}", scheme.unwrap_or_default()))
            }
        };
        Some(DraftSecret {
            name,
            hosts: hosts.to_vec(),
            header: header.to_owned(),
            format,
        })
    }
}

/// Where the secret is in the value of a header.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'t> {
    /// A secret that the other system stores.
    Stored {
        before: &'t str,
        name: &'t str,
        after: &'t str,
    },
    /// No reference: the value itself.
    Literal,
    /// A reference that is no stored secret, or more than one.
    Other,
}

/// Finds the one reference between `open` and `close` in a value. `other` begins references that
/// cannot be expressed.
pub(super) fn reference<'t>(text: &'t str, open: &str, close: &str, other: &[&str]) -> Place<'t> {
    if let Some((before, rest)) = text.split_once(open) {
        return match rest.split_once(close) {
            Some((name, after))
                if !other
                    .iter()
                    .any(|o| before.contains(o) || after.contains(o)) =>
            {
                Place::Stored {
                    before,
                    name,
                    after,
                }
            }
            _ => Place::Other,
        };
    }
    if other.iter().any(|other| text.contains(other)) {
        return Place::Other;
    }
    Place::Literal
}

/// Text as the name of a secret.
fn identifier(text: &str) -> String {
    let mut name: String = text
        .chars()
        .take(128)
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert(0, 'S');
        name.truncate(128);
    }
    name
}

/// An address or prefix.
fn prefix(text: &str) -> Option<IpNet> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    let address = bare.parse::<IpAddr>().ok().map(IpNet::from);
    address.or_else(|| bare.parse().ok())
}

/// What is left of a prefix without others.
pub(super) fn without(prefix: IpNet, holes: &[IpNet]) -> Vec<IpNet> {
    if holes.iter().any(|hole| hole.contains(&prefix)) {
        return Vec::new();
    }
    let inside: Vec<IpNet> = holes
        .iter()
        .filter(|hole| prefix.contains(*hole))
        .copied()
        .collect();
    if inside.is_empty() {
        return vec![prefix];
    }
    let length = prefix.prefix_len() + 1;
    let halves: Vec<IpNet> = match prefix {
        IpNet::V4(net) => Ipv4Net::subnets(&net, length)
            .map(|nets| nets.map(IpNet::V4).collect())
            .unwrap_or_default(),
        IpNet::V6(net) => Ipv6Net::subnets(&net, length)
            .map(|nets| nets.map(IpNet::V6).collect())
            .unwrap_or_default(),
    };
    halves
        .into_iter()
        .flat_map(|half| without(half, &inside))
        .collect()
}

/// Whether a prefix is all of IPv4.
pub(super) fn is_all(prefix: &IpNet) -> bool {
    matches!(prefix, IpNet::V4(net) if net.prefix_len() == 0)
}

/// Whether the node is a list without entries.
pub(super) fn is_empty_list(node: &Node) -> bool {
    matches!(&node.value, Value::List(entries) if entries.is_empty())
}

/// Names and prefixes of a list, each kind for itself.
pub(super) fn split(entries: Vec<Entry>) -> (Vec<NamePattern>, Vec<IpNet>) {
    let (mut names, mut prefixes) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::Name(name) => names.push(name),
            Entry::Prefix(prefix) => prefixes.push(prefix),
        }
    }
    (names, prefixes)
}

/// Prefixes as text.
pub(super) fn texts(prefixes: &[IpNet]) -> Vec<String> {
    prefixes.iter().map(ToString::to_string).collect()
}
