//! Files of cases, and drafts from what was seen.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use causeway_policy::{
    CanonicalPath, Connect, Document, Effective, Observation, Outcome, Policy, Protocol, Request,
    Reserved, Style, explain, parse, parse_cases, suggest,
};
use causeway_types::{DomainName, Labels, PolicyName, TenantName};
use proptest::prelude::*;

const CASES: &str = "apiVersion: causeway/v1
kind: PolicyTest
policies: [design.yaml]
sandbox: { tenant: acme, labels: { role: agent } }
cases:
  - { name: read, to: api.github.com, method: GET, path: /repos/a/b, expect: permit, rule: acme/coding-agent/github-read }
  - { to: api.github.com, method: POST, path: /repos/a/b, expect: deny, reason: request_denied }
  - { to: '2001:db8:500::1', port: 5432, expect: permit }
  - sandbox: { tenant: acme }
    to: api.github.com
    expect: deny
    reason: no_policy
  - { name: wrong, to: uploads.example.com, expect: permit }
  - { name: wrong rule, to: api.github.com, expect: permit, rule: acme/coding-agent/db }
  - { name: wrong reason, to: uploads.example.com, expect: deny, reason: name_denied }
";

#[test]
fn cases_hold_or_say_why_not() {
    let cases = parse_cases("cases.yaml", CASES).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(cases.policies, ["design.yaml"]);
    let policies: Vec<Arc<Policy>> = parse("design.yaml", include_str!("files/design.yaml"))
        .unwrap()
        .into_iter()
        .filter_map(|document| match document {
            Document::Policy(policy) => Some(Arc::new(policy)),
            Document::Guardrail(_) => None,
        })
        .collect();
    let results: Vec<_> = cases
        .cases
        .iter()
        .map(|case| case.judge(explain(&policies, &[], &Reserved::default(), &case.query)))
        .map(|result| (result.name, result.line, result.failure))
        .collect();
    let held = |name: &str, line| (name.to_owned(), line, None);
    let failed = |name: &str, line, why: &str| (name.to_owned(), line, Some(why.to_owned()));
    assert_eq!(
        results,
        [
            held("read", 6),
            held("case 2", 7),
            held("case 3", 8),
            held("case 4", 9),
            failed("wrong", 13, "expected permit, and it is deny"),
            failed(
                "wrong rule",
                14,
                "expected the rule acme/coding-agent/db, and it is acme/coding-agent/github-read"
            ),
            failed(
                "wrong reason",
                15,
                "expected the reason name_denied, and it is denied_by_rule"
            ),
        ]
    );
}

#[test]
fn wrong_cases_are_refused_at_once() {
    let text = "apiVersion: causeway/v1\nkind: PolicyTests\ncases:\n  \
                - { to: a.test, expect: allow }\n  - { sandbox: { tenant: T }, to: a.test, expect: permit }\n  \
                - { sandbox: { tenant: t }, too: a.test, expect: permit }\n  \
                - { sandbox: { tenant: t }, to: a.test, port: 1-2, path: /a, reason: nothing, expect: deny }\n";
    let errors = parse_cases("cases.yaml", text).unwrap_err();
    insta::assert_snapshot!("wrong_cases", errors.render(Style::Plain));
    for text in ["", "[]", "a: b\n---\na: b\n", "{cases: []}"] {
        assert!(parse_cases("cases.yaml", text).is_err(), "{text}");
    }
}

fn draft(observed: &[Observation]) -> String {
    suggest(
        &TenantName::new("acme").unwrap(),
        &PolicyName::new("draft").unwrap(),
        &Labels::new([("role".to_owned(), "agent".to_owned())]).unwrap(),
        observed.iter().cloned(),
    )
}

fn seen(
    name: Option<&str>,
    address: Option<&str>,
    port: u16,
    request: Option<(&str, &str)>,
) -> Observation {
    Observation {
        name: name.map(|name| DomainName::parse(name).unwrap()),
        address: address.map(|address| address.parse().unwrap()),
        port,
        request: request
            .map(|(method, path)| (method.to_owned(), CanonicalPath::parse(path).unwrap())),
    }
}

#[test]
fn a_draft_permits_what_was_seen_and_little_else() {
    let text = draft(&[
        seen(
            Some("api.test"),
            None,
            443,
            Some(("GET", "/repos/a/issues/17")),
        ),
        seen(
            Some("api.test"),
            None,
            443,
            Some(("GET", "/repos/a/issues/18")),
        ),
        seen(
            Some("api.test"),
            None,
            443,
            Some(("POST", "/repos/a/issues")),
        ),
        seen(Some("tunnel.test"), None, 8443, None),
        seen(None, Some("9.9.9.9"), 53, None),
    ]);
    insta::assert_snapshot!("draft", text);
}

fn compiled(text: &str) -> Effective {
    let policies: Vec<Arc<Policy>> = parse("draft", text)
        .unwrap_or_else(|e| panic!("{e}"))
        .into_iter()
        .filter_map(|document| match document {
            Document::Policy(policy) => Some(Arc::new(policy)),
            Document::Guardrail(_) => None,
        })
        .collect();
    Effective::compile(&policies, &[], &Reserved::default())
}

fn permitted(effective: &Effective, observation: &Observation) -> bool {
    let connect = Connect {
        name: observation.name.as_ref(),
        address: observation.address.unwrap_or("2600::1".parse().unwrap()),
        port: observation.port,
        protocol: Protocol::Tcp,
        tls: true,
    };
    match &observation.request {
        None => effective.connect(&connect).is_ok(),
        Some((method, path)) => effective
            .request(&Request {
                connect,
                method,
                path,
            })
            .is_ok(),
    }
}

#[test]
fn a_star_in_a_path_is_no_wildcard_and_is_not_lost() {
    let paths = ["/a/*", "/a/b"].map(|path| seen(Some("a.test"), None, 443, Some(("GET", path))));
    let text = draft(&paths);
    let effective = compiled(&text);
    assert!(paths.iter().all(|one| permitted(&effective, one)), "{text}");
}

fn observation() -> impl Strategy<Value = Observation> {
    let names = prop::option::of(prop::sample::select(vec!["a.test", "b.a.test", "c.test"]));
    let ports = prop::sample::select(vec![80, 443, 8443]);
    let methods = prop::sample::select(vec!["GET", "POST", "M-SEARCH", "odd"]);
    let paths = "(/[a-c*0-9]{1,3}|/0123456789abcdef01|/%2[aA]|/a;b){1,3}/?";
    let request = prop::option::of((methods, paths));
    (names, ports, request).prop_map(|(name, port, request)| Observation {
        name: name.map(|name| DomainName::parse(name).unwrap()),
        address: Some("9.9.9.9".parse().unwrap()),
        port,
        request: request
            .filter(|_| name.is_some())
            .and_then(|(method, path)| {
                Some((method.to_owned(), CanonicalPath::parse(&path).ok()?))
            }),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_draft_is_a_policy_that_permits_what_was_seen(
        observed in prop::collection::vec(observation(), 0..40),
    ) {
        let text = draft(&observed);
        let effective = compiled(&text);
        for observation in &observed {
            prop_assert!(permitted(&effective, observation), "{:?}\n{}", observation, text);
        }
        let other = seen(Some("other.test"), None, 443, None);
        prop_assert!(!permitted(&effective, &other));
    }
}

#[test]
fn outcomes_have_words() {
    for (outcome, word) in [
        (Outcome::Permit, "permit"),
        (Outcome::Audit, "audit"),
        (Outcome::Deny, "deny"),
    ] {
        assert_eq!(outcome.word(), word);
        assert_eq!(serde_json::to_value(outcome).unwrap(), word);
    }
}
