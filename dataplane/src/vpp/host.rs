//! The kernel's part of a port: the pair to the router, and how VPP gets at the sandbox.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use causeway_types::SandboxUid;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};

use super::facts::{Inlet, border_link, port_link};
use crate::backend::{AttachedPort, BackendError};
use crate::desired::{Attachment, InterfaceName, SandboxSpec};
use crate::kernel::message::{self, VethEnd};
use crate::kernel::namespace::{Namespace, io_error};
use crate::kernel::port::{self, Indexes};
use crate::kernel::route::{Batch, RouteSocket, Verb, netlink};
use crate::kernel::worker::Worker;
use crate::kernel::{nft_program, tap};

/// The link group of the host's ends, which nobody but VPP may read.
const GROUP: u32 = 0xca06;
/// The largest MTU of a link, in bytes.
const LARGEST: u32 = 65_535;
/// The host's table.
const TABLE: &str = "causeway_vpp";

/// What the kernel has of a new port.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) index: u32,
    pub(super) inlet: Inlet,
    pub(super) attached: AttachedPort,
}

/// Sees to it that the host itself takes no packet from the interfaces that VPP reads: a packet
/// socket gets a copy of each, and the rest of the host would get it as well. Runs in the
/// host's namespace.
pub(super) fn shield() -> Result<(), BackendError> {
    nft_program(&format!(
        "add table inet {TABLE}\ndelete table inet {TABLE}\n\
         add table arp {TABLE}\ndelete table arp {TABLE}\n\
         table inet {TABLE} {{\n\
         \tchain nobody {{\n\
         \t\ttype filter hook prerouting priority -500; policy accept;\n\
         \t\tiifgroup {GROUP:#x} drop\n\
         \t}}\n\
         }}\n\
         table arp {TABLE} {{\n\
         \tchain nobody {{\n\
         \t\ttype filter hook input priority -500; policy accept;\n\
         \t\tiifgroup {GROUP:#x} drop\n\
         \t}}\n\
         }}\n"
    ))
}

/// Connection tracking sees a flow only while VPP does not carry it by itself: sequence numbers
/// that moved on meanwhile are no reason to drop it. Runs in the router's namespace.
pub(super) fn tolerate_gaps() -> Result<(), BackendError> {
    let path = Path::new("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal");
    fs::write(path, "1").map_err(|source| io_error("set", path, source))
}

/// Takes all of it away again, with every link of the host. Runs in the host's namespace.
pub(super) fn unshield() -> Result<(), BackendError> {
    let mut batch = Batch::default();
    batch
        .push(
            Verb::Change,
            message::delete_group(GROUP),
            "remove",
            "the links to VPP",
        )
        .tolerating(libc::ENODEV);
    RouteSocket::open()?.run(batch)?;
    nft_program(&format!(
        "add table inet {TABLE}\ndelete table inet {TABLE}\n\
         add table arp {TABLE}\ndelete table arp {TABLE}\n"
    ))
}

/// Makes the kernel's part of a port, all but the routes that mark it as finished. On failure
/// nothing is left.
pub(super) fn make(
    worker: &mut Worker,
    indexes: &Indexes,
    spec: &SandboxSpec,
    segments: u32,
) -> Result<Made, BackendError> {
    let host = Arc::clone(&worker.host);
    let sandbox = match &spec.attachment {
        Attachment::Netns { path, .. } => {
            let namespace = Namespace::open(path)?;
            port::reject_own(worker, &namespace, path)?;
            // First of all: it shows whether the namespace can be used before anything is made.
            worker.inside(&namespace, |_| Ok(()))?;
            Some(namespace)
        }
        _ => None,
    };
    let inlet = inlet(spec);
    let interface = match &spec.attachment {
        Attachment::Netns { interface, .. } => interface.clone(),
        Attachment::Tap { name } => name.clone(),
        Attachment::VhostUser { .. } | Attachment::Memif { .. } => InterfaceName::of_port(spec.uid),
    };
    refuse_taken(worker, spec.uid, &inlet)?;
    let index = worker.inside(&host, |worker| {
        remove_links(spec.uid)?;
        if let Attachment::Tap { name } = &spec.attachment {
            // Before anything that a failure takes away again: it may be somebody else's.
            tap::make_device(spec, name)?;
        }
        let index = border(worker, indexes, spec, &host, &inlet, segments);
        let index = unmake(worker, spec.uid, &inlet, index)?;
        let made = match (&spec.attachment, &sandbox) {
            (Attachment::Netns { path, interface }, Some(namespace)) => {
                pair(worker, spec, namespace, (path, interface), segments)
            }
            (Attachment::Tap { name }, _) => furnish_device(spec, name),
            _ => Ok(()),
        };
        unmake(worker, spec.uid, &inlet, made).map(|()| index)
    })?;
    Ok(Made {
        index,
        inlet,
        attached: AttachedPort {
            port: InterfaceName::of_port(spec.uid),
            interface,
        },
    })
}

/// How VPP will get at a sandbox.
pub(super) fn inlet(spec: &SandboxSpec) -> Inlet {
    match &spec.attachment {
        Attachment::Netns { .. } => Inlet::Host(port_link(spec.uid)),
        Attachment::Tap { name } => Inlet::Host(name.to_string()),
        Attachment::VhostUser { socket } => Inlet::VhostUser(socket.clone()),
        Attachment::Memif { socket } => Inlet::Memif(socket.clone()),
    }
}

/// Two sandboxes never share a socket.
fn refuse_taken(worker: &mut Worker, uid: SandboxUid, inlet: &Inlet) -> Result<(), BackendError> {
    let (Inlet::VhostUser(path) | Inlet::Memif(path)) = inlet else {
        return Ok(());
    };
    let others = inlets_of_ports(&mut worker.routes)?;
    let holder = others.iter().find(|(other, theirs)| {
        **other != uid
            && matches!(theirs, Inlet::VhostUser(taken) | Inlet::Memif(taken) if taken == path)
    });
    match holder {
        Some((holder, _)) => Err(BackendError::SocketInUse {
            path: path.clone(),
            holder: *holder,
        }),
        None => Ok(()),
    }
}

/// The pair between VPP and the router.
fn border(
    worker: &mut Worker,
    indexes: &Indexes,
    spec: &SandboxSpec,
    host: &Namespace,
    inlet: &Inlet,
    segments: u32,
) -> Result<u32, BackendError> {
    let name = border_link(spec.uid);
    let host_end = VethEnd {
        name: &name,
        // The router sees the sandbox's frames as the sandbox sent them.
        mac: Some(spec.mac()),
        mtu: spec.mtu.bytes(),
        index: None,
        namespace: Some(host.as_fd().as_raw_fd()),
        up: false,
        group: Some(GROUP),
    };
    let index = port::create(&mut worker.routes, indexes, spec, &host_end, || None)?;
    let mut batch = Batch::default();
    let alias = message::set_alias(index, inlet.alias());
    batch.push(Verb::Change, alias, "mark the port", name.as_str());
    let limit = message::limit_segmentation(index, segments);
    batch.push(Verb::Change, limit, "limit segmentation on", name.as_str());
    if spec.attachment.is_shared_memory() {
        // The kernel would try a frame that the link does not take again for ever, and none
        // behind it. The sandbox's MTU is that of its routes.
        let largest = message::set_mtu(index, LARGEST);
        batch.push(Verb::Change, largest, "take all frames on", name.as_str());
    }
    let done = worker.routes.run(batch).and_then(|()| silence(&name));
    port::unwind(worker, spec, done).map(|()| index)
}

/// The pair between VPP and a sandbox's namespace. Runs in the host's namespace.
fn pair(
    worker: &mut Worker,
    spec: &SandboxSpec,
    namespace: &Namespace,
    (path, interface): (&Path, &InterfaceName),
    segments: u32,
) -> Result<(), BackendError> {
    let name = port_link(spec.uid);
    let mut routes = RouteSocket::open()?;
    let host_end = VethEnd {
        name: &name,
        mac: None,
        mtu: spec.mtu.bytes(),
        index: None,
        namespace: None,
        up: false,
        group: Some(GROUP),
    };
    let sandbox_end = VethEnd {
        name: interface.as_str(),
        mac: Some(spec.mac()),
        mtu: spec.mtu.bytes(),
        index: None,
        namespace: Some(namespace.as_fd().as_raw_fd()),
        up: false,
        group: None,
    };
    let mut batch = Batch::default();
    let link = message::new_veth(&host_end, &sandbox_end);
    batch.push(Verb::Create, link, "create the link", name.as_str());
    if let Err(error) = routes.run(batch) {
        let taken = worker.inside_then_host(namespace, || {
            nix::net::if_::if_nametoindex(interface.as_str()).is_ok()
        })?;
        return Err(if taken {
            BackendError::InterfaceExists {
                interface: interface.clone(),
                namespace: path.to_owned(),
            }
        } else {
            error
        });
    }
    silence(&name)?;
    worker.inside_then_host(namespace, || {
        let mut inside = RouteSocket::open()?;
        let name = interface.as_str();
        let index = nix::net::if_::if_nametoindex(name)
            .map_err(|errno| netlink("find the interface", name, None, errno.into()))?;
        let mut batch = Batch::default();
        let limit = message::limit_segmentation(index, segments);
        batch.push(Verb::Change, limit, "limit segmentation on", name);
        inside.run(batch)?;
        port::furnish_sandbox(&mut inside, spec, interface)
    })?
}

/// Lets VPP alone read a tap device. Runs in the host's namespace.
fn furnish_device(spec: &SandboxSpec, name: &InterfaceName) -> Result<(), BackendError> {
    let index = nix::net::if_::if_nametoindex(name.as_str())
        .map_err(|errno| netlink("find the interface", name.as_str(), None, errno.into()))?;
    let mut batch = Batch::default();
    let mtu = message::set_mtu(index, spec.mtu.bytes());
    batch.push(Verb::Change, mtu, "set the MTU of", name.as_str());
    let group = message::set_group(index, GROUP);
    batch.push(Verb::Change, group, "keep the host from", name.as_str());
    RouteSocket::open()?.run(batch)?;
    silence(name.as_str())
}

/// The host is no party to what passes on this link; and sets it up. Runs in the host's
/// namespace.
fn silence(name: &str) -> Result<(), BackendError> {
    let path = Path::new("/proc/sys/net/ipv6/conf")
        .join(name)
        .join("disable_ipv6");
    match fs::write(&path, "1") {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("set", &path, source));
        }
        _ => {}
    }
    let index = nix::net::if_::if_nametoindex(name)
        .map_err(|errno| netlink("find the interface", name, None, errno.into()))?;
    let mut batch = Batch::default();
    batch.push(Verb::Change, message::link_up(index), "set up", name);
    RouteSocket::open()?.run(batch)
}

/// Takes what was made away when something after it failed. Runs in the host's namespace.
fn unmake<T>(
    worker: &mut Worker,
    uid: SandboxUid,
    inlet: &Inlet,
    result: Result<T, BackendError>,
) -> Result<T, BackendError> {
    if result.is_err() {
        let name = InterfaceName::of_port(uid);
        let removed = port::delete(&mut worker.routes, name.as_str())
            .and_then(|()| remove_inlet(uid, Some(inlet)));
        if let Err(error) = removed {
            tracing::error!(%error, port = %name, "a port stays behind after a failed attach");
        }
    }
    result
}

/// Removes the kernel's part of a port. What is not there is no error.
pub(super) fn remove(worker: &mut Worker, uid: SandboxUid) -> Result<(), BackendError> {
    let name = InterfaceName::of_port(uid);
    let inlet = inlet_of(&mut worker.routes, &name)?;
    port::delete(&mut worker.routes, name.as_str())?;
    let host = Arc::clone(&worker.host);
    worker.inside(&host, |_| remove_inlet(uid, inlet.as_ref()))
}

/// Runs in the host's namespace.
fn remove_inlet(uid: SandboxUid, inlet: Option<&Inlet>) -> Result<(), BackendError> {
    remove_links(uid)?;
    match inlet {
        Some(Inlet::Host(name)) => port::delete(&mut RouteSocket::open()?, name),
        _ => Ok(()),
    }
}

/// Removes the links that are named after a sandbox. Runs in the host's namespace.
fn remove_links(uid: SandboxUid) -> Result<(), BackendError> {
    let mut routes = RouteSocket::open()?;
    port::delete(&mut routes, &port_link(uid))?;
    port::delete(&mut routes, &border_link(uid))
}

fn inlet_of(routes: &mut RouteSocket, port: &InterfaceName) -> Result<Option<Inlet>, BackendError> {
    let found = routes.get(message::get_link(port.as_str()), "look for", port.as_str())?;
    Ok(match found {
        Some(RouteNetlinkMessage::NewLink(link)) => alias_of(&link),
        _ => None,
    })
}

fn alias_of(link: &LinkMessage) -> Option<Inlet> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfAlias(alias) => Inlet::from_alias(alias),
            _ => None,
        })
}

/// How VPP gets at each sandbox that has a port, and which links of the host are there.
pub(super) fn inlets(
    worker: &mut Worker,
) -> Result<(BTreeMap<SandboxUid, Inlet>, Vec<String>), BackendError> {
    let inlets = inlets_of_ports(&mut worker.routes)?;
    let host = Arc::clone(&worker.host);
    let names = worker.inside(&host, |_| {
        let links = links(&mut RouteSocket::open()?)?;
        Ok(links.iter().filter_map(name_of).collect())
    })?;
    Ok((inlets, names))
}

fn inlets_of_ports(routes: &mut RouteSocket) -> Result<BTreeMap<SandboxUid, Inlet>, BackendError> {
    let mut inlets = BTreeMap::new();
    for link in links(routes)? {
        let uid = name_of(&link).and_then(|name| InterfaceName::new(name).ok()?.port_uid());
        if let (Some(uid), Some(inlet)) = (uid, alias_of(&link)) {
            inlets.insert(uid, inlet);
        }
    }
    Ok(inlets)
}

fn name_of(link: &LinkMessage) -> Option<String> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        })
}

fn links(routes: &mut RouteSocket) -> Result<Vec<LinkMessage>, BackendError> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let found = routes.dump(&request, "links")?;
    Ok(found
        .into_iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        })
        .collect())
}
