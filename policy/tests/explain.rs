//! What `explain` shows.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use causeway_policy::{Document, Query, Reserved, explain, parse};

fn ask(query: &str) -> String {
    let text = format!(
        "{}---\n{}",
        include_str!("files/design.yaml"),
        "apiVersion: causeway/v1\nkind: Policy\nmetadata: {name: other, tenant: other}\n\
         spec: {selector: {}}\n---\n\
         apiVersion: causeway/v1\nkind: Guardrail\nmetadata: {name: all}\n\
         spec: {egress: [{to: ['**.github.com', '**.githubusercontent.com']}, \
         {cidr: ['2001:db8::/32'], ports: ['*']}]}\n"
    );
    let (mut policies, mut guardrails) = (Vec::new(), Vec::new());
    for document in parse("explain", &text).unwrap() {
        match document {
            Document::Policy(policy) => policies.push(Arc::new(policy)),
            Document::Guardrail(guardrail) => guardrails.push(Arc::new(guardrail)),
        }
    }
    let query: Query = serde_json::from_str(query).unwrap();
    explain(&policies, &guardrails, &Reserved::default(), &query).to_string()
}

#[test]
fn each_rule_says_why() {
    insta::assert_snapshot!(
        "permitted",
        ask(r#"{"tenant":"acme","labels":{"role":"agent"},
        "name":"api.github.com","port":443,"protocol":"tcp","tls":true,"method":"GET",
        "path":"/repos/a/b"}"#)
    );
    insta::assert_snapshot!(
        "denied",
        ask(r#"{"tenant":"acme","labels":{"role":"agent"},
        "name":"api.github.com","port":443,"protocol":"tcp","tls":true,"method":"DELETE",
        "path":"/repos/a/b"}"#)
    );
    insta::assert_snapshot!(
        "address",
        ask(r#"{"tenant":"acme","labels":{"role":"agent"},
        "address":"2001:db8:500::1","port":5432,"protocol":"tcp","tls":false}"#)
    );
    insta::assert_snapshot!(
        "not_selected",
        ask(r#"{"tenant":"acme","labels":{},
        "name":"api.github.com","port":443,"protocol":"tcp","tls":true}"#)
    );
    insta::assert_snapshot!(
        "ambiguous_path",
        ask(r#"{"tenant":"acme","labels":{"role":"agent"},
        "name":"api.github.com","port":443,"protocol":"tcp","tls":true,"method":"GET",
        "path":"/repos/../user"}"#)
    );
}
