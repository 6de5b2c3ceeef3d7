//! One VPP for the whole process: it ends with the process's namespace.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use causeway_dataplane::Backend;
use causeway_dataplane::kernel::KernelConfig;
use causeway_dataplane::vpp::{Program, VppBackend, VppConfig, WATCHDOG};

use crate::instance::{self, Instance};

/// Folders that a test has to itself. VPP may be installed below others.
pub(crate) const COVERED: &[&str] = &["/run", "/dev/shm"];

/// Whether guests may share memory with VPP.
static SHARED_MEMORY: AtomicBool = AtomicBool::new(false);

/// How long VPP may be silent.
pub(crate) static WATCHES: Mutex<Duration> = Mutex::new(WATCHDOG);
/// The VPP that the backend keeps running, instead of the test's own.
pub(crate) static PROGRAM: Mutex<Option<Program>> = Mutex::new(None);

static VPP: Mutex<Option<Instance>> = Mutex::new(None);

/// How many sandboxes are attached at once: as many as the facade lets in.
pub(crate) const MANY: u16 = 64;

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
    if PROGRAM.lock().unwrap().is_none() {
        vpp().get_or_insert_with(|| Instance::start("/run/vpp"));
    }
    let (socket, stats) = ("/run/vpp/api.sock".into(), "/run/vpp/stats.sock".into());
    Arc::new(VppBackend::new(VppConfig {
        socket,
        stats,
        shared_memory: SHARED_MEMORY.load(Ordering::Relaxed),
        watchdog: *WATCHES.lock().unwrap(),
        supervise: PROGRAM.lock().unwrap().clone(),
        kernel,
    }))
}
