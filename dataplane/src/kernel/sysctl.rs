//! Kernel parameters of the calling thread's network namespace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use super::namespace::io_error;
use crate::backend::BackendError;

/// Parameters of the router's namespace, each a path below `/proc/sys/net` and a value.
const ROUTER: &[(&str, &str)] = &[
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/accept_redirects", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/dad_transmits", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    // No link-local address that the kernel makes up: the gateway's is the only one.
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/all/accept_ra", "0"),
    ("ipv6/conf/all/accept_redirects", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    // Answering about other links' addresses would tell sandboxes of each other.
    ("ipv4/conf/all/arp_ignore", "2"),
    ("ipv4/ip_forward", "0"),
];

/// Parameters that are raised when they are lower, and left alone otherwise. Some exist in the
/// first namespace only; where they cannot be set, a warning says so.
const FLOORS: &[(&str, u64)] = &[
    // Permanent entries count too: two for each port.
    ("ipv6/neigh/default/gc_thresh1", 16_384),
    ("ipv6/neigh/default/gc_thresh2", 65_536),
    ("ipv6/neigh/default/gc_thresh3", 131_072),
    ("ipv6/route/max_size", 1_048_576),
    ("netfilter/nf_conntrack_max", 262_144),
];

fn path(name: &str) -> PathBuf {
    Path::new("/proc/sys/net").join(name)
}

fn set(name: &str, value: &str) -> Result<(), BackendError> {
    let path = path(name);
    fs::write(&path, value).map_err(|source| io_error("set", &path, source))
}

fn get(name: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path(name))?.trim().to_owned())
}

/// Sets the router's parameters. Call on a thread in its namespace.
pub(super) fn set_router() -> Result<(), BackendError> {
    for (name, value) in ROUTER {
        match set(name, value) {
            // A kernel without IPv4 or an older one lacks some; none that it lacks is needed.
            Err(BackendError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Raises limits that a thousand sandboxes would reach. Call in the router's namespace, and
/// once more in the host's, where some of them live.
pub(super) fn raise_limits() {
    for (name, floor) in FLOORS {
        let Ok(current) = get(name) else {
            continue;
        };
        if current.parse::<u64>().is_ok_and(|current| current < *floor)
            && let Err(error) = set(name, &floor.to_string())
        {
            tracing::warn!(
                %error,
                current,
                "net/{name} is lower than {floor}, which limits how many sandboxes fit on this node"
            );
        }
    }
}

/// Prepares an interface inside a sandbox before it goes up: router advertisements count for
/// nothing, and IPv6 is on. Container runtimes switch it off by default.
///
/// The directory is looked up once for both: the kernel keeps the entries of all namespaces
/// under one name in one list, so that a look-up takes longer the more namespaces there are.
pub(super) fn set_sandbox(interface: &str) -> Result<(), BackendError> {
    let directory = path("ipv6/conf").join(interface);
    let opened = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let opened = nix::fcntl::open(&directory, opened, Mode::empty())
        .map_err(|errno| io_error("open", &directory, errno.into()))?;
    for name in ["accept_ra", "disable_ipv6"] {
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        nix::fcntl::openat(&opened, name, flags, Mode::empty())
            .and_then(|file| nix::unistd::write(&file, b"0"))
            .map_err(|errno| io_error("set", &directory.join(name), errno.into()))?;
    }
    Ok(())
}

/// Lets the host forward for the router. Interfaces that take router advertisements would stop
/// to, once a host forwards, so those are told to go on.
pub(super) fn set_host(ipv4: bool) -> Result<(), BackendError> {
    let interfaces = Path::new("/proc/sys/net/ipv6/conf");
    let entries =
        fs::read_dir(interfaces).map_err(|source| io_error("list", interfaces, source))?;
    for entry in entries.flatten() {
        let name = format!(
            "ipv6/conf/{}/accept_ra",
            entry.file_name().to_string_lossy()
        );
        if get(&name).ok().as_deref() == Some("1") {
            set(&name, "2")?;
        }
    }
    set("ipv6/conf/all/forwarding", "1")?;
    if ipv4 {
        set("ipv4/ip_forward", "1")?;
    }
    Ok(())
}
