//! The JSON Schema for editors says what the reader says, as far as shape goes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use causeway_policy::{SCHEMA, check};
use granit_parser::{Event, Parser, ScalarStyle};
use jsonschema::Validator;
use proptest::prop_assert;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    jsonschema::draft202012::new(&schema).unwrap()
});

/// The documents of a YAML file as JSON, with the types of YAML's core schema.
fn documents(text: &str) -> Option<Vec<Value>> {
    let mut found = Vec::new();
    let mut open: Vec<(bool, Vec<Value>)> = Vec::new();
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        let (event, _) = next.ok()?;
        let done = match event {
            Event::Scalar(text, style, ..) => scalar(&text, style == ScalarStyle::Plain),
            Event::SequenceStart(..) => {
                open.push((false, Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push((true, Vec::new()));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (is_map, children) = open.pop()?;
                if is_map {
                    mapping(&children)
                } else {
                    Value::Array(children)
                }
            }
            _ => continue,
        };
        match open.last_mut() {
            Some((_, children)) => children.push(done),
            None => found.push(done),
        }
    }
    Some(found)
}

fn mapping(children: &[Value]) -> Value {
    let mut map = Map::new();
    for pair in children.chunks(2) {
        let key = match &pair[0] {
            Value::String(key) => key.clone(),
            other => other.to_string(),
        };
        map.insert(key, pair[1].clone());
    }
    Value::Object(map)
}

fn scalar(text: &str, plain: bool) -> Value {
    match text {
        _ if !plain => json!(text),
        "" | "~" | "null" => Value::Null,
        "true" => json!(true),
        "false" => json!(false),
        _ => text
            .parse::<i64>()
            .map_or_else(|_| json!(text), |number| json!(number)),
    }
}

fn accepted_by_schema(text: &str) -> bool {
    let documents = documents(text).unwrap();
    !documents.is_empty() && documents.iter().all(|one| VALIDATOR.is_valid(one))
}

fn problems(text: &str) -> String {
    let documents = documents(text).unwrap();
    let problems = documents.iter().flat_map(|one| VALIDATOR.iter_errors(one));
    let lines: Vec<_> = problems
        .map(|p| format!("{}: {p}", p.instance_path))
        .collect();
    lines.join("\n")
}

fn every_example_is_valid() {
    let files = [
        include_str!("../../docs/policy.md"),
        include_str!("../../README.md"),
        include_str!("../../docs/policy-tutorial.md"),
        include_str!("../../docs/policy-recipes.md"),
    ];
    let mut examples = 0;
    for file in files {
        for block in file.split("```yaml\n").skip(1) {
            let text = block.split("```").next().unwrap();
            if text.contains("kind: PolicyTest") || !text.contains("apiVersion") {
                continue;
            }
            assert!(accepted_by_schema(text), "{text}\n{}", problems(text));
            examples += 1;
        }
    }
    assert!(examples >= 12, "{examples}");
    assert!(accepted_by_schema(include_str!("files/design.yaml")));
}

fn policy(spec: &str) -> String {
    format!(
        "apiVersion: causeway/v1\nkind: Policy\nmetadata: {{name: p, tenant: t}}\nspec: {{{spec}}}\n"
    )
}

fn guardrail(spec: &str) -> String {
    format!("apiVersion: causeway/v1\nkind: Guardrail\nmetadata: {{name: p}}\nspec: {{{spec}}}\n")
}

fn what_is_good_is_good_for_both() {
    for text in [
        policy(""),
        policy("selector: {}, egress: [], ingress: []"),
        policy("selector: {a: b, c/d: 1}, mode: audit"),
        policy(
            "egress: [{to: ['**', '*.a.test', '**.a.test', a.test], ports: [443, '80', tcp/1-2, 8000-8100, 'tcp/*']}]",
        ),
        policy("egress: [{to: [a.test], ports: ['*']}, {action: deny, cidr: ['10.0.0.0/8']}]"),
        policy("egress: [{cidr: ['::/0', 'fd12::/16', '1.2.3.4/32'], ports: ['*']}]"),
        policy("egress: [{cidr: ['2600::/16'], ports: [udp/53, icmpv6]}]"),
        policy(
            "egress: [{name: x_1.y, to: [a.test], http: [{methods: ['*', GET, M-SEARCH], paths: ['/', '/a/*', '/**']}]}]",
        ),
        policy(
            "ingress: [{from: {network: '*', labels: {a: b}}, ports: [80]}, {from: {cidr: ['::/0']}, ports: ['*']}]",
        ),
        policy(
            "secrets: {A_b: {hosts: [a.test, '*.b.test'], inject: {header: X-Key, format: 'a {secret}'}}}",
        ),
        policy("secrets: {A: {hosts: [a.test], replace: [header, body]}}"),
        policy("secrets: {A: {hosts: [a.test], inject: {query: api_key, format: 'x{secret}'}}}"),
        policy("limits: {connections: 1000000, requests_per_second: '5', bandwidth: 100Mbit}"),
        guardrail(""),
        guardrail(
            "selector: {}, egress: [], ingress: [{from: {network: '*'}, ports: [80]}], limits: {connections: 1}",
        ),
    ] {
        let errors = check("good", &text).problems;
        assert!(!errors.has_errors(), "{text}\n{errors}");
        assert!(accepted_by_schema(&text), "{text}\n{}", problems(&text));
    }
}

fn what_has_the_wrong_shape_is_refused_by_both() {
    let metadata = |text: &str| policy("").replace("{name: p, tenant: t}", text);
    for text in [
        "[]".to_owned(),
        "5".to_owned(),
        "{a: b}".to_owned(),
        policy("").replace("causeway/v1", "causeway/v2"),
        policy("").replace("Policy", "Polcy"),
        policy("").replace("spec:", "spce:"),
        metadata("{name: p}"),
        metadata("{tenant: t}"),
        metadata("{name: P_1, tenant: t}"),
        metadata("{name: p, tenant: t, labels: {}}"),
        guardrail("").replace("{name: p}", "{name: p, tenant: t}"),
        guardrail("secrets: {}"),
        guardrail("selector: {a: b}"),
        guardrail("ingress: [{from: {network: mine}, ports: [80]}]"),
        policy("selektor: {}"),
        policy("mode: enforced"),
        policy("mode:"),
        policy("egress:"),
        policy("egress: {}"),
        policy("egress: [a]"),
        policy("egress: [{}]"),
        policy("egress: [{to: []}]"),
        policy("egress: [{to: a.test}]"),
        policy("egress: [{to: [a.test], cidr: ['10.0.0.0/8']}]"),
        policy("egress: [{to: ['https://a.test']}]"),
        policy("egress: [{to: ['a.test:443']}]"),
        policy("egress: [{to: ['*']}]"),
        policy("egress: [{to: ['a.*.test']}]"),
        policy("egress: [{to: [a.test], ports: []}]"),
        policy("egress: [{to: [a.test], ports: [0]}]"),
        policy("egress: [{to: [a.test], ports: [65536]}]"),
        policy("egress: [{to: [a.test], ports: ['65536']}]"),
        policy("egress: [{to: [a.test], ports: [tcp/0-5]}]"),
        policy("egress: [{to: [a.test], ports: [sctp/5]}]"),
        policy("egress: [{to: [a.test], ports: [icmpv6/1]}]"),
        policy("egress: [{to: [a.test], ports: ['*', 443]}]"),
        policy("egress: [{to: [a.test], ports: [udp/53]}]"),
        policy("egress: [{to: [a.test], action: allow}]"),
        policy("egress: [{to: [a.test], name: 'a b'}]"),
        policy("egress: [{to: [a.test], http: []}]"),
        policy("egress: [{to: [a.test], http: [{methods: [GET]}]}]"),
        policy("egress: [{to: [a.test], http: [{methods: [], paths: ['/']}]}]"),
        policy("egress: [{to: [a.test], http: [{methods: [get], paths: ['/']}]}]"),
        policy("egress: [{to: [a.test], http: [{methods: [GET], paths: [a]}]}]"),
        policy("egress: [{to: [a.test], http: [{methods: [GET], paths: ['/?a']}]}]"),
        policy("egress: [{cidr: ['10.0.0.0/8']}]"),
        policy("egress: [{cidr: ['10.0.0.1'], ports: [80]}]"),
        policy("egress: [{cidr: ['10.0.0.0/33'], ports: [80]}]"),
        policy("egress: [{cidr: ['fd00::/129'], ports: [80]}]"),
        policy("egress: [{cidr: [a.test], ports: [80]}]"),
        policy(
            "egress: [{cidr: ['10.0.0.0/8'], ports: [80], http: [{methods: [GET], paths: ['/']}]}]",
        ),
        policy("ingress: [{ports: [80]}]"),
        policy("ingress: [{from: {network: n}}]"),
        policy("ingress: [{from: {}, ports: [80]}]"),
        policy("ingress: [{from: {labels: {a: b}}, ports: [80]}]"),
        policy("ingress: [{from: {network: n, cidr: ['::/0']}, ports: [80]}]"),
        policy("ingress: [{from: {cidr: ['::/0'], labels: {a: b}}, ports: [80]}]"),
        policy("ingress: [{from: {cidr: ['10.0.0.0/8']}, ports: [80]}]"),
        policy("ingress: [{from: {network: N_1}, ports: [80]}]"),
        policy("secrets: {A: {inject: {header: x-key}}}"),
        policy("secrets: {A: {hosts: [], inject: {header: x-key}}}"),
        policy("secrets: {A: {hosts: ['**'], inject: {header: x-key}}}"),
        policy("secrets: {A: {hosts: [a.test]}}"),
        policy("secrets: {A: {hosts: [a.test], inject: {}}}"),
        policy("secrets: {A: {hosts: [a.test], inject: {header: a, query: b}}}"),
        policy("secrets: {A: {hosts: [a.test], inject: {query: 'a[]'}}}"),
        policy("secrets: {A: {hosts: [a.test], inject: {header: 'a b'}}}"),
        policy("secrets: {A: {hosts: [a.test], inject: {header: a, format: x}}}"),
        policy("secrets: {A: {hosts: [a.test], inject: {header: a}, replace: [header]}}"),
        policy("secrets: {1A: {hosts: [a.test], inject: {header: a}}}"),
        policy("secrets: {A: {hosts: [a.test], injct: {header: a}}}"),
        policy("limits: {connections: 0}"),
        policy("limits: {connections: 1000001}"),
        policy("limits: {conections: 5}"),
        policy("limits: {bandwidth: 100}"),
        policy("limits: {bandwidth: 100MB}"),
    ] {
        assert!(
            check("wrong", &text).problems.has_errors(),
            "check takes {text}"
        );
        assert!(!accepted_by_schema(&text), "the schema takes {text}");
    }
}

/// The schema is never stricter than the reader.
fn what_is_read_is_valid() {
    let damage = (0usize..2000, "[a-z0-9*./: ]{0,3}", 0usize..5);
    TestRunner::default()
        .run(&damage, |(at, with, length)| {
            let good = include_str!("files/design.yaml");
            let at = at.min(good.len() - length);
            let text = format!("{}{with}{}", &good[..at], &good[at + length..]);
            if !check("damaged", &text).problems.has_errors() {
                prop_assert!(accepted_by_schema(&text), "{}\n{}", text, problems(&text));
            }
            Ok(())
        })
        .unwrap();
}

/// One test, since most of its time goes into building the validator.
#[test]
fn the_schema_agrees_with_the_reader() {
    every_example_is_valid();
    what_is_good_is_good_for_both();
    what_has_the_wrong_shape_is_refused_by_both();
    what_is_read_is_valid();
}
