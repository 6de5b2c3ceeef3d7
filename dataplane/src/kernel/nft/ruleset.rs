//! The structure of the packet filter, as text for the `nft` program.

use std::fmt::{self, Write};

use causeway_types::{Layer, PROXY_PORTS, RESOLVER, Reason};
use ipnet::Ipv6Net;

use crate::reserved;

/// The table's name; its family is `inet`.
pub const TABLE: &str = "causeway";

/// The rules, with their reasons. What differs from node to node is defined in front.
const TEXT: &str = include_str!("ruleset.nft");

/// Stands in [`TEXT`] where the digest goes.
const DIGEST: &str = "@digest@";

/// The rules of the other family that reaches us. IPv4 has no address on a port; there is
/// nothing to answer.
const ARP: &str = include_str!("arp.nft");

/// Reasons that are also counted for packets that the router itself sends.
const OUTGOING: &[Reason] = &[Reason::Quarantined, Reason::ReservedDestination];

/// Reasons for which the sender is told, with an error.
const REFUSED: &[Reason] = &[Reason::EgressDenied, Reason::ReservedDestination];

/// What the structure depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// The interface to the outside. It need not exist.
    pub uplink: String,
    /// The mark on packets that are delivered to the proxy.
    pub proxy_mark: u32,
    /// The port at which the proxy takes redirected connections.
    pub proxy_port: u16,
    /// Where sandboxes live: packets from the outside may not come from here, and an address in
    /// here that no sandbox holds is not looked for outside.
    pub operator_prefixes: Vec<Ipv6Net>,
    /// Ranges of this node and its operator that no rule opens: host addresses, tunnel
    /// endpoints, segment identifiers.
    pub own_prefixes: Vec<Ipv6Net>,
}

impl Ruleset {
    /// A number that changes when the text does (FNV-1a). It tells a later version of this
    /// program, or the same with other settings, that the structure is not the one it would write.
    pub fn digest(&self) -> String {
        let hash = self
            .body()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        format!("causeway {hash:016x}")
    }

    /// The complete table for `nft -f`.
    pub fn text(&self) -> String {
        self.body().replace(DIGEST, &self.digest())
    }

    fn body(&self) -> String {
        let mut text = String::with_capacity(2 * TEXT.len());
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "define uplink = \"{}\"", self.uplink)?;
        writeln!(out, "define proxy_mark = {:#x}", self.proxy_mark)?;
        writeln!(out, "define proxy_port = {}", self.proxy_port)?;
        writeln!(out, "define resolver = {RESOLVER}")?;
        let ports = PROXY_PORTS.map(|port| port.to_string()).join(", ");
        writeln!(out, "define proxy_own_ports = {{ {ports} }}")?;
        out.push_str(TEXT);
        for reason in Reason::ALL {
            if reason.layer() == Layer::Dataplane {
                drop_chain(out, "drop", "iif", *reason, "drop")?;
            }
        }
        for reason in OUTGOING {
            drop_chain(out, "drop_out", "oif", *reason, "drop")?;
        }
        for reason in REFUSED {
            let end = "reject with icmpv6 type admin-prohibited";
            drop_chain(out, "refuse", "iif", *reason, end)?;
        }
        out.push_str("}\n");
        write!(
            out,
            "{}",
            ARP.replace("@code@", &Reason::NotIpv6.code().to_string())
        )?;
        elements(out, "operator", self.operator_prefixes.iter().copied())?;
        elements(out, "own", self.own_prefixes.iter().copied())?;
        elements(out, "reserved", reserved::prefixes())?;
        elements(out, "reserved_ipv4", reserved::ipv4_suffixes())
    }
}

/// A chain that counts packets under a reason and drops them. The drop is a rule of its own: a
/// rule that cannot count ends there.
fn drop_chain(
    out: &mut String,
    prefix: &str,
    interface: &str,
    reason: Reason,
    end: &str,
) -> fmt::Result {
    let code = reason.code();
    writeln!(out, "\tchain {prefix}_{reason} {{")?;
    writeln!(
        out,
        "\t\tmeta mark set {code} update @drops {{ {interface} . meta mark counter }}"
    )?;
    writeln!(out, "\t\t{end}\n\t}}")
}

fn elements(out: &mut String, set: &str, prefixes: impl Iterator<Item = Ipv6Net>) -> fmt::Result {
    let mut prefixes = prefixes.map(|prefix| prefix.trunc()).peekable();
    if prefixes.peek().is_none() {
        return Ok(());
    }
    write!(out, "add element inet {TABLE} {set} {{ ")?;
    for prefix in prefixes {
        write!(out, "{prefix}, ")?;
    }
    out.push_str("}\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn example() -> Ruleset {
        Ruleset {
            uplink: "cw-up".to_owned(),
            proxy_mark: 0xca05_e000,
            proxy_port: 15001,
            operator_prefixes: vec!["2001:db8::/32".parse().unwrap()],
            own_prefixes: Vec::new(),
        }
    }

    #[test]
    fn every_reason_of_the_dataplane_is_used() {
        for reason in Reason::ALL {
            let used = TEXT.contains(&format!("drop_{reason}"));
            assert_eq!(used, reason.layer() == Layer::Dataplane, "{reason}");
        }
        for reason in OUTGOING {
            assert!(TEXT.contains(&format!("drop_out_{reason}")), "{reason}");
        }
        for reason in REFUSED {
            assert!(TEXT.contains(&format!("refuse_{reason}")), "{reason}");
        }
    }

    #[test]
    fn the_digest_follows_every_setting_and_nothing_else() {
        let base = example();
        assert_eq!(base.digest(), base.clone().digest());
        let mut changed = vec![example(); 5];
        changed[0].uplink = "eth7".to_owned();
        changed[1].proxy_mark += 1;
        changed[2].proxy_port += 1;
        changed[3].operator_prefixes.clear();
        changed[4].own_prefixes.push("2600::/32".parse().unwrap());
        for other in changed {
            assert_ne!(base.digest(), other.digest(), "{other:?}");
        }
        assert!(
            base.text()
                .contains(&format!("comment \"{}\"", base.digest()))
        );
    }
}
