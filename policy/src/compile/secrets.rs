//! Which secrets go with which name.

use std::sync::Arc;

use causeway_types::{DomainName, Reason, SecretName, TenantName};

use super::index::NameIndex;
use crate::decision::{Injection, Replacement};
use crate::model::{Policy, SecretUse, Treatment};

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
}

/// What goes with one request.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) injections: Vec<Arc<Injection>>,
    pub(super) replacements: Vec<Arc<Replacement>>,
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
            Treatment::Inject { header, format } => {
                let injection = Arc::new(Injection {
                    tenant: tenant.clone(),
                    secret: name.clone(),
                    header: header.clone(),
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
                None => {}
            }
        }
        let any = !taken.injections.is_empty() || !taken.replacements.is_empty();
        if any && !tls {
            return Err(Reason::SecretOnPlaintext);
        }
        taken
            .injections
            .sort_by(|a, b| a.header.cmp(&b.header).then_with(|| a.cmp(b)));
        taken.injections.dedup();
        taken.replacements.sort();
        taken.replacements.dedup();
        let shared = |pair: &[Arc<Injection>]| matches!(pair, [a, b] if a.header == b.header);
        if taken.injections.windows(2).any(shared) {
            return Err(Reason::SecretConflict);
        }
        Ok(taken)
    }

    /// Every secret that goes into a header somewhere.
    pub(super) fn injections(&self) -> impl Iterator<Item = &Arc<Injection>> {
        self.injections.iter()
    }

    /// Every secret that is swapped somewhere.
    pub(super) fn replacements(&self) -> impl Iterator<Item = &Arc<Replacement>> {
        self.replacements.iter()
    }
}
