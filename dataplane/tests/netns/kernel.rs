//! The kernel as the forwarder.

use std::sync::Arc;

use causeway_dataplane::Backend;
use causeway_dataplane::kernel::{KernelBackend, KernelConfig};

/// Folders that a test has to itself.
pub(crate) const COVERED: &[&str] = &["/run", "/tmp"];

/// How many sandboxes are attached at once.
pub(crate) const MANY: u16 = 64;

/// Whether it can run here.
#[expect(
    clippy::unnecessary_wraps,
    reason = "other forwarders need what a machine may lack"
)]
pub(crate) const fn available() -> Result<(), String> {
    Ok(())
}

pub(crate) fn backend(config: KernelConfig) -> Arc<dyn Backend> {
    Arc::new(KernelBackend::new(config))
}
