//! VPP as the forwarder.

use causeway_dataplane::Backend;
use causeway_dataplane::kernel::KernelConfig;
use causeway_dataplane::vpp::{VppBackend, VppConfig, WATCHDOG};

use super::instance::{self, Instance};

/// What carries the packets: a VPP of its own, which ends with it.
pub(crate) struct Forwarder {
    backend: VppBackend,
    _vpp: Instance,
}

/// Whether it can run here.
pub(crate) fn available() -> Result<(), String> {
    instance::find().map(drop)
}

impl Forwarder {
    pub(crate) fn start(kernel: KernelConfig) -> Self {
        let vpp = Instance::start("/run/vpp");
        let (socket, stats) = (vpp.socket(), vpp.stats());
        Self {
            backend: VppBackend::new(VppConfig {
                socket,
                stats,
                shared_memory: false,
                watchdog: WATCHDOG,
                supervise: None,
                kernel,
            }),
            _vpp: vpp,
        }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &self.backend
    }
}
