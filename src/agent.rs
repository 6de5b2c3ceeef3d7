//! The agent: holds the desired state of a node, makes it durable, and makes it real.
//!
//! Every accepted change has a generation, and reaches three places: the store, the dataplane
//! and the egress proxy. A call returns when all three have it. Changes to single sandboxes run
//! side by side; changes to what many share (policies, secrets, networks) run alone.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use causeway_dataplane::Dataplane;
use causeway_dataplane::facade::UpdateError;
use causeway_ipam::UnixMillis;
use causeway_types::Generation;
use ipnet::Ipv6Net;
use tokio::sync::Notify;

use crate::config::Config;
use crate::node::NodeLock;
use crate::secrets::Vault;
use crate::store::Store;

mod convert;
mod counters;
mod error;
mod events;
mod full_state;
mod identity;
mod networks;
mod policies;
mod proxy;
mod reconcile;
mod sandboxes;
mod start;
mod state;
mod status;
mod trace;
mod uplink;
mod vault;

pub use convert::WiringError;
pub use counters::Measurements;
pub use error::{DataplaneFailure, Error};
pub use events::{Event, Follower};
pub use identity::IdentityError;
pub use policies::{Question, read_policies};
pub use proxy::{ProcessError, Stopped, end as end_proxy};
pub use start::{MakeBackend, Parts, StartError};
pub use uplink::{backend, kernel_config};

use events::Events;
use proxy::Proxy;
use state::State;

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    prefix: Ipv6Net,
    node_block: Ipv6Net,
    uplink: crate::config::Uplink,
    ca_cert_pem: String,
    ca_key_pem: zeroize::Zeroizing<String>,
    placeholder_key: [u8; 16],
    store: Store,
    vault: Vault,
    dataplane: Dataplane,
    proxy: Proxy,
    state: Mutex<State>,
    /// Changes to one sandbox share it; changes to what many sandboxes depend on hold it alone.
    changes: tokio::sync::RwLock<()>,
    events: Events,
    problems: Mutex<Vec<String>>,
    /// Asks for a reconciliation now.
    disturbed: Arc<Notify>,
    extra_roots_pem: String,
    resolvers: Vec<std::net::SocketAddr>,
    started: Instant,
    _lock: Option<NodeLock>,
}

impl Agent {
    /// The stream of events. Whatever is decided after this returns is in it, as far as a proxy
    /// is connected.
    pub async fn follow(&self) -> Follower {
        let follower = self.events.follow();
        self.proxy.following().await;
        follower
    }

    /// The certificate of the authority that the proxy signs with, PEM.
    pub fn ca_certificate(&self) -> &str {
        &self.ca_cert_pem
    }

    /// Where the API is served.
    pub fn api_socket(&self) -> PathBuf {
        self.config.api_socket()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing between two assignments of a critical section can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(
        clippy::unused_self,
        reason = "time belongs to the agent, so that one place asks for it"
    )]
    fn now(&self) -> UnixMillis {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Whether rules were written. Sandboxes that are not attached have no traffic to rule.
    fn in_effect(
        &self,
        generation: Generation,
        updated: Result<(), UpdateError>,
    ) -> Result<(), Error> {
        match updated {
            Ok(()) => Ok(()),
            Err(UpdateError::NotAttached { uids }) => {
                tracing::debug!(count = uids.len(), "sandboxes without a port were left out");
                Ok(())
            }
            Err(error) => {
                self.disturbed.notify_one();
                Err(Error::NotInEffect {
                    generation,
                    source: Box::new(error),
                })
            }
        }
    }

    fn problems(&self) -> MutexGuard<'_, Vec<String>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the dataplane and the proxy as they are, and stops changing them.
    pub fn stop(self: Arc<Self>) {
        self.events.node("agent_stopped", String::new());
    }
}
