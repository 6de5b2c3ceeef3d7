//! Groups: sandboxes that every rule treats alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use causeway_types::{Labels, NetworkName, TenantName};
use ipnet::Ipv6Net;

use super::ports::{Cutter, PortSet};
use crate::desired::{EgressRule, Firewall, Ingress, IngressPeer};
use crate::elements::{Element, GroupId};
use crate::reserved;

/// What makes two sandboxes alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    pub(super) tenant: TenantName,
    pub(super) networks: BTreeSet<NetworkName>,
    /// Only the labels that some ingress rule of the tenant looks at.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) firewall: Arc<Firewall>,
}

/// The label keys that a firewall's ingress rules look at.
pub(super) fn selector_keys(firewall: &Firewall) -> impl Iterator<Item = &str> {
    let rules = match &firewall.ingress {
        Ingress::SharedNetworks => &[][..],
        Ingress::Rules(rules) => rules,
    };
    rules
        .iter()
        .filter_map(|rule| match &rule.from {
            IngressPeer::Network { labels, .. } => Some(labels),
            IngressPeer::Outside { .. } => None,
        })
        .flat_map(Labels::iter)
        .map(|(key, _)| key)
}

/// The elements for flows from one group to another.
pub(super) fn pair(from: (&GroupKey, GroupId), to: (&GroupKey, GroupId)) -> Vec<Element> {
    let (sender, from) = from;
    let (receiver, to) = to;
    if sender.tenant != receiver.tenant || sender.networks.is_disjoint(&receiver.networks) {
        return Vec::new();
    }
    let Ingress::Rules(rules) = &receiver.firewall.ingress else {
        return vec![Element::Reach { from, to }];
    };
    let mut open = PortSet::default();
    for rule in rules {
        if let IngressPeer::Network { network, labels } = &rule.from
            && sender.networks.contains(network)
            && receiver.networks.contains(network)
            && labels
                .iter()
                .all(|(key, value)| sender.labels.get(key).is_some_and(|own| own == value))
        {
            open.add(&rule.ports);
        }
    }
    if open.is_everything() {
        return vec![Element::Reach { from, to }];
    }
    let mut elements = vec![Element::Shared { from, to }];
    elements.extend(
        open.blocks()
            .into_iter()
            .map(|service| Element::ReachPorts { from, to, service }),
    );
    elements
}

/// The elements for flows between a group and the outside.
pub(super) fn outside(key: &GroupKey, group: GroupId) -> Vec<Element> {
    let firewall = &*key.firewall;
    let mut elements = Vec::new();
    let plain = cut(&firewall.egress, PortSet::without_tcp, |prefix| {
        !reserved::opens(*prefix)
    });
    elements.extend(
        plain
            .pieces()
            .into_iter()
            .map(|(prefix, service)| Element::Egress {
                group,
                prefix,
                service,
            }),
    );
    let reserved = cut(&firewall.egress, PortSet::without_tcp, |prefix| {
        reserved::opens(*prefix)
    });
    elements.extend(reserved.pieces().into_iter().map(|(prefix, service)| {
        Element::EgressReserved {
            group,
            prefix,
            service,
        }
    }));
    let denied = cut(&firewall.egress_deny, |ports| ports, |_| true).pieces();
    elements.extend(
        denied
            .into_iter()
            .map(|(prefix, service)| Element::EgressDeny {
                group,
                prefix,
                service,
            }),
    );
    let inbound = inbound(firewall).pieces();
    elements.extend(
        inbound
            .into_iter()
            .map(|(prefix, service)| Element::Inbound {
                group,
                prefix,
                service,
            }),
    );
    elements
}

fn cut(
    rules: &[EgressRule],
    narrow: impl Fn(PortSet) -> PortSet,
    takes: impl Fn(&Ipv6Net) -> bool,
) -> Cutter {
    let mut cutter = Cutter::default();
    for rule in rules {
        let mut ports = PortSet::default();
        ports.add(&rule.ports);
        let ports = narrow(ports);
        for prefix in rule.prefixes.iter().filter(|prefix| takes(prefix)) {
            cutter.add(*prefix, &ports);
        }
    }
    cutter
}

fn inbound(firewall: &Firewall) -> Cutter {
    let mut cutter = Cutter::default();
    if let Ingress::Rules(rules) = &firewall.ingress {
        for rule in rules {
            if let IngressPeer::Outside { prefixes } = &rule.from {
                let mut ports = PortSet::default();
                ports.add(&rule.ports);
                for prefix in prefixes {
                    cutter.add(*prefix, &ports);
                }
            }
        }
    }
    cutter
}
