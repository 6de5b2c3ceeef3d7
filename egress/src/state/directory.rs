//! The state as the resolver sees it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::SystemTime;

use causeway_types::{DomainName, NetworkName, Reason, SandboxName, SandboxUid};

use super::{Sandbox, Shared, Snapshot};
use crate::audit::{AuditRecord, Outcome, Protocol};
use crate::dns::{Asker, Directory, Refusal};

struct View {
    snapshot: Arc<Snapshot>,
    sandbox: Arc<Sandbox>,
}

impl Asker for View {
    fn uid(&self) -> SandboxUid {
        self.sandbox.info.uid
    }

    fn quarantined(&self) -> bool {
        self.sandbox.info.quarantined
    }

    fn resolves(&self, name: &DomainName) -> Result<(), Reason> {
        if self.sandbox.policy.resolves(name) {
            Ok(())
        } else {
            Err(Reason::NameDenied)
        }
    }

    fn opens(&self, address: IpAddr) -> bool {
        self.sandbox.policy.opens(address)
    }

    fn reserved(&self, address: IpAddr) -> bool {
        self.snapshot
            .settings
            .reserved
            .iter()
            .any(|range| range.contains(&address))
    }

    fn private(&self, sandbox: &SandboxName, network: &NetworkName) -> Option<Ipv6Addr> {
        let own = &self.sandbox.info;
        let found = self.snapshot.named(&own.id.tenant, sandbox)?;
        let shared = own.networks.contains(network) && found.info.networks.contains(network);
        shared.then_some(found.info.address)
    }
}

impl Directory for Shared {
    fn asker(&self, source: Ipv6Addr) -> Option<Arc<dyn Asker>> {
        self.metrics.dns_queries_total.add(1);
        let snapshot = self.snapshot();
        let sandbox = Arc::clone(snapshot.sandbox(source)?);
        Some(Arc::new(View { snapshot, sandbox }))
    }

    fn refused(&self, refusal: Refusal) {
        self.metrics.refused(refusal.reason);
        let snapshot = self.snapshot();
        let sandbox = snapshot.sandbox(refusal.source);
        let mut record = AuditRecord::new(
            SystemTime::now(),
            snapshot.generation,
            refusal.source,
            sandbox.map(|sandbox| &sandbox.info.id),
            Protocol::Dns,
            Outcome::Deny,
        );
        record.name = refusal.name.and_then(|name| DomainName::parse(&name).ok());
        record.reason = Some(refusal.reason);
        self.audit.record(record);
    }
}
