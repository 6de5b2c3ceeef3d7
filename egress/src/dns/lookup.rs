//! Names that a sandbox asks the proxy to connect to: the same checks as for its own questions.

use std::net::Ipv6Addr;
use std::time::Duration;

use causeway_types::{DomainName, Reason};
use hickory_proto::op::Query;
use hickory_proto::rr::{Name, RecordType};

use super::answer::{self, Verdict};
use super::{Asker, ResolveError, Resolver};

/// Where a name can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The addresses as the resolver would answer them, in the order in which to try: IPv6
    /// first, then IPv4 in translation. Never empty.
    pub(crate) addresses: Vec<Ipv6Addr>,
    /// How long they hold.
    pub(crate) ttl: Duration,
}

/// Resolves a name for a sandbox, if the sandbox may have it resolved.
pub(crate) async fn lookup(
    resolver: &Resolver,
    asker: &dyn Asker,
    name: &DomainName,
) -> Result<Found, Reason> {
    let labels = name.as_str().split('.').map(str::as_bytes);
    let labels = Name::from_labels(labels).map_err(|_too_long| Reason::BadName)?;
    let query = Query::query(labels, RecordType::AAAA);
    if let Verdict::Reply(conclusion) = answer::judge(&query, asker) {
        return Err(conclusion.refused.unwrap_or(Reason::Unresolved));
    }
    let resolved = match resolver.resolve(name).await {
        Ok(resolved) => resolved,
        Err(ResolveError::Busy { .. }) => return Err(Reason::LimitReached),
        Err(_no_address) => return Err(Reason::Unresolved),
    };
    let none = resolved.v6.is_empty() && resolved.v4.is_empty();
    let mut addresses = answer::native(&resolved, asker);
    addresses.extend(answer::translated(&resolved, asker));
    // More are not worth the wait.
    addresses.truncate(MAX_ADDRESSES);
    match addresses.is_empty() {
        true if none => Err(Reason::Unresolved),
        true => Err(Reason::ReservedAddress),
        false => Ok(Found {
            addresses,
            ttl: resolved.ttl,
        }),
    }
}

/// The most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 16;
