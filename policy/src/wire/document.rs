//! A document as a whole.

use std::collections::BTreeSet;
use std::ops::Range;

use causeway_types::{PolicyName, PolicyRef, Selector, TenantName};

use super::fields::{Fields, clip, parsed, text, word};
use super::{egress, ingress, secret, values};
use crate::model::{
    Action, Bandwidth, BandwidthError, Document, EgressRule, Guardrail, Limits, Mode, Policy,
};
use crate::problems::{Problems, closest};
use crate::yaml::{Node, Value};

const API_VERSION: &str = "causeway/v1";

/// Which kind of document is read: some keys mean something else, or nothing, in guardrails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Policy,
    Guardrail,
}

/// Reads one document, and gives it back with the place of its name. What was reported may
/// be missing in it, so it is used only if nothing was.
pub(super) fn read(
    root: &Node,
    source: &str,
    problems: &mut Problems<'_>,
) -> Option<(Document, Range<usize>)> {
    let known = ["apiVersion", "kind", "metadata", "spec"];
    let fields = Fields::read(root, "a document", &known, problems)?;
    api_version(&fields, problems);
    let kinds = [("Policy", Kind::Policy), ("Guardrail", Kind::Guardrail)];
    let help = "write `kind: Policy`, or `kind: Guardrail` for an operator's bound";
    let kind = fields
        .require("kind", "a document", help, problems)
        .and_then(|node| word(node, "kind", &kinds, problems))
        .unwrap_or(Kind::Policy);
    let help = "write `metadata: { name: …, tenant: … }`";
    let metadata = fields
        .require("metadata", "a document", help, problems)
        .and_then(|node| metadata(node, kind, problems));
    let help = "write `spec: {}` for a document that says nothing";
    let spec = fields.require("spec", "a document", help, problems)?;
    let spec = Spec::read(spec, kind, problems)?;
    let (reference, place) = metadata?;
    Some((spec.into_document(kind, reference, source)?, place))
}

fn api_version(fields: &Fields<'_>, problems: &mut Problems<'_>) {
    let help = "write `apiVersion: causeway/v1`";
    let Some(node) = fields.require("apiVersion", "a document", help, problems) else {
        return;
    };
    if let Some(version) = text(node, "apiVersion", problems)
        && version != API_VERSION
    {
        let message = format!("`{}` is not a version that this build reads", clip(version));
        problems.error(node.span.clone(), message, help);
    }
}

fn metadata(
    node: &Node,
    kind: Kind,
    problems: &mut Problems<'_>,
) -> Option<(PolicyRef, Range<usize>)> {
    let fields = Fields::read(node, "metadata", &["name", "tenant"], problems)?;
    let help = "the name tells the document from others; it is a lower-case word";
    let name = fields.require("name", "metadata", help, problems);
    let place = name.map(|node| node.span.clone());
    let name = name.and_then(|node| parsed(node, "the name", PolicyName::new, problems));
    let tenant = match (kind, fields.key("tenant")) {
        (Kind::Guardrail, Some(place)) => {
            let help = "remove it: guardrails hold for every tenant";
            problems.error(place, "a guardrail has no tenant", help);
            None
        }
        (Kind::Guardrail, None) => None,
        (Kind::Policy, _) => {
            let help = "name the tenant that the policy belongs to";
            let node = fields.require("tenant", "metadata of a policy", help, problems)?;
            Some(parsed(node, "the tenant", TenantName::new, problems)?)
        }
    };
    let reference = PolicyRef {
        tenant,
        name: name?,
    };
    Some((reference, place?))
}

/// What both kinds of documents have.
struct Spec {
    selector: Selector,
    mode: Mode,
    egress: Option<Vec<EgressRule>>,
    ingress: Option<Vec<crate::model::IngressRule>>,
    secrets: secret::Secrets,
    limits: Limits,
}

impl Spec {
    const KEYS: [&'static str; 6] = ["selector", "mode", "egress", "ingress", "secrets", "limits"];

    fn read(node: &Node, kind: Kind, problems: &mut Problems<'_>) -> Option<Self> {
        let fields = Fields::read(node, "spec", &Self::KEYS, problems)?;
        let modes = [("enforce", Mode::Enforce), ("audit", Mode::Audit)];
        let mode = fields
            .get("mode")
            .and_then(|node| word(node, "mode", &modes, problems));
        let mut names = BTreeSet::new();
        let egress = fields.get("egress").map(|node| {
            let rules = egress::read(node, &mut names, problems);
            warn_of_denials_only(kind, &rules, fields.key("egress"), problems);
            rules
        });
        let ingress = fields
            .get("ingress")
            .map(|node| ingress::read(node, kind, &mut names, problems));
        if let (Some(Mode::Audit), Some(place)) = (mode, fields.key("ingress")) {
            let message = "`ingress` shuts nobody out while the mode is `audit`".to_owned();
            let help = "what it lets in from outside gets in; put it into a policy of its own to \
                        enforce it";
            problems.warning(place, message, help);
        }
        Some(Self {
            selector: selector(&fields, kind, problems),
            mode: mode.unwrap_or_default(),
            egress,
            ingress,
            secrets: secrets(&fields, kind, problems),
            limits: fields
                .get("limits")
                .map_or_else(Limits::default, |node| limits(node, problems)),
        })
    }

    fn into_document(self, kind: Kind, reference: PolicyRef, source: &str) -> Option<Document> {
        let Self {
            selector,
            mode,
            egress,
            ingress,
            secrets,
            limits,
        } = self;
        let source = source.to_owned();
        Some(match kind {
            Kind::Guardrail => Document::Guardrail(Guardrail {
                reference,
                mode,
                egress,
                ingress,
                limits,
                source,
            }),
            Kind::Policy => Document::Policy(Policy {
                tenant: reference.tenant.clone()?,
                reference,
                selector,
                mode,
                egress,
                ingress,
                secrets,
                limits,
                source,
            }),
        })
    }
}

/// Such a guardrail reads as "everything else", and means "nothing".
fn warn_of_denials_only(
    kind: Kind,
    rules: &[EgressRule],
    place: Option<Range<usize>>,
    problems: &mut Problems<'_>,
) {
    let denials_only = !rules.is_empty() && rules.iter().all(|rule| rule.action == Action::Deny);
    if let (Kind::Guardrail, true, Some(place)) = (kind, denials_only, place) {
        let help = "to bound nothing else, add `{ to: [\"**\"], ports: [\"*\"] }` and a rule for each \
                    range of addresses that policies may name";
        let message = "this guardrail denies only, and so permits nothing at all".to_owned();
        problems.warning(place, message, help);
    }
}

fn selector(fields: &Fields<'_>, kind: Kind, problems: &mut Problems<'_>) -> Selector {
    let Some(node) = fields.get("selector") else {
        if kind == Kind::Policy && fields.key("selector").is_none() {
            let message = "without `selector` the policy selects no sandbox".to_owned();
            let help =
                "write `selector: {}` for every sandbox of the tenant, or the labels they carry";
            problems.warning(fields.span.clone(), message, help);
        }
        return Selector::Nothing;
    };
    let empty = matches!(&node.value, Value::Map(entries) if entries.is_empty());
    if kind == Kind::Guardrail && !empty {
        let help = "remove it: tenants choose labels, so a label must not take a sandbox out of a \
                    guardrail";
        let place = fields.key("selector").unwrap_or_default();
        problems.error(place, "a guardrail holds for every sandbox", help);
        return Selector::Nothing;
    }
    values::labels(node, "selector", problems).map_or(Selector::Nothing, Selector::Matching)
}

fn secrets(fields: &Fields<'_>, kind: Kind, problems: &mut Problems<'_>) -> secret::Secrets {
    match (kind, fields.get("secrets")) {
        (_, None) => secret::Secrets::new(),
        (Kind::Policy, Some(node)) => secret::read(node, problems),
        (Kind::Guardrail, Some(_)) => {
            let place = fields.key("secrets").unwrap_or_default();
            let help = "secrets belong to tenants: put this into a policy";
            problems.error(place, "a guardrail has no secrets", help);
            secret::Secrets::new()
        }
    }
}

fn limits(node: &Node, problems: &mut Problems<'_>) -> Limits {
    let known = ["connections", "requests_per_second", "bandwidth"];
    let Some(fields) = Fields::read(node, "limits", &known, problems) else {
        return Limits::default();
    };
    let mut count = |key: &str| {
        let node = fields.get(key)?;
        let text = text(node, key, problems)?;
        let plain = !text.is_empty() && text.len() < 10 && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(number @ 1..=Limits::MAX_COUNT) if plain => Some(number),
            _ => {
                let message = format!("`{}` is no value of {key}", clip(text));
                let help = "write a whole number from 1 to 1000000, or remove the key for no limit";
                problems.error(node.span.clone(), message, help);
                None
            }
        }
    };
    Limits {
        connections: count("connections"),
        requests_per_second: count("requests_per_second"),
        bandwidth: fields
            .get("bandwidth")
            .and_then(|node| bandwidth(node, problems)),
    }
}

fn bandwidth(node: &Node, problems: &mut Problems<'_>) -> Option<Bandwidth> {
    let text = text(node, "bandwidth", problems)?;
    let error = match Bandwidth::parse(text) {
        Ok(bandwidth) => return Some(bandwidth),
        Err(error) => error,
    };
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit()).trim();
    let close = match error {
        BandwidthError::UnknownUnit => closest(unit, &["kbit", "Mbit", "Gbit"]),
        _ => None,
    };
    let help = match close {
        Some(unit) => format!("did you mean `{unit}`? Units count bits per second"),
        None => "write for example `100Mbit`; the units are bit, kbit, Mbit and Gbit".to_owned(),
    };
    problems.error_with(
        node.span.clone(),
        format!("`{}`: {error}", clip(text)),
        help,
    );
    None
}
