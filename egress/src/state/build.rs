//! From what the agent sent to a snapshot.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv6Addr;
use std::str::Utf8Error;
use std::sync::Arc;

use causeway_policy::{Document, Effective, Guardrail, Policy, PolicyErrors, Reserved};
use causeway_types::{Generation, Labels, PolicyRef, TenantName};
use rustls::pki_types::CertificateDer;

use super::{Sandbox, Secret, Secrets, Snapshot};
use crate::ca::{CaError, CertificateAuthority};
use crate::control::{Change, SandboxInfo, SecretValue, Settings, ToProxy};
use crate::secrets::placeholder::{PlaceholderKey, PlaceholderKeyError};
use crate::trust::{Trust, TrustError};

/// Why a change was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// A policy does not parse.
    #[error("the policies of {owner} were refused")]
    Policy {
        /// The tenant, or `the operator`.
        owner: String,
        /// What is wrong with it.
        #[source]
        source: PolicyErrors,
    },
    /// A policy is of another owner than the message says, or a guardrail among policies.
    #[error("the policy {reference} is not one of {owner}")]
    ForeignPolicy {
        /// The policy.
        reference: PolicyRef,
        /// The tenant, or `the operator`.
        owner: String,
    },
    /// The key of the certificate authority is no text.
    #[error("the key of the certificate authority is not PEM")]
    CaKey(#[source] Utf8Error),
    /// The certificate authority cannot be used.
    #[error("the certificate authority was refused")]
    Ca(#[from] CaError),
    /// The key of the placeholders is none.
    #[error("the key of the placeholders was refused")]
    Placeholders(#[source] PlaceholderKeyError),
    /// The extra roots cannot be used.
    #[error("the extra roots were refused")]
    Trust(#[from] TrustError),
}

/// The policies of one owner.
#[derive(Debug)]
struct PolicySet {
    texts: Vec<String>,
    policies: Vec<Arc<Policy>>,
    guardrails: Vec<Arc<Guardrail>>,
}

#[derive(Debug, Clone)]
struct CaState {
    cert_pem: String,
    key_pem: SecretValue,
    authority: Arc<CertificateAuthority>,
}

/// What the agent wants. Cloning it is cheap enough for every commit.
#[derive(Debug, Clone)]
pub(super) struct Desired {
    system_roots: Arc<Vec<CertificateDer<'static>>>,
    settings: Arc<Settings>,
    trust: Arc<Trust>,
    reserved: Arc<Reserved>,
    ca: Option<CaState>,
    policies: BTreeMap<Option<TenantName>, Arc<PolicySet>>,
    secrets: Arc<Secrets>,
    placeholders: Option<PlaceholderKey>,
    sandboxes: BTreeMap<Ipv6Addr, Arc<SandboxInfo>>,
    /// What the last snapshot was built from.
    compiled: BTreeMap<Class, Arc<Effective>>,
}

impl Desired {
    pub(super) fn new(system_roots: Vec<CertificateDer<'static>>) -> Self {
        Self {
            trust: Arc::new(Trust::new(&system_roots)),
            system_roots: Arc::new(system_roots),
            settings: Arc::default(),
            reserved: Arc::default(),
            ca: None,
            policies: BTreeMap::new(),
            secrets: Arc::default(),
            placeholders: None,
            sandboxes: BTreeMap::new(),
            compiled: BTreeMap::new(),
        }
    }

    /// The state after a change.
    pub(super) fn with(&self, change: Change) -> Result<Self, CommitError> {
        let mut next = self.clone();
        if change.whole {
            next.policies.clear();
            next.secrets = Arc::default();
            next.sandboxes.clear();
        }
        for message in change.messages {
            next.take(message, self)?;
        }
        // The same secrets are the same object, so that nothing is judged again in vain.
        if next.secrets == self.secrets {
            next.secrets = Arc::clone(&self.secrets);
        }
        Ok(next)
    }

    fn take(&mut self, message: ToProxy, before: &Self) -> Result<(), CommitError> {
        match message {
            ToProxy::Settings(settings) => self.take_settings(settings)?,
            ToProxy::Ca { cert_pem, key_pem } => self.take_ca(cert_pem, key_pem)?,
            ToProxy::Placeholders { key } => {
                let key = PlaceholderKey::try_from(&key).map_err(CommitError::Placeholders)?;
                self.placeholders = Some(key);
            }
            ToProxy::Policies { tenant, documents } => {
                let known = before.policies.get(&tenant);
                let set = match known.filter(|known| known.texts == documents) {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(parse(tenant.as_ref(), documents)?),
                };
                self.policies.insert(tenant, set);
            }
            ToProxy::Secret {
                tenant,
                name,
                value,
            } => {
                let secrets = Arc::make_mut(&mut self.secrets);
                let known = before.secrets.get(&(tenant.clone(), name.clone()));
                let secret = match known.filter(|known| *known.value == value) {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(Secret::new(value)),
                };
                secrets.insert((tenant, name), secret);
            }
            ToProxy::SecretGone { tenant, name } => {
                Arc::make_mut(&mut self.secrets).remove(&(tenant, name));
            }
            ToProxy::Sandbox(info) => {
                self.sandboxes.insert(info.address, Arc::new(info));
            }
            ToProxy::SandboxGone { address } => {
                self.sandboxes.remove(&address);
            }
            // The control connection handles these itself.
            ToProxy::Hello { .. }
            | ToProxy::Begin
            | ToProxy::Commit { .. }
            | ToProxy::GetStats
            | ToProxy::Follow { .. }
            | ToProxy::Shutdown => {}
        }
        Ok(())
    }

    fn take_settings(&mut self, settings: Settings) -> Result<(), CommitError> {
        if settings == *self.settings {
            return Ok(());
        }
        if settings.extra_roots_pem != self.settings.extra_roots_pem {
            let trust = Trust::with_extra(&self.system_roots, &settings.extra_roots_pem)?;
            self.trust = Arc::new(trust);
        }
        if settings.reserved != self.settings.reserved {
            self.reserved = Arc::new(Reserved::new(settings.reserved.iter().copied()));
        }
        self.settings = Arc::new(settings);
        Ok(())
    }

    fn take_ca(&mut self, cert_pem: String, key_pem: SecretValue) -> Result<(), CommitError> {
        let known = self.ca.as_ref();
        if known.is_some_and(|known| known.cert_pem == cert_pem && known.key_pem == key_pem) {
            return Ok(());
        }
        let key = std::str::from_utf8(key_pem.expose()).map_err(CommitError::CaKey)?;
        let authority = Arc::new(CertificateAuthority::from_pem(&cert_pem, key)?);
        self.ca = Some(CaState {
            cert_pem,
            key_pem,
            authority,
        });
        Ok(())
    }

    /// Makes the snapshot. What did not change since `before` is taken over from there.
    pub(super) fn build(
        &mut self,
        before: Option<(&Self, &Snapshot)>,
        generation: Generation,
    ) -> Snapshot {
        self.compiled = self.compile(before.map(|(desired, _snapshot)| desired));
        let mut snapshot = Snapshot {
            generation,
            settings: Arc::clone(&self.settings),
            ca: self.ca.as_ref().map(|ca| Arc::clone(&ca.authority)),
            trust: Arc::clone(&self.trust),
            secrets: Arc::clone(&self.secrets),
            placeholders: self.placeholders.clone(),
            sandboxes: HashMap::with_capacity(self.sandboxes.len()),
            prefixes: BTreeMap::new(),
            names: HashMap::with_capacity(self.sandboxes.len()),
        };
        for (address, info) in &self.sandboxes {
            let known = before.and_then(|(_desired, snapshot)| snapshot.sandboxes.get(address));
            let Some(policy) = self.compiled.get(&class(info)) else {
                continue;
            };
            let sandbox = sandbox(info, policy, known);
            snapshot.sandboxes.insert(*address, sandbox);
            if let Some(prefix) = info.prefix {
                let entry = (prefix, *address);
                snapshot.prefixes.insert(prefix.network(), entry);
            }
            let name = (info.id.tenant.clone(), info.id.name.clone());
            snapshot.names.insert(name, *address);
        }
        snapshot
    }

    /// What applies to each class of sandboxes.
    fn compile(&self, before: Option<&Self>) -> BTreeMap<Class, Arc<Effective>> {
        let guardrails = self.policies.get(&None);
        let reusable = before.filter(|before| {
            same(before.policies.get(&None), guardrails)
                && Arc::ptr_eq(&before.reserved, &self.reserved)
        });
        let guardrails = guardrails.map_or(&[][..], |set| &set.guardrails);
        let mut compiled = BTreeMap::new();
        for info in self.sandboxes.values() {
            let class = class(info);
            if compiled.contains_key(&class) {
                continue;
            }
            let owner = Some(info.id.tenant.clone());
            let set = self.policies.get(&owner);
            let known = reusable
                .filter(|before| same(before.policies.get(&owner), set))
                .and_then(|before| before.compiled.get(&class));
            let policy = known.map_or_else(
                || Arc::new(effective(info, set, guardrails, &self.reserved)),
                Arc::clone,
            );
            compiled.insert(class, policy);
        }
        compiled
    }
}

/// Sandboxes of one tenant with the same labels are under the same rules.
type Class = (TenantName, Labels);

fn class(info: &SandboxInfo) -> Class {
    (info.id.tenant.clone(), info.labels.clone())
}

fn same(a: Option<&Arc<PolicySet>>, b: Option<&Arc<PolicySet>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

fn effective(
    info: &SandboxInfo,
    set: Option<&Arc<PolicySet>>,
    guardrails: &[Arc<Guardrail>],
    reserved: &Reserved,
) -> Effective {
    let policies = set.map_or(&[][..], |set| &set.policies);
    let selected: Vec<_> = policies
        .iter()
        .filter(|policy| policy.selects(&info.id.tenant, &info.labels))
        .map(Arc::clone)
        .collect();
    Effective::compile(&selected, guardrails, reserved)
}

fn sandbox(
    info: &Arc<SandboxInfo>,
    policy: &Arc<Effective>,
    known: Option<&Arc<Sandbox>>,
) -> Arc<Sandbox> {
    // An address that went to another sandbox starts anew.
    let known = known.filter(|known| known.info.uid == info.uid);
    match known {
        Some(known) if Arc::ptr_eq(&known.policy, policy) && known.info == *info => {
            Arc::clone(known)
        }
        _ => Arc::new(Sandbox {
            info: Arc::clone(info),
            policy: Arc::clone(policy),
            activity: known.map_or_else(Arc::default, |known| Arc::clone(&known.activity)),
        }),
    }
}

fn parse(tenant: Option<&TenantName>, texts: Vec<String>) -> Result<PolicySet, CommitError> {
    let owner = || tenant.map_or_else(|| "the operator".to_owned(), |t| format!("tenant {t}"));
    let mut set = PolicySet {
        texts,
        policies: Vec::new(),
        guardrails: Vec::new(),
    };
    for text in &set.texts {
        let documents =
            causeway_policy::parse("policy", text).map_err(|source| CommitError::Policy {
                owner: owner(),
                source,
            })?;
        for document in documents {
            match (document, tenant) {
                (Document::Policy(policy), Some(tenant)) if policy.tenant == *tenant => {
                    set.policies.push(Arc::new(policy));
                }
                (Document::Guardrail(guardrail), None) => {
                    set.guardrails.push(Arc::new(guardrail));
                }
                (document, _) => {
                    return Err(CommitError::ForeignPolicy {
                        reference: document.reference().clone(),
                        owner: owner(),
                    });
                }
            }
        }
    }
    Ok(set)
}
