//! What the proxy knows: sandboxes, policies, secrets and settings, as one snapshot that is
//! replaced whole.

mod build;
mod directory;

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;
use causeway_policy::{Denial, Effective, RequestPermit};
use causeway_types::{Generation, Reason, SandboxName, SecretName, TenantName};
use ipnet::Ipv6Net;
use rustls::pki_types::CertificateDer;
use tokio::sync::{Semaphore, broadcast};

use crate::audit::{AuditLog, AuditRecord};
use crate::ca::CertificateAuthority;
use crate::control::{
    Change, Controlled, PROTOCOL, SandboxInfo, SecretValue, Settings, Stats, Welcome,
};
use crate::dns::Resolver;
use crate::flows::Flows;
use crate::judge::{self, Subject};
use crate::limits::{Rate, Slots};
use crate::metrics::Metrics;
use crate::pins::Pins;
use crate::secrets::{Needles, PlaceholderKey};
use crate::trust::Trust;

pub(crate) use build::CommitError;
use build::Desired;

/// A sandbox as one snapshot has it.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) info: Arc<SandboxInfo>,
    pub(crate) policy: Arc<Effective>,
    pub(crate) activity: Arc<Activity>,
}

/// What a sandbox is doing; it stays the same across snapshots while the sandbox lives.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    pub(crate) flows: Arc<Flows>,
    pub(crate) connections: Arc<Slots>,
    pub(crate) requests: Rate,
    /// Names that the proxy resolves on the sandbox's behalf.
    pub(crate) lookups: Rate,
    pub(crate) looking_up: Arc<Slots>,
}

/// Secrets by owner and name.
pub(crate) type Secrets = BTreeMap<(TenantName, SecretName), Arc<Secret>>;

/// A secret, and what answers are searched for because of it.
#[derive(Debug)]
pub(crate) struct Secret {
    pub(crate) value: Arc<SecretValue>,
    needles: OnceLock<Option<Arc<Needles>>>,
}

impl Secret {
    pub(crate) fn new(value: SecretValue) -> Self {
        Self {
            value: Arc::new(value),
            needles: OnceLock::new(),
        }
    }

    /// None for a secret that is too short to look for. Made when they are first needed.
    pub(crate) fn needles(&self) -> Option<&Arc<Needles>> {
        let make = || Needles::new(self.value.expose()).map(Arc::new);
        self.needles.get_or_init(make).as_ref()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// Everything that decisions depend on, at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) generation: Generation,
    pub(crate) settings: Arc<Settings>,
    pub(crate) ca: Option<Arc<CertificateAuthority>>,
    pub(crate) trust: Arc<Trust>,
    pub(crate) secrets: Arc<Secrets>,
    /// What placeholders come from; none before the agent has said it.
    pub(crate) placeholders: Option<PlaceholderKey>,
    sandboxes: HashMap<Ipv6Addr, Arc<Sandbox>>,
    /// Sandboxes by the network address of their prefix. Prefixes are disjoint.
    prefixes: BTreeMap<Ipv6Addr, (Ipv6Net, Ipv6Addr)>,
    names: HashMap<(TenantName, SandboxName), Ipv6Addr>,
}

impl Snapshot {
    /// The sandbox that sends from this address.
    pub(crate) fn sandbox(&self, source: Ipv6Addr) -> Option<&Arc<Sandbox>> {
        if let Some(sandbox) = self.sandboxes.get(&source) {
            return Some(sandbox);
        }
        let (_network, (prefix, address)) = self.prefixes.range(..=source).next_back()?;
        let holder = prefix.contains(&source).then_some(address)?;
        self.sandboxes.get(holder)
    }

    /// The sandbox of this name.
    pub(crate) fn named(&self, tenant: &TenantName, name: &SandboxName) -> Option<&Arc<Sandbox>> {
        let address = self.names.get(&(tenant.clone(), name.clone()))?;
        self.sandboxes.get(address)
    }

    /// Whether a secret that goes along has no value.
    pub(crate) fn lacks(&self, permit: &RequestPermit) -> bool {
        permit
            .secrets()
            .any(|(tenant, name)| self.secret(tenant, name).is_none())
    }

    /// A secret.
    pub(crate) fn secret(&self, tenant: &TenantName, name: &SecretName) -> Option<&Arc<Secret>> {
        self.secrets.get(&(tenant.clone(), name.clone()))
    }

    /// Why `subject` is not permitted to this sandbox, if it is not.
    fn refuses(&self, sandbox: &Sandbox, subject: &Subject) -> Option<Denial> {
        if sandbox.info.quarantined {
            return Some(Denial {
                reason: Reason::SandboxQuarantined,
                rule: None,
            });
        }
        match subject {
            Subject::Unknown => None,
            Subject::Connection(target) => judge::connection(&sandbox.policy, target).err(),
            Subject::Passed(target) => judge::passed(&sandbox.policy, target).err(),
            Subject::Request(target, method, path) => {
                match judge::request(&sandbox.policy, target, method, path) {
                    Err(denial) => Some(denial),
                    Ok(permit) => self.lacks(&permit).then(|| Denial {
                        reason: Reason::SecretMissing,
                        rule: permit.rule.clone(),
                    }),
                }
            }
        }
    }
}

/// The memory for bodies that are read whole, in KiB. Those that find none are sent in chunks.
const BODY_ROOM: usize = 64 * 1024;

/// What every task shares.
#[derive(Debug)]
pub(crate) struct Shared {
    snapshot: ArcSwap<Snapshot>,
    desired: Mutex<Desired>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) audit: AuditLog,
    pub(crate) pins: Arc<Pins>,
    pub(crate) resolver: Resolver,
    /// Room for bodies that are read whole, in KiB.
    pub(crate) body_room: Arc<Semaphore>,
    started: Instant,
    build: String,
}

impl Shared {
    /// A proxy that knows nothing, and so permits nothing.
    pub(crate) fn new(
        build: String,
        audit: AuditLog,
        metrics: Arc<Metrics>,
        resolver: Resolver,
        system_roots: Vec<CertificateDer<'static>>,
    ) -> Self {
        let mut desired = Desired::new(system_roots);
        let snapshot = desired.build(None, Generation(0));
        Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            desired: Mutex::new(desired),
            metrics,
            audit,
            pins: Arc::new(Pins::default()),
            resolver,
            body_room: Arc::new(Semaphore::new(BODY_ROOM)),
            started: Instant::now(),
            build,
        }
    }

    /// The state of this moment.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Takes a change whole, and cuts the flows that are no longer permitted.
    fn apply(&self, change: Change, generation: Generation) -> Result<(), CommitError> {
        let mut desired = self.desired.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.snapshot();
        let mut next = desired.with(change)?;
        let after = Arc::new(next.build(Some((&desired, &before)), generation));
        *desired = next;
        if before.settings.upstream_resolvers != after.settings.upstream_resolvers {
            self.resolver.configure(&after.settings.upstream_resolvers);
        }
        self.snapshot.store(Arc::clone(&after));
        self.cut_flows(&before, &after);
        Ok(())
    }

    fn cut_flows(&self, before: &Snapshot, after: &Snapshot) {
        let secrets_changed = !Arc::ptr_eq(&before.secrets, &after.secrets);
        for (address, old) in &before.sandboxes {
            let new = after
                .sandboxes
                .get(address)
                .filter(|new| Arc::ptr_eq(&new.activity, &old.activity));
            let cut = match new {
                None => {
                    self.pins.forget_sandbox(old.info.uid);
                    old.activity.flows.cut_where(|_any| Some(Reason::Revoked))
                }
                Some(new) => {
                    let same = Arc::ptr_eq(&new.policy, &old.policy)
                        && new.info.quarantined == old.info.quarantined;
                    if same && !secrets_changed {
                        continue;
                    }
                    new.activity.flows.cut_where(|subject| {
                        let denial = after.refuses(new, subject)?;
                        Some(match denial.reason {
                            Reason::SandboxQuarantined => Reason::SandboxQuarantined,
                            _ => Reason::Revoked,
                        })
                    })
                }
            };
            self.metrics.revoked_total.add(cut);
        }
    }
}

impl Controlled for Shared {
    fn welcome(&self) -> Welcome {
        Welcome {
            protocol: PROTOCOL,
            build: self.build.clone(),
            pid: std::process::id(),
            generation: self.snapshot().generation,
        }
    }

    fn commit(
        &self,
        change: Change,
        generation: Generation,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(self.apply(change, generation)?)
    }

    fn stats(&self) -> Stats {
        let (snapshot, metrics) = (self.snapshot(), &self.metrics);
        Stats {
            generation: snapshot.generation,
            uptime_seconds: self.started.elapsed().as_secs(),
            sandboxes: snapshot.sandboxes.len() as u64,
            connections_live: metrics.connections_live(),
            connections_total: metrics.connections_total.get(),
            requests_total: metrics.requests_total.get(),
            dns_queries_total: metrics.dns_queries_total.get(),
            bytes_out_total: metrics.bytes_out_total.get(),
            bytes_in_total: metrics.bytes_in_total.get(),
            injections_total: metrics.injections_total.get(),
            replacements_total: metrics.replacements_total.get(),
            redactions_total: metrics.redactions_total.get(),
            revoked_total: metrics.revoked_total.get(),
            audit_dropped_total: metrics.audit_dropped.get(),
            events_dropped_total: metrics.events_dropped.get(),
            refused_total: metrics.refusals().collect(),
            decisions_total: metrics.decisions().collect(),
        }
    }

    fn events(&self) -> broadcast::Receiver<Arc<AuditRecord>> {
        self.audit.subscribe()
    }

    fn events_lost(&self, count: u64) {
        self.metrics.events_dropped.add(count);
    }
}
