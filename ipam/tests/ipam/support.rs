//! What the tests share.

use std::net::Ipv6Addr;
use std::time::Duration;

use causeway_ipam::{
    BlockKey, Lease, MemoryStore, Owner, Plan, PlanSettings, PrefixPool, Request, Service,
    UnixMillis,
};
use ipnet::Ipv6Net;

pub(crate) const QUARANTINE: Duration = Duration::from_millis(100);

pub(crate) fn net(text: &str) -> Ipv6Net {
    text.parse().unwrap()
}

pub(crate) fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

pub(crate) fn owner(name: impl std::fmt::Display) -> Owner {
    Owner::new(&name.to_string()).unwrap()
}

pub(crate) fn at(millis: u64) -> UnixMillis {
    UnixMillis(millis)
}

pub(crate) fn settings(node_block: &str) -> PlanSettings {
    PlanSettings {
        operator_prefix: net("2001:db8::/32"),
        node_block: net(node_block),
        prefix_pools: Vec::new(),
        exclusions: Vec::new(),
        quarantine: QUARANTINE,
        key: BlockKey::new([42; 16]),
    }
}

pub(crate) fn plan(node_block: &str) -> Plan {
    Plan::new(settings(node_block)).unwrap()
}

pub(crate) fn plan_with_prefixes(node_block: &str, block: &str, length: u8) -> Plan {
    Plan::new(PlanSettings {
        prefix_pools: vec![PrefixPool {
            block: net(block),
            length,
        }],
        ..settings(node_block)
    })
    .unwrap()
}

pub(crate) fn service(node_block: &str) -> Service<MemoryStore> {
    Service::open(plan(node_block), MemoryStore::default()).unwrap()
}

pub(crate) const ANY: Request = Request {
    address: None,
    prefix_length: None,
};

pub(crate) fn with_prefix(length: u8) -> Request {
    Request {
        prefix_length: Some(length),
        ..ANY
    }
}

pub(crate) fn fixed(text: &str) -> Request {
    Request {
        address: Some(address(text)),
        ..ANY
    }
}

/// Every lease, read page by page.
pub(crate) fn everything(ipam: &causeway_ipam::Ipam) -> Vec<Lease> {
    let mut leases = Vec::new();
    let mut after = None;
    loop {
        let page = ipam.list(after, 7);
        leases.extend(page.leases);
        after = page.next;
        if after.is_none() {
            return leases;
        }
    }
}
