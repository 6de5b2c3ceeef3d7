//! The router's namespace: made once, found again by the next process.

use std::net::IpAddr;

use causeway_types::RESOLVER;
use ipnet::{IpNet, Ipv6Net};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;

use super::message;
use super::namespace::{self, Namespace};
use super::nft::{Filter, Ruleset};
use super::route::{Batch, RouteSocket, Verb};
use super::{KernelConfig, PROXY_MARK, PROXY_PORT, PROXY_TABLE, sysctl, uplink};
use crate::backend::BackendError;

const LOOPBACK: u32 = 1;
/// Before the main table's rule (32766), behind the local table's (0).
const RULE_PRIORITY: u32 = 100;

/// What a router was found or made with.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) namespace: Namespace,
    pub(super) host: Namespace,
    /// The highest interface index in the namespace.
    pub(super) highest_index: u32,
    pub(super) filter: Filter,
}

/// Makes the router, or completes it. Changes the calling thread's namespace.
pub(super) fn setup(config: &KernelConfig) -> Result<Router, BackendError> {
    let host = Namespace::current()?;
    sysctl::raise_limits();
    let namespace = namespace::create_and_enter(&config.namespace_path())?;
    sysctl::set_router()?;
    sysctl::raise_limits();
    let mut routes = RouteSocket::open()?;
    routes.run(fixtures())?;
    // The filter first: no interface forwards a packet before it is there.
    let mut filter = Filter::open()?;
    filter.install(&ruleset(config))?;
    uplink::setup(config, &namespace, &host, &mut routes)?;
    let links = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let highest_index = routes
        .dump(&links, "links")?
        .iter()
        .filter_map(|link| match link {
            RouteNetlinkMessage::NewLink(link) => Some(link.header.index),
            _ => None,
        })
        .max()
        .unwrap_or(LOOPBACK);
    Ok(Router {
        namespace,
        host,
        highest_index,
        filter,
    })
}

/// The packet filter's structure for this configuration.
pub(super) fn ruleset(config: &KernelConfig) -> Ruleset {
    let mut own_prefixes = config.own_prefixes.clone();
    own_prefixes.push(uplink::OWN);
    Ruleset {
        uplink: uplink::name(config).to_owned(),
        proxy_mark: PROXY_MARK,
        proxy_port: PROXY_PORT,
        operator_prefixes: config.operator_prefixes.clone(),
        own_prefixes,
    }
}

/// Loopback, the resolver's address on it, and the way of marked packets to the proxy.
fn fixtures() -> Batch {
    let mut batch = Batch::default();
    batch.push(Verb::Change, message::link_up(LOOPBACK), "set up", "lo");
    let resolver = IpNet::from(Ipv6Net::from(RESOLVER));
    let resolver = message::address(LOOPBACK, resolver);
    batch.push(
        Verb::Replace,
        resolver,
        "put the resolver's address on",
        "lo",
    );
    let local = message::local_route(PROXY_TABLE, LOOPBACK);
    batch.push(Verb::Replace, local, "add the proxy's route to", "lo");
    let rule = message::mark_rule(PROXY_MARK, PROXY_TABLE, RULE_PRIORITY);
    batch
        .push(Verb::Create, rule, "add the proxy's rule to", "the router")
        .tolerating(libc::EEXIST);
    batch
}

/// Removes the router and everything on it. Nothing there is success. Changes the calling
/// thread's namespace, and goes on after a failure: the first is reported.
pub(super) fn teardown(config: &KernelConfig) -> Result<(), BackendError> {
    let host = Namespace::current()?;
    let path = config.namespace_path();
    let mut first = Ok(());
    let mut note = |result: Result<(), BackendError>| {
        if let Err(error) = result {
            tracing::warn!(%error, "teardown goes on");
            if first.is_ok() {
                first = Err(error);
            }
        }
    };
    match Namespace::open(&path) {
        Ok(router) => {
            // A file that is no namespace is a leftover too.
            if router.enter().is_ok() {
                note(uplink::give_back(config, &host));
                note(super::tap::remove_all(&router, &host));
                // The namespace goes when its last user does, and that may take a while;
                // the sandboxes' ends go now.
                note(
                    RouteSocket::open().and_then(|mut routes| super::port::delete_all(&mut routes)),
                );
            }
            note(host.enter());
        }
        Err(BackendError::NamespaceMissing { .. }) => {}
        Err(error) => note(Err(error)),
    }
    note(uplink::remove_from_host(&config.uplink));
    note(namespace::remove(&path));
    first
}

/// The unspecified prefix of an address's family.
pub(super) fn everywhere(like: IpAddr) -> IpNet {
    match like {
        IpAddr::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
        IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
    }
}
