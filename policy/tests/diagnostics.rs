//! What users see when a policy file is wrong.

use causeway_policy::{Style, check, parse};

#[test]
fn the_example_of_the_design_is_accepted() {
    let report = check("design.yaml", include_str!("files/design.yaml"));
    assert_eq!(report.problems.to_string(), "");
    assert_eq!(report.documents.len(), 1);
}

#[test]
fn every_problem_is_reported_at_once() {
    let errors = parse("wrong.yaml", include_str!("files/wrong.yaml")).unwrap_err();
    insta::assert_snapshot!("wrong", errors.render(Style::Plain));
}
