//! Shorthand for tests.

use std::net::IpAddr;
use std::sync::Arc;

use causeway_policy::{
    CanonicalPath, Connect, ConnectPermit, Decision, Document, Effective, Guardrail, Policy,
    Protocol, Request, RequestPermit, Reserved, parse,
};
use causeway_types::{DomainName, Reason};

pub(crate) const PUBLIC: &str = "2600::1";

/// A policy of the tenant `acme` with this body of `spec`.
pub(crate) fn policy(name: &str, spec: &str) -> Arc<Policy> {
    let text = format!(
        "{{apiVersion: causeway/v1, kind: Policy, metadata: {{name: {name}, tenant: acme}}, \
         spec: {{selector: {{}}, {spec}}}}}"
    );
    match parse(name, &text)
        .unwrap_or_else(|e| panic!("{e}"))
        .remove(0)
    {
        Document::Policy(policy) => Arc::new(policy),
        Document::Guardrail(_) => unreachable!(),
    }
}

pub(crate) fn guardrail(name: &str, spec: &str) -> Arc<Guardrail> {
    let text = format!(
        "{{apiVersion: causeway/v1, kind: Guardrail, metadata: {{name: {name}}}, spec: {{{spec}}}}}"
    );
    match parse(name, &text)
        .unwrap_or_else(|e| panic!("{e}"))
        .remove(0)
    {
        Document::Guardrail(guardrail) => Arc::new(guardrail),
        Document::Policy(_) => unreachable!(),
    }
}

pub(crate) fn effective(policies: &[&str], guardrails: &[&str]) -> Effective {
    let policies: Vec<_> = policies
        .iter()
        .enumerate()
        .map(|(index, spec)| policy(&format!("p{index}"), spec))
        .collect();
    let guardrails: Vec<_> = guardrails
        .iter()
        .enumerate()
        .map(|(index, spec)| guardrail(&format!("g{index}"), spec))
        .collect();
    Effective::compile(&policies, &guardrails, &Reserved::default())
}

pub(crate) fn name(text: &str) -> DomainName {
    DomainName::parse(text).unwrap()
}

pub(crate) fn connect(
    effective: &Effective,
    host: Option<&str>,
    address: &str,
    port: u16,
) -> Decision<ConnectPermit> {
    let host = host.map(name);
    effective.connect(&Connect {
        name: host.as_ref(),
        address: address.parse::<IpAddr>().unwrap(),
        port,
        protocol: Protocol::Tcp,
        tls: true,
    })
}

pub(crate) fn request(
    effective: &Effective,
    host: &str,
    tls: bool,
    method: &str,
    path: &str,
) -> Decision<RequestPermit> {
    let host = name(host);
    let path = CanonicalPath::parse(path).unwrap();
    effective.request(&Request {
        connect: Connect {
            name: Some(&host),
            address: PUBLIC.parse().unwrap(),
            port: if tls { 443 } else { 80 },
            protocol: Protocol::Tcp,
            tls,
        },
        method,
        path: &path,
    })
}

/// `ok`, `audit:reason` or the reason, with the rule.
pub(crate) fn short(decision: Decision<ConnectPermit>) -> String {
    match decision {
        Ok(permit) => match permit.audit {
            None => "ok".to_owned(),
            Some(denial) => format!("audit:{}", denial.reason),
        },
        Err(denial) => denial.reason.to_string(),
    }
}

pub(crate) fn reason<P: std::fmt::Debug>(decision: Decision<P>) -> Reason {
    decision.unwrap_err().reason
}
