//! What the process may do, reduced to what it needs.
//!
//! It needs one capability: `CAP_NET_RAW`, which lets sockets be transparent (bound to a
//! sandbox's address, which is none of this host's).

use std::fs::File;
use std::io;
use std::path::Path;

use caps::{CapSet, Capability, CapsHashSet};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, geteuid, setgroups, setresgid, setresuid};

/// A privilege that could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// A system call was refused.
    #[error("could not {step}")]
    System {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A capability set could not be changed.
    #[error("could not {step}")]
    Capabilities {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        #[source]
        source: caps::errors::CapsError,
    },
}

/// Moves the calling thread, and those that it will start, into a network namespace.
pub(crate) fn enter_namespace(path: &Path) -> io::Result<()> {
    setns(File::open(path)?, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
}

/// Gives up everything that serving does not need. Call it when all sockets are open and no
/// other thread runs. `user` is whom to become, when the process is root's.
pub(crate) fn drop_all(user: Option<(u32, u32)>) -> Result<(), PrivilegeError> {
    raise_descriptor_limit()?;
    let privileged = geteuid().is_root();
    if privileged {
        set_capabilities("clear the bounding set", CapSet::Bounding, None)?;
        if let Some((uid, gid)) = user {
            become_user(Uid::from_raw(uid), Gid::from_raw(gid))?;
        }
    }
    keep_net_raw()?;
    system("forbid new privileges", prctl::set_no_new_privs())?;
    // Last, since a change of user resets it. No debugger and no core file sees the secrets.
    system("forbid dumps", prctl::set_dumpable(false))?;
    system("forbid core files", setrlimit(Resource::RLIMIT_CORE, 0, 0))
}

/// Two descriptors for each connection are more than the usual soft limit.
fn raise_descriptor_limit() -> Result<(), PrivilegeError> {
    let step = "raise the limit on open files";
    let (_soft, hard) = system(step, getrlimit(Resource::RLIMIT_NOFILE))?;
    system(step, setrlimit(Resource::RLIMIT_NOFILE, hard, hard))
}

fn become_user(uid: Uid, gid: Gid) -> Result<(), PrivilegeError> {
    system(
        "keep capabilities over the change of user",
        prctl::set_keepcaps(true),
    )?;
    system("leave the supplementary groups", setgroups(&[]))?;
    system("change the group", setresgid(gid, gid, gid))?;
    system("change the user", setresuid(uid, uid, uid))?;
    system(
        "forget that capabilities are kept",
        prctl::set_keepcaps(false),
    )
}

/// Drops every capability but `CAP_NET_RAW`, which stays where it was held.
fn keep_net_raw() -> Result<(), PrivilegeError> {
    let step = "reduce the capabilities";
    let held = caps::read(None, CapSet::Permitted)
        .map_err(|source| PrivilegeError::Capabilities { step, source })?;
    let kept: CapsHashSet = held
        .into_iter()
        .filter(|capability| *capability == Capability::CAP_NET_RAW)
        .collect();
    let none = CapsHashSet::new();
    set_capabilities(step, CapSet::Ambient, None)?;
    set_capabilities(step, CapSet::Inheritable, Some(&none))?;
    set_capabilities(step, CapSet::Effective, Some(&kept))?;
    set_capabilities(step, CapSet::Permitted, Some(&kept))
}

fn set_capabilities(
    step: &'static str,
    set: CapSet,
    to: Option<&CapsHashSet>,
) -> Result<(), PrivilegeError> {
    match to {
        Some(to) => caps::set(None, set, to),
        None => caps::clear(None, set),
    }
    .map_err(|source| PrivilegeError::Capabilities { step, source })
}

fn system<T>(step: &'static str, result: nix::Result<T>) -> Result<T, PrivilegeError> {
    result.map_err(|errno| PrivilegeError::System {
        step,
        source: errno.into(),
    })
}
