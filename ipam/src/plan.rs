//! What a node hands out, and what it keeps back.

use std::net::Ipv6Addr;
use std::time::Duration;

use causeway_types::{NAT64_PREFIX, RESOLVER};
use ipnet::Ipv6Net;

use crate::permutation::BlockKey;
use crate::pool::{Pool, PoolId};

/// The length of a node's block where the operator says nothing.
pub const DEFAULT_NODE_BLOCK_LENGTH: u8 = 64;

/// How long an address rests after it was given back, where the operator says nothing: longer
/// than connection tracking remembers UDP, than DNS answers live, and than most clients retry.
pub const DEFAULT_QUARANTINE: Duration = Duration::from_secs(15 * 60);

/// The most exclusions of an operator.
pub const MAX_EXCLUSIONS: usize = 256;

/// The most prefix pools.
pub const MAX_PREFIX_POOLS: usize = 16;

/// The lengths that a sandbox's prefix may have.
pub const PREFIX_LENGTHS: std::ops::RangeInclusive<u8> = 64..=127;

/// Parts of the address space from which no sandbox gets an address, since hosts and routers, or
/// Causeway's own checks, take them for something else.
const UNUSABLE: &[(Ipv6Net, &str)] = &[
    (net([0; 8], 8), "unspecified, loopback and embedded IPv4"),
    (net([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "Teredo"),
    (net([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4"),
    (net([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (net([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "site-local"),
    (net([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A block is not part of the operator prefix.
    #[error("the block {block} does not lie in the operator prefix {operator_prefix}")]
    OutsideOperatorPrefix {
        /// The block.
        block: Ipv6Net,
        /// What it should be part of.
        operator_prefix: Ipv6Net,
    },
    /// A block reaches into space that sandboxes cannot use.
    #[error("the block {block} overlaps {reserved}, which is {purpose}")]
    Unusable {
        /// The block.
        block: Ipv6Net,
        /// The space that it overlaps.
        reserved: Ipv6Net,
        /// What that is for.
        purpose: &'static str,
    },
    /// Two blocks share addresses.
    #[error("the blocks {first} and {second} overlap")]
    Overlap {
        /// One block.
        first: Ipv6Net,
        /// The other.
        second: Ipv6Net,
    },
    /// A sandbox's prefix is to be larger than its block, or not between /64 and /127.
    #[error("prefixes of /{length} cannot come from {block}: use /{} to /127", 64.max(block.prefix_len()))]
    PrefixLength {
        /// The block.
        block: Ipv6Net,
        /// The length asked for.
        length: u8,
    },
    /// More than half of a pool is excluded.
    #[error("the exclusions leave less than half of {pool}: use a smaller block instead")]
    ExclusionsTooLarge {
        /// The pool.
        pool: PoolId,
    },
    /// More than [`MAX_EXCLUSIONS`].
    #[error("{count} exclusions are too many: {MAX_EXCLUSIONS} is the most")]
    TooManyExclusions {
        /// How many there are.
        count: usize,
    },
    /// More than [`MAX_PREFIX_POOLS`].
    #[error("{count} prefix pools are too many: {MAX_PREFIX_POOLS} is the most")]
    TooManyPrefixPools {
        /// How many there are.
        count: usize,
    },
}

/// A block from which sandboxes get prefixes of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixPool {
    /// Where they come from.
    pub block: Ipv6Net,
    /// Their length: 64 to 127.
    pub length: u8,
}

/// What the operator chose. [`Plan::new`] checks it.
#[derive(Debug, Clone)]
pub struct PlanSettings {
    /// Everything that may be handed out, on any node; of any length.
    pub operator_prefix: Ipv6Net,
    /// This node's part, from which sandboxes get their addresses.
    pub node_block: Ipv6Net,
    /// Blocks from which sandboxes get prefixes; outside of the node block and of each other.
    pub prefix_pools: Vec<PrefixPool>,
    /// What is never handed out, beside what [`Plan::new`] excludes by itself.
    pub exclusions: Vec<Ipv6Net>,
    /// How long an address rests before it is given to another sandbox.
    pub quarantine: Duration,
    /// The node's secret, from which the order of addresses comes.
    pub key: BlockKey,
}

/// A checked plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    operator_prefix: Ipv6Net,
    quarantine: Duration,
    key: BlockKey,
    /// The addresses first, then the prefixes.
    pools: Vec<Pool>,
}

impl Plan {
    /// Checks that every block lies in the operator prefix and in usable space, and that none
    /// overlap.
    ///
    /// Excluded by itself: the subnet-router anycast address (RFC 4291, section 2.6.1), the
    /// reserved anycast identifiers (RFC 2526), identifiers in ISATAP form (RFC 5214), which
    /// would be taken for IPv4 addresses, the resolver and the translation prefix.
    pub fn new(settings: PlanSettings) -> Result<Self, PlanError> {
        check_counts(&settings)?;
        let operator_prefix = settings.operator_prefix.trunc();
        let ids = pool_ids(&settings)?;
        for (place, id) in ids.iter().enumerate() {
            check_block(id.block(), operator_prefix)?;
            if let Some(other) = ids[..place].iter().find(|o| overlap(o.block(), id.block())) {
                return Err(PlanError::Overlap {
                    first: other.block(),
                    second: id.block(),
                });
            }
        }
        let mut exclusions = settings.exclusions;
        exclusions.extend([Ipv6Net::from(RESOLVER), NAT64_PREFIX]);
        let pools = ids
            .into_iter()
            .map(|id| {
                let mut excluded = well_known(id);
                excluded.extend(&exclusions);
                Pool::new(id, &settings.key, &excluded)
                    .ok_or(PlanError::ExclusionsTooLarge { pool: id })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            operator_prefix,
            quarantine: settings.quarantine,
            key: settings.key,
            pools,
        })
    }

    /// Everything that may be handed out, on any node.
    pub fn operator_prefix(&self) -> Ipv6Net {
        self.operator_prefix
    }

    /// How long an address rests before it is given to another sandbox.
    pub fn quarantine(&self) -> Duration {
        self.quarantine
    }

    pub(crate) fn key(&self) -> &BlockKey {
        &self.key
    }

    pub(crate) fn pools(&self) -> &[Pool] {
        &self.pools
    }
}

/// Why a node's block cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the operator prefix {operator_prefix} has no block number {index} of /{length}")]
pub struct NodeBlockError {
    /// Where the block was looked for.
    pub operator_prefix: Ipv6Net,
    /// The block's length.
    pub length: u8,
    /// Its number, counted from 0.
    pub index: u128,
}

/// Block number `index`, counted from 0, of the blocks of `length` bits that make up the
/// operator prefix. A prefix that is smaller than a block is its own only block.
pub fn node_block(
    operator_prefix: Ipv6Net,
    length: u8,
    index: u128,
) -> Result<Ipv6Net, NodeBlockError> {
    let error = || NodeBlockError {
        operator_prefix,
        length,
        index,
    };
    let length = length.max(operator_prefix.prefix_len());
    let id = PoolId::new(operator_prefix, length).ok_or_else(error)?;
    if index > id.last() {
        return Err(error());
    }
    let offset = index.checked_shl(128 - u32::from(length)).unwrap_or(0);
    let network = Ipv6Addr::from_bits(id.block().network().to_bits() | offset);
    Ipv6Net::new(network, length).map_err(|_length_was_checked| error())
}

fn check_counts(settings: &PlanSettings) -> Result<(), PlanError> {
    let count = settings.exclusions.len();
    if count > MAX_EXCLUSIONS {
        return Err(PlanError::TooManyExclusions { count });
    }
    let count = settings.prefix_pools.len();
    if count > MAX_PREFIX_POOLS {
        return Err(PlanError::TooManyPrefixPools { count });
    }
    Ok(())
}

/// The address pool, then the prefix pools.
fn pool_ids(settings: &PlanSettings) -> Result<Vec<PoolId>, PlanError> {
    let mut ids = vec![PoolId::addresses(settings.node_block)];
    for PrefixPool { block, length } in &settings.prefix_pools {
        let id = PoolId::new(*block, *length).filter(|_| PREFIX_LENGTHS.contains(length));
        ids.push(id.ok_or(PlanError::PrefixLength {
            block: block.trunc(),
            length: *length,
        })?);
    }
    Ok(ids)
}

fn check_block(block: Ipv6Net, operator_prefix: Ipv6Net) -> Result<(), PlanError> {
    if !operator_prefix.contains(&block) {
        return Err(PlanError::OutsideOperatorPrefix {
            block,
            operator_prefix,
        });
    }
    match UNUSABLE
        .iter()
        .find(|(reserved, _)| overlap(*reserved, block))
    {
        Some((reserved, purpose)) => Err(PlanError::Unusable {
            block,
            reserved: *reserved,
            purpose,
        }),
        None => Ok(()),
    }
}

fn overlap(a: Ipv6Net, b: Ipv6Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// What no host in this pool may have as its address.
fn well_known(id: PoolId) -> Vec<Ipv6Net> {
    if id.unit_length() != 128 {
        return Vec::new();
    }
    let network = id.block().network();
    let within = |identifier: u128, length: u8| {
        let address = Ipv6Addr::from_bits(network.to_bits() | identifier);
        Ipv6Net::new_assert(address, length)
    };
    match id.width() {
        // A block of one or two addresses has no subnet-router anycast address (RFC 6164).
        0 | 1 => Vec::new(),
        2..=8 => vec![within(0, 128)],
        64 => vec![
            within(0, 128),
            within(0xfdff_ffff_ffff_ff80, 121),
            within(0x0000_5efe_0000_0000, 96),
            within(0x0200_5efe_0000_0000, 96),
        ],
        _ => vec![within(0, 128), within(id.last() & !0x7f, 121)],
    }
}

const fn net(s: [u16; 8], length: u8) -> Ipv6Net {
    let address = Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
    Ipv6Net::new_assert(address, length)
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;
