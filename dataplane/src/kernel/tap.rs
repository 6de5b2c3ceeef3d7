//! Tap devices for microVMs.
//!
//! The device lives where the virtual machine monitor opens it, in the host's namespace. A veth
//! pair leads from there into the router, and the two are joined by redirection at ingress,
//! as Kata Containers does it: every frame goes across, and no bridge learns or answers.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use causeway_types::SandboxUid;
use netlink_packet_core::DefaultNla;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::message::{self, VethEnd};
use super::namespace::{Namespace, io_error};
use super::port::{self, Indexes};
use super::route::{Batch, RouteSocket, Verb, errno, netlink};
use super::worker::Worker;
use crate::backend::BackendError;
use crate::desired::{InterfaceName, SandboxSpec};

mod device;

/// What marks a port as a tap's: the alias of the router's end, before the device's name. The
/// device has one too, before the sandbox's identifier, so that a device that was left by
/// a process that died can be told from somebody else's.
const ALIAS: &str = "causeway tap ";
/// The host's end of the pair is named after the sandbox, like the router's.
const JOINT: &str = "ct";

/// Makes a tap device and joins it to a new port. On failure nothing is left.
pub(super) fn attach(
    worker: &mut Worker,
    indexes: &Indexes,
    spec: &SandboxSpec,
    name: &InterfaceName,
) -> Result<u32, BackendError> {
    let host = std::sync::Arc::clone(&worker.host);
    worker.inside(&host, |worker| {
        make_device(spec, name)?;
        let made = attach_to_device(worker, indexes, spec, name, &host);
        if made.is_err()
            && let Err(error) =
                RouteSocket::open().and_then(|mut routes| port::delete(&mut routes, name.as_str()))
        {
            tracing::error!(%error, device = %name, "a tap stays behind after a failed attach");
        }
        made
    })
}

/// Makes the device, in the place of one that an earlier attempt for this sandbox left.
pub(crate) fn make_device(spec: &SandboxSpec, name: &InterfaceName) -> Result<(), BackendError> {
    let mut routes = RouteSocket::open()?;
    let alias = format!("{ALIAS}{}", spec.uid);
    let found = routes.get(message::get_link(name.as_str()), "look for", name.as_str())?;
    if let Some(RouteNetlinkMessage::NewLink(link)) = found {
        if !link
            .attributes
            .contains(&LinkAttribute::IfAlias(alias.clone()))
        {
            return Err(BackendError::InterfaceExists {
                interface: name.clone(),
                namespace: "/proc/self/ns/net".into(),
            });
        }
        port::delete(&mut routes, name.as_str())?;
    }
    device::create(name)?;
    let mut batch = Batch::default();
    let message = message::set_alias(index_of(name.as_str())?, alias);
    batch.push(Verb::Change, message, "mark", name.as_str());
    routes.run(batch)
}

fn index_of(name: &str) -> Result<u32, BackendError> {
    nix::net::if_::if_nametoindex(name)
        .map_err(|errno| netlink("find the interface", name, None, errno.into()))
}

fn attach_to_device(
    worker: &mut Worker,
    indexes: &Indexes,
    spec: &SandboxSpec,
    name: &InterfaceName,
    host: &Namespace,
) -> Result<u32, BackendError> {
    let joint = joint(spec.uid);
    let host_end = VethEnd {
        name: &joint,
        mac: None,
        mtu: spec.mtu.bytes(),
        index: None,
        namespace: Some(host.as_fd().as_raw_fd()),
        up: false,
        group: None,
    };
    let index = port::create(&mut worker.routes, indexes, spec, &host_end, || None)?;
    let mut mark = Batch::default();
    let alias = message::set_alias(index, format!("{ALIAS}{name}"));
    mark.push(Verb::Change, alias, "mark the port of", name.as_str());
    let joined = worker
        .routes
        .run(mark)
        .and_then(|()| join(spec, name.as_str(), &joint))
        .and_then(|()| port::finish(&mut worker.routes, spec, index));
    port::unwind(worker, spec, joined).map(|()| index)
}

fn joint(uid: SandboxUid) -> String {
    format!("{JOINT}{uid}")
}

/// Joins the device and the host's end of the pair. Runs in the host's namespace.
fn join(spec: &SandboxSpec, device: &str, joint: &str) -> Result<(), BackendError> {
    for name in [device, joint] {
        // The host is no party to what passes here.
        let path = Path::new("/proc/sys/net/ipv6/conf")
            .join(name)
            .join("disable_ipv6");
        match fs::write(&path, "1") {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("set", &path, source));
            }
            _ => {}
        }
    }
    let (from, to) = (index_of(device)?, index_of(joint)?);
    let mut batch = Batch::default();
    let mtu = message::set_mtu(from, spec.mtu.bytes());
    batch.push(Verb::Change, mtu, "set the MTU of", device);
    for (here, there, name) in [(from, to, device), (to, from, joint)] {
        batch.push(Verb::Create, ingress(here), "add an ingress queue to", name);
        let redirect = redirect(here, there);
        batch.push(Verb::Create, redirect, "redirect what arrives at", name);
        batch.push(Verb::Change, message::link_up(here), "set up", name);
    }
    RouteSocket::open()?.run(batch).map_err(|error| {
        if matches!(errno(&error), Some(libc::ENOENT | libc::EOPNOTSUPP)) {
            return BackendError::KernelFeature {
                feature: "traffic control with the u32 classifier and the mirred action",
                used_for: "a tap attachment",
            };
        }
        error
    })
}

/// The device behind a port, by the port's alias.
pub(super) fn behind(
    routes: &mut RouteSocket,
    port: &InterfaceName,
) -> Result<Option<InterfaceName>, BackendError> {
    let found = routes.get(message::get_link(port.as_str()), "look for", port.as_str())?;
    Ok(match found {
        Some(RouteNetlinkMessage::NewLink(link)) => device_of(&link),
        _ => None,
    })
}

fn device_of(link: &LinkMessage) -> Option<InterfaceName> {
    link.attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfAlias(alias) => InterfaceName::new(alias.strip_prefix(ALIAS)?).ok(),
            _ => None,
        })
}

/// Removes a tap device from the host.
pub(super) fn remove(
    worker: &mut Worker,
    uid: SandboxUid,
    device: &InterfaceName,
) -> Result<(), BackendError> {
    let host = std::sync::Arc::clone(&worker.host);
    worker.inside(&host, |_| {
        let mut routes = RouteSocket::open()?;
        port::delete(&mut routes, &joint(uid))?;
        port::delete(&mut routes, device.as_str())
    })
}

/// Removes the tap devices of all ports. Runs in the router's namespace.
pub(super) fn remove_all(router: &Namespace, host: &Namespace) -> Result<(), BackendError> {
    let mut routes = RouteSocket::open()?;
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let devices: Vec<InterfaceName> = routes
        .dump(&request, "links")?
        .iter()
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => device_of(link),
            _ => None,
        })
        .collect();
    host.enter()?;
    let mut result = Ok(());
    for device in devices {
        let removed =
            RouteSocket::open().and_then(|mut routes| port::delete(&mut routes, device.as_str()));
        result = result.and(removed);
    }
    router.enter().and(result)
}

/// The queue that filters at ingress hang on.
fn ingress(index: u32) -> RouteNetlinkMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.handle = TcHandle {
        major: 0xffff,
        minor: 0,
    };
    message.header.parent = TcHandle::INGRESS;
    message.attributes = vec![TcAttribute::Kind("ingress".to_owned())];
    RouteNetlinkMessage::NewQueueDiscipline(message)
}

/// Sends every frame that arrives at one interface out of another.
fn redirect(from: u32, to: u32) -> RouteNetlinkMessage {
    const TCA_OPTIONS: u16 = 2;
    const TCA_U32_SEL: u16 = 5;
    const TCA_U32_ACT: u16 = 7;
    const TCA_ACT_KIND: u16 = 1;
    const TCA_ACT_OPTIONS: u16 = 2;
    const TCA_MIRRED_PARMS: u16 = 2;
    const TC_U32_TERMINAL: u8 = 1;
    const TC_ACT_STOLEN: u32 = 4;
    const TCA_EGRESS_REDIR: u32 = 1;
    const PRIORITY: u32 = 1;
    const ETH_P_ALL: u16 = 3;

    // struct tc_u32_sel with one key, whose mask is empty: it matches everything.
    let mut selector = vec![TC_U32_TERMINAL, 0, 1, 0];
    selector.extend([0; 12]);
    selector.extend([0; 16]);
    // struct tc_mirred: index, capabilities, action, two counts, direction, interface.
    let mut parameters = Vec::new();
    for word in [0, 0, TC_ACT_STOLEN, 0, 0, TCA_EGRESS_REDIR, to] {
        parameters.extend(word.to_ne_bytes());
    }
    let options = attribute(TCA_MIRRED_PARMS, &parameters);
    let mut action = attribute(TCA_ACT_KIND, b"mirred\0");
    action.extend(attribute(TCA_ACT_OPTIONS, &options));
    let first_action = attribute(1, &action);
    let mut filter = attribute(TCA_U32_SEL, &selector);
    filter.extend(attribute(TCA_U32_ACT, &first_action));

    let mut message = TcMessage::with_index(from.cast_signed());
    message.header.parent = TcHandle {
        major: 0xffff,
        minor: 0,
    };
    message.header.info = PRIORITY << 16 | u32::from(ETH_P_ALL.to_be());
    message.attributes = vec![
        TcAttribute::Kind("u32".to_owned()),
        TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, filter)),
    ];
    RouteNetlinkMessage::NewTrafficFilter(message)
}

/// A netlink attribute with its padding.
fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(payload.len() + 8);
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
