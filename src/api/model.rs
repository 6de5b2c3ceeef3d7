//! What the API takes and returns. Unknown fields in a request are errors; replies may gain
//! fields.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::path::PathBuf;

use causeway_types::{
    Generation, Labels, MacAddress, NetworkName, Reason, SandboxName, SandboxUid, SecretName,
    TenantName,
};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How a sandbox is wired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Attach {
    /// A veth into a network namespace.
    Netns {
        /// The namespace's file, such as `/run/netns/web`.
        #[schema(value_type = String)]
        path: PathBuf,
        /// The interface's name inside; `eth0` when it is left out.
        #[serde(default = "default_interface")]
        interface: String,
    },
    /// A tap, which a microVM's monitor opens.
    Tap {
        /// The tap's name, 1 to 15 characters.
        name: String,
    },
    /// A vhost-user socket.
    VhostUser {
        /// The socket.
        #[schema(value_type = String)]
        socket: PathBuf,
    },
    /// A memif socket.
    Memif {
        /// The socket.
        #[schema(value_type = String)]
        socket: PathBuf,
    },
}

/// The interface name inside a namespace when none is given.
pub fn default_interface() -> String {
    "eth0".to_owned()
}

/// A sandbox to create.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SandboxCreate {
    /// Its owner.
    #[schema(value_type = String)]
    pub tenant: TenantName,
    /// Its name, unique within the tenant.
    #[schema(value_type = String)]
    pub name: SandboxName,
    /// The networks that it joins; each must exist.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub networks: BTreeSet<NetworkName>,
    /// Its labels, which policies select it by.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    pub labels: Labels,
    /// Its wiring.
    pub attach: Attach,
    /// The address that it must get; otherwise one is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<Ipv6Addr>,
    /// The length of a prefix for what is nested inside it, 64 to 127; none when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_length: Option<u8>,
    /// The MTU of its interface, 1280 to 9216 bytes; the node's when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// A sandbox as it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Sandbox {
    /// Its owner.
    #[schema(value_type = String)]
    pub tenant: TenantName,
    /// Its name.
    #[schema(value_type = String)]
    pub name: SandboxName,
    /// Its identifier on this node, twelve hexadecimal digits.
    #[schema(value_type = String)]
    pub uid: SandboxUid,
    /// Its own address.
    #[schema(value_type = String)]
    pub address: Ipv6Addr,
    /// A prefix for what is nested inside it.
    #[schema(value_type = Option<String>)]
    pub prefix: Option<Ipv6Net>,
    /// Its default gateway.
    #[schema(value_type = String)]
    pub gateway: Ipv6Addr,
    /// Its resolver.
    #[schema(value_type = String)]
    pub resolver: Ipv6Addr,
    /// The Ethernet address of its interface.
    #[schema(value_type = String)]
    pub mac: MacAddress,
    /// The MTU of its interface, in bytes.
    pub mtu: u16,
    /// Its wiring.
    pub attach: Attach,
    /// The networks that it belongs to.
    #[schema(value_type = Vec<String>)]
    pub networks: BTreeSet<NetworkName>,
    /// Its labels.
    #[schema(value_type = BTreeMap<String, String>)]
    pub labels: Labels,
    /// The policies that select it.
    pub policies: Vec<String>,
    /// For each secret that those policies use, the token that stands for it in the sandbox.
    #[schema(value_type = BTreeMap<String, String>)]
    pub placeholders: BTreeMap<SecretName, String>,
    /// Whether it is cut off.
    pub quarantined: bool,
    /// `attaching`, `attached` or `detaching`.
    pub state: SandboxState,
    /// When it was created, in seconds since 1970-01-01T00:00:00Z.
    pub created: u64,
    /// The generation of its last change.
    #[schema(value_type = u64)]
    pub generation: Generation,
    /// What the dataplane counted; only where one sandbox is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<SandboxCounters>,
}

/// A sandbox's traffic, as it sees it itself, and what was dropped of what it sent. The counts
/// begin when its port is made.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct SandboxCounters {
    /// Packets that it sent.
    pub sent_packets: u64,
    /// Bytes that it sent.
    pub sent_bytes: u64,
    /// Packets that it was sent.
    pub received_packets: u64,
    /// Bytes that it was sent.
    pub received_bytes: u64,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// How far a sandbox's attach or detach has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxState {
    /// It is being wired.
    Attaching,
    /// It is usable.
    Attached,
    /// It is being taken down.
    Detaching,
}

/// A private network to create.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkCreate {
    /// Its owner.
    #[schema(value_type = String)]
    pub tenant: TenantName,
    /// Its name, unique within the tenant.
    #[schema(value_type = String)]
    pub name: NetworkName,
}

/// A private network.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Network {
    /// Its owner.
    #[schema(value_type = String)]
    pub tenant: TenantName,
    /// Its name.
    #[schema(value_type = String)]
    pub name: NetworkName,
    /// The sandboxes that belong to it.
    #[schema(value_type = Vec<String>)]
    pub members: Vec<SandboxName>,
    /// When it was created, in seconds since 1970-01-01T00:00:00Z.
    pub created: u64,
}

/// A policy or guardrail in effect.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PolicyInfo {
    /// `policy` or `guardrail`.
    pub kind: String,
    /// Its owner; none for a guardrail.
    #[schema(value_type = Option<String>)]
    pub tenant: Option<TenantName>,
    /// Its name.
    pub name: String,
    /// The sandboxes that it selects, as `tenant/name`.
    pub selects: Vec<String>,
    /// Its text, as its author wrote it.
    pub source: String,
    /// When it was applied, in seconds since 1970-01-01T00:00:00Z.
    pub applied: u64,
}

/// What a policy file holds, when it is good.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PolicyCheck {
    /// The policies and guardrails in it, as `tenant/name` or `guardrail/name`.
    pub documents: Vec<String>,
    /// What each says: of each section whether it is absent, empty, a wildcard or listed, and what
    /// follows from that.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub summaries: Vec<serde_json::Value>,
}

impl PolicyCheck {
    /// What these documents say.
    pub fn of(documents: &[causeway_policy::Document]) -> Self {
        let names = documents.iter().map(|d| d.reference().to_string());
        let summaries = documents.iter().map(causeway_policy::Document::summary);
        Self {
            documents: names.collect(),
            summaries: summaries
                .filter_map(|summary| serde_json::to_value(summary).ok())
                .collect(),
        }
    }
}

/// What a policy file would change.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PolicyDiffReply {
    /// Documents, and for sandboxes alike the destinations, peers, secrets and limits that differ.
    #[schema(value_type = Object)]
    pub diff: serde_json::Value,
    /// The same for people.
    pub text: String,
}

/// What was applied.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PolicyApplied {
    /// The policies and guardrails, as `tenant/name` or `guardrail/name`.
    pub documents: Vec<String>,
    /// How many sandboxes they touch.
    pub sandboxes: usize,
    /// The generation that they took effect with.
    #[schema(value_type = u64)]
    pub generation: Generation,
}

/// A question to the policies of a sandbox.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The sandbox's owner.
    #[schema(value_type = String)]
    pub tenant: TenantName,
    /// The sandbox.
    #[schema(value_type = String)]
    pub sandbox: SandboxName,
    /// A host name or an address.
    pub destination: String,
    /// The port; 443 when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// `tcp` or `udp`; `tcp` when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The method of an HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path of an HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A policy file: the answer is as if it were applied. Nothing is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A secret, without its value.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SecretInfo {
    /// Its owner.
    #[schema(value_type = String)]
    pub tenant: TenantName,
    /// Its name.
    #[schema(value_type = String)]
    pub name: SecretName,
    /// When it was set, in seconds since 1970-01-01T00:00:00Z.
    pub updated: u64,
    /// The policies that use it.
    pub used_by: Vec<String>,
}

/// A packet or request to follow.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// The sender's owner.
    #[schema(value_type = String)]
    pub tenant: TenantName,
    /// The sender.
    #[schema(value_type = String)]
    pub sandbox: SandboxName,
    /// An IPv6 or IPv4 address, a host name, a private name such as
    /// `db.backend.internal`, or another sandbox as `tenant/name`.
    pub destination: String,
    /// The port; 443 when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// `tcp`, `udp`, `icmpv6` or a number; `tcp` when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// Each decision that a packet would meet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Trace {
    /// The sender, as `tenant/name`.
    pub from: String,
    /// Where to.
    pub to: String,
    /// Whether it would arrive.
    pub permitted: bool,
    /// Why not.
    #[schema(value_type = Option<String>)]
    pub reason: Option<Reason>,
    /// The decisions in order.
    pub steps: Vec<TraceStep>,
}

/// One decision.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TraceStep {
    /// Who decides: `dataplane`, `resolver` or `egress`.
    pub layer: String,
    /// What is looked at.
    pub check: String,
    /// Whether it passes.
    pub passed: bool,
    /// What was found.
    pub detail: String,
}

/// How the node is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// `ok`, or `degraded` when there are problems.
    pub health: String,
    /// The version of this program.
    pub version: String,
    /// The agent's process.
    pub pid: u32,
    /// Seconds since the agent started.
    pub uptime_seconds: u64,
    /// The dataplane: `kernel`.
    pub backend: String,
    /// The generation of the desired state.
    #[schema(value_type = u64)]
    pub generation: Generation,
    /// The operator prefix.
    #[schema(value_type = String)]
    pub prefix: Ipv6Net,
    /// This node's block in it.
    #[schema(value_type = String)]
    pub node_block: Ipv6Net,
    /// The way out: `routed`, `masquerade` or the name of an interface.
    pub uplink: String,
    /// The egress proxy.
    pub proxy: ProxyStatus,
    /// How many there are of each kind.
    pub counts: Counts,
    /// What is wrong, for people.
    pub problems: Vec<String>,
}

/// How the egress proxy is.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ProxyStatus {
    /// `running`, `starting` or `down`.
    pub state: String,
    /// Its process, when there is one.
    pub pid: Option<u32>,
    /// The generation that it has in effect.
    #[schema(value_type = u64)]
    pub generation: Generation,
    /// How often it was started by this agent.
    pub starts: u64,
}

/// How many there are of each kind.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Tenants that own anything.
    pub tenants: usize,
    /// Sandboxes.
    pub sandboxes: usize,
    /// Sandboxes that are cut off.
    pub quarantined: usize,
    /// Private networks.
    pub networks: usize,
    /// Policies.
    pub policies: usize,
    /// Guardrails.
    pub guardrails: usize,
    /// Secrets.
    pub secrets: usize,
}

/// A lease of an address.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LeaseInfo {
    /// The address.
    #[schema(value_type = String)]
    pub address: Ipv6Addr,
    /// A prefix that goes with it.
    #[schema(value_type = Option<String>)]
    pub prefix: Option<Ipv6Net>,
    /// Who holds it, or held it last: a sandbox's identifier.
    pub owner: String,
    /// The sandbox's name, while it lives.
    pub sandbox: Option<String>,
    /// `reserved`, `bound` or `quarantined`.
    pub state: String,
    /// The generation that it was made with.
    #[schema(value_type = u64)]
    pub generation: Generation,
    /// When the address becomes free, in seconds since 1970-01-01T00:00:00Z.
    pub free_at: Option<u64>,
}

/// How full the address plan is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct IpamInfo {
    /// The operator prefix.
    #[schema(value_type = String)]
    pub prefix: Ipv6Net,
    /// This node's block in it.
    #[schema(value_type = String)]
    pub node_block: Ipv6Net,
    /// Addresses that sandboxes hold.
    pub held: u64,
    /// Addresses that wait for the end of their quarantine.
    pub quarantined: u64,
    /// Addresses that can be handed out, in decimal: it may exceed 64 bits.
    pub free: String,
}

/// What a pass over the dataplane did.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Reconciled {
    /// How many things were changed to be as desired; 0 on a second pass.
    pub changes: usize,
    /// Leases that nobody held any more and that were given back.
    pub leases_freed: usize,
    /// What could not be repaired, for people.
    pub problems: Vec<String>,
}

/// The certificate authority that the proxy signs with.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CaInfo {
    /// The certificate, PEM.
    pub certificate_pem: String,
}

/// Which tenant's things are listed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TenantFilter {
    /// Only this tenant's; everybody's when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub tenant: Option<TenantName>,
}

/// How every error looks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorReply {
    /// The error.
    pub error: ErrorBody,
}

/// What was wrong, and what to do.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// For programs: a word of the set that the documentation lists.
    pub code: String,
    /// For people: what was wrong, and where.
    pub message: String,
    /// For people: what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// More of it, such as each error of a policy file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<serde_json::Value>,
}
