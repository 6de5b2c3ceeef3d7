//! The router's way to the outside.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use causeway_types::MacAddress;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkAttribute;

use super::message::{self, VethEnd};
use super::namespace::Namespace;
use super::route::{Batch, RouteSocket, Verb, errno};
use super::router::everywhere;
use super::{HOST_LINK, KernelConfig, Translation, UPLINK, Uplink, port, sysctl};
use crate::backend::BackendError;
use crate::desired::InterfaceName;

/// Causeway's own range, which the resolver and the link to the host take addresses from.
pub(super) const OWN: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0xfd63, 0x6175, 0x7365, 0, 0, 0, 0, 0), 48);
const LINK: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfd63, 0x6175, 0x7365, 1, 0, 0, 0, 0), 64);
const HOST_V6: Ipv6Addr = Ipv6Addr::new(0xfd63, 0x6175, 0x7365, 1, 0, 0, 0, 1);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd63, 0x6175, 0x7365, 1, 0, 0, 0, 2);
/// The link-local address that the host routes the operator's prefixes through.
const ROUTER_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const HOST_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 3);
/// The range for the two ends of a link to a translator (RFC 7335): nobody routes it.
const LINK_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 0), 29);
const HOST_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);

/// The host's table.
const HOST_TABLE: &str = "causeway_host";
const MTU: u32 = 1500;
/// Longest part of `nft`'s complaints that is shown.
const MESSAGE: usize = 2000;

/// The name that the uplink has inside the router.
pub(super) fn name(config: &KernelConfig) -> &str {
    match &config.uplink {
        Uplink::None | Uplink::Host { .. } => UPLINK,
        Uplink::Interface { name, .. } => name.as_str(),
    }
}

/// Makes the uplink, or completes it. Runs in the router's namespace.
pub(super) fn setup(
    config: &KernelConfig,
    router: &Namespace,
    host: &Namespace,
    routes: &mut RouteSocket,
) -> Result<(), BackendError> {
    match &config.uplink {
        Uplink::None => Ok(()),
        Uplink::Host { translation } => {
            if index_of(routes, UPLINK)?.is_none() {
                create_host_link(host, routes)?;
            }
            let Some(index) = index_of(routes, UPLINK)? else {
                return Err(BackendError::NotSetUp);
            };
            let addresses = [
                IpNet::from(Ipv6Net::new_assert(ROUTER_LINK_LOCAL, 64)),
                IpNet::from(Ipv6Net::new_assert(ROUTER_V6, LINK.prefix_len())),
                IpNet::from(Ipv4Net::new_assert(ROUTER_V4, LINK_V4.prefix_len())),
            ];
            let gateways = [IpAddr::V6(HOST_LINK_LOCAL), IpAddr::V4(HOST_V4)];
            routes.run(furnish(UPLINK, index, &addresses, &gateways))?;
            host.enter()?;
            let done = setup_host(config, *translation);
            router.enter()?;
            // Makes the kernel notice the carrier now; see `port::finish`.
            done.and_then(|()| index_of(routes, UPLINK).map(drop))
        }
        Uplink::Interface {
            name,
            addresses,
            gateways,
        } => {
            if index_of(routes, name.as_str())?.is_none() {
                host.enter()?;
                let moved = take(name, router);
                router.enter()?;
                moved?;
            }
            let Some(index) = index_of(routes, name.as_str())? else {
                return Err(BackendError::UplinkMissing {
                    interface: name.clone(),
                });
            };
            let mut addresses = addresses.clone();
            addresses.extend(link_local_of(routes, name.as_str())?);
            routes.run(furnish(name.as_str(), index, &addresses, gateways))
        }
    }
}

/// Looks an interface up by name.
fn index_of(routes: &mut RouteSocket, name: &str) -> Result<Option<u32>, BackendError> {
    let found = routes.get(message::get_link(name), "look for", name)?;
    Ok(match found {
        Some(RouteNetlinkMessage::NewLink(link)) => Some(link.header.index),
        _ => None,
    })
}

/// The link-local address of an interface, after its Ethernet address. Interfaces of the router
/// get none by themselves, and without one the kernel cannot ask for a neighbour on behalf of
/// a packet that it forwards.
fn link_local_of(routes: &mut RouteSocket, name: &str) -> Result<Option<IpNet>, BackendError> {
    let found = routes.get(message::get_link(name), "look for", name)?;
    let Some(RouteNetlinkMessage::NewLink(link)) = found else {
        return Ok(None);
    };
    Ok(link
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::Address(bytes) => {
                let mac = <[u8; 6]>::try_from(bytes.as_slice()).ok()?;
                let address = MacAddress::new(mac).link_local();
                Some(IpNet::from(Ipv6Net::new_assert(address, 64)))
            }
            _ => None,
        }))
}

fn create_host_link(host: &Namespace, routes: &mut RouteSocket) -> Result<(), BackendError> {
    let end = |name, namespace| VethEnd {
        name,
        mac: None,
        mtu: MTU,
        index: None,
        namespace,
        up: false,
        group: None,
    };
    let mut batch = Batch::default();
    let host_end = end(HOST_LINK, Some(host.as_fd().as_raw_fd()));
    let pair = message::new_veth(&end(UPLINK, None), &host_end);
    batch.push(Verb::Create, pair, "create the link to the host", UPLINK);
    routes.run(batch).map_err(|error| match errno(&error) {
        Some(libc::EEXIST) => match InterfaceName::new(HOST_LINK) {
            Ok(interface) => BackendError::InterfaceExists {
                interface,
                namespace: "/proc/self/ns/net".into(),
            },
            Err(_) => error,
        },
        _ => error,
    })
}

fn furnish(name: &str, index: u32, addresses: &[IpNet], gateways: &[IpAddr]) -> Batch {
    let mut batch = Batch::default();
    batch.push(Verb::Change, message::link_up(index), "set up", name);
    for address in addresses {
        let message = message::address(index, *address);
        batch.push(Verb::Replace, message, "put an address on", name);
    }
    for gateway in gateways {
        let route = message::route(index, everywhere(*gateway), Some(*gateway));
        batch.push(Verb::Replace, route, "route through", name);
    }
    batch
}

/// The host's end: runs in the host's namespace.
fn setup_host(config: &KernelConfig, translation: Translation) -> Result<(), BackendError> {
    // The host's rules first: nothing is forwarded before they are there.
    run_nft(&host_table(config, translation))?;
    sysctl::set_host(true)?;
    sysctl::set_sandbox(HOST_LINK)?;
    let mut routes = RouteSocket::open()?;
    let Some(index) = index_of(&mut routes, HOST_LINK)? else {
        return Err(BackendError::NotSetUp);
    };
    let addresses = [
        IpNet::from(Ipv6Net::new_assert(HOST_LINK_LOCAL, 64)),
        IpNet::from(Ipv6Net::new_assert(HOST_V6, LINK.prefix_len())),
        IpNet::from(Ipv4Net::new_assert(HOST_V4, LINK_V4.prefix_len())),
    ];
    let mut batch = furnish(HOST_LINK, index, &addresses, &[]);
    for prefix in &config.operator_prefixes {
        let route = message::route(index, (*prefix).into(), Some(ROUTER_LINK_LOCAL.into()));
        batch.push(Verb::Replace, route, "route a prefix through", HOST_LINK);
    }
    routes.run(batch)
}

/// The host's rules: the router may use the host as a way, and not as a destination.
fn host_table(config: &KernelConfig, translation: Translation) -> String {
    let prefixes: Vec<String> = config
        .operator_prefixes
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut sources = vec![LINK.to_string()];
    sources.extend(prefixes.iter().cloned());
    let mut translated = vec![LINK.to_string()];
    if translation == Translation::Masquerade {
        translated.extend(prefixes);
    }
    let (sources, translated) = (sources.join(", "), translated.join(", "));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        r#"add table inet {HOST_TABLE}
delete table inet {HOST_TABLE}
table inet {HOST_TABLE} {{
	chain input {{
		type filter hook input priority filter - 10; policy accept;
		iifname != "{HOST_LINK}" accept
		ct state established,related accept
		icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} ip6 hoplimit 255 accept
		drop
	}}
	chain forward {{
		type filter hook forward priority filter - 10; policy accept;
		iifname "{HOST_LINK}" ip6 saddr != {{ {sources} }} drop
		iifname "{HOST_LINK}" ip saddr != {ROUTER_V4} drop
	}}
	chain translate {{
		type nat hook postrouting priority srcnat; policy accept;
		oifname "{HOST_LINK}" accept
		ip saddr {ROUTER_V4} masquerade
		ip6 saddr {{ {translated} }} masquerade
	}}
}}
"#
    );
    text
}

/// Moves an interface from the host into the router.
fn take(name: &InterfaceName, router: &Namespace) -> Result<(), BackendError> {
    let mut routes = RouteSocket::open()?;
    let Some(index) = index_of(&mut routes, name.as_str())? else {
        return Err(BackendError::UplinkMissing {
            interface: name.clone(),
        });
    };
    let mut batch = Batch::default();
    let message = message::move_link(index, router.as_fd().as_raw_fd());
    batch.push(Verb::Change, message, "move into the router", name.as_str());
    routes.run(batch)
}

/// Moves a given interface back to the host. Runs in the router's namespace.
pub(super) fn give_back(config: &KernelConfig, host: &Namespace) -> Result<(), BackendError> {
    let Uplink::Interface { name, .. } = &config.uplink else {
        return Ok(());
    };
    let mut routes = RouteSocket::open()?;
    let Some(index) = index_of(&mut routes, name.as_str())? else {
        return Ok(());
    };
    let mut batch = Batch::default();
    let message = message::move_link(index, host.as_fd().as_raw_fd());
    batch.push(
        Verb::Change,
        message,
        "move back to the host",
        name.as_str(),
    );
    routes.run(batch)
}

/// Removes what the host has of the uplink. Runs in the host's namespace.
pub(super) fn remove_from_host(uplink: &Uplink) -> Result<(), BackendError> {
    if !matches!(uplink, Uplink::Host { .. }) {
        return Ok(());
    }
    let mut routes = RouteSocket::open()?;
    port::delete(&mut routes, HOST_LINK)?;
    run_nft(&format!(
        "add table inet {HOST_TABLE}\ndelete table inet {HOST_TABLE}\n"
    ))
}

/// Hands a ruleset to the `nft` program, which makes it one transaction.
pub(crate) fn run_nft(text: &str) -> Result<(), BackendError> {
    let failed = |source| BackendError::Io {
        operation: "run",
        path: "nft".into(),
        source,
    };
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => BackendError::ProgramMissing {
                program: "nft",
                package: "nftables",
            },
            _ => failed(source),
        })?;
    if let Some(mut input) = child.stdin.take() {
        // A program that ends early says why on its standard error.
        match input.write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed(error)),
            _ => {}
        }
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(BackendError::ProgramFailed {
        program: "nft",
        status: output.status,
        message: message.trim().chars().take(MESSAGE).collect(),
    })
}
