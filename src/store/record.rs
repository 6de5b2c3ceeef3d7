//! What the tables hold, as JSON. These are forms for the disk: a change that older files do not
//! have needs a default, and one that older programs would misread needs a new format number.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use causeway_types::{
    Generation, Labels, NetworkId, NetworkName, SandboxId, SandboxUid, SecretName, TenantName,
};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

/// How far an attach or detach has come. What is on disk always says enough to finish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The address is taken, and the wiring may be there or not.
    Attaching,
    /// The caller was told that it is attached.
    Attached,
    /// The caller asked for its end, and the wiring may be there or not.
    Detaching,
}

/// How a sandbox is wired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AttachmentRecord {
    /// A veth into a network namespace.
    Netns {
        /// The namespace's file.
        path: PathBuf,
        /// The interface's name inside.
        interface: String,
    },
    /// A tap for a microVM.
    Tap {
        /// The tap's name.
        name: String,
    },
    /// A vhost-user socket.
    VhostUser {
        /// The socket.
        socket: PathBuf,
    },
    /// A memif socket.
    Memif {
        /// The socket.
        socket: PathBuf,
    },
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// Its identifier.
    pub uid: SandboxUid,
    /// Its full name.
    pub id: SandboxId,
    /// Its address.
    pub address: Ipv6Addr,
    /// A prefix for what is nested inside it.
    pub prefix: Option<Ipv6Net>,
    /// Its wiring.
    pub attachment: AttachmentRecord,
    /// The MTU of its interface, in bytes.
    pub mtu: u16,
    /// The networks that it belongs to.
    pub networks: BTreeSet<NetworkName>,
    /// Its labels.
    pub labels: Labels,
    /// Whether it is cut off.
    pub quarantined: bool,
    /// How far its attach or detach has come.
    pub phase: Phase,
    /// When it was created, in seconds since 1970.
    pub created_unix: u64,
    /// The generation of its last change.
    pub generation: Generation,
}

/// A private network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRecord {
    /// Its full name.
    pub id: NetworkId,
    /// When it was created, in seconds since 1970.
    pub created_unix: u64,
}

/// A policy or guardrail, as its author wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// The document's text.
    pub source: String,
    /// When it was applied, in seconds since 1970.
    pub applied_unix: u64,
}

/// A secret, encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedRecord {
    /// The owner.
    pub tenant: TenantName,
    /// The name.
    pub name: SecretName,
    /// Nonce and ciphertext.
    pub sealed: Vec<u8>,
    /// When it was set, in seconds since 1970.
    pub updated_unix: u64,
}

/// Why what the store holds could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The database failed.
    #[error("the store cannot be read")]
    Database(#[source] Box<redb::Error>),
    /// A write failed, and the store could not be opened again since.
    #[error("the store could not be opened again after an earlier failure")]
    Reopen(#[source] Box<super::OpenError>),
    /// A row does not parse.
    #[error("the store's row `{key}` in `{table}` is damaged")]
    Row {
        /// The table.
        table: String,
        /// The row's key.
        key: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}
