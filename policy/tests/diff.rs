//! What a new file would change, for whom, and nothing that it would not.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use causeway_policy::{
    Connect, Document, Effective, PolicyDiff, PolicySet, Protocol, Reserved, Subject, diff, parse,
    select, subjects_of,
};
use causeway_types::{DomainName, Labels, TenantName};
use proptest::prelude::*;

fn set(text: &str) -> PolicySet {
    let mut set = PolicySet::default();
    for document in parse("set", text).unwrap_or_else(|e| panic!("{e}")) {
        match document {
            Document::Policy(policy) => set.policies.push(Arc::new(policy)),
            Document::Guardrail(guardrail) => set.guardrails.push(Arc::new(guardrail)),
        }
    }
    set
}

fn policy(name: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: causeway/v1, kind: Policy, metadata: {{name: {name}, tenant: acme}}, spec: {{{spec}}}}}\n"
    )
}

fn guardrail(spec: &str) -> String {
    format!(
        "---\n{{apiVersion: causeway/v1, kind: Guardrail, metadata: {{name: g}}, spec: {{{spec}}}}}\n"
    )
}

fn subject(name: &str, labels: &[(&str, &str)]) -> Subject {
    let labels = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned()));
    Subject {
        name: name.to_owned(),
        tenant: TenantName::new("acme").unwrap(),
        labels: Labels::new(labels).unwrap(),
    }
}

fn between(before: &str, after: &str) -> PolicyDiff {
    let subjects = [
        subject("agent-1", &[("role", "agent")]),
        subject("agent-2", &[("role", "agent"), ("x", "y")]),
        subject("db", &[("role", "db")]),
    ];
    diff(&set(before), &set(after), &subjects, &Reserved::default())
}

#[test]
fn destinations_ports_and_requests() {
    let before = policy(
        "web",
        "selector: {role: agent}, egress: [{name: api, to: [api.test, '*.cdn.test']}, {name: db, cidr: ['2600::/16'], ports: [5432, udp/53]}]",
    );
    let after = policy(
        "web",
        "selector: {role: agent}, egress: [{name: api, to: [api.test], ports: [443], http: [{methods: [GET], paths: ['/v1/**']}]}, \
         {name: db, cidr: ['2600::/16'], ports: [5432-5440]}, {name: no, action: deny, cidr: ['2600:1::/32']}]",
    );
    insta::assert_snapshot!("destinations", between(&before, &after).to_string());
}

#[test]
fn selection_ingress_secrets_limits_and_guardrails() {
    let before = policy("a", "selector: {}, egress: [{to: ['**']}]");
    let after = format!(
        "{}{}{}",
        policy(
            "a",
            "selector: {role: agent}, egress: [{to: ['**']}], limits: {connections: 5}"
        ),
        policy(
            "b",
            "selector: {role: db}, ingress: [{from: {network: n, labels: {role: agent}}, ports: [5432]}], \
             secrets: {T: {hosts: [a.test], inject: {header: x-key}}}"
        ),
        guardrail("egress: [{to: ['**']}, {action: deny, to: [bad.test]}]"),
    );
    insta::assert_snapshot!("selection", between(&before, &after).to_string());
}

#[test]
fn nothing_changes_where_nothing_changes() {
    let one = policy("a", "selector: {role: agent}, egress: [{to: [a.test]}]");
    assert_eq!(between(&one, &one).to_string(), "nothing changes");
    // Said in other words: the document differs, and no sandbox does.
    let same = policy(
        "a",
        "selector: {role: agent}, egress: [{to: [A.TEST.], ports: [443, 80]}]",
    );
    let found = between(&one, &same);
    assert_eq!(
        (found.documents.len(), found.changes.len()),
        (1, 0),
        "{found}"
    );
    // A narrower permit inside of a wider one changes nothing either.
    let wide = policy(
        "a",
        "selector: {role: agent}, egress: [{to: ['**'], ports: ['tcp/*']}]",
    );
    let more = policy(
        "a",
        "selector: {role: agent}, egress: [{to: ['**'], ports: ['tcp/*']}, {to: [a.test]}]",
    );
    let found = between(&wide, &more);
    assert!(found.changes.is_empty(), "{found}");
    let kinds = subjects_of([&set(&one), &set(&wide)]);
    assert_eq!(kinds.len(), 1);
    assert_eq!(kinds[0].name, "acme with role=agent");
}

#[test]
fn a_denial_is_seen_at_what_it_takes_away() {
    let before = policy(
        "a",
        "selector: {}, egress: [{to: [a.x.test, b.test], ports: [1-100]}]",
    );
    let after = format!(
        "{before}{}",
        policy(
            "b",
            "selector: {}, egress: [{action: deny, to: ['**.x.test'], ports: [50]}]"
        )
    );
    let found = between(&before, &after);
    let changes: Vec<_> = found.changes.iter().flat_map(|c| &c.destinations).collect();
    assert!(
        changes
            .iter()
            .any(|c| c.to == "a.x.test" && c.ports == "tcp/50"),
        "{found}"
    );
    assert!(changes.iter().all(|c| c.to != "b.test"), "{found}");
}

const NAMES: [&str; 6] = ["t", "a.t", "b.t", "a.b.t", "c.a.b.t", "z"];
const PATTERNS: [&str; 7] = ["t", "a.t", "*.t", "**.t", "*.b.t", "**", "a.b.t"];

fn rules() -> impl Strategy<Value = String> {
    let names = prop::sample::subsequence(PATTERNS.to_vec(), 1..4).prop_map(|names| {
        let quoted: Vec<_> = names.iter().map(|n| format!("'{n}'")).collect();
        quoted.join(",")
    });
    let action = prop_oneof![3 => Just("permit"), 1 => Just("deny")];
    let ports = prop::sample::select(vec!["443", "80-90", "tcp/*", "'*'", "85"]);
    let rule = (names, action, ports).prop_map(|(to, action, ports)| {
        format!("{{action: {action}, to: [{to}], ports: [{ports}]}}")
    });
    prop::collection::vec(rule, 0..4).prop_map(|rules| rules.join(", "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Where the two sets decide differently, the difference is listed for a name or a pattern
    /// that matches; and where nothing is listed, they decide the same.
    #[test]
    fn every_change_is_listed(before in rules(), after in rules()) {
        let before = set(&policy("a", &format!("selector: {{}}, egress: [{before}]")));
        let after = set(&policy("a", &format!("selector: {{}}, egress: [{after}]")));
        let one = subject("one", &[]);
        let reserved = Reserved::default();
        let found = diff(&before, &after, std::slice::from_ref(&one), &reserved);
        prop_assert!(found.complete);
        let [old, new] = [&before, &after].map(|set| {
            let selected = select(&set.policies, &one.tenant, &one.labels);
            Effective::compile(&selected, &[], &reserved)
        });
        let listed: Vec<_> = found.changes.iter().flat_map(|c| &c.destinations).collect();
        for name in NAMES {
            let parsed = DomainName::parse(name).unwrap();
            for port in [22, 80, 85, 90, 443] {
                let connect = Connect {
                    name: Some(&parsed),
                    address: "2606:2800:220:1::1".parse().unwrap(),
                    port,
                    protocol: Protocol::Tcp,
                    tls: true,
                };
                if old.connect(&connect).is_ok() != new.connect(&connect).is_ok() {
                    let matching = listed.iter().any(|change| {
                        let pattern = causeway_policy::model::NamePattern::parse(&change.to);
                        pattern.is_ok_and(|pattern| pattern.matches(&parsed))
                    });
                    prop_assert!(matching, "{}:{}\n{}", name, port, found);
                }
            }
        }
    }
}
