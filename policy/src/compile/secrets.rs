//! Which secrets go with which name.

use std::sync::Arc;

use causeway_types::{DomainName, Reason, SecretName, TenantName};

use super::index::NameIndex;
use crate::decision::{Injection, Replacement, Signature};
use crate::model::{Place, Policy, SecretUse, Slot, Treatment};

/// The secrets of several policies, found by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Secrets {
    uses: Vec<Use>,
    hosts: NameIndex,
    injections: Vec<Arc<Injection>>,
    replacements: Vec<Arc<Replacement>>,
}

#[derive(Debug, Clone)]
enum Use {
    Inject(Arc<Injection>),
    Replace(Arc<Replacement>),
    Sign(Arc<Signature>),
}

/// What goes with one request.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) injections: Vec<Arc<Injection>>,
    pub(super) replacements: Vec<Arc<Replacement>>,
    /// At most one when there is no conflict.
    pub(super) signatures: Vec<Arc<Signature>>,
}

impl Taken {
    /// Policies add up: a secret that several swap is swapped in the places of all of them.
    fn merge_replacements(&mut self) {
        self.replacements.sort();
        self.replacements.dedup();
        let mut merged: Vec<Arc<Replacement>> = Vec::with_capacity(self.replacements.len());
        for next in self.replacements.drain(..) {
            match merged.last_mut() {
                Some(last) if (&last.tenant, &last.secret) == (&next.tenant, &next.secret) => {
                    let last = Arc::make_mut(last);
                    last.places.extend(&next.places);
                    last.places.sort_unstable();
                    last.places.dedup();
                }
                _ => merged.push(next),
            }
        }
        self.replacements = merged;
    }

    /// Whether nobody could say which secret arrives, or in which of two ways.
    fn conflicts(&self) -> bool {
        let injections = &self.injections;
        let one_slot = injections.iter().enumerate().any(|(at, a)| {
            injections[at + 1..]
                .iter()
                .any(|b| a.into.is_alike(&b.into))
        });
        let both_ways = injections.iter().any(|injection| {
            self.replacements
                .iter()
                .any(|swap| (&swap.tenant, &swap.secret) == (&injection.tenant, &injection.secret))
        });
        one_slot || both_ways || self.signature_conflicts()
    }

    /// Whether a signature is made twice, is set as well, or covers a body that is swapped.
    fn signature_conflicts(&self) -> bool {
        let Some(signature) = self.signatures.first() else {
            return false;
        };
        let owner = (&signature.tenant, &signature.secret);
        let set = self.injections.iter().any(|injection| {
            let reserved = match &injection.into {
                Slot::Header(header) => {
                    header.as_str() == "authorization" || header.as_str().starts_with("x-amz-")
                }
                Slot::Query(name) => name.as_str().to_ascii_lowercase().starts_with("x-amz-"),
            };
            reserved || (&injection.tenant, &injection.secret) == owner
        });
        let swapped = self.replacements.iter().any(|swap| {
            swap.places.contains(&Place::Body) || (&swap.tenant, &swap.secret) == owner
        });
        self.signatures.len() > 1 || set || swapped
    }
}

impl Secrets {
    /// Adds the secrets of one policy.
    pub(super) fn add(&mut self, policy: &Policy) {
        for (name, secret) in &policy.secrets {
            let Ok(number) = u32::try_from(self.uses.len()) else {
                return;
            };
            for host in &secret.hosts {
                self.hosts.insert(host, number);
            }
            let one = self.use_of(&policy.tenant, name, secret);
            self.uses.push(one);
        }
    }

    fn use_of(&mut self, tenant: &TenantName, name: &SecretName, secret: &SecretUse) -> Use {
        match &secret.treatment {
            Treatment::Inject { into, format } => {
                let injection = Arc::new(Injection {
                    tenant: tenant.clone(),
                    secret: name.clone(),
                    into: into.clone(),
                    format: format.clone(),
                });
                self.injections.push(Arc::clone(&injection));
                Use::Inject(injection)
            }
            Treatment::Replace(places) => {
                let replacement = Arc::new(Replacement {
                    tenant: tenant.clone(),
                    secret: name.clone(),
                    places: places.clone(),
                });
                self.replacements.push(Arc::clone(&replacement));
                Use::Replace(replacement)
            }
            Treatment::Sign(signing) => Use::Sign(Arc::new(Signature {
                tenant: tenant.clone(),
                secret: name.clone(),
                signing: *signing,
            })),
        }
    }

    /// Whether any secret goes to this name.
    pub(super) fn go_to(&self, name: &DomainName) -> bool {
        !self.hosts.find(name).is_empty()
    }

    /// The secrets that go with a request for this name, each once.
    pub(super) fn for_request(&self, name: &DomainName, tls: bool) -> Result<Taken, Reason> {
        let mut taken = Taken::default();
        for number in self.hosts.find(name) {
            let used = usize::try_from(number).ok().and_then(|n| self.uses.get(n));
            match used {
                Some(Use::Inject(injection)) => taken.injections.push(Arc::clone(injection)),
                Some(Use::Replace(swap)) => taken.replacements.push(Arc::clone(swap)),
                Some(Use::Sign(signature)) => taken.signatures.push(Arc::clone(signature)),
                None => {}
            }
        }
        let any = !taken.injections.is_empty()
            || !taken.replacements.is_empty()
            || !taken.signatures.is_empty();
        if any && !tls {
            return Err(Reason::SecretOnPlaintext);
        }
        taken.injections.sort();
        taken.injections.dedup();
        taken.signatures.sort();
        taken.signatures.dedup();
        taken.merge_replacements();
        if taken.conflicts() {
            return Err(Reason::SecretConflict);
        }
        Ok(taken)
    }

    /// Every secret that goes into a header or parameter somewhere.
    pub(super) fn injections(&self) -> impl Iterator<Item = &Arc<Injection>> {
        self.injections.iter()
    }

    /// Every secret that is swapped somewhere.
    pub(super) fn replacements(&self) -> impl Iterator<Item = &Arc<Replacement>> {
        self.replacements.iter()
    }
}
