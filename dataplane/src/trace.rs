//! What would happen to a packet: each decision on its way, without sending it.

use std::net::Ipv6Addr;

use causeway_types::{
    AddressClass, GATEWAY, NetworkName, PROXY_PORTS, RESOLVER, Reason, SandboxId, SandboxUid,
    classify,
};
use serde::Serialize;

use crate::desired::{DesiredState, EgressRule, Ingress, IngressPeer, Protocol, SandboxSpec};
use crate::reserved;

/// A packet that a sandbox would send, from its own address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The destination address.
    pub destination: Ipv6Addr,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The destination port; ignored for protocols without ports.
    pub port: u16,
}

/// How a packet fares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Each question that was asked, in order.
    pub steps: Vec<TraceStep>,
    /// The end of its way.
    pub verdict: Verdict,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceStep {
    /// What was looked at, such as `quarantine` or `ingress`.
    pub check: &'static str,
    /// What was found, as a sentence.
    pub finding: String,
    /// Whether the packet went on.
    pub passed: bool,
}

/// Where a packet ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// At another sandbox.
    Delivered {
        /// That sandbox.
        to: SandboxId,
    },
    /// At the egress proxy, which decides further.
    Proxy,
    /// At the resolver, which decides further.
    Resolver,
    /// At the router, which answers.
    Router,
    /// Outside, past the proxy, by a CIDR rule.
    Forwarded,
    /// Nowhere.
    Dropped {
        /// Why.
        reason: Reason,
    },
}

/// Follows a packet of sandbox `from`; `None` when there is no such sandbox.
pub fn trace(desired: &DesiredState, from: SandboxUid, packet: &Packet) -> Option<Trace> {
    let sender = desired.sandboxes.get(&from)?;
    let mut walk = Walk { steps: Vec::new() };
    let verdict = match walk.follow(desired, sender, packet) {
        Ok(verdict) => verdict,
        Err(reason) => Verdict::Dropped { reason },
    };
    Some(Trace {
        steps: walk.steps,
        verdict,
    })
}

struct Walk {
    steps: Vec<TraceStep>,
}

impl Walk {
    fn pass(&mut self, check: &'static str, finding: String) {
        self.steps.push(TraceStep {
            check,
            finding,
            passed: true,
        });
    }

    /// Notes a finding, and ends the walk when it is a bad one.
    fn test(
        &mut self,
        check: &'static str,
        passed: bool,
        finding: String,
        reason: Reason,
    ) -> Result<(), Reason> {
        self.steps.push(TraceStep {
            check,
            finding,
            passed,
        });
        if passed { Ok(()) } else { Err(reason) }
    }

    fn follow(
        &mut self,
        desired: &DesiredState,
        sender: &SandboxSpec,
        packet: &Packet,
    ) -> Result<Verdict, Reason> {
        self.pass(
            "source",
            format!("{} is the address of {}", sender.address, sender.id),
        );
        self.quarantine(sender)?;
        let to = packet.destination;
        if to == GATEWAY || to == RESOLVER {
            return self.router(packet);
        }
        let class = classify(to.into());
        let multicast = class == AddressClass::Multicast;
        let text = if multicast { "is" } else { "is not" };
        self.test(
            "multicast",
            !multicast,
            format!("{to} {text} a multicast group"),
            Reason::Multicast,
        )?;
        if let Some(receiver) = holder(desired, to) {
            return self.sandbox(sender, receiver, packet);
        }
        let ours = desired
            .operator_prefixes
            .iter()
            .any(|prefix| prefix.contains(&to));
        let text = if ours { "a" } else { "no" };
        self.test(
            "operator prefix",
            !ours,
            format!("{to} is {text} sandbox address that no sandbox holds"),
            Reason::NoSuchSandbox,
        )?;
        if packet.protocol.number() == Protocol::Tcp.number() {
            self.pass("interception", "TCP goes to the egress proxy".to_owned());
            return Ok(Verdict::Proxy);
        }
        self.outside(sender, packet)
    }

    fn quarantine(&mut self, sandbox: &SandboxSpec) -> Result<(), Reason> {
        let text = if sandbox.quarantined { "is" } else { "is not" };
        self.test(
            "quarantine",
            !sandbox.quarantined,
            format!("{} {text} in quarantine", sandbox.id),
            Reason::Quarantined,
        )
    }

    fn router(&mut self, packet: &Packet) -> Result<Verdict, Reason> {
        let dns = matches!(packet.protocol, Protocol::Tcp | Protocol::Udp) && packet.port == 53;
        let to_proxy =
            matches!(packet.protocol, Protocol::Tcp) && PROXY_PORTS.contains(&packet.port);
        let (passed, verdict) = if packet.destination == RESOLVER && to_proxy {
            (true, Verdict::Proxy)
        } else if packet.destination == RESOLVER {
            (dns, Verdict::Resolver)
        } else {
            (packet.protocol == Protocol::Icmpv6, Verdict::Router)
        };
        let text = if passed { "offers" } else { "does not offer" };
        let service = format!("{} {}", packet.protocol, packet.port);
        self.test(
            "router",
            passed,
            format!("{} {text} {service}", packet.destination),
            Reason::RouterService,
        )?;
        Ok(verdict)
    }

    fn sandbox(
        &mut self,
        sender: &SandboxSpec,
        receiver: &SandboxSpec,
        packet: &Packet,
    ) -> Result<Verdict, Reason> {
        self.quarantine(receiver)?;
        self.denied(sender, packet)?;
        let shared: Vec<&str> = sender
            .networks
            .intersection(&receiver.networks)
            .filter(|_| sender.id.tenant == receiver.id.tenant)
            .map(NetworkName::as_str)
            .collect();
        let finding = if shared.is_empty() {
            format!("{} and {} share no network", sender.id, receiver.id)
        } else {
            format!(
                "{} and {} share {}",
                sender.id,
                receiver.id,
                shared.join(", ")
            )
        };
        self.test(
            "networks",
            !shared.is_empty(),
            finding,
            Reason::NoSharedNetwork,
        )?;
        let open = ingress_permits(sender, receiver, packet);
        let text = if open { "admits" } else { "does not admit" };
        self.test(
            "ingress",
            open,
            format!(
                "{} {text} {} {} from {}",
                receiver.id, packet.protocol, packet.port, sender.id
            ),
            Reason::IngressDenied,
        )?;
        Ok(Verdict::Delivered {
            to: receiver.id.clone(),
        })
    }

    fn denied(&mut self, sender: &SandboxSpec, packet: &Packet) -> Result<(), Reason> {
        let rule = covers(&sender.firewall.egress_deny, packet, |_| true);
        let text = if rule { "A" } else { "No" };
        self.test(
            "egress deny",
            !rule,
            format!("{text} deny rule of {} covers it", sender.id),
            Reason::EgressDenied,
        )
    }

    fn outside(&mut self, sender: &SandboxSpec, packet: &Packet) -> Result<Verdict, Reason> {
        self.denied(sender, packet)?;
        if is_reserved(packet.destination) {
            let named = covers(&sender.firewall.egress, packet, |prefix| {
                reserved::opens(*prefix)
            });
            let text = if named { "a" } else { "no" };
            self.test(
                "reserved",
                named,
                format!(
                    "{} is reserved, and {text} rule names its range",
                    packet.destination
                ),
                Reason::ReservedDestination,
            )?;
            return Ok(Verdict::Forwarded);
        }
        let allowed = covers(&sender.firewall.egress, packet, |prefix| {
            !reserved::opens(*prefix)
        });
        let text = if allowed { "A" } else { "No" };
        self.test(
            "egress",
            allowed,
            format!("{text} CIDR rule of {} covers it", sender.id),
            Reason::EgressDenied,
        )?;
        Ok(Verdict::Forwarded)
    }
}

/// The sandbox that an address, or the prefix around it, belongs to.
fn holder(desired: &DesiredState, address: Ipv6Addr) -> Option<&SandboxSpec> {
    let sandboxes = || desired.sandboxes.values();
    sandboxes()
        .find(|s| s.address == address)
        .or_else(|| sandboxes().find(|s| s.prefix.is_some_and(|prefix| prefix.contains(&address))))
}

fn ingress_permits(sender: &SandboxSpec, receiver: &SandboxSpec, packet: &Packet) -> bool {
    let Ingress::Rules(rules) = &receiver.firewall.ingress else {
        return true;
    };
    rules.iter().any(|rule| match &rule.from {
        IngressPeer::Outside { .. } => false,
        IngressPeer::Network { network, labels } => {
            sender.networks.contains(network)
                && receiver.networks.contains(network)
                && labels
                    .iter()
                    .all(|(key, value)| sender.labels.get(key) == Some(value))
                && rule.ports.contains(packet.protocol, packet.port)
        }
    })
}

fn covers(rules: &[EgressRule], packet: &Packet, counts: impl Fn(&ipnet::Ipv6Net) -> bool) -> bool {
    rules.iter().any(|rule| {
        rule.ports.contains(packet.protocol, packet.port)
            && rule
                .prefixes
                .iter()
                .any(|prefix| counts(prefix) && prefix.contains(&packet.destination))
    })
}

/// Whether the packet filter holds a destination for reserved: by prefix, or as an ISATAP
/// address (RFC 5214) with a reserved IPv4 address inside.
fn is_reserved(address: Ipv6Addr) -> bool {
    let isatap = matches!(address.segments(), [_, _, _, _, 0 | 0x200, 0x5efe, _, _]);
    let low = Ipv6Addr::from_bits(address.to_bits() & u128::from(u32::MAX));
    reserved::prefixes().any(|range| range.contains(&address))
        || isatap && reserved::ipv4_suffixes().any(|range| range.contains(&low))
}
