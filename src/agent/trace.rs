//! Follows a packet through every decision that it would meet, without sending it.

use std::net::{IpAddr, Ipv6Addr};

use causeway_dataplane::{Packet, Protocol, Verdict};
use causeway_policy::{Connect, Denial};
use causeway_types::{DomainName, NAT64_PREFIX, Reason, SandboxId, SandboxName, TenantName};

use super::state::State;
use super::{Agent, Error, policies};
use crate::api::model::{Trace, TraceRequest, TraceStep};

const HTTPS: u16 = 443;

/// What a destination turned out to be.
enum Target {
    /// A host name outside.
    Name(DomainName),
    /// An address.
    Address(Ipv6Addr),
    /// Another sandbox.
    Sandbox(SandboxId),
}

impl Agent {
    /// Follows a packet or connection from a sandbox to a destination.
    pub fn trace(&self, request: &TraceRequest) -> Result<Trace, Error> {
        let id = SandboxId::new(request.tenant.clone(), request.sandbox.clone());
        let record = self.record(&id)?;
        let protocol = protocol(request.protocol.as_deref())?;
        let port = match protocol {
            Protocol::Tcp | Protocol::Udp => request.port.unwrap_or(HTTPS),
            _ => 0,
        };
        let mut state = self.state();
        let mut steps = Vec::new();
        let target = resolve_target(&state, &record, &request.destination, &mut steps)?;
        let effective = state.effective(&record);
        let (name, address) = match target {
            Ok(Target::Name(name)) => (Some(name), None),
            Ok(Target::Address(address)) => (None, Some(address)),
            Ok(Target::Sandbox(to)) => {
                let to = state.sandboxes.get(&to).ok_or_else(|| Error::NotFound {
                    kind: "sandbox",
                    name: to.to_string(),
                })?;
                (None, Some(to.record.address))
            }
            Err(reason) => return Ok(finish(&id, &request.destination, steps, Some(reason))),
        };
        if let Some(name) = &name {
            let resolves = effective.resolves(name);
            steps.push(step(
                "resolver",
                "name",
                resolves,
                if resolves {
                    format!("a rule mentions `{name}`, so that it resolves")
                } else {
                    format!("no rule mentions `{name}`, so that it does not resolve")
                },
            ));
            if !resolves {
                let reason = deny_reason(&effective, Some(name), port);
                return Ok(finish(&id, &request.destination, steps, Some(reason)));
            }
        }
        // A name stands for some public address: the rest does not depend on which.
        let destination = address.unwrap_or(PUBLIC);
        let (desired, _misfits) = state.desired();
        let packet = Packet {
            destination,
            protocol,
            port,
        };
        let Some(walk) = causeway_dataplane::trace(&desired, record.uid, &packet) else {
            return Err(super::sandboxes::not_found(&id));
        };
        steps.extend(
            walk.steps
                .into_iter()
                .map(|found| step("dataplane", found.check, found.passed, found.finding)),
        );
        let reason = match walk.verdict {
            Verdict::Dropped { reason } => Some(reason),
            Verdict::Proxy => {
                let (found, reason) = proxy_step(&effective, name.as_ref(), destination, port);
                steps.push(found);
                reason
            }
            _ => None,
        };
        Ok(finish(&id, &request.destination, steps, reason))
    }
}

/// What a name stands for while no address is known: one that is public.
const PUBLIC: Ipv6Addr = Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1);

fn deny_reason(
    effective: &causeway_policy::Effective,
    name: Option<&DomainName>,
    port: u16,
) -> Reason {
    match effective.connect(&connect(name, IpAddr::V6(PUBLIC), port)) {
        Err(Denial { reason, .. }) => reason,
        Ok(_) => Reason::NameDenied,
    }
}

fn connect(name: Option<&DomainName>, address: IpAddr, port: u16) -> Connect<'_> {
    Connect {
        name,
        address,
        port,
        protocol: causeway_policy::Protocol::Tcp,
        tls: port != 80,
    }
}

fn proxy_step(
    effective: &causeway_policy::Effective,
    name: Option<&DomainName>,
    destination: Ipv6Addr,
    port: u16,
) -> (TraceStep, Option<Reason>) {
    let address = match causeway_types::embedded_ipv4(destination) {
        Some(inner) if NAT64_PREFIX.contains(&destination) => IpAddr::V4(inner),
        _ => IpAddr::V6(destination),
    };
    match effective.connect(&connect(name, address, port)) {
        Ok(permit) => {
            let by = permit
                .rule
                .map_or_else(|| "audit mode".to_owned(), |rule| format!("rule {rule}"));
            let how = if permit.inspect {
                "; TLS is terminated and each request is judged"
            } else {
                "; bytes pass through"
            };
            let found = step("egress", "policy", true, format!("permitted by {by}{how}"));
            (found, None)
        }
        Err(Denial { reason, rule }) => {
            let by = rule.map_or_else(String::new, |rule| format!(" (rule {rule})"));
            let detail = format!("{}{by}", reason.explanation());
            (step("egress", "policy", false, detail), Some(reason))
        }
    }
}

fn resolve_target(
    state: &State,
    record: &crate::store::SandboxRecord,
    text: &str,
    steps: &mut Vec<TraceStep>,
) -> Result<Result<Target, Reason>, Error> {
    if let Some((tenant, name)) = text.split_once('/') {
        let bad = || Error::Question {
            text: text.to_owned(),
            expected: "a sandbox: write TENANT/NAME",
        };
        let tenant = TenantName::new(tenant).map_err(|_bad| bad())?;
        let name = SandboxName::new(name).map_err(|_bad| bad())?;
        return Ok(Ok(Target::Sandbox(SandboxId::new(tenant, name))));
    }
    let (name, address) = policies::destination(text)?;
    match (name, address) {
        (_, Some(IpAddr::V6(address))) => Ok(Ok(Target::Address(address))),
        (_, Some(IpAddr::V4(address))) => {
            let octets = address.octets();
            let mut translated = NAT64_PREFIX.network().octets();
            translated[12..].copy_from_slice(&octets);
            let translated = Ipv6Addr::from(translated);
            steps.push(step(
                "resolver",
                "translation",
                true,
                format!("{address} is reached as {translated}"),
            ));
            Ok(Ok(Target::Address(translated)))
        }
        (Some(name), None) => Ok(private_name(state, record, name, steps)),
        (None, None) => Ok(Err(Reason::BadName)),
    }
}

/// `<sandbox>.<network>.internal` is another sandbox, for those who are in that network.
fn private_name(
    state: &State,
    record: &crate::store::SandboxRecord,
    name: DomainName,
    steps: &mut Vec<TraceStep>,
) -> Result<Target, Reason> {
    let labels: Vec<&str> = name.as_str().split('.').collect();
    let [sandbox, network, "internal"] = labels.as_slice() else {
        return Ok(Target::Name(name));
    };
    let member = record
        .networks
        .iter()
        .any(|joined| joined.as_str() == *network);
    let found = SandboxName::new(*sandbox)
        .ok()
        .map(|sandbox| SandboxId::new(record.id.tenant.clone(), sandbox))
        .filter(|id| {
            member
                && state.sandboxes.get(id).is_some_and(|entry| {
                    let mut networks = entry.record.networks.iter();
                    networks.any(|joined| joined.as_str() == *network)
                })
        });
    let detail = match &found {
        Some(id) => format!("`{name}` is {id}"),
        None => format!(
            "`{name}` is no member of a network that {} is in",
            record.id
        ),
    };
    steps.push(step("resolver", "private name", found.is_some(), detail));
    found.map(Target::Sandbox).ok_or(Reason::NameDenied)
}

fn step(layer: &str, check: &str, passed: bool, detail: String) -> TraceStep {
    TraceStep {
        layer: layer.to_owned(),
        check: check.to_owned(),
        passed,
        detail,
    }
}

fn finish(from: &SandboxId, to: &str, steps: Vec<TraceStep>, reason: Option<Reason>) -> Trace {
    Trace {
        from: from.to_string(),
        to: to.to_owned(),
        permitted: reason.is_none(),
        reason,
        steps,
    }
}

fn protocol(text: Option<&str>) -> Result<Protocol, Error> {
    match text {
        None | Some("tcp") => Ok(Protocol::Tcp),
        Some("udp") => Ok(Protocol::Udp),
        Some("icmpv6") => Ok(Protocol::Icmpv6),
        Some(other) => match other.parse() {
            Ok(number) => Ok(Protocol::from_number(number)),
            Err(_not_a_number) => Err(Error::Question {
                text: other.to_owned(),
                expected: "a protocol: write tcp, udp, icmpv6 or a number",
            }),
        },
    }
}
