//! Policy files, and what they decide.

use std::net::IpAddr;
use std::sync::Arc;

use causeway_policy::{
    CanonicalPath, Connect, Document, Effective, Guardrail, Outcome, Policy, Protocol, Query,
    Request, Reserved, check, explain, parse,
};
use causeway_types::{DomainName, Labels};

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
