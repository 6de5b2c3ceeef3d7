//! The examples of the user's documents are real: each policy is accepted without a warning, and
//! each file of cases holds for the policy before it.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use causeway_policy::{Document, PolicySet, Reserved, bounds, check, explain, parse_cases};

const REFERENCE: &str = include_str!("../../docs/policy.md");

/// The blocks of a language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let blocks = text.split("```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.split_once('\n'));
    blocks
        .filter(|(word, _)| *word == language)
        .map(|(_, block)| block)
        .collect()
}

/// Checks a document's examples, and gives back how many policies and cases there were.
fn examples(name: &str, text: &str) -> (usize, usize) {
    let (mut policies, mut cases) = (0, 0);
    let mut set = PolicySet::default();
    for block in blocks(text, "yaml") {
        if block.contains("kind: PolicyTest") {
            cases += hold(name, block, &set);
            continue;
        }
        if !block.contains("apiVersion") {
            continue;
        }
        let report = check(name, block);
        assert_eq!(report.problems.to_string(), "", "{block}");
        policies += report.documents.len();
        set = PolicySet::default();
        for document in report.documents {
            match document {
                Document::Policy(policy) => set.policies.push(Arc::new(policy)),
                Document::Guardrail(guardrail) => set.guardrails.push(Arc::new(guardrail)),
            }
        }
    }
    (policies, cases)
}

fn hold(name: &str, block: &str, set: &PolicySet) -> usize {
    let cases = parse_cases(name, block)
        .unwrap_or_else(|e| panic!("{e}"))
        .cases;
    for case in &cases {
        let answer = explain(
            &set.policies,
            &set.guardrails,
            &Reserved::default(),
            &case.query,
        );
        let result = case.judge(answer);
        assert_eq!(
            result.failure, None,
            "{}: {}\n{}",
            name, case.name, result.explanation
        );
    }
    cases.len()
}

#[test]
fn every_example_is_accepted_and_every_case_holds() {
    let recipes = include_str!("../../docs/policy-recipes.md");
    let tutorial = include_str!("../../docs/policy-tutorial.md");
    let (policies, _) = examples("docs/policy.md", REFERENCE);
    assert!(policies >= 5, "{policies}");
    let (policies, cases) = examples("docs/policy-recipes.md", recipes);
    assert!(policies >= 8 && cases >= 20, "{policies} {cases}");
    let (policies, cases) = examples("docs/policy-tutorial.md", tutorial);
    assert!(policies >= 1 && cases >= 7, "{policies} {cases}");
    examples("README.md", include_str!("../../README.md"));
}

#[test]
fn the_reference_has_only_blocks_that_are_tested() {
    let all = REFERENCE.matches("```").count() / 2;
    let tested = blocks(REFERENCE, "yaml").len() + blocks(REFERENCE, "sh").len();
    assert_eq!(all, tested);
}

#[test]
fn the_bounds_are_those_of_the_code() {
    let said = REFERENCE.split("## Bounds").nth(1).unwrap();
    let said = said.replace(',', "");
    for bound in [
        bounds::DOCUMENTS,
        bounds::NODES,
        bounds::RULES,
        bounds::NAMES,
        bounds::PREFIXES,
        bounds::SECRETS,
    ] {
        assert!(said.contains(&bound.to_string()), "{bound}");
    }
    assert_eq!(bounds::FILE, 4 << 20);
}
