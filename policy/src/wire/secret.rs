//! `secrets`.

use std::collections::BTreeMap;

use causeway_types::SecretName;

use super::egress;
use super::fields::{Fields, clip, list, pairs, text, word};
use crate::bounds;
use crate::model::{
    Format, FormatError, HeaderName, HeaderNameError, NamePattern, ParameterName, Place, SecretUse,
    Signing, Slot, Treatment,
};
use crate::problems::Problems;
use crate::yaml::Node;

pub(super) type Secrets = BTreeMap<SecretName, SecretUse>;

pub(super) fn read(node: &Node, problems: &mut Problems<'_>) -> Secrets {
    let entries = pairs(node, "secrets", problems).unwrap_or_default();
    if entries.len() > bounds::SECRETS {
        let message = format!("more than {} secrets in one document", bounds::SECRETS);
        let help = "split them over several policies";
        problems.error(node.span.start..node.span.start, message, help);
        return Secrets::new();
    }
    let mut secrets = Secrets::new();
    let mut hosts = 0;
    for (name, key, node) in entries {
        let name = match SecretName::new(name) {
            Ok(name) => name,
            Err(error) => {
                problems.error(key.span.clone(), error.to_string(), None);
                continue;
            }
        };
        let Some(secret) = secret(node, &name, problems) else {
            continue;
        };
        hosts += secret.hosts.len();
        if hosts > bounds::SECRET_HOSTS {
            let message = format!(
                "more than {} secret hosts in one document",
                bounds::SECRET_HOSTS
            );
            problems.error(
                key.span.clone(),
                message,
                "split them over several policies",
            );
            break;
        }
        refuse_conflict(&secrets, &name, &secret, key, problems);
        secrets.insert(name, secret);
    }
    secrets
}

fn secret(node: &Node, name: &SecretName, problems: &mut Problems<'_>) -> Option<SecretUse> {
    let what = format!("the secret `{name}`");
    let fields = Fields::read(
        node,
        &what,
        &["hosts", "inject", "replace", "sign"],
        problems,
    )?;
    let help = "list the hosts that it may go to: without them it goes nowhere";
    let hosts = fields
        .require("hosts", &what, help, problems)
        .and_then(|node| list(node, "hosts", bounds::SECRET_HOSTS, problems))
        .map(|nodes| {
            nodes
                .iter()
                .filter_map(|node| host(node, problems))
                .collect()
        });
    let ways = ["inject", "replace", "sign"].map(|way| fields.key(way).map(|place| (way, place)));
    let mut ways = ways.into_iter().flatten();
    let treatment = match (ways.next(), ways.next()) {
        (Some(_), Some((_, place))) => {
            let help = "keep `inject` to set a header or parameter, `replace` to swap the \
                        placeholder, or `sign` to sign requests";
            let message = format!("{what} has one of `inject`, `replace` and `sign`");
            problems.error(place, message, help);
            None
        }
        (Some((way, _)), None) => fields.get(way).and_then(|node| match way {
            "inject" => inject(node, problems),
            "replace" => replace(node, problems),
            _ => word(node, "sign", &Signing::ALL, problems).map(Treatment::Sign),
        }),
        (None, _) => {
            let help = "write `inject: { header: authorization, format: \"Bearer {secret}\" }`, \
                        `replace: [header]` or `sign: aws_sigv4`";
            let message = format!("{what} needs `inject`, `replace` or `sign`");
            problems.error(fields.span.clone(), message, help);
            None
        }
    };
    Some(SecretUse {
        hosts: hosts?,
        treatment: treatment?,
    })
}

/// A host that a secret may go to. A wildcard right below a top-level domain would send it to
/// names that anybody can register.
fn host(node: &Node, problems: &mut Problems<'_>) -> Option<NamePattern> {
    let pattern = egress::pattern(node, problems)?;
    if pattern.is_wildcard() && pattern.literal_labels() < 2 {
        let help = "name the hosts, or a wildcard below a domain of your own: `*.example.com`";
        let message = format!("a secret must not go to `{pattern}`, where anybody has a name");
        problems.error(node.span.clone(), message, help);
        return None;
    }
    if pattern.is_wildcard() {
        let message = format!("the secret goes to every host that `{pattern}` matches");
        let help = "name the hosts if you can";
        problems.warning(node.span.clone(), message, help);
    }
    Some(pattern)
}

fn inject(node: &Node, problems: &mut Problems<'_>) -> Option<Treatment> {
    let fields = Fields::read(node, "inject", &["header", "query", "format"], problems)?;
    let into = match (fields.key("header"), fields.key("query")) {
        (Some(_), Some(place)) => {
            let help = "keep the one in which the service takes its key";
            problems.error(place, "`inject` has `header` or `query`, not both", help);
            None
        }
        (Some(_), None) => {
            let header = fields.get("header").and_then(|node| header(node, problems));
            header.map(Slot::Header)
        }
        (None, Some(_)) => {
            let parameter = fields
                .get("query")
                .and_then(|node| parameter(node, problems));
            parameter.map(Slot::Query)
        }
        (None, None) => {
            let help = "name the header that carries the secret, such as `authorization`, or the \
                        query parameter";
            let message = "inject needs `header` or `query`";
            problems.error(fields.span.clone(), message, help);
            None
        }
    };
    let format = match fields.key("format") {
        Some(_) => format(fields.get("format")?, problems),
        None => Some(Format::default()),
    };
    Some(Treatment::Inject {
        into: into?,
        format: format?,
    })
}

fn parameter(node: &Node, problems: &mut Problems<'_>) -> Option<ParameterName> {
    let text = text(node, "query", problems)?;
    match ParameterName::parse(text) {
        Ok(parameter) => Some(parameter),
        Err(error) => {
            let message = format!("`{}`: {error}", clip(text));
            let help = "write the name alone, such as `key` or `access_token`";
            problems.error(node.span.clone(), message, help);
            None
        }
    }
}

fn header(node: &Node, problems: &mut Problems<'_>) -> Option<HeaderName> {
    let text = text(node, "header", problems)?;
    match HeaderName::parse(text) {
        Ok(header) => Some(header),
        Err(error) => {
            let help = match error {
                HeaderNameError::Malformed => "write a name such as `authorization` or `x-api-key`",
                HeaderNameError::Forbidden => "use the header in which the service takes its key",
            };
            problems.error(
                node.span.clone(),
                format!("`{}`: {error}", clip(text)),
                help,
            );
            None
        }
    }
}

fn format(node: &Node, problems: &mut Problems<'_>) -> Option<Format> {
    match Format::parse(text(node, "format", problems)?) {
        Ok(format) => Some(format),
        Err(error) => {
            let help = match error {
                FormatError::Places { .. } => "write for example `\"Bearer {secret}\"`",
                FormatError::BadCharacter { .. } => "use printable ASCII characters and spaces",
                FormatError::TooLong => "shorten it",
            };
            problems.error(node.span.clone(), error.to_string(), help);
            None
        }
    }
}

fn replace(node: &Node, problems: &mut Problems<'_>) -> Option<Treatment> {
    let entries = list(node, "replace", Place::ALL.len(), problems)?;
    let mut places: Vec<_> = entries
        .iter()
        .filter_map(|node| word(node, "replace", &Place::ALL, problems))
        .collect();
    places.sort_unstable();
    places.dedup();
    Some(Treatment::Replace(places))
}

/// Two secrets in one place of one request: exactly one would arrive, and nobody could say which.
fn refuse_conflict(
    earlier: &Secrets,
    name: &SecretName,
    secret: &SecretUse,
    key: &Node,
    problems: &mut Problems<'_>,
) {
    let Treatment::Inject { into, .. } = &secret.treatment else {
        return;
    };
    for (other, taken) in earlier {
        let same_slot = matches!(
            &taken.treatment,
            Treatment::Inject { into: other, .. } if other.is_alike(into)
        );
        let overlap = secret
            .hosts
            .iter()
            .find(|host| taken.hosts.iter().any(|theirs| theirs.overlaps(host)));
        if let (true, Some(host)) = (same_slot, overlap) {
            let message = format!("`{name}` and `{other}` both go into {into} for `{host}`");
            let help = "give them different hosts or different places";
            problems.error(key.span.clone(), message, help);
            return;
        }
    }
}
