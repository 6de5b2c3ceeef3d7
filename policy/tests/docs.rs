//! The examples of the user's reference are real.

use causeway_policy::{bounds, check};

const REFERENCE: &str = include_str!("../../docs/policy.md");

#[test]
fn every_example_is_accepted_without_a_warning() {
    let mut examples = 0;
    for (index, block) in REFERENCE.split("```").enumerate() {
        let Some(text) = block.strip_prefix("yaml\n") else {
            assert!(index.is_multiple_of(2), "a block that is not yaml: {block}");
            continue;
        };
        let report = check("docs/policy.md", text);
        assert_eq!(report.problems.to_string(), "", "{text}");
        assert!(!report.documents.is_empty());
        examples += 1;
    }
    assert!(examples >= 5, "{examples}");
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
