//! Waiting until what the kernel has begun under RCU is done.
#![expect(unsafe_code, reason = "membarrier(2) has no safe wrapper")]

use std::io;

/// `MEMBARRIER_CMD_GLOBAL` of the kernel's `linux/membarrier.h`.
const GLOBAL: libc::c_int = 1;

/// Returns when every read-side critical section of RCU that had begun before is over, which
/// takes milliseconds. Fails where the kernel lacks the call, or has processors without a tick
/// (`nohz_full`), about which it cannot say.
pub(super) fn wait() -> io::Result<()> {
    // SAFETY: this command takes two numbers and no memory.
    let done = unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
