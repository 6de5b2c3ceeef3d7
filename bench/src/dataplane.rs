//! The kernel dataplane without agent, store and proxy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use causeway::lab::Namespace;
use causeway_dataplane::kernel::{KernelBackend, KernelConfig};
use causeway_dataplane::{
    Attachment, Backend, Dataplane, DesiredState, Firewall, InterfaceName, Mtu, SandboxSpec,
};
use causeway_types::{Labels, NetworkName, SandboxId, SandboxUid};
use tokio::runtime::Handle;

use crate::netns;

/// The prefix of all sandboxes.
pub(crate) const OPERATOR: &str = "3ffe:ca05:2::/48";
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x3ffe, 0xca05, 2, 1, 0, 0, 0, 0);
const MTU: u32 = 1500;

/// A dataplane with a router of its own and no uplink.
#[derive(Debug)]
pub(crate) struct OwnDataplane {
    dataplane: Dataplane,
    runtime: Handle,
    /// Sandboxes so far, which number the next one.
    made: usize,
    /// What was described.
    sandboxes: BTreeMap<SandboxUid, SandboxSpec>,
}

impl OwnDataplane {
    /// Sets the router up.
    pub(crate) fn open(runtime: Handle) -> anyhow::Result<Self> {
        let config = KernelConfig {
            namespace: "bench-router".to_owned(),
            operator_prefixes: vec![OPERATOR.parse()?],
            ..KernelConfig::default()
        };
        Self::on(Arc::new(KernelBackend::new(config)), runtime)
    }

    /// Sets one up on another backend.
    pub(crate) fn on(backend: Arc<dyn Backend>, runtime: Handle) -> anyhow::Result<Self> {
        let dataplane = runtime.block_on(Dataplane::open(backend))?;
        Ok(Self {
            dataplane,
            runtime,
            made: 0,
            sandboxes: BTreeMap::new(),
        })
    }

    /// Describes a new sandbox in `namespace`; all are in one network.
    pub(crate) fn sandbox(&mut self, namespace: &Namespace) -> anyhow::Result<SandboxSpec> {
        self.made += 1;
        let network: NetworkName = "bench".parse()?;
        let sandbox = SandboxSpec {
            uid: SandboxUid::from_random(u64::try_from(self.made)?),
            id: SandboxId {
                tenant: "acme".parse()?,
                name: namespace.name.parse()?,
            },
            address: netns::host(PREFIX, self.made)?,
            prefix: None,
            attachment: Attachment::Netns {
                path: namespace.path(),
                interface: InterfaceName::new("eth0")?,
            },
            mtu: Mtu::new(MTU)?,
            networks: BTreeSet::from([network]),
            labels: Labels::default(),
            firewall: Arc::new(Firewall::default()),
            quarantined: false,
        };
        self.sandboxes.insert(sandbox.uid, sandbox.clone());
        Ok(sandbox)
    }

    /// Wires a sandbox.
    pub(crate) fn wire(&self, sandbox: SandboxSpec) -> anyhow::Result<()> {
        self.runtime.block_on(self.dataplane.attach(sandbox))?;
        Ok(())
    }

    /// Wires a new sandbox in `namespace` and returns its address.
    pub(crate) fn attach(&mut self, namespace: &Namespace) -> anyhow::Result<Ipv6Addr> {
        let sandbox = self.sandbox(namespace)?;
        let address = sandbox.address;
        self.wire(sandbox)?;
        Ok(address)
    }

    /// Wires many at once, and says how long each took.
    pub(crate) fn wire_at_once(
        &self,
        sandboxes: Vec<SandboxSpec>,
    ) -> anyhow::Result<Vec<Duration>> {
        self.runtime.block_on(async {
            let calls: Vec<_> = sandboxes
                .into_iter()
                .map(|sandbox| {
                    let dataplane = self.dataplane.clone();
                    tokio::spawn(async move {
                        let start = Instant::now();
                        dataplane.attach(sandbox).await?;
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

    /// Makes everything as it was described.
    pub(crate) fn reconcile(&self) -> anyhow::Result<()> {
        let desired = DesiredState {
            operator_prefixes: vec![OPERATOR.parse()?],
            sandboxes: self.sandboxes.clone(),
            ..DesiredState::default()
        };
        let report = self.runtime.block_on(self.dataplane.reconcile(&desired))?;
        ensure!(report.problems.is_empty(), "{:?}", report.problems);
        Ok(())
    }

    /// Takes a sandbox's wiring away.
    pub(crate) fn detach(&mut self, uid: SandboxUid) -> anyhow::Result<()> {
        self.sandboxes.remove(&uid);
        Ok(self.runtime.block_on(self.dataplane.detach(uid))?)
    }
}
