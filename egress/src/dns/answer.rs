//! What a name resolves to for one sandbox. Pure: no sockets, no clock.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use causeway_types::{
    DomainName, DomainNameError, NetworkName, RESOLVER, Reason, SandboxName, classify,
    embedded_ipv4,
};
use hickory_proto::op::{Query, ResponseCode};
use hickory_proto::rr::RecordType;

use super::wire::{ExtendedError, Reply};
use super::{Asker, ResolveError, Resolved};
use crate::pins;

/// The most addresses in one answer; more are left out.
const MAX_ADDRESSES: usize = 256;
/// How long a sandbox may keep the address of another: it may be deleted at any time.
const PRIVATE_TTL: Duration = Duration::from_secs(5);

/// What to do with a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Send this at once.
    Reply(Conclusion),
    /// Resolve this name upstream, then [`conclude`].
    Resolve(DomainName),
}

/// An answer, and what is to be noted about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conclusion {
    /// What the sandbox is told.
    pub reply: Reply,
    /// Why it is told no more, if something was refused.
    pub refused: Option<Reason>,
}

impl Conclusion {
    fn plain(reply: Reply) -> Self {
        Self {
            reply,
            refused: None,
        }
    }

    fn refused(code: ResponseCode, error: ExtendedError, reason: Reason) -> Self {
        Self {
            reply: Reply::empty(code).because(error, reason.name()),
            refused: Some(reason),
        }
    }
}

/// Decides what to do with a query, before anybody else is asked.
///
/// A name that no rule permits does not exist: stub resolvers take `REFUSED` for a broken
/// server and try again.
pub fn judge(query: &Query, asker: &dyn Asker) -> Verdict {
    if asker.quarantined() {
        return Verdict::Reply(Conclusion::refused(
            ResponseCode::Refused,
            ExtendedError::Prohibited,
            Reason::SandboxQuarantined,
        ));
    }
    let hidden = |reason| {
        let (code, error) = (ResponseCode::NXDomain, ExtendedError::Filtered);
        Verdict::Reply(Conclusion::refused(code, error, reason))
    };
    let name = match DomainName::parse(&query.name().to_ascii()) {
        Ok(name) => name,
        Err(DomainNameError::Empty) => return empty(ResponseCode::NoError),
        Err(_not_a_host_name) => return hidden(Reason::BadName),
    };
    let labels: Vec<_> = name.labels_from_root().collect();
    match labels[..] {
        // Names without a dot, and the top-level names that are never resolved by DNS
        // (RFC 6761, RFC 6762, RFC 7686).
        [_] | ["localhost" | "local" | "onion" | "invalid", ..] => empty(ResponseCode::NXDomain),
        // Reserved for private use, and ours: never asked upstream.
        ["internal", network, sandbox] => private(query, asker, sandbox, network),
        ["internal", "proxy"] => local(query, RESOLVER),
        ["internal", ..] => empty(ResponseCode::NXDomain),
        _ => match asker.resolves(&name) {
            Ok(()) => Verdict::Resolve(name),
            Err(reason) => hidden(reason),
        },
    }
}

fn empty(code: ResponseCode) -> Verdict {
    Verdict::Reply(Conclusion::plain(Reply::empty(code)))
}

fn private(query: &Query, asker: &dyn Asker, sandbox: &str, network: &str) -> Verdict {
    let address = match (SandboxName::new(sandbox), NetworkName::new(network)) {
        (Ok(sandbox), Ok(network)) => asker.private(&sandbox, &network),
        _ => None,
    };
    match address {
        Some(address) => local(query, address),
        None => empty(ResponseCode::NXDomain),
    }
}

/// An address of ours.
fn local(query: &Query, address: Ipv6Addr) -> Verdict {
    let mut reply = Reply::empty(ResponseCode::NoError);
    if query.query_type() == RecordType::AAAA {
        reply.addresses.push(address);
        reply.ttl = PRIVATE_TTL;
    }
    Verdict::Reply(Conclusion::plain(reply))
}

/// Turns what the upstream resolvers said about a permitted name into an answer.
///
/// Only AAAA records are ever answered: sandboxes have no IPv4, and any other type is a channel
/// that the proxy does not see into (HTTPS records also carry the keys for an encrypted
/// `ClientHello`). For those the name has no data, so that clients move on at once.
pub fn conclude(
    query: &Query,
    outcome: &Result<Resolved, ResolveError>,
    asker: &dyn Asker,
) -> Conclusion {
    let resolved = match outcome {
        Ok(resolved) => resolved,
        Err(ResolveError::NoSuchName { .. }) => {
            return Conclusion::plain(Reply::empty(ResponseCode::NXDomain));
        }
        Err(ResolveError::Busy { .. }) => {
            let error = ExtendedError::NetworkError;
            return Conclusion::refused(ResponseCode::ServFail, error, Reason::LimitReached);
        }
        Err(_failed) => {
            let error = ExtendedError::NetworkError;
            return Conclusion::refused(ResponseCode::ServFail, error, Reason::Unresolved);
        }
    };
    if query.query_type() != RecordType::AAAA {
        return Conclusion::plain(Reply::empty(ResponseCode::NoError));
    }
    let addresses = addresses(resolved, asker);
    let withheld = !resolved.v6.is_empty() || !resolved.v4.is_empty();
    if addresses.is_empty() && withheld {
        let error = ExtendedError::Blocked;
        return Conclusion::refused(ResponseCode::NoError, error, Reason::ReservedAddress);
    }
    Conclusion::plain(Reply {
        code: ResponseCode::NoError,
        addresses,
        ttl: resolved.ttl,
        error: None,
    })
}

/// The addresses that the sandbox may be told, each once. IPv4 addresses are translated only
/// when no IPv6 address is left (RFC 6147, section 5.1.4).
fn addresses(resolved: &Resolved, asker: &dyn Asker) -> Vec<Ipv6Addr> {
    let native = native(resolved, asker);
    let mut found = if native.is_empty() {
        translated(resolved, asker)
    } else {
        native
    };
    let mut seen = std::collections::HashSet::new();
    found.retain(|address| seen.insert(*address));
    found.truncate(MAX_ADDRESSES);
    found
}

/// The IPv6 addresses that the sandbox may be told.
pub(super) fn native(resolved: &Resolved, asker: &dyn Asker) -> Vec<Ipv6Addr> {
    let mut native = resolved.v6.clone();
    native.retain(|address| !is_ipv4_spelling(*address) && may_reach((*address).into(), asker));
    native
}

/// The IPv4 addresses that the sandbox may be told, translated.
pub(super) fn translated(resolved: &Resolved, asker: &dyn Asker) -> Vec<Ipv6Addr> {
    let v4 = resolved.v4.iter().copied();
    v4.filter(|address| may_reach((*address).into(), asker))
        .map(pins::synthesise)
        .collect()
}

/// An IPv4 address in IPv6 notation (RFC 4291, RFC 2765): a socket option, not a destination.
fn is_ipv4_spelling(address: Ipv6Addr) -> bool {
    matches!(
        address.segments(),
        [0, 0, 0, 0, 0, 0 | 0xffff, _, _] | [0, 0, 0, 0, 0xffff, 0, _, _]
    )
}

/// Whether a sandbox may be told this address: a public one that the node does not reserve, or
/// one that a CIDR rule opens. An address inside the address counts too.
pub fn may_reach(address: IpAddr, asker: &dyn Asker) -> bool {
    let inner = match address {
        IpAddr::V6(v6) => embedded_ipv4(v6).map(IpAddr::V4),
        IpAddr::V4(_) => None,
    };
    let reserved = asker.reserved(address) || inner.is_some_and(|inner| asker.reserved(inner));
    (classify(address).is_public() && !reserved) || asker.opens(address)
}
