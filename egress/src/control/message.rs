//! The messages themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv6Addr, SocketAddr};

use causeway_types::{
    Generation, Labels, NetworkName, Reason, SandboxId, SandboxUid, SecretName, TenantName,
};
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::SecretValue;
use crate::audit::{AuditRecord, Outcome, Protocol};

/// The version of these messages. Two processes with different ones do not talk to each other.
pub const PROTOCOL: u32 = 2;

/// From the agent to the proxy.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToProxy {
    /// The first message. Another protocol is answered with `Welcome` and then only
    /// `Shutdown` is obeyed.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The build of the agent.
        build: String,
    },
    /// A whole state follows: what is not repeated before `Commit` is dropped.
    Begin,
    /// Replaces the settings.
    Settings(Settings),
    /// Replaces the certificate authority that leaf certificates are signed with.
    Ca {
        /// The certificate, PEM.
        cert_pem: String,
        /// Its private key, PEM (PKCS #8).
        key_pem: SecretValue,
    },
    /// Sets the key that the placeholders of sandboxes come from.
    Placeholders {
        /// The key: 16 bytes.
        key: SecretValue,
    },
    /// Replaces the policies of one tenant, or the guardrails.
    Policies {
        /// The owner; none for the guardrails.
        tenant: Option<TenantName>,
        /// Policy files in their canonical source text.
        documents: Vec<String>,
    },
    /// Sets a secret.
    Secret {
        /// The owner.
        tenant: TenantName,
        /// The name.
        name: SecretName,
        /// The value.
        value: SecretValue,
    },
    /// Removes a secret.
    SecretGone {
        /// The owner.
        tenant: TenantName,
        /// The name.
        name: SecretName,
    },
    /// Adds a sandbox, or replaces what is known of the one that has this address.
    Sandbox(SandboxInfo),
    /// Removes the sandbox that has this address.
    SandboxGone {
        /// Its address.
        address: Ipv6Addr,
    },
    /// Makes everything since the last commit take effect at once, on live flows too.
    Commit {
        /// The generation that the state now has.
        generation: Generation,
    },
    /// Asks for [`FromProxy::Stats`].
    GetStats,
    /// Asks for every decision from now on as an event, or for none, as at first. Nobody has to
    /// pay for events that nobody follows.
    Follow {
        /// Whether events are wanted.
        events: bool,
    },
    /// Ends the proxy, and every flow through it.
    Shutdown,
}

impl ToProxy {
    /// Room that is enough for the encoded message when it carries a secret, so that no copy of
    /// it stays behind in a buffer that had to grow.
    pub(super) fn encoded_size_hint(&self) -> usize {
        const ENVELOPE: usize = 4096;
        match self {
            Self::Ca { cert_pem, key_pem } => {
                ENVELOPE + 2 * cert_pem.len() + 2 * key_pem.expose().len()
            }
            Self::Secret { value, .. } => ENVELOPE + 2 * value.expose().len(),
            _ => ENVELOPE,
        }
    }
}

/// What holds for every sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The resolvers that names are asked of, in order of preference.
    pub upstream_resolvers: Vec<SocketAddr>,
    /// Certificates (PEM) that upstream certificates may chain to, beside the system's.
    pub extra_roots_pem: String,
    /// Ranges that are reserved beside the well-known ones: addresses of this host, of the
    /// nodes, the operator's prefixes.
    pub reserved: Vec<IpNet>,
}

/// What the proxy needs to know of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxInfo {
    /// Its address: connections from it are the sandbox's.
    pub address: Ipv6Addr,
    /// A prefix that is the sandbox's too.
    pub prefix: Option<Ipv6Net>,
    /// Its full name.
    pub id: SandboxId,
    /// Its identifier.
    pub uid: SandboxUid,
    /// Its labels, which policies select it by.
    pub labels: Labels,
    /// The private networks that it belongs to.
    pub networks: BTreeSet<NetworkName>,
    /// Whether it is cut off.
    pub quarantined: bool,
}

/// From the proxy to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FromProxy {
    /// The answer to `Hello`.
    Welcome(Welcome),
    /// A commit took effect, and each live flow was judged again.
    Committed {
        /// The generation of the commit.
        generation: Generation,
    },
    /// A commit was refused, and the state is as before it.
    Rejected {
        /// The generation of the commit.
        generation: Generation,
        /// What is wrong with it.
        message: String,
    },
    /// The answer to `Follow`: what is decided after it was sent comes as events, or none does.
    Following {
        /// Whether events are sent.
        events: bool,
    },
    /// Something was decided.
    Event(Box<AuditRecord>),
    /// The answer to `GetStats`.
    Stats(Stats),
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Welcome {
    /// The proxy's [`PROTOCOL`].
    pub protocol: u32,
    /// The proxy's build.
    pub build: String,
    /// Its process.
    pub pid: u32,
    /// The last generation that it took; 0 when it has no state yet.
    pub generation: Generation,
}

/// Counters since the proxy started, and what is live.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stats {
    /// The generation in effect.
    pub generation: Generation,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Sandboxes known.
    pub sandboxes: u64,
    /// Connections that sandboxes have open.
    pub connections_live: u64,
    /// Connections that sandboxes have opened.
    pub connections_total: u64,
    /// HTTP requests that were forwarded.
    pub requests_total: u64,
    /// Name queries that were taken.
    pub dns_queries_total: u64,
    /// Bytes from sandboxes to upstreams, as passed through or in request bodies.
    pub bytes_out_total: u64,
    /// Bytes from upstreams to sandboxes.
    pub bytes_in_total: u64,
    /// Secrets that were added to requests.
    pub injections_total: u64,
    /// Placeholders that were swapped in requests.
    pub replacements_total: u64,
    /// Answers in which a secret was found and overwritten.
    pub redactions_total: u64,
    /// Live flows that were cut because they were no longer permitted.
    pub revoked_total: u64,
    /// Audit records that were lost because the log could not keep up.
    pub audit_dropped_total: u64,
    /// Events that were not sent because the agent could not keep up.
    pub events_dropped_total: u64,
    /// Refusals by reason. Reasons that never occurred are left out.
    pub refused_total: BTreeMap<Reason, u64>,
    /// Decisions by what was spoken and what was decided. What never occurred is left out.
    pub decisions_total: Vec<Decisions>,
}

/// How often something was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decisions {
    /// What was spoken.
    pub protocol: Protocol,
    /// What was decided.
    pub decision: Outcome,
    /// How often.
    pub count: u64,
}
