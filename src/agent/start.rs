//! How an agent comes up: what the store holds, checked and put into memory; then the dataplane
//! as it should be; then the proxy.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use causeway_dataplane::facade::OpenError as RouterError;
use causeway_dataplane::{Backend, Dataplane};
use causeway_ipam::{BlockKey, Ipam, Plan, PlanSettings, PrefixPool};
use causeway_types::NameError;
use ipnet::Ipv6Net;
use redb::ReadableDatabase as _;

use super::events::Events;
use super::identity::{self, Identity, IdentityError};
use super::proxy::{Proxy, ProxyConfig, StateSource};
use super::sandboxes::{Address, OnDisk};
use super::state::{Applied, AppliedDocument, State, StoredSecret};
use super::{Agent, uplink};
use crate::config::{Config, Uplink};
use crate::node::{NodeError, NodeLock};
use crate::secrets::{SecretValue, UnsealError, Vault, sealed_name};
use crate::store::{LoadError, OpenError, Phase, Store};

/// How long the start waits for a proxy; without one the node is up and denies all egress.
const PROXY_DEADLINE: Duration = Duration::from_secs(10);

/// Why an agent did not come up. What it found is as it was.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The machine is not as needed.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The leases cannot be read.
    #[error("the leases cannot be read")]
    Leases(#[from] causeway_ipam::StoreError),
    /// The database failed.
    #[error("the store cannot be read")]
    Database(#[source] Box<redb::Error>),
    /// The node's keys cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The address plan cannot be.
    #[error("the address plan cannot be used")]
    Plan(#[from] causeway_ipam::PlanError),
    /// The prefix has no block.
    #[error("the address plan cannot be used")]
    Block(#[from] causeway_ipam::NodeBlockError),
    /// The leases do not fit the plan.
    #[error("the leases do not fit the address plan")]
    Restore(#[from] causeway_ipam::RestoreError),
    /// Sandboxes live in another prefix.
    #[error("the sandbox `{sandbox}` has the address {address}, outside of the prefix {prefix}")]
    PrefixChanged {
        /// One of the sandboxes.
        sandbox: String,
        /// Its address.
        address: std::net::Ipv6Addr,
        /// The prefix, as configured.
        prefix: Ipv6Net,
    },
    /// A policy that was applied is not one for this build.
    #[error("a policy in the store is not understood:\n{0}")]
    Policy(Box<causeway_policy::PolicyErrors>),
    /// A secret does not decrypt.
    #[error(transparent)]
    Secret(#[from] UnsealError),
    /// A file with roots cannot be read.
    #[error("the file with root certificates {} cannot be read", path.display())]
    Roots {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// An interface's name is not one.
    #[error("`uplink.interface` cannot be used")]
    Interface(#[from] causeway_dataplane::desired::InterfaceNameError),
    /// There is no VPP to start.
    #[error("`vpp.supervise` is set, and there is no VPP to start")]
    VppMissing(#[from] vpp_config::installed::FindError),
    /// VPP's start-up configuration cannot be.
    #[error("VPP cannot be configured")]
    VppSizes(#[from] vpp_config::startup::StartupError),
    /// VPP's start-up configuration cannot be written.
    #[error("VPP's configuration cannot be written to {}", path.display())]
    VppStartup {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The router cannot be set up.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// A name in the store is not one.
    #[error("a name in the store is damaged")]
    Name(#[from] NameError),
}

impl StartError {
    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Node(error) => Some(error.help()),
            Self::Open(error) => Some(error.help().to_owned()),
            Self::Identity(IdentityError::Key(error)) => Some(error.help().to_owned()),
            Self::PrefixChanged { .. } => Some(
                "set `address.prefix` to what it was, or delete the sandboxes first".to_owned(),
            ),
            Self::Policy(_) => Some(
                "start the Causeway that applied it, and delete it there; nothing was changed"
                    .to_owned(),
            ),
            Self::Load(_) | Self::Leases(_) | Self::Secret(_) | Self::Name(_) => Some(
                "restore the store and the key file from a backup; nothing was changed".to_owned(),
            ),
            Self::Plan(_) | Self::Block(_) | Self::Restore(_) | Self::Interface(_) => {
                Some("correct the configuration; nothing was changed".to_owned())
            }
            _ => None,
        }
    }
}

/// Makes the backend, once the prefixes and the uplink are known.
pub type MakeBackend =
    Box<dyn FnOnce(Vec<Ipv6Net>, &Uplink) -> Result<Arc<dyn Backend>, StartError>>;

/// What an agent is put together from, beside its configuration.
pub struct Parts {
    /// Makes the backend, once the prefixes and the uplink are known.
    pub backend: MakeBackend,
    /// Whether an egress proxy is run; without one all egress is denied.
    pub proxy: bool,
    /// The locks that keep other agents out.
    pub lock: Option<NodeLock>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("proxy", &self.proxy)
            .finish_non_exhaustive()
    }
}

impl Agent {
    /// Brings an agent up. When this returns, the dataplane is as desired, and the proxy has
    /// the whole state or is a problem that `status` shows.
    pub async fn start(config: Config, parts: Parts) -> Result<Arc<Self>, StartError> {
        let (store, _fresh) = crate::store::open(&config.store_path())?;
        let identity = identity::load_or_make(&store, &config.key_path(), config.prefix)?;
        let node_block = match config.node_block {
            Some(block) => block,
            None => causeway_ipam::node_block(
                identity.prefix,
                causeway_ipam::DEFAULT_NODE_BLOCK_LENGTH,
                0,
            )?,
        };
        let state = load_state(&store, &config, &identity, node_block)?;
        let extra_roots_pem = read_roots(&config)?;
        let way_out = config.uplink.clone().unwrap_or(if identity.made_up {
            Uplink::Masquerade
        } else {
            Uplink::Routed
        });
        let backend = (parts.backend)(vec![identity.prefix], &way_out)?;
        let dataplane = Dataplane::open(backend).await?;
        let proxy_config = parts.proxy.then(|| proxy_config(&config));
        let events = Events::new();
        let agent = Arc::new_cyclic(|weak: &Weak<Self>| Self {
            prefix: identity.prefix,
            node_block,
            uplink: way_out,
            ca_cert_pem: identity.ca_cert_pem,
            ca_key_pem: identity.ca_key_pem,
            placeholder_key: identity.placeholder_key,
            store,
            vault: identity.vault,
            dataplane,
            proxy: match proxy_config {
                Some(config) => {
                    let source: Weak<dyn StateSource> = weak.clone();
                    Proxy::start(config, source, events.followers())
                }
                None => Proxy::none(),
            },
            state: Mutex::new(state),
            changes: tokio::sync::RwLock::new(()),
            events,
            problems: Mutex::default(),
            disturbed: Arc::default(),
            extra_roots_pem,
            resolvers: resolvers(&config),
            started: Instant::now(),
            config,
            _lock: parts.lock,
        });
        agent.proxy.begin();
        agent.settle(parts.proxy).await;
        Ok(agent)
    }

    /// Finishes what an earlier agent had begun, and starts what goes on in the background.
    async fn settle(self: &Arc<Self>, with_proxy: bool) {
        // A failure shows in the status, and the loop tries again.
        if let Err(error) = self.reconcile_once().await {
            tracing::error!(error = %crate::chain(&error), "the first reconciliation failed");
        }
        self.finish_interrupted().await;
        if with_proxy && !self.proxy.ready(PROXY_DEADLINE).await {
            tracing::warn!("there is no egress proxy yet: egress is denied until there is");
        }
        drop(tokio::spawn(super::reconcile::run(Arc::downgrade(self))));
    }

    /// Sandboxes whose attach was interrupted were wired by the first reconciliation, or cannot
    /// be, and are rolled back: nobody was told that they exist.
    async fn finish_interrupted(&self) {
        let interrupted: Vec<_> = {
            let state = self.state();
            let records = state.sandboxes.values().map(|entry| &entry.record);
            records
                .filter(|record| record.phase == Phase::Attaching)
                .cloned()
                .collect()
        };
        for record in interrupted {
            let spec = self.state().spec(&record);
            let wired = match spec {
                Ok(spec) => self.dataplane.attach(spec).await.is_ok(),
                Err(_misfit) => false,
            };
            if wired {
                self.finish_attach(&record.id).await;
                tracing::info!(sandbox = %record.id, "completed an interrupted attach");
            } else {
                self.forget(&record, OnDisk::Yes, Address::Rests).await;
                tracing::info!(sandbox = %record.id, "rolled an interrupted attach back");
            }
        }
    }
}

fn load_state(
    store: &Store,
    config: &Config,
    identity: &Identity,
    node_block: Ipv6Net,
) -> Result<State, StartError> {
    let plan = Plan::new(PlanSettings {
        operator_prefix: identity.prefix,
        node_block,
        prefix_pools: prefix_pools(config, identity),
        exclusions: config.exclude.clone(),
        quarantine: config.lease_quarantine,
        key: BlockKey::new(identity.address_key),
    })?;
    let snapshot = store
        .database()?
        .begin_read()
        .map_err(|error| StartError::Database(Box::new(error.into())))?;
    let ipam = Ipam::restore(plan, &causeway_ipam::redb_store::load(&snapshot)?)?;
    let mut state = State::new(
        store.generation()?.next(),
        ipam,
        vec![identity.prefix],
        uplink::own_ranges(identity.prefix),
    );
    for network in store.networks()? {
        state.networks.insert(network.id.clone(), network);
    }
    load_policies(store, &mut state)?;
    load_secrets(store, &identity.vault, &mut state)?;
    for sandbox in store.sandboxes()? {
        if !identity.prefix.contains(&sandbox.address) {
            return Err(StartError::PrefixChanged {
                sandbox: sandbox.id.to_string(),
                address: sandbox.address,
                prefix: identity.prefix,
            });
        }
        state.insert(sandbox);
    }
    Ok(state)
}

/// A made-up prefix has room to spare: 256 prefixes of /64 behind the node's block.
fn prefix_pools(config: &Config, identity: &Identity) -> Vec<PrefixPool> {
    const BLOCK: u8 = 56;
    const LENGTH: u8 = 64;
    if !config.prefix_pools.is_empty() || !identity.made_up {
        return config.prefix_pools.clone();
    }
    causeway_ipam::node_block(identity.prefix, BLOCK, 1)
        .map(|block| PrefixPool {
            block,
            length: LENGTH,
        })
        .into_iter()
        .collect()
}

fn load_policies(store: &Store, state: &mut State) -> Result<(), StartError> {
    let mut policies = BTreeMap::new();
    for record in store.policies()? {
        let documents = causeway_policy::parse("stored policy", &record.source)
            .map_err(|errors| StartError::Policy(Box::new(errors)))?;
        for document in documents {
            policies.insert(
                document.reference().clone(),
                Applied {
                    document: AppliedDocument::from(document),
                    applied_unix: record.applied_unix,
                },
            );
        }
    }
    state.policies = policies;
    Ok(())
}

fn load_secrets(store: &Store, vault: &Vault, state: &mut State) -> Result<(), StartError> {
    for record in store.secrets()? {
        let what = sealed_name(&record.tenant, &record.name);
        let clear = vault.unseal(&what, &record.sealed)?;
        let value = SecretValue::new(&clear).map_err(|_damaged| UnsealError { what })?;
        state.secrets.insert(
            (record.tenant, record.name),
            StoredSecret {
                value,
                updated_unix: record.updated_unix,
            },
        );
    }
    Ok(())
}

fn read_roots(config: &Config) -> Result<String, StartError> {
    let mut all = String::new();
    for path in &config.extra_roots {
        let text = std::fs::read_to_string(path).map_err(|source| StartError::Roots {
            path: path.clone(),
            source,
        })?;
        all.push_str(&text);
        all.push('\n');
    }
    Ok(all)
}

fn resolvers(config: &Config) -> Vec<SocketAddr> {
    if config.resolvers.is_empty() {
        uplink::host_resolvers()
    } else {
        config.resolvers.clone()
    }
}

fn proxy_config(config: &Config) -> ProxyConfig {
    ProxyConfig {
        control_socket: config.egress_socket(),
        namespace: causeway_dataplane::kernel::KernelConfig::default().namespace_path(),
        audit_path: config.audit_path(),
        log_path: config.state_dir.join("egress.log"),
        build: build(),
    }
}

/// Tells this program from another build, even of the same version: two builds may judge
/// differently, so that an agent takes over only a proxy of its own.
fn build() -> String {
    use std::os::unix::fs::MetadataExt;
    let version = env!("CARGO_PKG_VERSION");
    match std::fs::metadata("/proc/self/exe") {
        Ok(file) => format!(
            "{version}-{:x}-{:x}{:09x}",
            file.size(),
            file.mtime(),
            file.mtime_nsec()
        ),
        Err(_unreadable) => version.to_owned(),
    }
}
