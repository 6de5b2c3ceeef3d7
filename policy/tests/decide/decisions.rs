//! What policies decide, each refusal beside a control that passes.

use crate::common::{PUBLIC, connect, effective, name, reason, request, short};
use causeway_policy::model::{Place, PortRange, PortSet};
use causeway_policy::{L4Ingress, Limits};
use causeway_types::Reason;

#[test]
fn absent_and_empty_permit_nothing() {
    let none = effective(&[], &[]);
    assert_eq!(
        short(connect(&none, Some("a.test"), PUBLIC, 443)),
        "no_policy"
    );
    assert!(!none.resolves(&name("a.test")));
    for spec in ["", "egress: []"] {
        let silent = effective(&[spec], &[]);
        assert_eq!(
            short(connect(&silent, Some("a.test"), PUBLIC, 443)),
            "name_denied"
        );
        assert!(!silent.resolves(&name("a.test")));
    }
    let open = effective(&["egress: [{to: ['**']}]"], &[]);
    assert_eq!(short(connect(&open, Some("a.test"), PUBLIC, 443)), "ok");
    assert!(open.resolves(&name("a.test")));
}

#[test]
fn names_and_ports_decide_together() {
    let rules = effective(
        &[
            "egress: [{name: web, to: [x.test, '*.y.test', '**.z.test']}, {to: [x.test], ports: [22]}]",
        ],
        &[],
    );
    for (host, port, expected) in [
        (Some("x.test"), 443, "ok"),
        (Some("X.TEST."), 80, "ok"),
        (Some("x.test"), 22, "ok"),
        (Some("x.test"), 5432, "port_denied"),
        (Some("a.x.test"), 443, "name_denied"),
        (Some("x.test.evil"), 443, "name_denied"),
        (Some("ax.test"), 443, "name_denied"),
        (Some("y.test"), 443, "name_denied"),
        (Some("a.y.test"), 443, "ok"),
        (Some("a.y.test"), 22, "port_denied"),
        (Some("a.b.y.test"), 443, "name_denied"),
        (Some("z.test"), 443, "name_denied"),
        (Some("a.b.z.test"), 443, "ok"),
        (None, 443, "no_name"),
    ] {
        assert_eq!(
            short(connect(&rules, host, PUBLIC, port)),
            expected,
            "{host:?}:{port}"
        );
    }
    let denial = connect(&rules, Some("x.test"), PUBLIC, 5432).unwrap_err();
    assert_eq!(denial.rule.unwrap().to_string(), "acme/p0/web");
}

#[test]
fn deny_wins_in_any_order_and_from_any_policy() {
    let permit = "egress: [{to: ['**'], ports: ['*']}]";
    let deny = "egress: [{name: no, action: deny, to: ['**.bad.test', bad.test]}]";
    for specs in [[permit, deny], [deny, permit]] {
        let rules = effective(&specs, &[]);
        for port in [443, 8443] {
            let denial = connect(&rules, Some("bad.test"), PUBLIC, port).unwrap_err();
            assert_eq!(denial.reason, Reason::DeniedByRule);
            assert_eq!(denial.rule.unwrap().rule.as_str(), "no");
        }
        assert!(!rules.resolves(&name("a.bad.test")));
        assert_eq!(
            short(connect(&rules, Some("good.test"), PUBLIC, 8443)),
            "ok"
        );
    }
}

#[test]
fn reserved_addresses_need_a_prefix_inside_their_range() {
    let named = "egress: [{to: ['**']}, {cidr: ['::/0', '0.0.0.0/0'], ports: ['*']}]";
    let opened = "egress: [{cidr: ['10.0.0.0/8', '169.254.169.254/32'], ports: [443]}]";
    let wide = effective(&[named], &[]);
    let both = effective(&[named, opened], &[]);
    for address in [
        "10.0.0.1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fd63:6175:7365:64::a9fe:a9fe",
        "fd63:6175:7365:64::a00:1",
    ] {
        let closed = short(connect(&wide, Some("a.test"), address, 443));
        assert_eq!(closed, "reserved_address", "{address}");
        assert!(!wide.opens(address.parse().unwrap()), "{address}");
        assert_eq!(
            short(connect(&both, Some("a.test"), address, 443)),
            "ok",
            "{address}"
        );
        assert!(both.opens(address.parse().unwrap()), "{address}");
    }
    for address in [
        "127.0.0.1",
        "::1",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::a9fe:a9fe",
        "fe80::1",
        "fd00::1",
        "fd63:6175:7365::53",
    ] {
        let refused = short(connect(&both, Some("a.test"), address, 443));
        assert_eq!(refused, "reserved_address", "{address}");
    }
    assert_eq!(short(connect(&wide, None, "8.8.8.8", 53)), "ok");
    assert_eq!(short(connect(&wide, None, "64:ff9b::808:808", 53)), "ok");
}

#[test]
fn a_denied_prefix_is_denied_in_every_spelling() {
    let spec = "egress: [{cidr: ['::/0', '0.0.0.0/0'], ports: ['*']}, \
                {action: deny, cidr: ['8.8.8.0/24']}]";
    let rules = effective(&[spec], &[]);
    for address in [
        "8.8.8.8",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
    ] {
        assert_eq!(
            short(connect(&rules, None, address, 443)),
            "denied_by_rule",
            "{address}"
        );
    }
    assert_eq!(short(connect(&rules, None, "64:ff9b::909:909", 443)), "ok");
}

#[test]
fn requests_are_matched_by_method_and_path() {
    let spec = "egress: [{name: r, to: [a.test], http: [{methods: [GET, HEAD], paths: ['/repos/**']}]}, \
                {name: d, action: deny, to: [a.test], http: [{methods: ['*'], paths: ['/repos/x/admin/**']}]}]";
    let rules = effective(&[spec], &[]);
    assert!(
        connect(&rules, Some("a.test"), PUBLIC, 443)
            .unwrap()
            .inspect
    );
    for (method, path, expected) in [
        ("GET", "/repos/x", None),
        ("GET", "/%72epos/x", None),
        ("POST", "/repos/x", Some(Reason::RequestDenied)),
        ("get", "/repos/x", Some(Reason::RequestDenied)),
        ("GET", "/repos", Some(Reason::RequestDenied)),
        ("GET", "/other", Some(Reason::RequestDenied)),
        ("GET", "/repos/x/admin/y", Some(Reason::DeniedByRule)),
        ("GET", "/repos/x/admin;v=1/y", Some(Reason::DeniedByRule)),
        ("GET", "/repos/x/administrator/y", None),
    ] {
        let decision = request(&rules, "a.test", true, method, path);
        assert_eq!(
            decision.err().map(|d| d.reason),
            expected,
            "{method} {path}"
        );
    }
    let plain = effective(&["egress: [{to: [a.test]}]"], &[]);
    assert!(
        !connect(&plain, Some("a.test"), PUBLIC, 443)
            .unwrap()
            .inspect
    );
    assert!(request(&plain, "a.test", false, "POST", "/any").is_ok());
}

#[test]
fn guardrails_bound_what_policies_permit() {
    let tenant = "egress: [{to: ['**'], ports: ['*']}, {cidr: ['10.0.0.0/8'], ports: ['*']}]";
    let bound =
        "egress: [{to: ['**.ok.test'], ports: [443]}, {name: no, action: deny, to: [x.ok.test]}]";
    let rules = effective(&[tenant], &[bound]);
    for (host, address, port, expected) in [
        ("a.ok.test", PUBLIC, 443, "ok"),
        ("a.ok.test", PUBLIC, 80, "guardrail"),
        ("x.ok.test", PUBLIC, 443, "guardrail"),
        ("a.test", PUBLIC, 443, "guardrail"),
        ("a.ok.test", "10.0.0.1", 443, "guardrail"),
    ] {
        let decision = short(connect(&rules, Some(host), address, port));
        assert_eq!(decision, expected, "{host} {address} {port}");
    }
    // A guardrail permits nothing by itself, and one without egress bounds nothing.
    let narrow = effective(&["egress: [{to: [b.ok.test]}]"], &[bound]);
    assert_eq!(
        short(connect(&narrow, Some("a.ok.test"), PUBLIC, 443)),
        "name_denied"
    );
    let silent = effective(&[tenant], &["limits: {connections: 1}"]);
    assert_eq!(short(connect(&silent, Some("a.test"), PUBLIC, 443)), "ok");
    let shut = effective(&[tenant], &["egress: []"]);
    assert_eq!(
        short(connect(&shut, Some("a.test"), PUBLIC, 443)),
        "guardrail"
    );
    // What several guardrails permit adds up.
    let two = effective(&[tenant], &[bound, "egress: [{to: [a.test]}]"]);
    assert_eq!(short(connect(&two, Some("a.test"), PUBLIC, 443)), "ok");
    let unselected = effective(&[], &["egress: [{to: ['**']}]"]);
    assert_eq!(
        short(connect(&unselected, Some("a.test"), PUBLIC, 443)),
        "no_policy"
    );
}

#[test]
fn audit_marks_and_lets_pass() {
    let permit = "egress: [{to: [a.test]}]";
    let audit = "mode: audit, egress: [{to: [b.test]}, {action: deny, to: [c.test, a.test]}]";
    let alone = effective(&[audit], &[]);
    let both = effective(&[permit, audit], &[]);
    for (host, audited, enforced) in [
        ("a.test", "audit:denied_by_rule", "audit:denied_by_rule"),
        ("b.test", "ok", "ok"),
        ("c.test", "audit:denied_by_rule", "name_denied"),
        ("d.test", "audit:name_denied", "name_denied"),
    ] {
        assert_eq!(
            short(connect(&alone, Some(host), PUBLIC, 443)),
            audited,
            "{host}"
        );
        assert_eq!(
            short(connect(&both, Some(host), PUBLIC, 443)),
            enforced,
            "{host}"
        );
    }
    assert_eq!(
        short(connect(&alone, Some("d.test"), "10.0.0.1", 443)),
        "reserved_address"
    );
    assert!(alone.resolves(&name("d.test")) && !both.resolves(&name("d.test")));
    let guarded = effective(&[permit], &["mode: audit, egress: []"]);
    assert_eq!(
        short(connect(&guarded, Some("a.test"), PUBLIC, 443)),
        "audit:guardrail"
    );
}

#[test]
fn secrets_go_to_their_hosts_over_tls_only() {
    let spec = "egress: [{to: ['**']}], secrets: { \
                T: {hosts: [a.test], inject: {header: Authorization, format: 'Bearer {secret}'}}, \
                R: {hosts: ['*.b.test'], replace: [header, query]}}";
    let rules = effective(&[spec], &[]);
    assert!(
        connect(&rules, Some("a.test"), PUBLIC, 443)
            .unwrap()
            .inspect
    );
    assert!(
        !connect(&rules, Some("c.test"), PUBLIC, 443)
            .unwrap()
            .inspect
    );
    let permit = request(&rules, "a.test", true, "GET", "/").unwrap();
    assert_eq!(permit.injections.len(), 1);
    assert_eq!(
        permit.injections[0].into.to_string(),
        "the header `authorization`"
    );
    assert!(permit.replacements.is_empty());
    let permit = request(&rules, "x.b.test", true, "GET", "/").unwrap();
    assert_eq!((permit.injections.len(), permit.replacements.len()), (0, 1));
    let other = request(&rules, "b.test", true, "GET", "/").unwrap();
    assert!(other.injections.is_empty() && other.replacements.is_empty());
    for host in ["a.test", "x.b.test"] {
        let refused = reason(request(&rules, host, false, "GET", "/"));
        assert_eq!(refused, Reason::SecretOnPlaintext);
    }
    assert!(request(&rules, "b.test", false, "GET", "/").is_ok());
}

#[test]
fn two_secrets_in_one_header_fail_closed() {
    let secret = |name: &str, host: &str| {
        format!(
            "egress: [{{to: ['**']}}], secrets: {{{name}: {{hosts: ['{host}'], inject: {{header: x-key}}}}}}"
        )
    };
    let conflict = effective(&[&secret("A", "*.x.test"), &secret("B", "a.x.test")], &[]);
    let refused = reason(request(&conflict, "a.x.test", true, "GET", "/"));
    assert_eq!(refused, Reason::SecretConflict);
    assert!(request(&conflict, "b.x.test", true, "GET", "/").is_ok());
    let same = effective(&[&secret("A", "*.x.test"), &secret("A", "a.x.test")], &[]);
    let permit = request(&same, "a.x.test", true, "GET", "/").unwrap();
    assert_eq!(permit.injections.len(), 1);
}

#[test]
fn secrets_that_could_match_two_ways_fail_closed() {
    let secret = |name: &str, treatment: &str| {
        format!("egress: [{{to: ['**']}}], secrets: {{{name}: {{hosts: ['a.test'], {treatment}}}}}")
    };
    let of = |one: &str, two: &str| {
        let rules = effective(&[&secret("A", one), &secret("B", two)], &[]);
        request(&rules, "a.test", true, "GET", "/").map_err(|denial| denial.reason)
    };
    for (one, two) in [
        ("inject: {header: x-api-key}", "inject: {header: x_api_key}"),
        ("inject: {query: key}", "inject: {query: KEY}"),
    ] {
        assert_eq!(of(one, two).unwrap_err(), Reason::SecretConflict);
    }
    assert!(of("inject: {header: key}", "inject: {query: key}").is_ok());
    assert!(of("inject: {header: key}", "replace: [header]").is_ok());
    let both = effective(
        &[
            &secret("A", "inject: {header: x-key}"),
            &secret("A", "replace: [body]"),
        ],
        &[],
    );
    let refused = reason(request(&both, "a.test", true, "GET", "/"));
    assert_eq!(refused, Reason::SecretConflict);
}

#[test]
fn one_signature_or_none() {
    let secret = |name: &str, treatment: &str| {
        format!("egress: [{{to: ['**']}}], secrets: {{{name}: {{hosts: ['a.test'], {treatment}}}}}")
    };
    let of = |one: &str, two: &str| {
        let rules = effective(&[&secret("A", "sign: aws_sigv4"), &secret(one, two)], &[]);
        request(&rules, "a.test", true, "GET", "/").map_err(|denial| denial.reason)
    };
    let permit = of("B", "replace: [header, query, path]").unwrap();
    assert_eq!(permit.signature.as_ref().unwrap().secret.as_str(), "A");
    assert_eq!(permit.secrets().count(), 2);
    assert!(of("A", "sign: aws_sigv4").is_ok(), "the same");
    assert!(of("B", "inject: {header: x-key}").is_ok());
    for (name, treatment) in [
        ("B", "sign: aws_sigv4"),
        ("B", "replace: [body]"),
        ("B", "inject: {header: authorization}"),
        ("B", "inject: {query: X-Amz-Signature}"),
        ("A", "replace: [header]"),
        ("A", "inject: {header: x-key}"),
    ] {
        assert_eq!(
            of(name, treatment).unwrap_err(),
            Reason::SecretConflict,
            "{treatment}"
        );
    }
    let rules = effective(&[&secret("A", "sign: aws_sigv4")], &[]);
    let refused = reason(request(&rules, "a.test", false, "GET", "/"));
    assert_eq!(refused, Reason::SecretOnPlaintext);
}

#[test]
fn policies_that_swap_one_secret_add_up() {
    let secret =
        |places: &str| format!("secrets: {{A: {{hosts: ['a.test'], replace: [{places}]}}}}");
    let rules = effective(
        &[
            "egress: [{to: ['**']}]",
            &secret("query, body"),
            &secret("header, body"),
        ],
        &[],
    );
    let permit = request(&rules, "a.test", true, "GET", "/").unwrap();
    let places: Vec<_> = permit
        .replacements
        .iter()
        .map(|swap| swap.places.clone())
        .collect();
    assert_eq!(places, [vec![Place::Header, Place::Query, Place::Body]]);
}

#[test]
fn limits_are_the_strictest() {
    let rules = effective(
        &[
            "limits: {connections: 10, bandwidth: 1Gbit}",
            "limits: {connections: 5}",
        ],
        &["limits: {requests_per_second: 7, bandwidth: 100Mbit}"],
    );
    let Limits {
        connections,
        requests_per_second,
        bandwidth,
    } = *rules.limits();
    assert_eq!((connections, requests_per_second), (Some(5), Some(7)));
    assert_eq!(bandwidth.unwrap().to_string(), "100Mbit");
}

#[test]
fn ingress_states_who_gets_in() {
    let ingress = |policies: &[&str], guardrails: &[&str]| {
        effective(policies, guardrails).firewall().ingress.clone()
    };
    assert_eq!(ingress(&[], &[]), L4Ingress::SharedNetworks);
    assert_eq!(ingress(&["egress: []"], &[]), L4Ingress::SharedNetworks);
    assert_eq!(ingress(&["ingress: []"], &[]), L4Ingress::Rules(vec![]));
    assert_eq!(
        ingress(&["mode: audit, ingress: []"], &[]),
        L4Ingress::SharedNetworks
    );
    let rule = "ingress: [{from: {network: n, labels: {a: b}}, ports: [5432, 80]}]";
    let L4Ingress::Rules(rules) = ingress(&[rule, "egress: []"], &[]) else {
        panic!()
    };
    assert_eq!(rules.len(), 1);
    let bound = "ingress: [{from: {network: '*'}, ports: [80]}]";
    let L4Ingress::Rules(rules) = ingress(&[rule], &[bound]) else {
        panic!()
    };
    assert_eq!(rules[0].ports, PortSet::Ranges(vec![PortRange::tcp(80)]));
    assert_eq!(ingress(&[rule], &["ingress: []"]), L4Ingress::Rules(vec![]));
    assert_eq!(ingress(&[], &["ingress: []"]), L4Ingress::Rules(vec![]));
}

#[test]
fn the_dataplane_gets_what_is_not_tcp() {
    let rules = effective(
        &[
            "egress: [{cidr: ['2600::/16', '8.8.8.8/32'], ports: [443]}, \
           {cidr: ['2601::/16', 'fd12::/16'], ports: ['udp/53', 'tcp/53', icmpv6]}, \
           {action: deny, cidr: ['2601:1::/32']}]",
        ],
        &[],
    );
    let firewall = rules.firewall();
    let shown: Vec<_> = firewall
        .egress
        .iter()
        .map(|e| format!("{} {}", e.prefix, e.ports))
        .collect();
    assert_eq!(
        shown,
        ["2601::/16 udp/53, icmpv6", "fd12::/16 udp/53, icmpv6"]
    );
    assert_eq!(firewall.egress_deny.len(), 1);
    let everything = effective(&["egress: [{cidr: ['::/0'], ports: ['*']}]"], &[]);
    let inside = |address: &str| {
        let address: std::net::Ipv6Addr = address.parse().unwrap();
        everything
            .firewall()
            .egress
            .iter()
            .any(|e| e.prefix.contains(&address))
    };
    assert!(inside("2600::1") && !inside("fd00::1") && !inside("::1") && !inside("2001:db8::1"));
    let bounded = effective(
        &["egress: [{cidr: ['::/0'], ports: ['*']}]"],
        &["egress: [{cidr: ['2600::/16'], ports: ['udp/53']}]"],
    );
    let shown: Vec<_> = bounded
        .firewall()
        .egress
        .iter()
        .map(|e| format!("{} {}", e.prefix, e.ports))
        .collect();
    assert_eq!(shown, ["2600::/16 udp/53"]);
}
