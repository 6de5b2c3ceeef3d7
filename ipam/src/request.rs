//! What is asked of the address book, and why it is refused.

use std::net::Ipv6Addr;

use causeway_types::Generation;
use ipnet::Ipv6Net;

use crate::lease::{Owner, UnixMillis};
use crate::pool::PoolId;

/// What is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request {
    /// This address and no other.
    pub address: Option<Ipv6Addr>,
    /// Also a prefix of this length.
    pub prefix_length: Option<u8>,
}

/// Why there is no lease. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// The owner holds a lease that is not what it asks for now.
    #[error("{owner} already holds {address}, which is not what it asks for: release it first")]
    OwnerHolds {
        /// Who asks.
        owner: Owner,
        /// What it holds.
        address: Ipv6Addr,
        /// The prefix that it holds.
        prefix: Option<Ipv6Net>,
    },
    /// Everything in the pool is held or in quarantine.
    #[error(
        "the pool {pool} has nothing left for {owner}: {held} held, {quarantined} in quarantine"
    )]
    Exhausted {
        /// The pool.
        pool: PoolId,
        /// Who asks.
        owner: Owner,
        /// How many leases are held.
        held: u64,
        /// How many are in quarantine.
        quarantined: u64,
        /// When the first of those in quarantine is free.
        next_free: Option<UnixMillis>,
    },
    /// No pool has prefixes of this length.
    #[error("no pool has prefixes of /{length} for {owner}")]
    NoSuchPool {
        /// The length asked for.
        length: u8,
        /// Who asks.
        owner: Owner,
    },
    /// The address asked for is not one of this node's.
    #[error("{owner} asks for {address}, which is not in this node's block {block}")]
    OutsideBlock {
        /// The address.
        address: Ipv6Addr,
        /// The node's block.
        block: Ipv6Net,
        /// Who asks.
        owner: Owner,
    },
    /// The address asked for is kept back.
    #[error(
        "{owner} asks for {address}, which is not handed out: {exclusion} is excluded from {block}"
    )]
    Excluded {
        /// The address.
        address: Ipv6Addr,
        /// What keeps it back.
        exclusion: Ipv6Net,
        /// The node's block.
        block: Ipv6Net,
        /// Who asks.
        owner: Owner,
    },
    /// Somebody else holds the address asked for.
    #[error("{owner} asks for {address} in {block}, which another owner holds")]
    Taken {
        /// The address.
        address: Ipv6Addr,
        /// The node's block.
        block: Ipv6Net,
        /// Who asks.
        owner: Owner,
        /// Who holds it. Left out of the message, which a tenant may see.
        holder: Owner,
    },
    /// The address asked for was given back not long ago.
    #[error(
        "{owner} asks for {address} in {block}, which is in quarantine until {until} (seconds since 1970)"
    )]
    Quarantined {
        /// The address.
        address: Ipv6Addr,
        /// The node's block.
        block: Ipv6Net,
        /// Who asks.
        owner: Owner,
        /// When it is free.
        until: UnixMillis,
    },
}

/// Why a lease is not bound. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The owner holds no lease.
    #[error("{owner} holds no lease to bind")]
    NotHeld {
        /// The owner.
        owner: Owner,
    },
    /// The owner's lease is another one than the one meant.
    #[error("{owner} holds {address} of generation {current}, not one of generation {meant}")]
    Replaced {
        /// The owner.
        owner: Owner,
        /// What it holds.
        address: Ipv6Addr,
        /// Its generation.
        current: Generation,
        /// The generation of the lease that was meant.
        meant: Generation,
    },
}
