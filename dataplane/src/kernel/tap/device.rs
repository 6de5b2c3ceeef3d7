//! Making a persistent tap device.
#![expect(
    unsafe_code,
    reason = "tap devices are made by ioctl, which has no safe wrapper"
)]

use super::{AsRawFd, BackendError, InterfaceName, OpenOptions, Path, io, io_error};

/// Makes a tap device in the calling thread's namespace that outlives the process.
pub(super) fn create(name: &InterfaceName) -> Result<(), BackendError> {
    let path = Path::new("/dev/net/tun");
    let failed = |source| io_error("create a tap device with", path, source);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => BackendError::KernelFeature {
                feature: "/dev/net/tun",
                used_for: "a tap attachment",
            },
            _ => failed(source),
        })?;
    // SAFETY: zero is a valid value for every field of this plain C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The checked name has at most 15 bytes, so that the last of 16 stays zero.
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_str().bytes()) {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).unwrap_or_default();
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is, during the call.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if made < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    // SAFETY: TUNSETPERSIST takes an integer and no memory.
    let kept = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETPERSIST, 1) };
    if kept < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    Ok(())
}
