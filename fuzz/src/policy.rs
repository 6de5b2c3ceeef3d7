//! Policy files, and what they decide.

use std::net::IpAddr;
use std::sync::Arc;

use causeway_policy::import::{Dialect, ImportOptions, import};
use causeway_policy::{
    CanonicalPath, Connect, Document, Effective, Guardrail, Outcome, Policy, Protocol, Query,
    Request, Reserved, check, explain, parse, parse_cases,
};
use causeway_types::{DomainName, Labels, PolicyName, TenantName};

/// A file is taken or refused with at least one problem, and what is taken reads the same again.
pub fn policy_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let report = check("fuzz.yaml", text);
    let Ok(documents) = report.into_result() else {
        return;
    };
    for document in documents {
        let again = parse("again.yaml", document.source()).expect("a document's source is good");
        assert_eq!(again, [document]);
    }
}

/// The compiled policies and the explanation, which looks at one rule after the other, agree.
///
/// The input is a line with a query in words (port, `tls` or `plain`, host, address or `-`,
/// method and path) and a policy file behind it.
pub fn policy_decision(data: &[u8]) {
    let Some((line, file)) = std::str::from_utf8(data)
        .ok()
        .and_then(|text| text.split_once('\n'))
    else {
        return;
    };
    let Ok(documents) = parse("fuzz.yaml", file) else {
        return;
    };
    let mut policies: Vec<Arc<Policy>> = Vec::new();
    let mut guardrails: Vec<Arc<Guardrail>> = Vec::new();
    for document in documents {
        match document {
            Document::Policy(policy) => policies.push(Arc::new(policy)),
            Document::Guardrail(guardrail) => guardrails.push(Arc::new(guardrail)),
        }
    }
    let Some(query) = policies.first().and_then(|policy| query(line, policy)) else {
        return;
    };
    agree(&policies, &guardrails, &query);
}

/// A file of another system, behind a line with its dialect, is refused with a problem inside of its
/// text, or gives a policy file that is good. Files of cases are answered too.
pub fn policy_import(data: &[u8]) {
    let Some((line, file)) = std::str::from_utf8(data)
        .ok()
        .and_then(|text| text.split_once('\n'))
    else {
        return;
    };
    let Ok(dialect) = line.parse::<Dialect>() else {
        let _answered = parse_cases("fuzz.yaml", file);
        return;
    };
    let options = ImportOptions {
        tenant: TenantName::new("acme").expect("a name"),
        name: PolicyName::new("imported").expect("a name"),
        selector: Labels::default(),
        drop: ["binaries".to_owned()].into(),
    };
    match import(dialect, "fuzz.yaml", file, &options) {
        Ok(imported) => {
            parse("again.yaml", &imported.text).expect("what is imported is good");
        }
        Err(errors) => {
            assert!(errors.has_errors());
            for problem in errors.problems() {
                let end = problem.offset + problem.length;
                assert!(file.get(problem.offset..end).is_some(), "{problem:?}");
            }
        }
    }
}

fn query(line: &str, policy: &Policy) -> Option<Query> {
    let mut words = line.split_ascii_whitespace();
    let port = words.next()?.parse().ok()?;
    let tls = words.next()? == "tls";
    let name = words.next()?.parse::<DomainName>().ok();
    let address = words.next()?.parse::<IpAddr>().ok();
    let method = words.next().map(str::to_owned);
    let path = words.next().map(str::to_owned);
    Some(Query {
        tenant: policy.tenant.clone(),
        labels: Labels::default(),
        name,
        address: Some(address.unwrap_or(IpAddr::from([8, 8, 8, 8]))),
        port,
        protocol: Protocol::Tcp,
        tls,
        path: method
            .as_ref()
            .map(|_| path.unwrap_or_else(|| "/".to_owned())),
        method,
    })
}

fn agree(policies: &[Arc<Policy>], guardrails: &[Arc<Guardrail>], query: &Query) {
    let reserved = Reserved::new([]);
    let selected: Vec<Arc<Policy>> = policies
        .iter()
        .filter(|policy| policy.selects(&query.tenant, &query.labels))
        .cloned()
        .collect();
    let effective = Effective::compile(&selected, guardrails, &reserved);
    let Some(address) = query.address else { return };
    let connect = Connect {
        name: query.name.as_ref(),
        address,
        port: query.port,
        protocol: query.protocol,
        tls: query.tls,
    };
    let decision = match (&query.method, &query.path) {
        (Some(method), Some(path)) => {
            let Ok(path) = CanonicalPath::parse(path) else {
                return;
            };
            let request = Request {
                connect,
                method,
                path: &path,
            };
            effective.connect(&connect).and_then(|first| {
                let second = effective.request(&request)?;
                Ok(first.audit.or(second.audit))
            })
        }
        _ => effective.connect(&connect).map(|permit| permit.audit),
    };
    let decided = match &decision {
        Ok(None) => Outcome::Permit,
        Ok(Some(_)) => Outcome::Audit,
        Err(_) => Outcome::Deny,
    };
    let explained = explain(policies, guardrails, &reserved, query);
    assert_eq!(decided, explained.outcome, "{decision:?} and {explained:?}");
    if let Some(name) = &query.name
        && decided == Outcome::Permit
    {
        assert!(effective.resolves(name) || effective.opens(address));
    }
}
