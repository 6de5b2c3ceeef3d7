//! The kernel as the forwarder.

use causeway_dataplane::Backend;
use causeway_dataplane::kernel::{KernelBackend, KernelConfig};

/// What carries the packets.
pub(crate) struct Forwarder {
    backend: KernelBackend,
}

/// Whether it can run here.
#[expect(
    clippy::unnecessary_wraps,
    reason = "other forwarders need what a machine may lack"
)]
pub(crate) const fn available() -> Result<(), String> {
    Ok(())
}

impl Forwarder {
    pub(crate) fn start(config: KernelConfig) -> Self {
        Self {
            backend: KernelBackend::new(config),
        }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &self.backend
    }
}
