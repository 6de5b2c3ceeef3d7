//! The ranges that no rule reaches unless it names them.

use ipnet::IpNet;

/// The ranges that a node keeps for itself, beside those that the Internet's registries
/// reserve: its own addresses, the operator's prefixes, tunnel endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reserved {
    own: Vec<IpNet>,
}

impl Reserved {
    /// Takes the node's own ranges.
    pub fn new(own: impl IntoIterator<Item = IpNet>) -> Self {
        let mut own: Vec<_> = own.into_iter().map(|net| net.trunc()).collect();
        own.sort_unstable();
        own.dedup();
        Self { own }
    }
}
