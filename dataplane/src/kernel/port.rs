//! One sandbox's port: a veth pair and what is needed on both of its ends.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_types::{GATEWAY, MacAddress};
use ipnet::{IpNet, Ipv6Net};

use super::message::{self, VethEnd};
use super::namespace::Namespace;
use super::route::{Batch, RouteSocket, Verb, errno};
use super::worker::Worker;
use super::{sysctl, tap};
use crate::backend::{AttachedPort, BackendError};
use crate::desired::{Attachment, InterfaceName, SandboxSpec};

/// The loopback interface's index, in every namespace.
const LOOPBACK: u32 = 1;
/// The link group of all ports.
const PORT_GROUP: u32 = 0xca05;
/// How often another interface index is tried when one is taken.
const INDEX_TRIES: u32 = 64;

/// Interface indexes for ports, handed out in order. Knowing the index beforehand lets a port
/// be made and furnished in one datagram.
#[derive(Debug)]
pub(crate) struct Indexes(AtomicU32);

impl Indexes {
    /// Starts above what the namespace has.
    pub(crate) fn above(highest: u32) -> Self {
        Self(AtomicU32::new(highest.max(15)))
    }

    pub(crate) fn next(&self) -> u32 {
        // Far below the kernel's limit of i32::MAX for as long as anybody lives; it wraps so
        // that this holds even then, and taken numbers are stepped over.
        self.0.fetch_add(1, Ordering::Relaxed) % 0x3fff_ffff + 1
    }
}

/// Makes the port of `spec`, and says which index it has. On failure nothing is left.
pub(crate) fn attach(
    worker: &mut Worker,
    indexes: &Indexes,
    spec: &SandboxSpec,
) -> Result<(u32, AttachedPort), BackendError> {
    let port = InterfaceName::of_port(spec.uid);
    match &spec.attachment {
        Attachment::Netns { path, interface } => {
            let namespace = Namespace::open(path)?;
            reject_own(worker, &namespace, path)?;
            let index = worker.inside(&namespace, |worker| {
                attach_netns(worker, indexes, spec, &namespace, (path, interface))
            })?;
            let interface = interface.clone();
            Ok((index, AttachedPort { port, interface }))
        }
        Attachment::Tap { name } => {
            let index = tap::attach(worker, indexes, spec, name)?;
            let interface = name.clone();
            Ok((index, AttachedPort { port, interface }))
        }
        other => Err(BackendError::UnsupportedAttachment {
            attachment: other.kind(),
            needs: "vpp",
        }),
    }
}

/// Neither the router nor the host is a sandbox.
pub(crate) fn reject_own(
    worker: &Worker,
    namespace: &Namespace,
    path: &Path,
) -> Result<(), BackendError> {
    let owner = if namespace.is(&worker.router) {
        "router"
    } else if namespace.is(&worker.host) {
        "host"
    } else {
        return Ok(());
    };
    Err(BackendError::ReservedNamespace {
        path: path.to_owned(),
        owner,
    })
}

/// Runs inside the sandbox's namespace.
fn attach_netns(
    worker: &mut Worker,
    indexes: &Indexes,
    spec: &SandboxSpec,
    namespace: &Namespace,
    (path, interface): (&Path, &InterfaceName),
) -> Result<u32, BackendError> {
    // First of all: it shows whether the namespace can be used before anything is made.
    let mut inside = RouteSocket::open()?;
    let sandbox_end = VethEnd {
        name: interface.as_str(),
        mac: Some(spec.mac()),
        mtu: spec.mtu.bytes(),
        index: None,
        namespace: Some(namespace.as_fd().as_raw_fd()),
        up: false,
        group: None,
    };
    let taken = || {
        nix::net::if_::if_nametoindex(interface.as_str())
            .is_ok()
            .then(|| BackendError::InterfaceExists {
                interface: interface.clone(),
                namespace: path.to_owned(),
            })
    };
    let index = create(&mut worker.routes, indexes, spec, &sandbox_end, taken)?;
    let furnished = furnish_sandbox(&mut inside, spec, interface)
        .and_then(|()| finish(&mut worker.routes, spec, index));
    unwind(worker, spec, furnished).map(|()| index)
}

/// The last step: routes to the sandbox, on a link that sends.
pub(crate) fn finish(
    routes: &mut RouteSocket,
    spec: &SandboxSpec,
    index: u32,
) -> Result<(), BackendError> {
    routes.run(sandbox_routes(spec, index))?;
    // The router's end was up before its peer, and a link that gets its carrier later drops
    // what it should send until a kernel thread has looked at it. Being asked, the kernel
    // looks at once (Linux 6.8 and later; before, the first packets may be lost).
    let name = InterfaceName::of_port(spec.uid);
    let link = message::get_link_by_index(index);
    routes.get(link, "look at", name.as_str())?;
    Ok(())
}

/// Creates the pair and furnishes the router's end, all but the routes: those come last, so
/// that a port that has them is a port that was made to the end.
pub(crate) fn create(
    routes: &mut RouteSocket,
    indexes: &Indexes,
    spec: &SandboxSpec,
    peer: &VethEnd<'_>,
    peer_taken: impl Fn() -> Option<BackendError>,
) -> Result<u32, BackendError> {
    let name = InterfaceName::of_port(spec.uid);
    for _ in 0..INDEX_TRIES {
        let index = indexes.next();
        let router_end = VethEnd {
            name: name.as_str(),
            mac: Some(MacAddress::GATEWAY),
            mtu: spec.mtu.bytes(),
            index: Some(index),
            namespace: None,
            up: true,
            group: Some(PORT_GROUP),
        };
        let mut pair = Batch::default();
        let link = message::new_veth(&router_end, peer);
        pair.push(Verb::Create, link, "create the link", name.as_str());
        match routes.run(pair) {
            Ok(()) => {
                let furnished = routes.run(router_side(spec, index));
                if furnished.is_err() {
                    delete(routes, name.as_str())?;
                }
                return furnished.map(|()| index);
            }
            Err(error) => match errno(&error) {
                Some(libc::EBUSY) => {}
                // A name or the index is taken.
                Some(libc::EEXIST) => {
                    if let Some(taken) = peer_taken() {
                        return Err(taken);
                    }
                    let link = message::get_link(name.as_str());
                    if routes.get(link, "look for", name.as_str())?.is_some() {
                        return Err(BackendError::PortExists { uid: spec.uid });
                    }
                }
                _ => return Err(error),
            },
        }
    }
    Err(super::route::netlink(
        "find a free interface index for",
        name.as_str(),
        None,
        std::io::Error::from_raw_os_error(libc::EBUSY),
    ))
}

/// The router's end but for its routes. A datagram of its own: were it sent with the link's
/// creation and that refused, it would furnish whoever has the index.
fn router_side(spec: &SandboxSpec, index: u32) -> Batch {
    let name = InterfaceName::of_port(spec.uid);
    let name = name.as_str();
    let mut batch = Batch::default();
    // Of 128 bits: a route to fe80::/64 on each port would make one list of all ports, which
    // the kernel walks whenever a port comes.
    let gateway = IpNet::from(Ipv6Net::from(GATEWAY));
    let address = message::address(index, gateway);
    batch.push(Verb::Create, address, "put the gateway's address on", name);
    for neighbour in [spec.address, spec.link_local()] {
        let entry = message::neighbour(index, neighbour, spec.mac());
        batch.push(Verb::Replace, entry, "fix the neighbour entry on", name);
    }
    batch
}

/// Everything on the sandbox's side, in one datagram.
pub(crate) fn furnish_sandbox(
    inside: &mut RouteSocket,
    spec: &SandboxSpec,
    interface: &InterfaceName,
) -> Result<(), BackendError> {
    let name = interface.as_str();
    sysctl::set_sandbox(name)?;
    let index = nix::net::if_::if_nametoindex(name)
        .map_err(|errno| super::route::netlink("find the interface", name, None, errno.into()))?;
    let mut batch = Batch::default();
    batch.push(Verb::Change, message::link_up(LOOPBACK), "set up", "lo");
    let bare = message::no_address_generation(index);
    batch.push(Verb::Change, bare, "configure", name);
    batch.push(Verb::Change, message::link_up(index), "set up", name);
    let own = IpNet::from(Ipv6Net::from(spec.address));
    let link_local = IpNet::from(Ipv6Net::new_assert(spec.link_local(), 64));
    for address in [own, link_local] {
        let message = message::address(index, address);
        batch.push(Verb::Create, message, "put the address on", name);
    }
    let gateway = message::neighbour(index, GATEWAY, MacAddress::GATEWAY);
    batch.push(Verb::Replace, gateway, "fix the gateway's address on", name);
    let everywhere = IpNet::from(Ipv6Net::default());
    let default = message::route(index, everywhere, Some(IpAddr::V6(GATEWAY)));
    batch.push(Verb::Create, default, "add the default route through", name);
    inside.run(batch)
}

/// The routes to a sandbox.
fn sandbox_routes(spec: &SandboxSpec, index: u32) -> Batch {
    let name = InterfaceName::of_port(spec.uid);
    let mut batch = Batch::default();
    let bounded = |route| {
        if spec.attachment.is_shared_memory() {
            return message::with_mtu(route, spec.mtu.bytes());
        }
        route
    };
    if let Some(prefix) = spec.prefix {
        // Through the sandbox's link-local address: it is the router for what is inside.
        let route = message::route(index, prefix.into(), Some(spec.link_local().into()));
        let route = bounded(route);
        batch.push(Verb::Create, route, "route the prefix to", name.as_str());
    }
    for address in [spec.link_local(), spec.address] {
        let route = bounded(message::route(index, Ipv6Net::from(address).into(), None));
        batch.push(Verb::Create, route, "route the address to", name.as_str());
    }
    batch
}

/// Takes the port away again when something after its creation failed.
pub(crate) fn unwind<T>(
    worker: &mut Worker,
    spec: &SandboxSpec,
    result: Result<T, BackendError>,
) -> Result<T, BackendError> {
    if result.is_err() {
        let name = InterfaceName::of_port(spec.uid);
        if let Err(error) = delete(&mut worker.routes, name.as_str()) {
            tracing::error!(%error, port = %name, "a port stays behind after a failed attach");
        }
    }
    result
}

/// Removes a link by name, and its peer with it. None there is success.
pub(crate) fn delete(routes: &mut RouteSocket, name: &str) -> Result<(), BackendError> {
    let mut batch = Batch::default();
    batch
        .push(Verb::Change, message::delete_link(name), "remove", name)
        .tolerating(libc::ENODEV);
    routes.run(batch)
}

/// Removes all ports at once. Their peers vanish with them before this returns.
pub(crate) fn delete_all(routes: &mut RouteSocket) -> Result<(), BackendError> {
    let mut batch = Batch::default();
    batch
        .push(
            Verb::Change,
            message::delete_group(PORT_GROUP),
            "remove",
            "all ports",
        )
        .tolerating(libc::ENODEV);
    routes.run(batch)
}

/// Takes a port away, and the tap device behind it if it has one.
pub(crate) fn detach(
    worker: &mut Worker,
    uid: causeway_types::SandboxUid,
) -> Result<(), BackendError> {
    let name = InterfaceName::of_port(uid);
    let behind = tap::behind(&mut worker.routes, &name)?;
    delete(&mut worker.routes, name.as_str())?;
    match behind {
        Some(device) => tap::remove(worker, uid, &device),
        None => Ok(()),
    }
}
