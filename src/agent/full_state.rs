//! The whole state, as the proxy takes it when it has just been connected.

use causeway_egress::control::{FromProxy, SecretValue as ProxySecret, Settings, ToProxy};
use causeway_types::Generation;

use super::proxy::StateSource;
use super::sandboxes::info;
use super::state::State;
use super::{Agent, Event, policies, vault};

impl Agent {
    pub(super) fn settings(&self, state: &State) -> Settings {
        Settings {
            upstream_resolvers: self.resolvers.clone(),
            extra_roots_pem: self.extra_roots_pem.clone(),
            reserved: state.own_ranges.clone(),
        }
    }
}

impl StateSource for Agent {
    fn full_state(&self) -> (Generation, Vec<ToProxy>) {
        let state = self.state();
        let mut messages = vec![ToProxy::Settings(self.settings(&state))];
        // Keys of some hundred bytes are never too long.
        if let Ok(key_pem) = ProxySecret::new(self.ca_key_pem.as_bytes().to_vec()) {
            messages.push(ToProxy::Ca {
                cert_pem: self.ca_cert_pem.clone(),
                key_pem,
            });
        }
        if let Ok(key) = ProxySecret::new(self.placeholder_key.to_vec()) {
            messages.push(ToProxy::Placeholders { key });
        }
        let mut owners: Vec<_> = state
            .policies
            .keys()
            .map(|reference| reference.tenant.clone())
            .collect();
        owners.dedup();
        for owner in owners {
            messages.push(policies::policies_message(&state, owner));
        }
        for ((tenant, name), stored) in &state.secrets {
            match vault::message(tenant, name, &stored.value) {
                Ok(message) => messages.push(message),
                Err(error) => tracing::error!(%tenant, %name, %error, "secret left out"),
            }
        }
        for entry in state.sandboxes.values() {
            messages.push(ToProxy::Sandbox(info(&entry.record)));
        }
        (state.generation, messages)
    }

    fn event(&self, message: FromProxy) {
        if let FromProxy::Event(record) = message {
            self.events.send(Event::Egress(record));
        }
    }

    fn changed(&self, what: &'static str, detail: String) {
        let what = match what {
            "connected" => "proxy_connected",
            _ => "proxy_lost",
        };
        self.events.node(what, detail);
    }
}
