//! The closed list of reasons for which a packet is dropped or a request refused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Who refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The dataplane's packet filter drops a packet.
    Dataplane,
    /// The forwarder drops a packet that it is to carry by itself.
    Forwarder,
    /// The egress proxy refuses a connection, a request or a query.
    Egress,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal, $name:literal, $layer:ident;)+) => {
        /// Why something was refused. Each has a number, which the dataplane counts it under,
        /// a name, which logs, metrics and refusals show, and a sentence for people.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "&'static str", try_from = "String")]
        #[repr(u16)]
        pub enum Reason {
            $($(#[doc = $doc])+ $variant = $code,)+
        }

        impl Reason {
            /// Every reason, in order of code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in logs, metrics and replies.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What it means, as a sentence.
            pub const fn explanation(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }

            /// Who refuses for this reason.
            pub const fn layer(self) -> Layer {
                match self { $(Self::$variant => Layer::$layer,)+ }
            }
        }
    };
}

reasons! {
    /// The packet's source is not an address of the sandbox that sent it.
    SpoofedSource = 1, "spoofed_source", Dataplane;
    /// A neighbour advertisement, a redirect, or a solicitation for another address than the gateway's.
    NeighbourDiscovery = 2, "neighbour_discovery", Dataplane;
    /// A sandbox sent a router advertisement.
    RouterAdvertisement = 3, "router_advertisement", Dataplane;
    /// The packet is not IPv6.
    NotIpv6 = 4, "not_ipv6", Dataplane;
    /// The packet carries a routing, hop-by-hop, destination or mobility header, or an unknown one.
    ExtensionHeader = 5, "extension_header", Dataplane;
    /// The packet is a fragment that could not be reassembled into a whole packet.
    Fragment = 6, "fragment", Dataplane;
    /// Sandboxes do not send to multicast groups, beyond what neighbour discovery needs.
    Multicast = 7, "multicast", Dataplane;
    /// The destination is the host, link-local, metadata, private or Causeway's own.
    ReservedDestination = 8, "reserved_destination", Dataplane;
    /// The two sandboxes share no private network.
    NoSharedNetwork = 9, "no_shared_network", Dataplane;
    /// The destination's ingress rules do not permit it.
    IngressDenied = 10, "ingress_denied", Dataplane;
    /// No egress rule permits this destination, protocol and port.
    EgressDenied = 11, "egress_denied", Dataplane;
    /// The sandbox is in quarantine.
    Quarantined = 12, "quarantined", Dataplane;
    /// The packet belongs to no known connection, or is malformed.
    Invalid = 13, "invalid", Dataplane;
    /// The egress proxy is not running, so what it would judge is dropped.
    ProxyDown = 14, "proxy_down", Dataplane;
    /// The destination is a sandbox's address that no sandbox holds.
    NoSuchSandbox = 15, "no_such_sandbox", Dataplane;
    /// The packet was sent to the router itself, which does not offer that service.
    RouterService = 16, "router_service", Dataplane;
    /// VPP gave the packet up: its hop limit was used up, it was too large, cut short or damaged.
    Forwarder = 17, "forwarder", Forwarder;

    /// The source address belongs to no sandbox that the proxy knows.
    UnknownSandbox = 32, "unknown_sandbox", Egress;
    /// No policy selects the sandbox.
    NoPolicy = 33, "no_policy", Egress;
    /// No rule permits the name.
    NameDenied = 34, "name_denied", Egress;
    /// No rule permits the name on this port.
    PortDenied = 35, "port_denied", Egress;
    /// No rule permits the address.
    AddressDenied = 36, "address_denied", Egress;
    /// A deny rule forbids it.
    DeniedByRule = 37, "denied_by_rule", Egress;
    /// An operator's guardrail does not permit it.
    Guardrail = 38, "guardrail", Egress;
    /// No http rule permits the method and path.
    RequestDenied = 39, "request_denied", Egress;
    /// The name is not a well-formed host name in its one canonical form.
    BadName = 40, "bad_name", Egress;
    /// The names in CONNECT, SNI, Host and :authority differ.
    NameMismatch = 41, "name_mismatch", Egress;
    /// The destination address was not handed out for this name by Causeway's resolver.
    NotPinned = 42, "not_pinned", Egress;
    /// The name's address lies in a reserved range.
    ReservedAddress = 43, "reserved_address", Egress;
    /// The connection shows no name, and no rule permits its address.
    NoName = 44, "no_name", Egress;
    /// The request can be read in two ways.
    AmbiguousRequest = 45, "ambiguous_request", Egress;
    /// The path can be read in two ways.
    AmbiguousPath = 46, "ambiguous_path", Egress;
    /// The TLS handshake is malformed or not acceptable.
    BadTls = 47, "bad_tls", Egress;
    /// The name did not resolve, or resolved to no address.
    Unresolved = 48, "unresolved", Egress;
    /// The upstream did not answer.
    UpstreamUnreachable = 49, "upstream_unreachable", Egress;
    /// The upstream's certificate is not valid for the name.
    UpstreamCertificate = 50, "upstream_certificate", Egress;
    /// The upstream broke off or spoke no HTTP.
    UpstreamProtocol = 51, "upstream_protocol", Egress;
    /// A secret that the rule injects has no value.
    SecretMissing = 52, "secret_missing", Egress;
    /// A secret would leave on plain HTTP.
    SecretOnPlaintext = 53, "secret_on_plaintext", Egress;
    /// The sandbox's limit on connections or requests is reached.
    LimitReached = 54, "limit_reached", Egress;
    /// The policy changed, and no longer permits this connection.
    Revoked = 55, "revoked", Egress;
    /// The sandbox is in quarantine, so the proxy refuses it.
    SandboxQuarantined = 56, "sandbox_quarantined", Egress;
    /// A header or body is larger than the limit.
    TooLarge = 57, "too_large", Egress;
    /// The client was idle or slow for too long.
    TimedOut = 58, "timed_out", Egress;
    /// The protocol, or this use of it, is not supported.
    Unsupported = 59, "unsupported", Egress;
    /// Two secrets would go into one place, or one secret in two ways.
    SecretConflict = 60, "secret_conflict", Egress;
    /// A placeholder stands where its secret cannot be written.
    SecretMisplaced = 61, "secret_misplaced", Egress;
    /// The request's body is coded so that placeholders cannot be looked for in it.
    UnreadableBody = 62, "unreadable_body", Egress;
    /// The answer comes in pieces or coded so that secrets cannot be looked for in it.
    UnreadableAnswer = 63, "unreadable_answer", Egress;
}

impl Reason {
    /// The number that the dataplane counts it under.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The reason with this number.
    pub fn from_code(code: u16) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.code() == code)
    }
}

/// Text that names no reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no reason")]
pub struct UnknownReason {
    /// The text, as given.
    pub text: String,
}

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, UnknownReason> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.name() == text)
            .ok_or_else(|| UnknownReason {
                text: text.to_owned(),
            })
    }
}

impl TryFrom<String> for Reason {
    type Error = UnknownReason;

    fn try_from(text: String) -> Result<Self, UnknownReason> {
        text.parse()
    }
}

impl From<Reason> for &'static str {
    fn from(reason: Reason) -> &'static str {
        reason.name()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_and_names_are_unique_and_round_trip() {
        let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        for &reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
            assert_eq!(reason.name().parse::<Reason>().unwrap(), reason);
            assert!(reason.explanation().ends_with('.'), "{reason}");
        }
        assert_eq!(Reason::from_code(0), None);
        assert!("nonsense".parse::<Reason>().is_err());
    }
}
