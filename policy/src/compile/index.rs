//! Finding the rules that speak of a name or an address without looking at the others.

use std::collections::HashMap;
use std::net::IpAddr;

use causeway_types::DomainName;
use ipnet::IpNet;

use crate::model::NamePattern;

/// Numbers of rules, found by name. A look-up costs a few hash look-ups, whatever the number
/// of patterns: one for the name, one for what follows its first label, and one for each label
/// when there are `**` patterns.
#[derive(Debug, Clone, Default)]
pub(super) struct NameIndex {
    exact: HashMap<Box<str>, Vec<u32>>,
    one_below: HashMap<Box<str>, Vec<u32>>,
    any_below: HashMap<Box<str>, Vec<u32>>,
    any: Vec<u32>,
}

impl NameIndex {
    pub(super) fn insert(&mut self, pattern: &NamePattern, number: u32) {
        let (map, name) = match pattern {
            NamePattern::Any => return self.any.push(number),
            NamePattern::Exact(name) => (&mut self.exact, name),
            NamePattern::OneBelow(name) => (&mut self.one_below, name),
            NamePattern::AnyBelow(name) => (&mut self.any_below, name),
        };
        map.entry(name.as_str().into()).or_default().push(number);
    }

    /// The numbers of all rules with a pattern that matches, in order, each once.
    pub(super) fn find(&self, name: &DomainName) -> Vec<u32> {
        let name = name.as_str();
        let mut found = self.any.clone();
        let mut add = |numbers: Option<&Vec<u32>>| found.extend(numbers.into_iter().flatten());
        add(self.exact.get(name));
        let mut parents = name.match_indices('.').map(|(at, _)| &name[at + 1..]);
        if let Some(parent) = parents.next() {
            add(self.one_below.get(parent));
            if !self.any_below.is_empty() {
                add(self.any_below.get(parent));
                parents.for_each(|parent| add(self.any_below.get(parent)));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Numbers of rules with their prefixes, found by address: one hash look-up for each length that
/// occurs.
#[derive(Debug, Clone, Default)]
pub(super) struct PrefixIndex {
    prefixes: HashMap<IpNet, Vec<u32>>,
    lengths_v4: Vec<u8>,
    lengths_v6: Vec<u8>,
}

impl PrefixIndex {
    pub(super) fn insert(&mut self, prefix: IpNet, number: u32) {
        let lengths = match prefix {
            IpNet::V4(_) => &mut self.lengths_v4,
            IpNet::V6(_) => &mut self.lengths_v6,
        };
        if !lengths.contains(&prefix.prefix_len()) {
            lengths.push(prefix.prefix_len());
        }
        self.prefixes.entry(prefix).or_default().push(number);
    }

    /// Every prefix that contains the address, with the numbers of its rules.
    pub(super) fn find(&self, address: IpAddr) -> impl Iterator<Item = (IpNet, &[u32])> {
        let lengths = match address {
            IpAddr::V4(_) => &self.lengths_v4,
            IpAddr::V6(_) => &self.lengths_v6,
        };
        lengths.iter().filter_map(move |length| {
            let prefix = IpNet::new(address, *length).ok()?.trunc();
            let numbers = self.prefixes.get(&prefix)?;
            Some((prefix, numbers.as_slice()))
        })
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }
}
