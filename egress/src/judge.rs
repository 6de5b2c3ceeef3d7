//! Decisions on connections and requests: pins and policy together. Pure.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use causeway_policy::{
    CanonicalPath, Connect, ConnectPermit, Denial, Effective, Protocol, Request, RequestPermit,
    RuleRef,
};
use causeway_types::{DomainName, Reason};

use crate::pins::{Pinned, upstream};

/// Where a connection goes, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// The name that the client asks for.
    pub(crate) name: Option<DomainName>,
    /// Whether the resolver gave the sandbox this address for this name.
    pub(crate) pinned: bool,
    /// The address that would be dialled.
    pub(crate) address: IpAddr,
    /// The port that would be dialled.
    pub(crate) port: u16,
    /// Whether the client speaks TLS.
    pub(crate) tls: bool,
}

impl Target {
    /// The target of a connection that the sandbox opened to `destination`.
    pub(crate) fn new(
        name: Option<DomainName>,
        pinned: Option<&Pinned>,
        destination: Ipv6Addr,
        port: u16,
        tls: bool,
    ) -> Self {
        let carries = |name| pinned.is_some_and(|pinned| pinned.carries(name));
        Self {
            pinned: name.as_ref().is_some_and(carries),
            name,
            address: upstream(destination),
            port,
            tls,
        }
    }

    fn connect<'a>(&self, name: Option<&'a DomainName>) -> Connect<'a> {
        Connect {
            name,
            address: self.address,
            port: self.port,
            protocol: Protocol::Tcp,
            tls: self.tls,
        }
    }
}

/// What a live flow is judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A connection that has not shown yet what it is for.
    Unknown,
    /// A connection.
    Connection(Target),
    /// A connection whose bytes go through unseen.
    Passed(Target),
    /// A request: target, method and path.
    Request(Target, String, CanonicalPath),
}

/// Whether the connection may be opened.
///
/// A name counts only when our resolver gave this address for it. For any other address the
/// name is what the client says, so it opens nothing, and it can still close what an address
/// rule opens.
pub(crate) fn connection(policy: &Effective, target: &Target) -> Result<ConnectPermit, Denial> {
    let named = policy.connect(&target.connect(target.name.as_ref()));
    if target.name.is_none() || target.pinned {
        return named;
    }
    by_address(named, policy.connect(&target.connect(None)))
}

/// Why a name that is not resolved is refused, where the rules say more than that none permits
/// it. It has no address, so no rule on addresses is looked at.
pub(crate) fn unresolved(policy: &Effective, name: &DomainName, port: u16) -> Option<Denial> {
    let target = Target {
        name: Some(name.clone()),
        pinned: true,
        address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        port,
        tls: false,
    };
    let refused = connection(policy, &target).err()?;
    let on_names = matches!(
        refused.reason,
        Reason::NoPolicy | Reason::NameDenied | Reason::DeniedByRule | Reason::Guardrail
    );
    on_names.then_some(refused)
}

/// Whether the connection may be opened, and what goes through it need not be seen.
pub(crate) fn passed(policy: &Effective, target: &Target) -> Result<ConnectPermit, Denial> {
    let permit = connection(policy, target)?;
    if permit.requests {
        let rule = permit.rule;
        let reason = Reason::Unsupported;
        return Err(Denial { reason, rule });
    }
    Ok(permit)
}

/// What a connection that shows no name may be: what its address is permitted, or what a name is
/// whose address the resolver gave.
///
/// Which of several names it is for nobody can say. So all of them that are permitted have to
/// be permitted without a look at requests, unless there is one only and `readable` says that
/// requests could be looked at; and none of them may be forbidden.
pub(crate) fn unnamed(
    policy: &Effective,
    by_address: &Target,
    named: &[Target],
    readable: bool,
) -> Result<(Target, ConnectPermit), Denial> {
    let (mut permitted, mut near) = (Vec::new(), None);
    for target in named {
        match connection(policy, target) {
            Err(denial) if closes(denial.reason) => return Err(denial),
            Err(denial) => near = near.or(Some(denial)),
            Ok(permit) => permitted.push((target, permit)),
        }
    }
    let addressed = connection(policy, by_address);
    if let Ok(permit) = &addressed
        && !permit.is_audit()
    {
        return Ok((by_address.clone(), permit.clone()));
    }
    let only_one = permitted.len() == 1;
    if let Some((_, seen)) = permitted.iter().find(|(_, permit)| permit.requests)
        && !(only_one && readable)
    {
        let rule = seen.rule.clone();
        let reason = if readable {
            Reason::NoName
        } else {
            Reason::Unsupported
        };
        return Err(Denial { reason, rule });
    }
    let enforced = permitted.iter().position(|(_, permit)| !permit.is_audit());
    let chosen = enforced.unwrap_or(0);
    if chosen < permitted.len() {
        let (target, permit) = permitted.swap_remove(chosen);
        return Ok((target.clone(), permit));
    }
    match (addressed, near) {
        (Ok(permit), _) => Ok((by_address.clone(), permit)),
        (Err(_), Some(denial)) => Err(denial),
        (Err(denial), None) => Err(denial),
    }
}

/// Whether the request may be sent.
pub(crate) fn request(
    policy: &Effective,
    target: &Target,
    method: &str,
    path: &CanonicalPath,
) -> Result<RequestPermit, Denial> {
    let ask = |name| {
        let connect = target.connect(name);
        policy.request(&Request {
            connect,
            method,
            path,
        })
    };
    let named = ask(target.name.as_ref());
    if target.name.is_none() || target.pinned {
        return named;
    }
    // No secret follows a name that only the client vouches for: none is injected here, since
    // injections are for names.
    by_address(named, ask(None))
}

/// The decision on an address that carries a name that is not pinned to it.
fn by_address<P: Audited>(
    named: Result<P, Denial>,
    addressed: Result<P, Denial>,
) -> Result<P, Denial> {
    match (named, addressed) {
        (Err(denial), _) if closes(denial.reason) => Err(denial),
        (_, Ok(permit)) if !permit.is_audit() => Ok(permit),
        (Err(denial), Err(_no_address_rule)) => Err(denial),
        // Audit mode lets pass, and says what would have been refused.
        (Ok(permit), _) if permit.is_audit() => Ok(permit),
        (Ok(permit), _) => Err(Denial {
            reason: Reason::NotPinned,
            rule: permit.rule().cloned(),
        }),
        (Err(_name_rule), Ok(permit)) => Ok(permit),
    }
}

/// Whether a refusal of the name also closes what an address rule permits.
fn closes(reason: Reason) -> bool {
    matches!(reason, Reason::DeniedByRule | Reason::NoPolicy)
}

trait Audited {
    fn is_audit(&self) -> bool;
    fn rule(&self) -> Option<&Arc<RuleRef>>;
}

impl Audited for ConnectPermit {
    fn is_audit(&self) -> bool {
        self.audit.is_some()
    }

    fn rule(&self) -> Option<&Arc<RuleRef>> {
        self.rule.as_ref()
    }
}

impl Audited for RequestPermit {
    fn is_audit(&self) -> bool {
        self.audit.is_some()
    }

    fn rule(&self) -> Option<&Arc<RuleRef>> {
        self.rule.as_ref()
    }
}
