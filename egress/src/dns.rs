//! Names: the resolver that sandboxes see, and the one that the proxy itself asks.
//!
//! [`Service`] listens on the address that every sandbox has as its resolver. Who asks is the
//! source address; what may be answered is [`Asker`]'s to say. Names are resolved by
//! [`Resolver`], which asks the configured upstream resolvers for addresses and for nothing
//! else, so no other record type carries data in or out.
//!
//! Decisions are pure: [`wire::parse`] reads a packet, [`answer::judge`] says what to do with
//! it, [`answer::conclude`] turns what the upstream said into an answer and the pins that
//! belong to it. Sockets, clocks and limits are around them.

pub mod answer;
mod cache;
mod chain;
mod exchange;
mod limits;
mod lookup;
mod resolver;
mod service;
mod tcp;
pub mod wire;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use causeway_types::{DomainName, NetworkName, Reason, SandboxName, SandboxUid};

pub(crate) use lookup::lookup;
pub use resolver::{ResolveError, Resolved, Resolver, ResolverConfig};
pub use service::{BindError, Service, ServiceConfig};

/// One sandbox, as the resolver sees it: a view of the state at one moment.
pub trait Asker: Send + Sync {
    /// The sandbox's identifier, under which its pins are kept.
    fn uid(&self) -> SandboxUid;

    /// Whether the sandbox is in quarantine, so that nothing is answered.
    fn quarantined(&self) -> bool;

    /// Whether the sandbox may resolve this name, and why not.
    fn resolves(&self, name: &DomainName) -> Result<(), Reason>;

    /// Whether a CIDR rule opens this address although it lies in a reserved range.
    fn opens(&self, address: IpAddr) -> bool;

    /// Whether the address lies in a range that this node reserves: host addresses, node,
    /// operator and SID prefixes. Special-purpose ranges are known without it.
    fn reserved(&self, address: IpAddr) -> bool;

    /// The address of `<sandbox>.<network>.internal`, if the asker is a member of that network
    /// too.
    fn private(&self, sandbox: &SandboxName, network: &NetworkName) -> Option<Ipv6Addr>;
}

/// What the resolver knows about sandboxes, and where it reports to.
pub trait Directory: Send + Sync + 'static {
    /// The sandbox that sends from this address.
    fn asker(&self, source: Ipv6Addr) -> Option<Arc<dyn Asker>>;

    /// Takes note of a refusal. Called at most as often as the rate limit lets queries through,
    /// and expected to return at once.
    fn refused(&self, refusal: Refusal);
}

/// A query that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Who asked.
    pub source: Ipv6Addr,
    /// The sandbox, if the source address belongs to one.
    pub sandbox: Option<SandboxUid>,
    /// The name asked for, in canonical form, or as it was sent (escaped) when it has none.
    /// Absent when the query was refused before it was read.
    pub name: Option<String>,
    /// Why.
    pub reason: Reason,
}

#[cfg(test)]
mod tests;
