//! Files that are made to hurt: each is refused in bounded time, with a place and a message.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use causeway_policy::{Document, Style, bounds, check, parse};
use proptest::prelude::*;

fn refused(text: &str, expected: &str) {
    let start = Instant::now();
    let errors = parse("hostile", text).unwrap_err();
    let drawn = errors.render(Style::Plain);
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
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
