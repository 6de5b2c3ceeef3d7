//! Network namespaces, without running a program for each.

use std::fs::{self, File};
use std::net::Ipv6Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, anyhow};
use causeway::lab::Namespace;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

const FOLDER: &str = "/run/netns";

/// Makes a namespace that `ip netns` knows too.
pub(crate) fn create(name: &str) -> anyhow::Result<Namespace> {
    fs::create_dir_all(FOLDER)?;
    let namespace = Namespace {
        name: name.to_owned(),
    };
    let path = namespace.path();
    on_own_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        File::create(&path)?;
        bind(Path::new("/proc/thread-self/ns/net"), &path)
    })
    .with_context(|| format!("cannot make the namespace {name}"))?;
    Ok(namespace)
}

/// Makes `count` namespaces, named `prefix` and a number.
pub(crate) fn create_many(prefix: &str, count: usize) -> anyhow::Result<Vec<Namespace>> {
    (0..count)
        .map(|index| create(&format!("{prefix}-{index}")))
        .collect()
}

/// Removes a namespace and what is in it.
pub(crate) fn remove(namespace: &Namespace) -> anyhow::Result<()> {
    let path = namespace.path();
    umount2(&path, MntFlags::MNT_DETACH)?;
    Ok(fs::remove_file(path)?)
}

/// Does `work` on a thread of its own inside `namespace`. Sockets that it opens stay there.
pub(crate) fn inside<T: Send>(
    namespace: &Namespace,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    on_own_thread(|| {
        enter(&File::open(namespace.path())?)?;
        work()
    })
    .with_context(|| format!("in the namespace {}", namespace.name))
}

/// Moves the calling thread into a namespace.
pub(crate) fn enter(namespace: impl AsFd) -> anyhow::Result<()> {
    Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
}

/// Lets a namespace forward IPv6.
pub(crate) fn forward(namespace: &Namespace) -> anyhow::Result<()> {
    inside(namespace, || {
        Ok(fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?)
    })
}

/// The address of number `index` below a /64.
pub(crate) fn host(prefix: Ipv6Addr, index: usize) -> anyhow::Result<Ipv6Addr> {
    Ok(Ipv6Addr::from_bits(
        prefix.to_bits() + u128::try_from(index)?,
    ))
}

fn bind(from: &Path, to: &Path) -> anyhow::Result<()> {
    Ok(mount(
        Some(from),
        to,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )?)
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    thread::scope(|scope| scope.spawn(work).join())
        .map_err(|_panic| anyhow!("a thread in a network namespace panicked"))?
}
