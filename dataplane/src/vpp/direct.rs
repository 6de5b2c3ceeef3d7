//! Which packets VPP carries from sandbox to sandbox by itself: pure.
//!
//! Between two sandboxes that may exchange everything in both directions there is nothing to
//! judge, and VPP routes such packets from port to port: they are *direct*. All others go to
//! the border, where the packet filter judges them. What is direct follows from the filter's
//! elements alone, so that it can be computed anew from what is observed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use causeway_types::SandboxUid;
use ipnet::Ipv6Net;

use crate::elements::{Element, GroupId, PortRef};

/// What VPP carries by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Direct {
    /// The table of each group: the addresses that its members reach directly, each with the
    /// sandbox whose port leads there.
    pub tables: BTreeMap<GroupId, BTreeMap<Ipv6Addr, SandboxUid>>,
    /// The ports whose packets are looked up in a table, and in which. What comes from other
    /// ports goes to the border unseen.
    pub bindings: BTreeMap<SandboxUid, GroupId>,
}

/// One change of what VPP carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The port's packets all go to the border.
    Unbind(SandboxUid),
    /// Members of the group reach the address by way of the border.
    RemoveRoute(GroupId, Ipv6Addr),
    /// The table goes; nothing is left in it.
    RemoveTable(GroupId),
    /// A table in which everything leads to the border.
    AddTable(GroupId),
    /// Members of the group reach the address directly, through this sandbox's port.
    AddRoute(GroupId, Ipv6Addr, SandboxUid),
    /// The port's packets are looked up in the group's table.
    Bind(SandboxUid, GroupId),
}

/// What leads from one state to another, in order. Between the two lists the filter's elements
/// are written: before that, nothing is direct any more that is not to be, and after it
/// nothing is yet that was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// What is made before.
    pub narrow: Vec<Change>,
    /// What is made after.
    pub widen: Vec<Change>,
}

impl Changes {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.narrow.is_empty() && self.widen.is_empty()
    }
}

/// How a sandbox is linked to VPP, as far as it matters to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Whether the guest shares memory with VPP.
    pub shared_memory: bool,
}

/// A sandbox that has a port and is in no quarantine.
#[derive(Debug, Clone, Copy)]
struct Member {
    uid: SandboxUid,
    address: Ipv6Addr,
    link: Link,
}

impl Direct {
    /// What is direct under these elements, among ports with these links.
    ///
    /// - Prefixes behind a sandbox are never direct: they are reached, and speak, by way of the
    ///   border, so that connection tracking there sees both directions of their flows.
    /// - Neither are groups whose MTUs differ: at the border the sender is told.
    /// - Nor groups of which only a part shares memory with VPP: frames of any size come from
    ///   there, which packet sockets do not take.
    pub fn compile(elements: &BTreeSet<Element>, links: &BTreeMap<SandboxUid, Link>) -> Self {
        let facts = Facts::gather(elements, links);
        let mut direct = Self::default();
        for &(from, to) in facts.reach.iter().filter(|(from, to)| from <= to) {
            if facts.unrestricted(from, to) {
                direct.join(&facts, from, to);
                direct.join(&facts, to, from);
            }
        }
        // A table that leads a single sandbox to itself is of no use.
        direct.tables.retain(|group, routes| {
            let alone = facts.members(*group).len() == 1;
            let own = |uid: &SandboxUid| facts.members(*group).iter().any(|m| m.uid == *uid);
            !(alone && routes.values().all(own))
        });
        for group in direct.tables.keys() {
            let members = facts.members(*group).iter();
            direct
                .bindings
                .extend(members.map(|member| (member.uid, *group)));
        }
        direct
    }

    fn join(&mut self, facts: &Facts, from: GroupId, to: GroupId) {
        let members = facts.members(to);
        if members.is_empty() || facts.members(from).is_empty() {
            return;
        }
        let routes = members.iter().map(|member| (member.address, member.uid));
        self.tables.entry(from).or_default().extend(routes);
    }

    /// Whether packets from one sandbox to another's address are direct.
    pub fn carries(&self, from: SandboxUid, to: Ipv6Addr) -> bool {
        let table = self.bindings.get(&from).and_then(|g| self.tables.get(g));
        table.is_some_and(|routes| routes.contains_key(&to))
    }

    /// What leads from here to `wanted`.
    pub fn changes(&self, wanted: &Self) -> Changes {
        let mut changes = Changes::default();
        for (uid, group) in &self.bindings {
            if wanted.bindings.get(uid) != Some(group) {
                changes.narrow.push(Change::Unbind(*uid));
            }
        }
        for (group, routes) in &self.tables {
            let kept = wanted.tables.get(group);
            for (address, uid) in routes {
                if kept.and_then(|kept| kept.get(address)) != Some(uid) {
                    changes.narrow.push(Change::RemoveRoute(*group, *address));
                }
            }
            if kept.is_none() {
                changes.widen.push(Change::RemoveTable(*group));
            }
        }
        for (group, routes) in &wanted.tables {
            let there = self.tables.get(group);
            if there.is_none() {
                changes.widen.push(Change::AddTable(*group));
            }
            for (address, uid) in routes {
                if there.and_then(|there| there.get(address)) != Some(uid) {
                    changes.widen.push(Change::AddRoute(*group, *address, *uid));
                }
            }
        }
        for (uid, group) in &wanted.bindings {
            if self.bindings.get(uid) != Some(group) {
                changes.widen.push(Change::Bind(*uid, *group));
            }
        }
        changes
    }

    /// Makes one change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Unbind(uid) => {
                self.bindings.remove(&uid);
            }
            Change::RemoveRoute(group, address) => {
                if let Some(routes) = self.tables.get_mut(&group) {
                    routes.remove(&address);
                }
            }
            Change::RemoveTable(group) => {
                self.tables.remove(&group);
            }
            Change::AddTable(group) => {
                self.tables.entry(group).or_default();
            }
            Change::AddRoute(group, address, uid) => {
                self.tables.entry(group).or_default().insert(address, uid);
            }
            Change::Bind(uid, group) => {
                self.bindings.insert(uid, group);
            }
        }
    }
}

/// What the elements say, by group.
#[derive(Debug, Default)]
struct Facts {
    members: BTreeMap<GroupId, Vec<Member>>,
    reach: BTreeSet<(GroupId, GroupId)>,
    denied: BTreeMap<GroupId, Vec<Ipv6Net>>,
}

impl Facts {
    fn gather(elements: &BTreeSet<Element>, links: &BTreeMap<SandboxUid, Link>) -> Self {
        let mut facts = Self::default();
        let mut groups = BTreeMap::new();
        let mut sources = Vec::new();
        let mut quarantine = Vec::new();
        for element in elements {
            match *element {
                Element::Source {
                    port: PortRef::Sandbox(uid),
                    address,
                } => sources.push((uid, address)),
                Element::Group { address, group } => {
                    groups.insert(address, group);
                }
                Element::Quarantine { prefix } => quarantine.push(prefix),
                Element::Reach { from, to } => {
                    facts.reach.insert((from, to));
                }
                Element::EgressDeny { group, prefix, .. } => {
                    facts.denied.entry(group).or_default().push(prefix);
                }
                _ => {}
            }
        }
        for (uid, address) in sources {
            let held = quarantine.iter().any(|prefix| prefix.contains(&address));
            // A link-local address is in no group.
            if let (Some(&group), Some(&link), false) =
                (groups.get(&address), links.get(&uid), held)
            {
                let member = Member { uid, address, link };
                facts.members.entry(group).or_default().push(member);
            }
        }
        facts
    }

    fn members(&self, group: GroupId) -> &[Member] {
        self.members.get(&group).map_or(&[], Vec::as_slice)
    }

    fn unrestricted(&self, a: GroupId, b: GroupId) -> bool {
        let members = self.members(a).iter().chain(self.members(b));
        let mut links = members.map(|member| member.link);
        let link = links.next();
        self.reach.contains(&(b, a))
            && !self.denies(a, b)
            && !self.denies(b, a)
            && links.all(|other| Some(other) == link)
    }

    fn denies(&self, from: GroupId, to: GroupId) -> bool {
        let denied = self.denied.get(&from).map_or(&[][..], Vec::as_slice);
        self.members(to)
            .iter()
            .any(|member| denied.iter().any(|prefix| prefix.contains(&member.address)))
    }
}

#[cfg(test)]
mod tests;
