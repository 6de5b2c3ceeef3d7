//! Private networks.

use causeway_types::{NetworkId, TenantName};

use super::state::State;
use super::{Agent, Error};
use crate::api::model::Network;
use crate::store::{NetworkRecord, Write};

impl Agent {
    /// Creates a private network without members.
    pub async fn create_network(&self, id: NetworkId) -> Result<Network, Error> {
        let _alone = self.changes.write().await;
        if self.state().networks.contains_key(&id) {
            return Err(Error::Exists {
                kind: "network",
                name: id.to_string(),
            });
        }
        let record = NetworkRecord {
            id: id.clone(),
            created_unix: self.now().0 / 1000,
        };
        let generation = self.state().advance();
        self.store
            .write(vec![
                Write::Network(record.clone()),
                Write::Generation(generation),
            ])
            .await?;
        let view = {
            let mut state = self.state();
            state.networks.insert(id.clone(), record.clone());
            view(&state, &record)
        };
        self.events
            .change(generation, "network_created", id.to_string());
        Ok(view)
    }

    /// Deletes a network that has no members.
    pub async fn delete_network(&self, id: &NetworkId) -> Result<(), Error> {
        let _alone = self.changes.write().await;
        let generation = {
            let mut state = self.state();
            if !state.networks.contains_key(id) {
                return Err(Error::NotFound {
                    kind: "network",
                    name: id.to_string(),
                });
            }
            let mut members = state.members(id);
            if let Some(first) = members.next() {
                return Err(Error::NetworkInUse {
                    network: id.clone(),
                    first: first.id.clone(),
                    count: 1 + members.count(),
                });
            }
            drop(members);
            state.advance()
        };
        self.store
            .write(vec![
                Write::NetworkGone(id.clone()),
                Write::Generation(generation),
            ])
            .await?;
        self.state().networks.remove(id);
        self.events
            .change(generation, "network_deleted", id.to_string());
        Ok(())
    }

    /// Every network, or a tenant's.
    pub fn networks(&self, tenant: Option<&TenantName>) -> Vec<Network> {
        let state = self.state();
        state
            .networks
            .values()
            .filter(|record| tenant.is_none_or(|tenant| record.id.tenant == *tenant))
            .map(|record| view(&state, record))
            .collect()
    }
}

fn view(state: &State, record: &NetworkRecord) -> Network {
    Network {
        tenant: record.id.tenant.clone(),
        name: record.id.name.clone(),
        members: state
            .members(&record.id)
            .map(|member| member.id.name.clone())
            .collect(),
        created: record.created_unix,
    }
}
