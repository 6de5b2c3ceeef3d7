//! Files that are made to hurt: each is refused in bounded time, with a place and a message.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use causeway_policy::{Document, Style, bounds, check, parse};
use proptest::prelude::*;

/// What this thread has computed so far: on a busy machine the clock says nothing.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = text.split_whitespace().next().unwrap();
    Duration::from_nanos(nanoseconds.parse().unwrap())
}

fn within(start: Duration, seconds: u64) {
    let used = cpu().saturating_sub(start);
    assert!(used < Duration::from_secs(seconds), "{used:?}");
}

fn refused(text: &str, expected: &str) {
    let start = cpu();
    let errors = parse("hostile", text).unwrap_err();
    let drawn = errors.render(Style::Plain);
    within(start, 20);
    assert!(errors.problems().len() <= bounds::PROBLEMS + 1);
    assert!(drawn.len() < 400_000, "{}", drawn.len());
    assert!(errors.to_string().contains(expected), "{errors}");
}

#[test]
fn bombs_and_depth_are_refused() {
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n";
    refused(bomb, "anchors are not taken");
    refused(bomb, "aliases are not taken");
    refused("a: *nowhere", "aliases are not taken");
    refused("a: !!binary aGk=", "tags are not taken");
    refused("%YAML 1.2\n---\na: b", "not YAML");
    refused("{a: {<<: b}}", "has no key");
    refused(&"[".repeat(100_000), "not YAML");
    refused(&"{a: ".repeat(100_000), "not YAML");
    refused(&"- ".repeat(100_000), "not YAML");
    refused(&"\"".repeat(100_001), "not YAML");
    refused("? [a]\n: b", "a key has to be a word");
}

#[test]
fn size_is_bounded() {
    refused(&" ".repeat(bounds::FILE + 1), "and 4194304 is the most");
    refused(&"- a\n".repeat(bounds::NODES + 1), "values");
    refused(
        &"---\na: b\n".repeat(bounds::DOCUMENTS + 1),
        "documents in one file",
    );
    refused(&format!("{{{}: b}}", "k".repeat(1_000)), "has no key");
    refused(
        &format!("{{a: \"{}\"}}", "é".repeat(1_000_000)),
        "has no key",
    );
}

#[test]
fn the_largest_list_of_names_is_taken() {
    let names: Vec<_> = (0..bounds::NAMES)
        .map(|n| format!("h{n}.example.com"))
        .collect();
    let file = |names: &[String]| {
        format!(
            "{{apiVersion: causeway/v1, kind: Policy, metadata: {{name: p, tenant: t}}, \
             spec: {{selector: {{}}, egress: [{{to: [{}]}}]}}}}",
            names.join(", ")
        )
    };
    assert_eq!(parse("largest", &file(&names)).unwrap().len(), 1);
    let mut more = names;
    more.push("one-more.example.com".to_owned());
    refused(&file(&more), "100001 entries");
}

/// A policy with this body of `spec`, in a file of its own.
fn file(name: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: causeway/v1, kind: Policy, metadata: {{name: {name}, tenant: t}}, \
         spec: {{selector: {{}}, {spec}}}}}\n"
    )
}

#[test]
fn four_mebibytes_of_rules_are_read_or_refused() {
    let rules = |count: usize| -> String {
        let label = "x".repeat(45);
        let rule = |n| format!("{{to: [n{n}.{label}.{label}.{label}.example], ports: [443]}}");
        (0..count).map(rule).collect::<Vec<_>>().join(", ")
    };
    let start = cpu();
    let one = format!("egress: [{}]", rules(bounds::RULES));
    let mut text = String::new();
    let mut documents = 0;
    while text.len() + one.len() + 200 < bounds::FILE {
        documents += 1;
        text.push_str(&file(&format!("p{documents}"), &one));
    }
    assert!(
        documents >= 2 && text.len() > 3 << 20,
        "{documents} {}",
        text.len()
    );
    assert_eq!(parse("large", &text).unwrap().len(), documents);
    within(start, 60);
    refused(
        &file("p", &format!("egress: [{}]", rules(bounds::RULES + 1))),
        "10001 entries",
    );
    text.push_str(&" ".repeat(bounds::FILE));
    refused(&text, "is the most");
}

#[test]
fn ports_names_and_keys_that_look_alike() {
    for (spec, expected) in [
        ("egress: [{to: [a.test], ports: [0]}]", "from 1 to 65535"),
        (
            "egress: [{to: [a.test], ports: [65536]}]",
            "from 1 to 65535",
        ),
        (
            "egress: [{to: [a.test], ports: [tcp/0-70000]}]",
            "from 1 to 65535",
        ),
        (
            "egress: [{to: [a.test], ports: [99999999999999999999]}]",
            "not a port",
        ),
        ("egress: [{to: [a.test]}], egress: []", "is given twice"),
        ("egress: [{to: [a.test], to: ['**']}]", "is given twice"),
        ("egress: [{to: ['127.1']}]", "cidr"),
        ("egress: [{to: ['0x7f000001']}]", "0x7f000001"),
    ] {
        let errors = parse("alike", &file("p", spec)).unwrap_err();
        let drawn = errors.render(Style::Plain);
        assert!(drawn.contains(expected), "{spec}\n{drawn}");
    }
    // What cannot be seen is not there.
    let hidden = parse("alike", &file("p", "egress: [{to: ['a\u{200b}.test']}]")).unwrap();
    let plain = parse("alike", &file("p", "egress: [{to: [a.test]}]")).unwrap();
    let egress = |documents: &[Document]| match &documents[0] {
        Document::Policy(policy) => policy.egress.clone(),
        Document::Guardrail(_) => unreachable!(),
    };
    assert_eq!(egress(&hidden), egress(&plain));
    // A name that looks like another is another, and is shown so that one can tell.
    let text = file("p", "egress: [{to: ['\u{435}xample.com']}]");
    let documents = parse("alike", &text).unwrap();
    let Document::Policy(policy) = &documents[0] else {
        unreachable!()
    };
    let shown = format!("{:?}", policy.egress);
    assert!(shown.contains("xn--"), "{shown}");
}

#[test]
fn overlapping_prefixes_stay_few() {
    use causeway_policy::{Effective, Policy, Protocol, Reserved};
    use std::sync::Arc;
    let wide = |first: usize| -> String {
        let rule = |n: usize| {
            let length = n % 64;
            format!("{{cidr: ['::/{length}'], ports: [udp/{}]}}", first + n + 1)
        };
        let rules: Vec<_> = (0..bounds::PREFIXES).map(rule).collect();
        format!("egress: [{}]", rules.join(", "))
    };
    let start = cpu();
    let policies: Vec<Arc<Policy>> = (0..3)
        .flat_map(|n| parse("wide", &file(&format!("p{n}"), &wide(n * 1000))).unwrap())
        .map(|document| match document {
            Document::Policy(policy) => Arc::new(policy),
            Document::Guardrail(_) => unreachable!(),
        })
        .collect();
    let text = file("g", &wide(0))
        .replace("kind: Policy", "kind: Guardrail")
        .replace(", tenant: t", "");
    let guardrails: Vec<_> = parse("wide", &text)
        .unwrap()
        .into_iter()
        .filter_map(|document| match document {
            Document::Guardrail(guardrail) => Some(Arc::new(guardrail)),
            Document::Policy(_) => None,
        })
        .collect();
    for guardrails in [&[][..], &guardrails] {
        let effective = Effective::compile(&policies, guardrails, &Reserved::default());
        let egress = &effective.firewall().egress;
        assert!(egress.len() < 1000, "{}", egress.len());
        let public: std::net::Ipv6Addr = "2600::1".parse().unwrap();
        let entry = egress.iter().find(|entry| entry.prefix.contains(&public));
        // Lengths of 0, 1 and 2 reach it: every port of those rules, and no other.
        assert!(entry.is_some_and(|entry| {
            entry.ports.contains(Protocol::Udp, 1) && !entry.ports.contains(Protocol::Udp, 4)
        }));
    }
    within(start, 60);
}

#[test]
fn nothing_is_not_a_policy() {
    for text in [
        "",
        "\n",
        "# only a comment\n",
        "---\n",
        "---\n---\n...\n",
        "~",
        "null",
    ] {
        refused(text, "the file has no document");
    }
    for text in ["[]", "x", "5", "\"\""] {
        refused(text, "a document is");
    }
}

#[test]
fn a_broken_document_does_not_hide_the_next() {
    let text = "a: [1\n---\nkind: Polcy\n---\nb: }\n";
    let errors = parse("several", text).unwrap_err();
    let lines: Vec<_> = errors.problems().iter().map(|p| p.line).collect();
    assert!(
        lines.contains(&3) && lines.iter().any(|line| *line >= 5),
        "{errors}"
    );
}

#[test]
fn each_document_can_be_read_again_from_its_own_text() {
    let one = include_str!("files/design.yaml");
    let two = one.replace("coding-agent", "other");
    let guardrail =
        "apiVersion: causeway/v1\nkind: Guardrail\nmetadata: {name: g}\nspec: {egress: []}\n";
    let text = format!("{one}---\n{two}\n--- # third\n{guardrail}...\n");
    let documents = parse("several", &text).unwrap();
    assert_eq!(documents.len(), 3);
    for document in &documents {
        let again = parse("again", document.source()).unwrap();
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].reference(), document.reference());
        if let (Document::Policy(a), Document::Policy(b)) = (&again[0], document) {
            assert_eq!(
                (&a.egress, &a.secrets, &a.ingress),
                (&b.egress, &b.secrets, &b.ingress)
            );
        }
    }
    let twice = format!("{one}---\n{one}");
    let errors = parse("twice", &twice).unwrap_err();
    assert!(
        errors.to_string().contains("is in this file twice"),
        "{errors}"
    );
}

#[test]
fn json_is_yaml() {
    let text = r#"{"apiVersion":"causeway/v1","kind":"Policy",
        "metadata":{"name":"p","tenant":"t"},
        "spec":{"selector":{},"egress":[{"to":["a.test"],"ports":[443]}]}}"#;
    assert_eq!(parse("json", text).unwrap().len(), 1);
    let wrong = text.replace("443", "0");
    let errors = parse("json", &wrong).unwrap_err();
    let problem = &errors.problems()[0];
    assert_eq!((problem.line, problem.text.as_str()), (3, "0"));
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "[a-z:{}\\[\\]\\-&*!|>'\"#%@, \n\té]{0,80}") {
        let report = check("any", &text);
        for problem in report.problems.problems() {
            prop_assert!(problem.line >= 1 && problem.column >= 1);
            prop_assert!(text.get(problem.offset..problem.offset + problem.length).is_some());
        }
        let drawn = report.problems.render(Style::Terminal { width: 80 });
        prop_assert!(drawn.is_empty() == report.problems.problems().is_empty());
    }

    #[test]
    fn a_damaged_policy_is_answered(at in 0usize..2000, with in "[ -~\n]{0,3}", length in 0usize..5) {
        let good = include_str!("files/design.yaml");
        let at = at.min(good.len() - length);
        let text = format!("{}{with}{}", &good[..at], &good[at + length..]);
        let report = check("damaged", &text);
        prop_assert!(report.problems.has_errors() || report.documents.len() == 1);
        let _drawn = report.problems.render(Style::Plain);
    }
}
