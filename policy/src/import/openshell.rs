//! NVIDIA `OpenShell`, version 1: what no endpoint names is denied, and deny rules win.
//!
//! `*.x` is one label and `**.x` one or more, as here. In paths, `*` and `**` both cross `/`.

use super::draft::{Draft, DraftRule, To};
use super::foreign::{Reader, Star, split, texts};
use crate::model::NamePattern;
use crate::wire::fields::{Fields, clip, pairs, word};
use crate::yaml::Node;

pub(super) fn read(node: &Node, reader: &mut Reader<'_, '_>) -> Draft {
    let local = ["filesystem_policy", "landlock", "process"];
    let known = [
        &["version", "network_policies", "network_middlewares"][..],
        &local,
    ]
    .concat();
    let Some(root) = reader.fields(node, "the policy", &known) else {
        return Draft::default();
    };
    let help = "write `version: 1`";
    if let Some(version) = root.require("version", "the policy", help, reader.problems) {
        word(version, "version", &[("1", ())], reader.problems);
    }
    reader.elsewhere(&root, &local);
    reader.cannot(&root, "network_middlewares", "there are no middlewares");
    let mut policy = reader.policy();
    let mut rules = Vec::new();
    if let Some(policies) = root.get("network_policies") {
        let entries = pairs(policies, "network_policies", reader.problems).unwrap_or_default();
        for (key, _, entry) in entries {
            group(key, entry, &mut rules, reader);
        }
    }
    policy.egress = Some(rules);
    Draft {
        documents: vec![policy],
    }
}

fn group(key: &str, node: &Node, rules: &mut Vec<DraftRule>, reader: &mut Reader<'_, '_>) {
    let Some(fields) = reader.fields(node, "an entry", &["name", "endpoints", "binaries"]) else {
        return;
    };
    binaries(&fields, reader);
    for (index, node) in reader.list_of(&fields, "endpoints").iter().enumerate() {
        let first = rules.len();
        endpoint(node, rules, reader);
        for (offset, rule) in rules[first..].iter_mut().enumerate() {
            rule.name = Some(rule_name(key, index, offset));
        }
    }
}

fn rule_name(key: &str, index: usize, offset: usize) -> String {
    let good = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let key: String = key.chars().take(40).map(good).collect();
    let suffix = match offset {
        0 => String::new(),
        1 => "-deny".to_owned(),
        more => format!("-{more}"),
    };
    format!("{key}-{}{suffix}", index + 1)
}

/// Every program reaches what a sandbox reaches, so a list of programs is kept only when it names
/// all of them.
fn binaries(fields: &Fields<'_>, reader: &mut Reader<'_, '_>) {
    let mut all = false;
    for node in reader.list_of(fields, "binaries") {
        if let Some(fields) = reader.fields(node, "a binary", &["path", "harness"])
            && let Some(path) = fields.get("path")
        {
            all |= matches!(reader.text(path, "path"), Some("/**" | "**"));
        }
    }
    if !all {
        reader.cannot(
            fields,
            "binaries",
            "a sandbox's programs are not told apart",
        );
    }
}

const KEYS: [&str; 27] = [
    "host",
    "port",
    "ports",
    "path",
    "protocol",
    "tls",
    "enforcement",
    "access",
    "rules",
    "deny_rules",
    "allowed_ips",
    "allow_encoded_slash",
    "websocket_credential_rewrite",
    "request_body_credential_rewrite",
    "allow_uninspected_credentials",
    "credential_signing",
    "signing_service",
    "signing_region",
    "persisted_queries",
    "graphql_persisted_queries",
    "graphql_max_body_bytes",
    "mcp",
    "json_rpc",
    "advisor_proposed",
    "credential_keys",
    "credential_binding",
    "credential_scope",
];

fn endpoint(node: &Node, rules: &mut Vec<DraftRule>, reader: &mut Reader<'_, '_>) {
    let Some(fields) = reader.fields(node, "an endpoint", &KEYS) else {
        return;
    };
    for key in &KEYS[11..] {
        reader.cannot(
            &fields,
            key,
            "it is about what OpenShell does inside of requests",
        );
    }
    let why = "an address is opened for every name, by a rule with `cidr`";
    reader.cannot(&fields, "allowed_ips", why);
    let help = "name the host";
    let Some(host) = fields.require("host", "an endpoint", help, reader.problems) else {
        return;
    };
    let Some(to) = host_of(host, reader) else {
        return;
    };
    let ports = ports(&fields, reader);
    let base = DraftRule {
        ports,
        ..DraftRule::permit(to, &[])
    };
    let enforcements = [("enforce", true), ("audit", false)];
    let enforced = fields
        .get("enforcement")
        .and_then(|node| word(node, "enforcement", &enforcements, reader.problems))
        .unwrap_or(true);
    let Some(protocol) = fields.get("protocol") else {
        for key in ["access", "rules", "deny_rules", "path"] {
            if let Some(place) = fields.key(key) {
                let help = "OpenShell looks into requests only where `protocol: rest` says so";
                reader.error(place, &format!("`{key}` without `protocol`"), help);
            }
        }
        rules.push(base);
        return;
    };
    match reader.text(protocol, "protocol") {
        Some("rest") => {}
        Some("tcp") => return rules.push(base),
        Some(other) => {
            let message = format!("`{}` cannot be expressed", clip(other));
            let help = "requests are matched by method and path";
            reader.error(protocol.span.clone(), &message, help);
            return;
        }
        None => return,
    }
    if let Some(tls) = fields.get("tls")
        && reader.text(tls, "tls") == Some("skip")
    {
        let help = "requests can be matched only where TLS is terminated";
        reader.error(
            tls.span.clone(),
            "`tls: skip` beside rules on requests",
            help,
        );
    }
    if !enforced {
        let help = "OpenShell lets pass what an endpoint in audit mode does not allow; use \
                    `mode: audit` for a whole policy to see what would be refused";
        let place = fields.key("enforcement").unwrap_or_default();
        reader.changed(place, "this endpoint permits every request", help);
        rules.push(base);
        return;
    }
    let scope = match fields.get("path") {
        Some(node) => match paths(node, reader) {
            Some(paths) => Some(paths),
            None => return,
        },
        None => None,
    };
    rest(&fields, base, scope.as_deref(), rules, reader);
}

/// A host. One that is an address is one of few things that open a private range here.
fn host_of(node: &Node, reader: &mut Reader<'_, '_>) -> Option<To> {
    let text = reader.text(node, "host")?;
    if matches!(text, "*" | "**") {
        let help = "OpenShell does not take it either: name the hosts";
        reader.error(node.span.clone(), "a wildcard for every host", help);
        return None;
    }
    let (names, prefixes) = split(vec![reader.entry(node, Star::OneLabel)?]);
    if let [NamePattern::Exact(_)] = names.as_slice() {
        let help = "OpenShell lets a host that is written out resolve to a private address: open \
                    the address with a rule with `cidr` where that is wanted";
        let message = "a private address behind this name stays closed";
        reader.changed(node.span.clone(), message, help);
    }
    Some(if prefixes.is_empty() {
        To::Names(names)
    } else {
        To::Prefixes(texts(&prefixes))
    })
}

fn ports(fields: &Fields<'_>, reader: &mut Reader<'_, '_>) -> Vec<String> {
    let mut nodes: Vec<&Node> = fields.get("port").into_iter().collect();
    nodes.extend(reader.list_of(fields, "ports"));
    if nodes.is_empty() {
        let help = "OpenShell needs a port as well";
        reader.error(fields.span.clone(), "an endpoint needs `port`", help);
    }
    let ports = nodes.into_iter().filter_map(|node| {
        let text = reader.text(node, "a port")?;
        if text.parse::<u16>().is_ok_and(|port| port > 0) {
            return Some(text.to_owned());
        }
        let message = format!("`{}` is not a port", clip(text));
        reader.error(node.span.clone(), &message, "a port is from 1 to 65535");
        None
    });
    ports.collect()
}

type Requests = Vec<(Vec<String>, Vec<String>)>;

fn rest(
    fields: &Fields<'_>,
    base: DraftRule,
    scope: Option<&[String]>,
    rules: &mut Vec<DraftRule>,
    reader: &mut Reader<'_, '_>,
) {
    let mut allowed: Requests = Vec::new();
    let methods: Option<&[&str]> = fields.get("access").and_then(|node| {
        let presets: [(&str, &[&str]); 3] = [
            ("read-only", &["GET", "HEAD", "OPTIONS"]),
            (
                "read-write",
                &["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"],
            ),
            ("full", &["*"]),
        ];
        word(node, "access", &presets, reader.problems)
    });
    if let Some(methods) = methods {
        let paths = scope.map_or_else(|| vec!["/**".to_owned()], <[_]>::to_vec);
        allowed.push((methods.iter().map(|&m| m.to_owned()).collect(), paths));
    }
    if let (Some(place), Some(_)) = (fields.key("rules"), scope) {
        let help = "write the paths into the rules";
        reader.error(place, "`rules` beside `path` cannot be expressed", help);
    }
    for node in reader.list_of(fields, "rules") {
        if let Some(rule) = reader.fields(node, "a rule", &["allow"])
            && let Some(allow) = rule.get("allow")
        {
            allowed.extend(request(allow, reader));
        }
    }
    if allowed.is_empty() {
        let help = "OpenShell needs `access` or `rules` here as well";
        let message = "nothing is allowed at this endpoint";
        reader.error(fields.span.clone(), message, help);
    }
    let denied: Requests = reader
        .list_of(fields, "deny_rules")
        .iter()
        .filter_map(|node| request(node, reader))
        .collect();
    rules.push(DraftRule {
        http: allowed,
        ..base.clone()
    });
    if !denied.is_empty() {
        rules.push(DraftRule {
            http: denied,
            deny: true,
            ..base
        });
    }
}

fn request(node: &Node, reader: &mut Reader<'_, '_>) -> Option<(Vec<String>, Vec<String>)> {
    let fields = reader.fields(node, "a rule", &["method", "path", "query"])?;
    if let Some(place) = fields.key("query") {
        let help = "rules see the method and the path only";
        reader.error(place, "`query` cannot be expressed", help);
    }
    let help = "name the method, or `\"*\"`";
    let method = fields.require("method", "a rule", help, reader.problems)?;
    let method = reader.text(method, "method")?.to_ascii_uppercase();
    let help = "name the path, or `/**`";
    let path = fields.require("path", "a rule", help, reader.problems)?;
    Some((vec![method], paths(path, reader)?))
}

/// A glob in which wildcards cross `/`, as globs in which they do not.
fn paths(node: &Node, reader: &mut Reader<'_, '_>) -> Option<Vec<String>> {
    let text = reader.text(node, "path")?;
    let found = globs(text);
    if found.is_none() {
        let message = format!("`{}` cannot be expressed", clip(text));
        let help = "wildcards cross `/` in OpenShell: write them as whole segments, or at the end";
        reader.error(node.span.clone(), &message, help);
    }
    let found = found?;
    if found.len() != 1 || found[0] != text {
        let message = format!(
            "`{}` is written `{}` here",
            clip(text),
            clip(&found.join("`, `"))
        );
        let help = "`*` stays within a segment here, and `**` crosses `/`";
        reader.changed(node.span.clone(), &message, help);
    }
    Some(found)
}

fn globs(text: &str) -> Option<Vec<String>> {
    if text.contains(['?', '[', ']', '{', '}']) {
        return None;
    }
    if matches!(text, "*" | "**") {
        return Some(vec!["/**".to_owned()]);
    }
    let segments: Vec<&str> = text.strip_prefix('/')?.split('/').collect();
    let (last, before) = segments.split_last()?;
    let mut path = String::new();
    for segment in before {
        path.push('/');
        match *segment {
            "*" | "**" => path.push_str("**"),
            partial if partial.contains('*') => return None,
            literal => path.push_str(literal),
        }
    }
    Some(match *last {
        "*" | "**" => vec![format!("{path}/**")],
        // Zero characters and more of the last segment, and then anything below it.
        partial if partial.contains('*') => {
            let stem = partial.trim_end_matches('*');
            if stem.contains('*') {
                return None;
            }
            vec![format!("{path}/{stem}*"), format!("{path}/{stem}*/**")]
        }
        literal => vec![format!("{path}/{literal}")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_that_cross_are_written_out() {
        for (text, expected) in [
            ("/**", Some(vec!["/**"])),
            ("**", Some(vec!["/**"])),
            ("/repos/*", Some(vec!["/repos/**"])),
            ("/repos/*/pulls", Some(vec!["/repos/**/pulls"])),
            ("/info/refs*", Some(vec!["/info/refs*", "/info/refs*/**"])),
            ("/a", Some(vec!["/a"])),
            ("/a*b", None),
            ("/a*/b", None),
            ("/a?", None),
            ("/[ab]", None),
            ("a", None),
        ] {
            let expected = expected.map(|globs| globs.into_iter().map(str::to_owned).collect());
            assert_eq!(globs(text), expected, "{text}");
        }
    }
}
