//! What the agent knows: the desired state, in memory. It equals what the store holds, except
//! for changes that are on their way there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use causeway_dataplane::{DesiredState, Firewall, SandboxSpec};
use causeway_ipam::Ipam;
use causeway_policy::{Document, Effective, Guardrail, Policy, Reserved};
use causeway_types::{
    Generation, NetworkId, NetworkName, PolicyRef, SandboxId, SandboxUid, SecretName, TenantName,
};
use ipnet::{IpNet, Ipv6Net};

use super::convert;
use crate::secrets::SecretValue;
use crate::store::{NetworkRecord, Phase, SandboxRecord};

/// A sandbox, and the lock that whoever changes it holds.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) record: SandboxRecord,
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
}

/// A policy or guardrail in effect.
#[derive(Debug, Clone)]
pub(super) struct Applied {
    pub(super) document: AppliedDocument,
    pub(super) applied_unix: u64,
}

/// A policy file's document, shared with what was compiled from it.
#[derive(Debug, Clone)]
pub(super) enum AppliedDocument {
    Policy(Arc<Policy>),
    Guardrail(Arc<Guardrail>),
}

impl From<Document> for AppliedDocument {
    fn from(document: Document) -> Self {
        match document {
            Document::Policy(policy) => Self::Policy(Arc::new(policy)),
            Document::Guardrail(guardrail) => Self::Guardrail(Arc::new(guardrail)),
        }
    }
}

impl AppliedDocument {
    pub(super) fn source(&self) -> &str {
        match self {
            Self::Policy(policy) => &policy.source,
            Self::Guardrail(guardrail) => &guardrail.source,
        }
    }
}

#[derive(Debug)]
pub(super) struct StoredSecret {
    pub(super) value: SecretValue,
    pub(super) updated_unix: u64,
}

/// Which sandboxes have one firewall: those that the same policies select and that are in the
/// same networks, which rules for any shared network are written out for.
type FirewallKey = (TenantName, BTreeSet<PolicyRef>, BTreeSet<NetworkName>);

#[derive(Debug)]
pub(super) struct State {
    pub(super) generation: Generation,
    pub(super) sandboxes: BTreeMap<SandboxId, Entry>,
    pub(super) uids: BTreeMap<SandboxUid, SandboxId>,
    pub(super) networks: BTreeMap<NetworkId, NetworkRecord>,
    pub(super) policies: BTreeMap<PolicyRef, Applied>,
    pub(super) secrets: BTreeMap<(TenantName, SecretName), StoredSecret>,
    pub(super) ipam: Ipam,
    pub(super) operator_prefixes: Vec<Ipv6Net>,
    /// The node's own ranges: its addresses and the operator prefix.
    pub(super) own_ranges: Vec<IpNet>,
    pub(super) reserved: Reserved,
    /// Cleared when a policy changes. It has at most one entry per sandbox.
    firewalls: HashMap<FirewallKey, Arc<Firewall>>,
}

impl State {
    pub(super) fn new(
        generation: Generation,
        ipam: Ipam,
        operator_prefixes: Vec<Ipv6Net>,
        own_ranges: Vec<IpNet>,
    ) -> Self {
        Self {
            generation,
            sandboxes: BTreeMap::new(),
            uids: BTreeMap::new(),
            networks: BTreeMap::new(),
            policies: BTreeMap::new(),
            secrets: BTreeMap::new(),
            ipam,
            operator_prefixes,
            reserved: Reserved::new(own_ranges.iter().copied()),
            own_ranges,
            firewalls: HashMap::new(),
        }
    }

    /// Takes the next generation.
    pub(super) fn advance(&mut self) -> Generation {
        self.generation = self.generation.next();
        self.generation
    }

    pub(super) fn insert(&mut self, record: SandboxRecord) {
        self.uids.insert(record.uid, record.id.clone());
        self.sandboxes.insert(
            record.id.clone(),
            Entry {
                record,
                turn: Arc::default(),
            },
        );
    }

    pub(super) fn remove(&mut self, id: &SandboxId) -> Option<SandboxRecord> {
        let entry = self.sandboxes.remove(id)?;
        self.uids.remove(&entry.record.uid);
        Some(entry.record)
    }

    /// The policies that select a sandbox.
    pub(super) fn policies_of(&self, record: &SandboxRecord) -> Vec<Arc<Policy>> {
        self.policies
            .values()
            .filter_map(|applied| match &applied.document {
                AppliedDocument::Policy(policy)
                    if policy.selects(&record.id.tenant, &record.labels) =>
                {
                    Some(Arc::clone(policy))
                }
                _ => None,
            })
            .collect()
    }

    pub(super) fn guardrails(&self) -> Vec<Arc<Guardrail>> {
        self.policies
            .values()
            .filter_map(|applied| match &applied.document {
                AppliedDocument::Guardrail(guardrail) => Some(Arc::clone(guardrail)),
                AppliedDocument::Policy(_) => None,
            })
            .collect()
    }

    /// Everything that applies to a sandbox.
    pub(super) fn effective(&self, record: &SandboxRecord) -> Effective {
        Effective::compile(
            &self.policies_of(record),
            &self.guardrails(),
            &self.reserved,
        )
    }

    /// Forgets what was compiled from policies that are no longer the same.
    pub(super) fn policies_changed(&mut self) {
        self.firewalls.clear();
    }

    fn firewall(&mut self, record: &SandboxRecord) -> Arc<Firewall> {
        let policies = self.policies_of(record);
        let key = (
            record.id.tenant.clone(),
            policies
                .iter()
                .map(|policy| policy.reference.clone())
                .collect(),
            record.networks.clone(),
        );
        if let Some(known) = self.firewalls.get(&key) {
            return Arc::clone(known);
        }
        let effective = Effective::compile(&policies, &self.guardrails(), &self.reserved);
        let firewall = Arc::new(convert::firewall(effective.firewall(), &record.networks));
        // Keys of sandboxes that are gone would pile up otherwise.
        if self.firewalls.len() > 2 * self.sandboxes.len() + 64 {
            self.firewalls.clear();
        }
        self.firewalls.insert(key, Arc::clone(&firewall));
        firewall
    }

    /// What the dataplane is told of a sandbox.
    pub(super) fn spec(
        &mut self,
        record: &SandboxRecord,
    ) -> Result<SandboxSpec, convert::WiringError> {
        Ok(SandboxSpec {
            uid: record.uid,
            id: record.id.clone(),
            address: record.address,
            prefix: record.prefix,
            attachment: convert::attachment(&record.attachment)?,
            mtu: convert::mtu(record.mtu)?,
            networks: record.networks.clone(),
            labels: record.labels.clone(),
            firewall: self.firewall(record),
            quarantined: record.quarantined,
        })
    }

    /// What the dataplane should carry. Rows of the store were checked when they were made; one
    /// that does not fit any more is left out and named.
    pub(super) fn desired(&mut self) -> (DesiredState, Vec<SandboxId>) {
        let records: Vec<SandboxRecord> = self
            .sandboxes
            .values()
            .map(|entry| &entry.record)
            .filter(|record| record.phase != Phase::Detaching)
            .cloned()
            .collect();
        let mut misfits = Vec::new();
        let mut sandboxes = BTreeMap::new();
        for record in records {
            match self.spec(&record) {
                Ok(spec) => {
                    sandboxes.insert(record.uid, spec);
                }
                Err(_misfit) => misfits.push(record.id),
            }
        }
        let desired = DesiredState {
            generation: self.generation,
            operator_prefixes: self.operator_prefixes.clone(),
            sandboxes,
        };
        (desired, misfits)
    }

    /// The names of a network's members.
    pub(super) fn members<'a>(
        &'a self,
        network: &'a NetworkId,
    ) -> impl Iterator<Item = &'a SandboxRecord> {
        self.sandboxes
            .values()
            .map(|entry| &entry.record)
            .filter(move |record| {
                record.id.tenant == network.tenant && record.networks.contains(&network.name)
            })
    }
}
