//! Absent, empty and wildcard are three states, each printed with what follows from it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use causeway_policy::{Stated, Summary, parse};

fn summary(kind: &str, spec: &str) -> Summary {
    let tenant = if kind == "Policy" {
        ", tenant: acme"
    } else {
        ""
    };
    let text = format!(
        "{{apiVersion: causeway/v1, kind: {kind}, metadata: {{name: p{tenant}}}, spec: {{{spec}}}}}"
    );
    parse("summary", &text).unwrap()[0].summary()
}

#[test]
fn each_state_has_a_name_and_a_meaning() {
    use Stated::{Absent, Empty, Listed, Wildcard};
    for (spec, selector, egress, ingress) in [
        ("", Absent, Absent, Absent),
        (
            "selector: {}, egress: [], ingress: []",
            Wildcard,
            Empty,
            Empty,
        ),
        (
            "selector: {a: b}, egress: [{to: [a.test]}], ingress: [{from: {network: n}, ports: [80]}]",
            Listed,
            Listed,
            Listed,
        ),
        (
            "selector: {}, egress: [{to: ['**']}], ingress: [{from: {network: '*'}, ports: ['*']}]",
            Wildcard,
            Wildcard,
            Wildcard,
        ),
        (
            "selector: {}, egress: [{cidr: ['::/0'], ports: ['*']}], ingress: [{from: {cidr: ['::/0']}, ports: [80]}]",
            Wildcard,
            Wildcard,
            Wildcard,
        ),
        // A denial of everything permits nothing.
        (
            "selector: {}, egress: [{action: deny, to: ['**']}]",
            Wildcard,
            Listed,
            Absent,
        ),
    ] {
        let found = summary("Policy", spec);
        let stated = (
            found.selector.as_ref().unwrap().stated,
            found.egress.stated,
            found.ingress.stated,
        );
        assert_eq!(stated, (selector, egress, ingress), "{spec}");
    }
}

#[test]
fn the_printed_form() {
    let spec = "selector: {role: agent}, egress: [{to: ['**']}, {action: deny, to: [a.test]}], \
                secrets: {T: {hosts: [a.test], inject: {header: x-key}}}, limits: {connections: 5}";
    let shown = format!(
        "{}\n{}\n{}\n{}",
        summary("Policy", spec),
        summary("Policy", "mode: audit, egress: []"),
        summary("Guardrail", ""),
        summary("Guardrail", "egress: [], ingress: []"),
    );
    insta::assert_snapshot!("summary", shown);
}
