//! The secrets of tenants. Values go from here to the store, encrypted, and to the proxy.

use causeway_egress::control::{SecretValue as ProxySecret, ToProxy};
use causeway_egress::secrets::PlaceholderKey;
use causeway_types::{SandboxUid, SecretName, TenantName};

use super::state::{AppliedDocument, State, StoredSecret};
use super::{Agent, Error};
use crate::api::model::SecretInfo;
use crate::secrets::{SecretValue, sealed_name};
use crate::store::{SealedRecord, Write};

impl Agent {
    /// Sets a secret, or replaces its value.
    pub async fn set_secret(
        &self,
        tenant: TenantName,
        name: SecretName,
        value: SecretValue,
    ) -> Result<SecretInfo, Error> {
        let _alone = self.changes.write().await;
        let now = self.now().0 / 1000;
        let message = message(&tenant, &name, &value)?;
        let sealed = self
            .vault
            .seal(&sealed_name(&tenant, &name), value.expose().as_bytes())?;
        let proxy = self.proxy.reserve().await?;
        let generation = self.state().advance();
        let record = SealedRecord {
            tenant: tenant.clone(),
            name: name.clone(),
            sealed,
            updated_unix: now,
        };
        self.store
            .write(vec![Write::Secret(record), Write::Generation(generation)])
            .await?;
        let info = {
            let mut state = self.state();
            let stored = StoredSecret {
                value,
                updated_unix: now,
            };
            state.secrets.insert((tenant.clone(), name.clone()), stored);
            proxy.send(generation, vec![message]);
            info(&state, &tenant, &name, now)
        };
        self.proxy.settled(generation).await?;
        self.events
            .change(generation, "secret_set", format!("{tenant}/{name}"));
        Ok(info)
    }

    /// Deletes a secret. Requests that need it are refused from now on.
    pub async fn delete_secret(&self, tenant: &TenantName, name: &SecretName) -> Result<(), Error> {
        let _alone = self.changes.write().await;
        let key = (tenant.clone(), name.clone());
        if !self.state().secrets.contains_key(&key) {
            return Err(Error::NotFound {
                kind: "secret",
                name: format!("{tenant}/{name}"),
            });
        }
        let proxy = self.proxy.reserve().await?;
        let generation = self.state().advance();
        self.store
            .write(vec![
                Write::SecretGone(tenant.clone(), name.clone()),
                Write::Generation(generation),
            ])
            .await?;
        {
            let mut state = self.state();
            state.secrets.remove(&key);
            let gone = ToProxy::SecretGone {
                tenant: tenant.clone(),
                name: name.clone(),
            };
            proxy.send(generation, vec![gone]);
        }
        self.proxy.settled(generation).await?;
        self.events
            .change(generation, "secret_deleted", format!("{tenant}/{name}"));
        Ok(())
    }

    /// The names of a tenant's secrets.
    pub fn secrets(&self, tenant: &TenantName) -> Vec<SecretInfo> {
        let state = self.state();
        state
            .secrets
            .iter()
            .filter(|((owner, _), _)| owner == tenant)
            .map(|((_, name), stored)| info(&state, tenant, name, stored.updated_unix))
            .collect()
    }

    /// The token that stands for a secret inside one sandbox.
    pub(super) fn placeholder(&self, uid: SandboxUid, secret: &SecretName) -> String {
        let key = PlaceholderKey::new(self.placeholder_key);
        key.placeholder(uid, secret).to_string()
    }
}

/// What the proxy is told of a secret.
pub(super) fn message(
    tenant: &TenantName,
    name: &SecretName,
    value: &SecretValue,
) -> Result<ToProxy, Error> {
    let bytes = value.expose().as_bytes().to_vec();
    let length = bytes.len();
    match ProxySecret::new(bytes) {
        Ok(value) => Ok(ToProxy::Secret {
            tenant: tenant.clone(),
            name: name.clone(),
            value,
        }),
        Err(_too_long) => Err(crate::secrets::SecretValueError::TooLong { length }.into()),
    }
}

fn info(state: &State, tenant: &TenantName, name: &SecretName, updated: u64) -> SecretInfo {
    let used_by = state
        .policies
        .iter()
        .filter(|(reference, applied)| {
            reference.tenant.as_ref() == Some(tenant)
                && matches!(
                    &applied.document,
                    AppliedDocument::Policy(policy) if policy.secrets.contains_key(name)
                )
        })
        .map(|(reference, _)| reference.to_string())
        .collect();
    SecretInfo {
        tenant: tenant.clone(),
        name: name.clone(),
        updated,
        used_by,
    }
}
