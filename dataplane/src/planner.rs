//! From the desired state to set elements, and from what is there to steps. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv6Addr;
use std::sync::Arc;

use causeway_types::{SandboxUid, TenantName};
use ipnet::Ipv6Net;

use crate::desired::SandboxSpec;
use crate::elements::{Element, ElementChanges, GroupId, PortRef};

mod group;
mod plan;
mod ports;

pub use plan::{Plan, Step, plan};

use group::GroupKey;

/// Compiles sandboxes into set elements, step by step: each change yields just the elements
/// that it changes. A sandbox that joins an existing group costs a constant number.
#[derive(Debug, Clone, Default)]
pub struct Planner {
    members: BTreeMap<SandboxUid, Member>,
    addresses: HashMap<Ipv6Addr, SandboxUid>,
    numbers: HashMap<Arc<GroupKey>, GroupId>,
    groups: BTreeMap<GroupId, Group>,
    tenants: HashMap<TenantName, Tenant>,
    hints: HashMap<Ipv6Addr, GroupId>,
    highest: u32,
}

#[derive(Debug, Clone)]
struct Member {
    spec: SandboxSpec,
    group: GroupId,
}

#[derive(Debug, Clone)]
struct Group {
    key: Arc<GroupKey>,
    members: usize,
}

#[derive(Debug, Clone, Default)]
struct Tenant {
    members: BTreeSet<SandboxUid>,
    groups: BTreeSet<GroupId>,
    /// How many members' ingress rules look at each label key.
    label_keys: BTreeMap<String, usize>,
}

impl Planner {
    /// Compiles many sandboxes at once, with the group numbers that addresses have already in
    /// `elements`: given the same sandboxes it numbers their groups as they are.
    pub fn load<'a>(
        specs: impl IntoIterator<Item = &'a SandboxSpec> + Clone,
        elements: &BTreeSet<Element>,
    ) -> Self {
        let hints: HashMap<_, _> = elements
            .iter()
            .filter_map(|element| match element {
                Element::Group { address, group } => Some((*address, *group)),
                _ => None,
            })
            .collect();
        let highest = hints.values().map(|group| group.0).max().unwrap_or(0);
        let mut planner = Self {
            hints,
            highest,
            ..Self::default()
        };
        // Which labels count first, so that nobody is sorted into a group that splits later.
        for spec in specs.clone() {
            planner.note_keys(spec);
        }
        let mut delta = Delta::default();
        for spec in specs {
            planner.join(spec.clone(), &mut delta);
        }
        planner.hints.clear();
        planner
    }

    /// The sandbox with this identifier.
    pub fn get(&self, uid: SandboxUid) -> Option<&SandboxSpec> {
        self.members.get(&uid).map(|member| &member.spec)
    }

    /// The sandbox that holds an address.
    pub fn holder(&self, address: Ipv6Addr) -> Option<SandboxUid> {
        self.addresses.get(&address).copied()
    }

    /// The sandboxes, in order of identifier.
    pub fn sandboxes(&self) -> impl Iterator<Item = &SandboxSpec> {
        self.members.values().map(|member| &member.spec)
    }

    /// How many groups there are.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Adds a sandbox, or replaces what was known of it.
    pub fn upsert(&mut self, spec: SandboxSpec) -> ElementChanges {
        let mut delta = Delta::default();
        let keys_changed = self.leave(spec.uid, &mut delta) | self.note_keys(&spec);
        let (uid, tenant) = (spec.uid, spec.id.tenant.clone());
        self.join(spec, &mut delta);
        if keys_changed {
            self.regroup(&tenant, uid, &mut delta);
        }
        self.finish(delta)
    }

    /// Takes a sandbox away; one that is not there changes nothing.
    pub fn remove(&mut self, uid: SandboxUid) -> ElementChanges {
        let mut delta = Delta::default();
        let tenant = self.get(uid).map(|spec| spec.id.tenant.clone());
        let keys_changed = self.leave(uid, &mut delta);
        if let Some(tenant) = tenant
            && keys_changed
        {
            self.regroup(&tenant, uid, &mut delta);
        }
        self.finish(delta)
    }

    /// Every element that should be there.
    pub fn elements(&self) -> BTreeSet<Element> {
        let mut elements = BTreeSet::new();
        for member in self.members.values() {
            elements.extend(member_elements(&member.spec, member.group));
        }
        for (&number, group) in &self.groups {
            elements.extend(self.group_elements(number, &group.key));
        }
        elements
    }

    /// Takes a sandbox out of its group. Says whether the label keys in use changed.
    fn leave(&mut self, uid: SandboxUid, delta: &mut Delta) -> bool {
        let Some(member) = self.members.remove(&uid) else {
            return false;
        };
        delta.remove(member_elements(&member.spec, member.group));
        if self.addresses.get(&member.spec.address) == Some(&uid) {
            self.addresses.remove(&member.spec.address);
        }
        if let Some(group) = self.groups.get_mut(&member.group) {
            group.members -= 1;
            delta.touched.insert(member.group);
        }
        let mut changed = false;
        if let Some(tenant) = self.tenants.get_mut(&member.spec.id.tenant) {
            tenant.members.remove(&uid);
            for key in group::selector_keys(&member.spec.firewall) {
                if let Some(count) = tenant.label_keys.get_mut(key) {
                    *count -= 1;
                    if *count == 0 {
                        tenant.label_keys.remove(key);
                        changed = true;
                    }
                }
            }
        }
        changed
    }

    /// Counts the label keys that a sandbox's rules look at. Says whether one is new.
    fn note_keys(&mut self, spec: &SandboxSpec) -> bool {
        let tenant = self.tenants.entry(spec.id.tenant.clone()).or_default();
        let mut changed = false;
        for key in group::selector_keys(&spec.firewall) {
            let count = tenant.label_keys.entry(key.to_owned()).or_default();
            changed |= *count == 0;
            *count += 1;
        }
        changed
    }

    fn join(&mut self, spec: SandboxSpec, delta: &mut Delta) {
        let key = self.key_of(&spec);
        let group = match self.numbers.get(&key) {
            Some(&number) => number,
            None => self.found_group(&key, spec.address, delta),
        };
        if let Some(group) = self.groups.get_mut(&group) {
            group.members += 1;
        }
        delta.add(member_elements(&spec, group));
        self.addresses.insert(spec.address, spec.uid);
        self.tenants
            .entry(spec.id.tenant.clone())
            .or_default()
            .members
            .insert(spec.uid);
        self.members.insert(spec.uid, Member { spec, group });
    }

    fn key_of(&self, spec: &SandboxSpec) -> Arc<GroupKey> {
        let seen = self
            .tenants
            .get(&spec.id.tenant)
            .map(|tenant| &tenant.label_keys);
        let labels = spec
            .labels
            .iter()
            .filter(|(key, _)| seen.is_some_and(|keys| keys.contains_key(*key)))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        Arc::new(GroupKey {
            tenant: spec.id.tenant.clone(),
            networks: spec.networks.clone(),
            labels,
            firewall: Arc::clone(&spec.firewall),
        })
    }

    fn found_group(
        &mut self,
        key: &Arc<GroupKey>,
        address: Ipv6Addr,
        delta: &mut Delta,
    ) -> GroupId {
        let hint = self.hints.remove(&address);
        let number = match hint.filter(|hint| hint.0 != 0 && !self.groups.contains_key(hint)) {
            Some(hint) => hint,
            None => self.free_number(),
        };
        self.tenants
            .entry(key.tenant.clone())
            .or_default()
            .groups
            .insert(number);
        self.numbers.insert(Arc::clone(key), number);
        let group = Group {
            key: Arc::clone(key),
            members: 0,
        };
        self.groups.insert(number, group);
        delta.add(self.group_elements(number, key));
        number
    }

    /// A number that no group has. Numbers of groups that are gone come back only after all
    /// four billion were used, so that no element of an old group fits a new one.
    fn free_number(&mut self) -> GroupId {
        loop {
            self.highest = self.highest.checked_add(1).unwrap_or(1);
            let number = GroupId(self.highest);
            if !self.groups.contains_key(&number) {
                return number;
            }
        }
    }

    /// Everything that a group brings, towards the outside, itself and the tenant's others.
    fn group_elements(&self, number: GroupId, key: &GroupKey) -> Vec<Element> {
        let mut elements = group::outside(key, number);
        let peers = self.tenants.get(&key.tenant).map(|tenant| &tenant.groups);
        for &peer in peers.into_iter().flatten() {
            let Some(other) = self.groups.get(&peer) else {
                continue;
            };
            elements.extend(group::pair((key, number), (&other.key, peer)));
            if peer != number {
                elements.extend(group::pair((&other.key, peer), (key, number)));
            }
        }
        elements
    }

    /// Sorts a tenant's sandboxes into groups again, after the labels that count changed.
    fn regroup(&mut self, tenant: &TenantName, except: SandboxUid, delta: &mut Delta) {
        let members: Vec<SandboxUid> = self
            .tenants
            .get(tenant)
            .map(|tenant| tenant.members.iter().copied().collect())
            .unwrap_or_default();
        for uid in members.into_iter().filter(|uid| *uid != except) {
            let Some(member) = self.members.get(&uid) else {
                continue;
            };
            let spec = member.spec.clone();
            // Leaving and noting again balances the counts; the set of keys stays the same.
            let before = self.leave(uid, delta);
            let after = self.note_keys(&spec);
            debug_assert_eq!(before, after, "counts must balance");
            self.join(spec, delta);
        }
    }

    /// Drops the groups that nobody is in any more, and settles the change.
    fn finish(&mut self, mut delta: Delta) -> ElementChanges {
        for number in std::mem::take(&mut delta.touched) {
            let Some(group) = self.groups.get(&number) else {
                continue;
            };
            if group.members > 0 {
                continue;
            }
            let key = Arc::clone(&group.key);
            delta.remove(self.group_elements(number, &key));
            self.groups.remove(&number);
            self.numbers.remove(&key);
            if let Some(tenant) = self.tenants.get_mut(&key.tenant) {
                tenant.groups.remove(&number);
                if tenant.groups.is_empty() && tenant.members.is_empty() {
                    self.tenants.remove(&key.tenant);
                }
            }
        }
        delta.settle()
    }
}

/// A change in the making.
#[derive(Debug, Default)]
struct Delta {
    net: BTreeMap<Element, i32>,
    touched: BTreeSet<GroupId>,
}

impl Delta {
    fn add(&mut self, elements: impl IntoIterator<Item = Element>) {
        for element in elements {
            *self.net.entry(element).or_default() += 1;
        }
    }

    fn remove(&mut self, elements: impl IntoIterator<Item = Element>) {
        for element in elements {
            *self.net.entry(element).or_default() -= 1;
        }
    }

    fn settle(self) -> ElementChanges {
        let mut changes = ElementChanges::default();
        for (element, count) in self.net {
            debug_assert!((-1..=1).contains(&count), "{element:?} counted {count}");
            if count > 0 {
                changes.add.push(element);
            } else if count < 0 {
                changes.remove.push(element);
            }
        }
        changes
    }
}

/// The elements that one sandbox has of its own: at most seven.
fn member_elements(spec: &SandboxSpec, group: GroupId) -> Vec<Element> {
    let port = PortRef::Sandbox(spec.uid);
    let mut elements = vec![
        Element::Source {
            port,
            address: spec.address,
        },
        Element::Source {
            port,
            address: spec.link_local(),
        },
        Element::Group {
            address: spec.address,
            group,
        },
    ];
    elements.extend(
        spec.prefix
            .map(|prefix| Element::GroupPrefix { prefix, group }),
    );
    if spec.quarantined {
        let address = Ipv6Net::from(spec.address);
        // A prefix that contains the address already covers it, and elements never overlap.
        let inside = spec
            .prefix
            .is_some_and(|prefix| prefix.contains(&spec.address));
        if !inside {
            elements.push(Element::Quarantine { prefix: address });
        }
        elements.extend(spec.prefix.map(|prefix| Element::Quarantine { prefix }));
    }
    elements
}

#[cfg(test)]
mod tests;
