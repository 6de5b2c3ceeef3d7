//! The running agent, through its API: each call is what an orchestrator would send.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway::api::model::{
    Attach, CaInfo, Network, NetworkCreate, Sandbox, SandboxCreate, Status, default_interface,
};
use causeway::client::Client;
use causeway::lab::Namespace;
use causeway_types::{Labels, NetworkName, SandboxName, TenantName};
use http::Method;
use tokio::runtime::Handle;

/// The tenant that owns everything.
const TENANT: &str = "acme";
/// The network that every sandbox joins.
const NETWORK: &str = "bench";

/// A client of the agent.
#[derive(Debug, Clone)]
pub(crate) struct Agent {
    client: Client,
    runtime: Handle,
    tenant: TenantName,
    network: NetworkName,
}

impl Agent {
    /// Makes the network that every sandbox joins.
    pub(crate) fn new(client: Client, runtime: Handle) -> anyhow::Result<Self> {
        let agent = Self {
            client,
            runtime,
            tenant: TENANT.parse()?,
            network: NETWORK.parse()?,
        };
        let network = NetworkCreate {
            tenant: agent.tenant.clone(),
            name: agent.network.clone(),
        };
        let _made: Network = agent.wait(agent.client.post("/v1/networks", &network))?;
        Ok(agent)
    }

    /// Creates a sandbox in `namespace`, which gives it its name; `role` is a label.
    pub(crate) fn create(&self, namespace: &Namespace, role: &str) -> anyhow::Result<Sandbox> {
        let request = self.sandbox(namespace, role)?;
        self.wait(self.client.post("/v1/sandboxes", &request))
    }

    /// Creates many at once, and says how long each call took.
    pub(crate) fn create_at_once(&self, namespaces: &[Namespace]) -> anyhow::Result<Vec<Duration>> {
        let requests = namespaces
            .iter()
            .map(|namespace| self.sandbox(namespace, "bench"))
            .collect::<anyhow::Result<Vec<_>>>()?;
        self.runtime.block_on(async {
            let calls: Vec<_> = requests
                .into_iter()
                .map(|request| {
                    let client = self.client.clone();
                    tokio::spawn(async move {
                        let start = Instant::now();
                        let _made: Sandbox = client.post("/v1/sandboxes", &request).await?;
                        anyhow::Ok(start.elapsed())
                    })
                })
                .collect();
            let mut times = Vec::new();
            for call in calls {
                times.push(call.await??);
            }
            Ok(times)
        })
    }

    /// Deletes the sandbox in `namespace`.
    pub(crate) fn delete(&self, namespace: &Namespace) -> anyhow::Result<()> {
        let path = format!("/v1/tenants/{TENANT}/sandboxes/{}", namespace.name);
        self.wait(self.client.change(Method::DELETE, &path))
    }

    /// Cuts the sandbox in `namespace` off.
    pub(crate) fn quarantine(&self, namespace: &Namespace) -> anyhow::Result<()> {
        self.act(namespace, "quarantine")
    }

    /// Ends its quarantine.
    pub(crate) fn release(&self, namespace: &Namespace) -> anyhow::Result<()> {
        self.act(namespace, "release")
    }

    /// Applies a policy file.
    pub(crate) fn apply(&self, policy: &'static str) -> anyhow::Result<()> {
        self.upload("/v1/policies", "application/yaml", policy)
    }

    /// Sets a secret.
    pub(crate) fn set_secret(&self, name: &str, value: &'static str) -> anyhow::Result<()> {
        let path = format!("/v1/tenants/{TENANT}/secrets/{name}");
        self.upload(&path, "application/octet-stream", value)
    }

    /// The certificate authority of the proxy, PEM.
    pub(crate) fn authority(&self) -> anyhow::Result<String> {
        let authority: CaInfo = self.wait(self.client.get("/v1/ca"))?;
        Ok(authority.certificate_pem)
    }

    /// How the node is.
    pub(crate) fn status(&self) -> anyhow::Result<Status> {
        self.wait(self.client.get("/v1/status"))
    }

    fn act(&self, namespace: &Namespace, verb: &str) -> anyhow::Result<()> {
        let path = format!("/v1/tenants/{TENANT}/sandboxes/{}/{verb}", namespace.name);
        self.wait(self.client.change(Method::POST, &path))
    }

    fn upload(&self, path: &str, kind: &'static str, text: &'static str) -> anyhow::Result<()> {
        let body = Bytes::from_static(text.as_bytes());
        self.wait(self.client.upload(Method::PUT, path, kind, body))
            .map(drop)
    }

    fn sandbox(&self, namespace: &Namespace, role: &str) -> anyhow::Result<SandboxCreate> {
        let name: SandboxName = namespace.name.parse()?;
        let attach = Attach::Netns {
            path: namespace.path(),
            interface: default_interface(),
        };
        Ok(SandboxCreate {
            tenant: self.tenant.clone(),
            name,
            networks: BTreeSet::from([self.network.clone()]),
            labels: serde_json::from_value::<Labels>(serde_json::json!({ "role": role }))?,
            attach,
            address: None,
            prefix_length: None,
            mtu: None,
        })
    }

    fn wait<T, E: std::error::Error + Send + Sync + 'static>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> anyhow::Result<T> {
        Ok(self.runtime.block_on(call)?)
    }
}
