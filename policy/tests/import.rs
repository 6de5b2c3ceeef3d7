//! Foreign files keep the meaning that they have where they come from: each table has requests
//! whose verdict would be another one if that meaning were lost.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use causeway_policy::import::{Dialect, ImportOptions, Imported, import};
use causeway_policy::model::Slot;
use causeway_policy::{
    CanonicalPath, Connect, Document, Effective, L4Ingress, Policy, PolicyErrors, Protocol,
    Request, Reserved, parse, select,
};
use causeway_types::{DomainName, Labels, PolicyName, TenantName};
use proptest::prelude::*;

fn options(drop: &[&str]) -> ImportOptions {
    ImportOptions {
        tenant: TenantName::new("acme").unwrap(),
        name: PolicyName::new("imported").unwrap(),
        selector: Labels::default(),
        drop: drop.iter().map(|&key| key.to_owned()).collect(),
    }
}

fn read(dialect: Dialect, text: &str, drop: &[&str]) -> Result<Imported, PolicyErrors> {
    import(dialect, "foreign", text, &options(drop))
}

fn policies(imported: &Imported) -> Vec<Arc<Policy>> {
    let documents = parse("result", &imported.text).unwrap_or_else(|e| panic!("{e}"));
    let policy = |document| match document {
        Document::Policy(policy) => Arc::new(policy),
        Document::Guardrail(_) => unreachable!(),
    };
    documents.into_iter().map(policy).collect()
}

struct World {
    text: String,
    changes: String,
    effective: Effective,
}

fn world_for(dialect: Dialect, text: &str, drop: &[&str], labels: &[(&str, &str)]) -> World {
    let imported = read(dialect, text, drop).unwrap_or_else(|e| panic!("{e}"));
    let labels = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned()));
    let labels = Labels::new(labels).unwrap();
    let tenant = TenantName::new("acme").unwrap();
    let selected = select(&policies(&imported), &tenant, &labels);
    World {
        effective: Effective::compile(&selected, &[], &Reserved::default()),
        changes: imported.changes.to_string(),
        text: imported.text,
    }
}

fn world(dialect: Dialect, text: &str) -> World {
    world_for(dialect, text, &[], &[])
}

fn header(slot: &Slot) -> &str {
    match slot {
        Slot::Header(header) => header.as_str(),
        Slot::Query(_) => unreachable!(),
    }
}

fn refused(dialect: Dialect, text: &str, expected: &str) {
    match read(dialect, text, &[]) {
        Err(errors) => assert!(errors.to_string().contains(expected), "{errors}"),
        Ok(imported) => panic!("{}", imported.text),
    }
}

impl World {
    /// Whether TCP passes to a name that is public, or to an address.
    fn tcp(&self, to: &str, port: u16) -> bool {
        let (name, address) = match to.parse::<IpAddr>() {
            Ok(address) => (None, address),
            Err(_) => (
                Some(DomainName::parse(to).unwrap()),
                "2600::1".parse().unwrap(),
            ),
        };
        self.at(name.as_ref(), address, port, Protocol::Tcp)
    }

    fn at(
        &self,
        name: Option<&DomainName>,
        address: IpAddr,
        port: u16,
        protocol: Protocol,
    ) -> bool {
        let connect = Connect {
            name,
            address,
            port,
            protocol,
            tls: port != 80,
        };
        self.effective.connect(&connect).is_ok()
    }

    fn udp(&self, address: &str, port: u16) -> bool {
        self.at(None, address.parse().unwrap(), port, Protocol::Udp)
    }

    fn http(&self, host: &str, method: &str, path: &str) -> bool {
        let name = DomainName::parse(host).unwrap();
        let path = CanonicalPath::parse(path).unwrap();
        let connect = Connect {
            name: Some(&name),
            address: "2600::1".parse().unwrap(),
            port: 443,
            protocol: Protocol::Tcp,
            tls: true,
        };
        let request = Request {
            connect,
            method,
            path: &path,
        };
        self.effective.request(&request).is_ok()
    }

    /// The headers that go along, as `header: before{secret}after`.
    fn headers(&self, host: &str) -> Vec<String> {
        let name = DomainName::parse(host).unwrap();
        let path = CanonicalPath::parse("/").unwrap();
        let connect = Connect {
            name: Some(&name),
            address: "2600::1".parse().unwrap(),
            port: 443,
            protocol: Protocol::Tcp,
            tls: true,
        };
        let request = Request {
            connect,
            method: "GET",
            path: &path,
        };
        let permit = self.effective.request(&request).unwrap();
        let shown = permit
            .injections
            .iter()
            .map(|i| format!("{} {}: {}", i.secret, header(&i.into), i.format));
        shown.collect()
    }

    fn agrees(&self, table: &[(&str, u16, bool)]) {
        for (to, port, expected) in table {
            assert_eq!(self.tcp(to, *port), *expected, "{to}:{port}\n{}", self.text);
        }
    }
}

#[test]
fn e2b_allows_everything_until_denied_and_allow_wins() {
    let open = [
        ("a.example", 443, true),
        ("1.1.1.1", 22, true),
        ("a.example", 22, true),
    ];
    for text in [
        "{}",
        r#"{"allowOut": [], "denyOut": []}"#,
        r#"{"network": {}}"#,
    ] {
        world(Dialect::E2b, text).agrees(&open);
    }
    // Names in the list restrict nothing while nothing is denied.
    let listed = world(Dialect::E2b, r#"{"allowOut": ["a.example"]}"#);
    listed.agrees(&[("b.example", 443, true)]);
    assert!(
        listed.changes.contains("restricts nothing"),
        "{}",
        listed.changes
    );
    let closed = [("a.example", 443, false), ("1.1.1.1", 443, false)];
    for text in [
        r#"{"denyOut": ["0.0.0.0/0"]}"#,
        r#"{"allowInternetAccess": false}"#,
        r#"{"allowInternetAccess": false, "network": {"allowPublicTraffic": false}}"#,
    ] {
        world(Dialect::E2b, text).agrees(&closed);
    }
}

#[test]
fn e2b_names_have_any_depth_no_apex_and_two_ports() {
    let text = r#"{"network": {"denyOut": ["0.0.0.0/0"],
        "allowOut": ["api.example.com", "*.x.example", "8.8.8.0/24", "1.1.1.1"]}}"#;
    let world = world(Dialect::E2b, text);
    world.agrees(&[
        ("api.example.com", 443, true),
        ("api.example.com", 80, true),
        ("api.example.com", 22, false),
        ("a.api.example.com", 443, false),
        ("x.example", 443, false),
        ("a.x.example", 443, true),
        ("b.a.x.example", 443, true),
        ("8.8.8.8", 53, true),
        ("8.8.9.8", 53, false),
        ("1.1.1.1", 9, true),
        ("1.1.1.2", 9, false),
        ("other.example", 443, false),
    ]);
}

#[test]
fn e2b_takes_what_is_allowed_out_of_what_is_denied() {
    let text = r#"{"denyOut": ["8.8.8.0/24", "9.0.0.1"], "allowOut": ["8.8.8.8"]}"#;
    let world = world(Dialect::E2b, text);
    world.agrees(&[
        ("8.8.8.8", 443, true),
        ("8.8.8.9", 443, false),
        ("8.8.9.8", 443, true),
        ("9.0.0.1", 443, false),
        ("a.example", 443, true),
    ]);
    let name = DomainName::parse("a.example").unwrap();
    assert!(!world.at(Some(&name), "8.8.8.9".parse().unwrap(), 443, Protocol::Tcp));
    let mixed = r#"{"denyOut": ["8.8.8.0/24"], "allowOut": ["a.example"]}"#;
    refused(Dialect::E2b, mixed, "deny wins here");
    refused(
        Dialect::E2b,
        r#"{"denyOut": ["a.example"]}"#,
        "not an address or a prefix",
    );
}

#[test]
fn e2b_headers_become_secrets_without_values() {
    let text = r#"{"rules": {
        "api.example.com": [{"transform": {"headers": {
            "Authorization": "Bearer ${e2b.secrets.API_KEY}", "X-Key": "very-secret-value"}}}],
        "*.x.example": [{"transform": {"headers": {"X-Token": "${e2b.secrets.T}"}}}]}}"#;
    let world = world(Dialect::E2b, text);
    assert_eq!(
        world.headers("api.example.com"),
        [
            "API_EXAMPLE_COM_X_KEY x-key: {secret}",
            "API_KEY authorization: Bearer {secret}",
        ]
    );
    assert_eq!(world.headers("b.a.x.example"), ["T x-token: {secret}"]);
    assert!(world.headers("x.example").is_empty());
    assert!(!world.text.contains("very-secret-value"));
    let imported = read(Dialect::E2b, text, &[]).unwrap();
    let drawn = imported.changes.render(causeway_policy::Style::Plain);
    assert!(drawn.contains("X_KEY"), "{drawn}");
    for value in [
        "${e2b.identity.tokens.x}",
        "${e2b.secrets.A}${e2b.secrets.B}",
    ] {
        let text =
            format!("{{rules: {{a.example: [{{transform: {{headers: {{x-key: '{value}'}}}}}}]}}}}");
        refused(Dialect::E2b, &text, "this value cannot be expressed");
    }
    let anywhere = "{rules: {'*': [{transform: {headers: {x-key: v}}}]}}";
    refused(Dialect::E2b, anywhere, "a secret must not go to");
    refused(Dialect::E2b, "{egressProxy: {host: a}}", "egressProxy");
    refused(Dialect::E2b, "{allowOutt: []}", "has no key `allowOutt`");
}

#[test]
fn openshell_denies_what_is_not_named_and_denials_win() {
    let text = "version: 1\nnetwork_policies:\n  github:\n    endpoints:\n      \
        - { host: api.github.com, port: 443, protocol: rest, access: read-only,\n          \
            deny_rules: [{ method: '*', path: '/repos/*/rulesets' }] }\n      \
        - { host: '*.one.example', ports: [443, 8443] }\n      \
        - { host: '**.any.example', port: 443 }\n    binaries: [{ path: '/**' }]\n  \
        write:\n    endpoints:\n      \
        - host: up.example\n        port: 443\n        protocol: rest\n        rules:\n          \
        - allow: { method: POST, path: '/v1/*' }\n    binaries: [{ path: /usr/bin/git }]\n";
    refused(Dialect::OpenShell, text, "`binaries` cannot be expressed");
    let world = world_for(Dialect::OpenShell, text, &["binaries"], &[]);
    world.agrees(&[
        ("api.github.com", 443, true),
        ("api.github.com", 80, false),
        ("one.example", 443, false),
        ("a.one.example", 8443, true),
        ("b.a.one.example", 443, false),
        ("any.example", 443, false),
        ("b.a.any.example", 443, true),
        ("other.example", 443, false),
    ]);
    for (host, method, path, expected) in [
        ("api.github.com", "GET", "/repos/a/b", true),
        ("api.github.com", "OPTIONS", "/", true),
        ("api.github.com", "POST", "/repos/a/b", false),
        ("api.github.com", "GET", "/repos/a/rulesets", false),
        // A wildcard crosses `/` there.
        ("api.github.com", "GET", "/repos/a/b/rulesets", false),
        ("api.github.com", "GET", "/repos/rulesets", true),
        ("up.example", "POST", "/v1/a", true),
        ("up.example", "POST", "/v1/a/b", true),
        ("up.example", "POST", "/v2", false),
        ("up.example", "GET", "/v1/a", false),
    ] {
        assert_eq!(
            world.http(host, method, path),
            expected,
            "{host} {method} {path}"
        );
    }
    world_for(Dialect::OpenShell, "version: 1\n", &[], &[]).agrees(&[("a.example", 443, false)]);
}

#[test]
fn openshell_presets_and_what_cannot_be_kept() {
    let endpoint = |rest: &str| {
        format!(
            "version: 1\nnetwork_policies: {{a: {{endpoints: [{{host: a.example, port: 443, {rest}}}], \
             binaries: [{{path: '/**'}}]}}}}"
        )
    };
    for (preset, allowed, denied) in [
        (
            "read-only",
            vec!["GET", "HEAD", "OPTIONS"],
            vec!["POST", "DELETE"],
        ),
        (
            "read-write",
            vec!["GET", "POST", "PUT", "PATCH"],
            vec!["DELETE"],
        ),
        ("full", vec!["GET", "DELETE", "PROPFIND"], vec![]),
    ] {
        let world = world(
            Dialect::OpenShell,
            &endpoint(&format!("protocol: rest, access: {preset}")),
        );
        for (methods, expected) in [(allowed, true), (denied, false)] {
            for method in methods {
                assert_eq!(
                    world.http("a.example", method, "/x"),
                    expected,
                    "{preset} {method}"
                );
            }
        }
    }
    let watched = endpoint("protocol: rest, access: read-only, enforcement: audit");
    let watched = world(Dialect::OpenShell, &watched);
    assert!(watched.http("a.example", "DELETE", "/x"));
    assert!(watched.changes.contains("permits every request"));
    for (rest, expected) in [
        (
            "protocol: graphql, access: full",
            "`graphql` cannot be expressed",
        ),
        (
            "protocol: rest, rules: [{allow: {method: GET, path: '/a?'}}]",
            "cannot be expressed",
        ),
        (
            "protocol: rest, rules: [{allow: {method: GET, path: /a, query: {b: c}}}]",
            "`query`",
        ),
        ("protocol: rest, access: read-only, tls: skip", "tls: skip"),
        ("protocol: rest", "nothing is allowed"),
        ("access: read-only", "without `protocol`"),
        (
            "allowed_ips: [10.0.0.0/8]",
            "`allowed_ips` cannot be expressed",
        ),
        (
            "credential_signing: sigv4",
            "`credential_signing` cannot be expressed",
        ),
        ("enforcment: audit", "did you mean"),
    ] {
        let errors = read(Dialect::OpenShell, &endpoint(rest), &[]).unwrap_err();
        let drawn = errors.render(causeway_policy::Style::Plain);
        assert!(drawn.contains(expected), "{drawn}");
    }
    refused(Dialect::OpenShell, "version: 2\n", "no value of version");
    let aliased = "version: 1\na: &a b\nc: *a\n";
    refused(Dialect::OpenShell, aliased, "anchors are not taken");
}

#[test]
fn vercel_in_both_forms() {
    world(Dialect::Vercel, "allow-all").agrees(&[("a.example", 443, true), ("1.1.1.1", 9, true)]);
    for none in [
        "deny-all",
        r#"{"mode": "deny-all"}"#,
        r#"{"mode": "custom"}"#,
        r#"{"mode": "custom", "allowedDomains": []}"#,
        r#"{"allow": []}"#,
        r#"{"allow": {}}"#,
        "{}",
    ] {
        world(Dialect::Vercel, none).agrees(&[("a.example", 443, false), ("1.1.1.1", 9, false)]);
    }
    let sdk = r#"{"allow": ["a.example", "*.x.example"],
        "subnets": {"allow": ["9.0.0.0/8", "8.8.8.0/24"], "deny": ["9.9.0.0/16"]}}"#;
    let rest = r#"{"mode": "custom", "allowedDomains": ["a.example", "*.x.example"],
        "allowedCIDRs": ["9.0.0.0/8", "8.8.8.0/24"], "deniedCIDRs": ["9.9.0.0/16"]}"#;
    for text in [sdk, rest] {
        let world = world(Dialect::Vercel, text);
        world.agrees(&[
            ("a.example", 443, true),
            // Names are found in TLS on every port.
            ("a.example", 5432, true),
            ("x.example", 443, false),
            ("b.a.x.example", 443, true),
            ("b.example", 443, false),
            ("9.1.1.1", 443, true),
            ("9.9.1.1", 443, false),
            ("8.8.8.8", 53, true),
        ]);
        // A denied subnet beats an allowed name.
        let name = DomainName::parse("a.example").unwrap();
        assert!(!world.at(Some(&name), "9.9.1.1".parse().unwrap(), 443, Protocol::Tcp));
    }
    let every = world(Dialect::Vercel, r#"{"allow": ["*"]}"#);
    every.agrees(&[
        ("a.example", 443, true),
        ("b.a.example", 443, true),
        ("1.1.1.1", 443, false),
    ]);
    let secrets = r#"{"networkPolicy": {"allow": {
        "ai.example.com": [{"transform": [{"headers": {"authorization": "Bearer abc-secret"}}]}],
        "*": []}}}"#;
    let secrets = world(Dialect::Vercel, secrets);
    assert_eq!(
        secrets.headers("ai.example.com"),
        ["AI_EXAMPLE_COM_AUTHORIZATION authorization: Bearer {secret}"]
    );
    assert!(secrets.headers("b.example").is_empty());
    assert!(!secrets.text.contains("abc-secret"));
    for (text, expected) in [
        (
            r#"{"allow": {"a.example": [{"match": {"method": ["GET"]}}]}}"#,
            "`match`",
        ),
        (
            r#"{"allow": {"a.example": [{"forwardURL": "https://p.example"}]}}"#,
            "`forwardURL`",
        ),
        (
            r#"{"mode": "allow-all", "deniedCIDRs": ["9.0.0.0/8"]}"#,
            "beside the mode",
        ),
        (r#"{"mode": "open"}"#, "not a policy of Vercel's"),
        (r#"{"allow": ["my-*.example"]}"#, "whole labels"),
        ("allow-some", "not a policy of Vercel's"),
    ] {
        refused(Dialect::Vercel, text, expected);
    }
}

#[test]
fn blaxel_denials_win_and_absence_allows() {
    let text = r#"{"network": {"allowedDomains": ["a.example", "*.x.example"],
        "forbiddenDomains": ["bad.x.example"]}}"#;
    world(Dialect::Blaxel, text).agrees(&[
        ("a.example", 443, true),
        ("x.example", 443, false),
        ("b.a.x.example", 443, true),
        ("bad.x.example", 443, false),
        ("b.example", 443, false),
    ]);
    let denied_only = r#"{"forbiddenDomains": ["*.bad.example"]}"#;
    world(Dialect::Blaxel, denied_only).agrees(&[
        ("a.example", 443, true),
        ("bad.example", 443, true),
        ("b.a.bad.example", 443, false),
    ]);
    let routing = r#"{"proxy": {"routing": [{"destinations": ["api.stripe.com"],
        "headers": {"Authorization": "Bearer {{SECRET:stripe-key}}"},
        "secrets": {"stripe-key": "sk_live_value"}}]}}"#;
    let world = world(Dialect::Blaxel, routing);
    assert_eq!(
        world.headers("api.stripe.com"),
        ["STRIPE_KEY authorization: Bearer {secret}"]
    );
    assert!(!world.text.contains("sk_live_value"));
    for (text, expected) in [
        (r#"{"allowedDomains": []}"#, "`allowedDomains` is empty"),
        (
            r#"{"proxy": {"routing": [{"headers": {"x-key": "{{SECRET:a}}"}}]}}"#,
            "needs `destinations`",
        ),
        (
            r#"{"proxy": {"routing": [{"destinations": [], "headers": {"x-key": "a"}}]}}"#,
            "everywhere",
        ),
        (
            r#"{"proxy": {"routing": [{"destinations": ["*"], "headers": {"x-key": "a"}}]}}"#,
            "must not go to",
        ),
        (
            r#"{"proxy": {"routing": [{"destinations": ["a.example"], "body": {"k": "v"}}]}}"#,
            "`body`",
        ),
        (
            r#"{"proxy": {"routing": [{"destinations": ["a.example"], "headers": {"x-key": "{{FUNC:uuid}}"}}]}}"#,
            "this value cannot be expressed",
        ),
        (
            r#"{"egress": {"mode": "dedicated"}}"#,
            "`egress` cannot be expressed",
        ),
    ] {
        refused(Dialect::Blaxel, text, expected);
    }
}

#[test]
fn srt_allows_what_is_listed_and_denies_first() {
    let text = r#"{"network": {
        "allowedDomains": ["github.com", "*.github.com", "db.example:5432", "[2600::5]:443", "9.9.9.9"],
        "deniedDomains": ["bad.github.com", "github.com:22"], "allowLocalBinding": false},
        "filesystem": {"denyRead": ["~/.ssh"]}}"#;
    let world = world(Dialect::Srt, text);
    world.agrees(&[
        ("github.com", 443, true),
        ("github.com", 22, false),
        ("api.github.com", 22, true),
        ("b.a.github.com", 443, true),
        ("bad.github.com", 443, false),
        ("db.example", 5432, true),
        ("db.example", 443, false),
        ("2600::5", 443, true),
        ("2600::5", 80, false),
        ("9.9.9.9", 1, true),
        ("other.example", 443, false),
    ]);
    assert!(world.changes.contains("`filesystem` is left out"));
    for none in [
        r#"{"network": {}}"#,
        r#"{"network": {"allowedDomains": []}}"#,
        r#"{"network": {"allowedDomains": ["a.example"], "deniedDomains": ["*"]}}"#,
    ] {
        self::world(Dialect::Srt, none).agrees(&[("a.example", 443, false), ("9.9.9.9", 1, false)]);
    }
    let port = r#"{"network": {"allowedDomains": ["a.example"], "deniedDomains": ["*:22"]}}"#;
    self::world(Dialect::Srt, port).agrees(&[("a.example", 22, false), ("a.example", 443, true)]);
    for (text, expected) in [
        (
            r#"{"network": {"allowedDomain": ["a.example"]}}"#,
            "has no key `allowedDomain`",
        ),
        (
            r#"{"network": {"allowedDomains": ["*"]}}"#,
            "not taken in allowedDomains",
        ),
        (
            r#"{"network": {"allowedDomains": ["localhost"]}}"#,
            "this machine's own services",
        ),
        (
            r#"{"network": {"allowedDomains": ["a.example:0"]}}"#,
            "not a port",
        ),
        (
            r#"{"network": {"allowedDomains": ["a.example:65536"]}}"#,
            "not a port",
        ),
        (r#"{"filesystem": {}}"#, "needs `network`"),
    ] {
        refused(Dialect::Srt, text, expected);
    }
}

const NAMESPACE: &str = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n";

#[test]
fn kubernetes_isolates_by_direction() {
    let text = format!(
        "{NAMESPACE}metadata: {{name: db, namespace: default}}\nspec:\n  podSelector: {{matchLabels: {{role: db}}}}\n  \
         policyTypes: [Ingress, Egress]\n  ingress:\n    - from:\n        - podSelector: {{matchLabels: {{role: api}}}}\n        \
         - ipBlock: {{cidr: '2600::/16', except: ['2600:1::/32']}}\n      \
         ports: [{{protocol: TCP, port: 5432}}]\n  egress:\n    - to: [{{ipBlock: {{cidr: 9.0.0.0/8, except: [9.9.0.0/16]}}}}]\n      \
         ports: [{{port: 8000, endPort: 8010}}]\n    - to: [{{ipBlock: {{cidr: '2600::/16'}}}}]\n      ports: [{{protocol: UDP, port: 53}}]\n"
    );
    let world = world_for(Dialect::Kubernetes, &text, &[], &[("role", "db")]);
    world.agrees(&[
        ("9.1.1.1", 8005, true),
        ("9.1.1.1", 443, false),
        ("9.9.1.1", 8005, false),
        ("a.example", 8005, false),
    ]);
    assert!(world.udp("2600::5", 53) && !world.udp("2600::5", 54));
    let L4Ingress::Rules(rules) = &world.effective.firewall().ingress else {
        panic!()
    };
    let shown: Vec<_> = rules
        .iter()
        .map(|r| format!("{:?} {}", r.from, r.ports))
        .collect();
    assert_eq!(rules.len(), 2, "{shown:?}");
    assert!(
        shown.iter().all(|rule| rule.ends_with("tcp/5432")),
        "{shown:?}"
    );
    assert!(
        world
            .changes
            .contains("the namespace `default` is `acme` here")
    );
    // Pods that it does not select are not isolated by it; here nobody speaks for them.
    let other = world_for(Dialect::Kubernetes, &text, &[], &[("role", "api")]);
    other.agrees(&[("9.1.1.1", 8005, false)]);
}

#[test]
fn kubernetes_empty_absent_and_everything() {
    let spec = |spec: &str| {
        format!("{NAMESPACE}metadata: {{name: p}}\nspec: {{podSelector: {{}}, {spec}}}\n")
    };
    for (text, reaches, rules) in [
        // Nothing out, and ingress untouched: members of shared networks.
        ("policyTypes: [Egress]", false, None),
        ("policyTypes: [Egress], egress: []", false, None),
        ("policyTypes: [Egress], egress: [{}]", true, None),
        // Nobody in, and egress untouched: open.
        ("policyTypes: [Ingress]", true, Some(0)),
        ("ingress: []", true, Some(0)),
        ("ingress: [{}]", true, Some(2)),
        ("policyTypes: [Ingress, Egress]", false, Some(0)),
        ("egress: []", false, Some(0)),
    ] {
        let world = world(Dialect::Kubernetes, &spec(text));
        world.agrees(&[("a.example", 443, reaches), ("1.1.1.1", 9, reaches)]);
        let found = match &world.effective.firewall().ingress {
            L4Ingress::SharedNetworks => None,
            L4Ingress::Rules(rules) => Some(rules.len()),
        };
        assert_eq!(found, rules, "{text}");
    }
    for (text, expected) in [
        (
            "egress: [{to: [{podSelector: {}}]}]",
            "pods as destinations",
        ),
        (
            "ingress: [{from: [{namespaceSelector: {}}]}]",
            "`namespaceSelector` cannot be expressed",
        ),
        ("ingress: [{ports: [{port: http}]}]", "not a port number"),
        (
            "ingress: [{ports: [{protocol: SCTP, port: 1}]}]",
            "no value of protocol",
        ),
        ("egres: []", "has no key `egres`"),
    ] {
        refused(Dialect::Kubernetes, &spec(text), expected);
    }
    let expressions = format!(
        "{NAMESPACE}spec: {{podSelector: {{matchExpressions: [{{key: a, operator: Exists}}]}}}}"
    );
    refused(
        Dialect::Kubernetes,
        &expressions,
        "`matchExpressions` cannot be expressed",
    );
}

#[test]
fn kubernetes_policies_add_up() {
    let two = |first: &str, second: &str| {
        format!(
            "{NAMESPACE}metadata: {{name: a}}\nspec: {first}\n---\n{NAMESPACE}metadata: {{name: b}}\nspec: {second}\n"
        )
    };
    // The first says nothing on egress, and the second isolates the same pods.
    let text = two(
        "{podSelector: {matchLabels: {x: y}}, policyTypes: [Ingress]}",
        "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 9.0.0.0/8}}]}]}",
    );
    let world = world_for(Dialect::Kubernetes, &text, &[], &[("x", "y")]);
    world.agrees(&[("9.1.1.1", 443, true), ("8.8.8.8", 443, false)]);
    // Some of the pods of the first are open and some are not.
    let text = two(
        "{podSelector: {}, policyTypes: [Ingress]}",
        "{podSelector: {matchLabels: {x: y}}, policyTypes: [Egress]}",
    );
    refused(
        Dialect::Kubernetes,
        &text,
        "leaves egress open to some of its pods",
    );
}

const CILIUM: &str = "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: p}\n";

#[test]
fn cilium_names_depth_and_requests() {
    let text = format!(
        "{CILIUM}spec:\n  endpointSelector: {{matchLabels: {{'k8s:role': agent}}}}\n  egress:\n    \
         - toEndpoints: [{{matchLabels: {{'k8s:k8s-app': kube-dns}}}}]\n      toPorts: [{{ports: [{{port: '53', protocol: ANY}}], rules: {{dns: [{{matchPattern: '*'}}]}}}}]\n    \
         - toFQDNs: [{{matchName: api.example.com}}, {{matchPattern: '*.x.example'}}, {{matchPattern: '**.y.example'}}]\n      \
         toPorts: [{{ports: [{{port: '443', protocol: TCP}}]}}]\n    \
         - toFQDNs: [{{matchName: l7.example}}]\n      toPorts: [{{ports: [{{port: '443', protocol: TCP}}], rules: {{http: [{{method: GET|HEAD, path: '/v1/.*'}}, {{method: POST, path: '/items/[^/]+'}}]}}}}]\n  \
         egressDeny:\n    - toCIDR: [9.9.0.0/16]\n"
    );
    let world = world_for(Dialect::Cilium, &text, &[], &[("role", "agent")]);
    world.agrees(&[
        ("api.example.com", 443, true),
        ("api.example.com", 80, false),
        ("a.x.example", 443, true),
        ("x.example", 443, false),
        ("b.a.x.example", 443, false),
        ("b.a.y.example", 443, true),
        ("y.example", 443, false),
        ("other.example", 443, false),
        ("8.8.8.8", 443, false),
    ]);
    let name = DomainName::parse("api.example.com").unwrap();
    assert!(!world.at(Some(&name), "9.9.1.1".parse().unwrap(), 443, Protocol::Tcp));
    for (method, path, expected) in [
        ("GET", "/v1/a/b", true),
        ("GET", "/v1/", true),
        ("GET", "/v1", false),
        ("POST", "/v1/a", false),
        ("POST", "/items/a", true),
        ("POST", "/items/a/b", false),
    ] {
        assert_eq!(
            world.http("l7.example", method, path),
            expected,
            "{method} {path}"
        );
    }
    let every = format!(
        "{CILIUM}spec: {{endpointSelector: {{}}, egress: [{{toFQDNs: [{{matchPattern: '*'}}]}}]}}"
    );
    self::world(Dialect::Cilium, &every)
        .agrees(&[("b.a.example", 8443, true), ("8.8.8.8", 443, false)]);
}

#[test]
fn cilium_worlds_and_what_cannot_be_kept() {
    let spec = |rest: &str| format!("{CILIUM}spec: {{endpointSelector: {{}}, {rest}}}");
    world(Dialect::Cilium, &spec("egress: [{toEntities: [world]}]"))
        .agrees(&[("a.example", 443, true), ("8.8.8.8", 53, true)]);
    world(Dialect::Cilium, &spec("egress: [{}]")).agrees(&[("a.example", 443, false)]);
    world(Dialect::Cilium, &spec("egress: []")).agrees(&[("a.example", 443, true)]);
    world(
        Dialect::Cilium,
        &spec("egressDeny: [{toCIDR: [9.0.0.0/8]}]"),
    )
    .agrees(&[("a.example", 443, false), ("9.1.1.1", 443, false)]);
    world(Dialect::Cilium, &spec("ingress: []")).agrees(&[("a.example", 443, true)]);
    let ports = "egress: [{toCIDRSet: [{cidr: 8.0.0.0/7, except: [9.0.0.0/8]}], toPorts: [{ports: [{port: '53', protocol: TCP}]}]}]";
    world(Dialect::Cilium, &spec(ports)).agrees(&[
        ("8.8.8.8", 53, true),
        ("8.8.8.8", 443, false),
        ("9.8.8.8", 53, false),
    ]);
    let members = "ingress: [{fromEndpoints: [{matchLabels: {role: api}}], toPorts: [{ports: [{port: '5432', protocol: TCP}]}]}]";
    let world = world(Dialect::Cilium, &spec(members));
    let L4Ingress::Rules(rules) = &world.effective.firewall().ingress else {
        panic!()
    };
    assert_eq!(rules.len(), 1);
    for (rest, expected) in [
        (
            "egress: [{toFQDNs: [{matchPattern: 'sub*.example'}]}]",
            "whole labels",
        ),
        (
            "egress: [{toFQDNs: [{matchPattern: '*example'}]}]",
            "whole labels",
        ),
        (
            "egress: [{toFQDNs: [{matchName: a.example}], toPorts: [{ports: [{port: '443', protocol: UDP}]}]}]",
            "by name",
        ),
        (
            "egress: [{toFQDNs: [{matchName: a.example}], toPorts: [{ports: [{port: '443', protocol: TCP}], rules: {http: [{path: '/a+'}]}}]}]",
            "the expression",
        ),
        (
            "egress: [{toFQDNs: [{matchName: a.example}], toPorts: [{ports: [{port: '443', protocol: TCP}], rules: {http: [{path: '/a.b'}]}}]}]",
            "the expression",
        ),
        ("egress: [{toEndpoints: [{}]}]", "endpoints as destinations"),
        (
            "egress: [{toEntities: [cluster]}]",
            "no value of toEntities",
        ),
        ("egress: [{toServices: []}]", "has no key `toServices`"),
        ("ingressDeny: []", "`ingressDeny` cannot be expressed"),
    ] {
        refused(Dialect::Cilium, &spec(rest), expected);
    }
}

#[test]
fn values_of_secrets_are_never_shown() {
    const VALUE: &str = "hunter2-value";
    let header = format!("\"x-key\": \"{VALUE}\"");
    let stripe = format!("\"headers\": {{{header}}}, \"secrets\": {{\"k\": \"{VALUE}\"}}");
    for (dialect, text) in [
        (
            Dialect::E2b,
            format!(
                "{{\"rules\": {{\"a.test\": [{{\"transform\": {{\"headers\": {{{header}}}}}}}]}}}}"
            ),
        ),
        // Where the file is wrong as well.
        (
            Dialect::E2b,
            format!(
                "{{\"rules\": {{\"a.test\": [{{\"transform\": {{\"headerz\": {{{header}}}}}}}]}}}}"
            ),
        ),
        (
            Dialect::E2b,
            format!(
                "{{\"rules\": {{\"a.test\": [{{\"transform\": {{\"headers\": {{\"host\": \"{VALUE}\"}}}}}}]}}}}"
            ),
        ),
        (
            Dialect::Vercel,
            format!(
                "{{\"allow\": {{\"a.test\": [{{\"transform\": {{\"headers\": {{{header}}}}}}}]}}}}"
            ),
        ),
        (
            Dialect::Vercel,
            format!(
                "{{\"allow\": {{\"a.test\": [{{\"match\": 1, \"transform\": {{\"headers\": {{{header}}}}}}}]}}}}"
            ),
        ),
        (
            Dialect::Vercel,
            format!(
                "{{\"mode\": \"custom\", \"injectionRules\": [{{\"domain\": \"a.test\", \"headers\": {{{header}}}}}]}}"
            ),
        ),
        (
            Dialect::Blaxel,
            format!(
                "{{\"proxy\": {{\"routing\": [{{\"destinations\": [\"a.test\"], {stripe}}}]}}}}"
            ),
        ),
        (
            Dialect::Blaxel,
            format!(
                "{{\"proxy\": {{\"routing\": [{{\"destinatons\": [\"a.test\"], {stripe}}}]}}}}"
            ),
        ),
    ] {
        assert!(text.contains(VALUE));
        let (written, problems) = match read(dialect, &text, &[]) {
            Ok(imported) => (imported.text, imported.changes),
            Err(errors) => (String::new(), errors),
        };
        let shown = format!(
            "{written}{}",
            problems.render(causeway_policy::Style::Plain)
        );
        let json = serde_json::to_string(problems.problems()).unwrap();
        assert!(!problems.problems().is_empty());
        assert!(
            !shown.contains(VALUE) && !json.contains(VALUE),
            "{shown}\n{json}"
        );
        assert!(!format!("{problems:?}").contains(VALUE));
    }
}

#[test]
fn no_dialect_takes_what_is_no_policy() {
    for (_, dialect) in Dialect::ALL {
        for text in ["", "[]", "5", "~", "a: &a [*a]", "{a: b}\n---\n{a: b}\n"] {
            assert!(read(dialect, text, &[]).is_err(), "{dialect:?} {text}");
        }
        let deep = "[".repeat(100_000);
        assert!(read(dialect, &deep, &[]).is_err(), "{dialect:?}");
    }
}

proptest! {
    /// Whatever is read, the result is a policy file, and no problem points outside of the text.
    #[test]
    fn any_text_is_answered(
        dialect in prop::sample::select(Dialect::ALL.to_vec()),
        text in "(\\{|\\[|\\}|\\]|:|,|allowOut|denyOut|allow|network|mode|custom|spec|egress|to|'\\*'|a\\.b|9\\.9\\.9\\.9/3| |\n){0,24}",
    ) {
        let drop: BTreeSet<String> = BTreeSet::new();
        let options = ImportOptions { drop, ..options(&[]) };
        match import(dialect.1, "any", &text, &options) {
            Ok(imported) => prop_assert!(parse("result", &imported.text).is_ok()),
            Err(errors) => for problem in errors.problems() {
                prop_assert!(text.get(problem.offset..problem.offset + problem.length).is_some());
            },
        }
    }
}
