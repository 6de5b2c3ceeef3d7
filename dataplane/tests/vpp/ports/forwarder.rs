//! One VPP for the whole process: it ends with the process's namespace.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use causeway_dataplane::Backend;
use causeway_dataplane::kernel::KernelConfig;
use causeway_dataplane::vpp::{VppBackend, VppConfig};

use crate::instance::{self, Instance};

/// Folders that a test has to itself. VPP may be installed below others.
pub(crate) const COVERED: &[&str] = &["/run", "/dev/shm"];

/// Whether guests may share memory with VPP.
static SHARED_MEMORY: AtomicBool = AtomicBool::new(false);

static VPP: Mutex<Option<Instance>> = Mutex::new(None);

/// How many sandboxes are attached at once. The kernel makes a packet socket in some forty
/// milliseconds, two for each sandbox, and in many more where others make some as well.
pub(crate) const MANY: u16 = 20;

/// Lets the backends made from here on attach guests that share memory with VPP.
pub(crate) fn share_memory() {
    SHARED_MEMORY.store(true, Ordering::Relaxed);
}

/// Does not let them any more.
pub(crate) fn share_no_memory() {
    SHARED_MEMORY.store(false, Ordering::Relaxed);
}

/// Whether it can run here.
pub(crate) fn available() -> Result<(), String> {
    instance::find().map(drop)
}

/// The VPP, once a backend was made for it.
pub(crate) fn vpp() -> MutexGuard<'static, Option<Instance>> {
    VPP.lock().unwrap()
}

pub(crate) fn backend(kernel: KernelConfig) -> Arc<dyn Backend> {
    let mut vpp = vpp();
    let vpp = vpp.get_or_insert_with(|| Instance::start("/run/vpp"));
    let (socket, stats) = (vpp.socket(), vpp.stats());
    Arc::new(VppBackend::new(VppConfig {
        socket,
        stats,
        shared_memory: SHARED_MEMORY.load(Ordering::Relaxed),
        kernel,
    }))
}
