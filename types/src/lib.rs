//! The words that every part of Causeway shares: names, identifiers, addresses
//! and the closed list of reasons for which a packet or a request is refused.
//!
//! Everything here is a checked value: it can only be built by a constructor
//! that rejects what is out of range, so code that holds one need not check again.
//! There is no I/O in this crate.

mod address;
mod domain;
mod id;
mod label;
mod mac;
mod name;
mod reason;

pub use address::{
    AddressClass, GATEWAY, NAT64_PREFIX, PROXY_PORTS, RESOLVER, classify, embedded_ipv4,
    special_ranges,
};
pub use domain::{DomainName, DomainNameError};
pub use id::{Generation, PolicyRef, SandboxUid, SandboxUidError};
pub use label::{LabelError, Labels, Selector};
pub use mac::{MacAddress, MacError};
pub use name::{
    NameError, NetworkId, NetworkName, PolicyName, SandboxId, SandboxName, SecretName, TenantName,
};
pub use reason::{Layer, Reason, UnknownReason};
