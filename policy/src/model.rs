//! The validated model: what a policy file says, once every part of it was found good.
//!
//! Values of these types are made by [`crate::parse`] only, or by constructors that check
//! the same things, so the compiler and the evaluation never meet a malformed one.

mod limits;
mod path;
mod pattern;
mod port;
mod rule;
mod secret;

use std::collections::BTreeMap;
use std::fmt;

use causeway_types::{Labels, PolicyRef, SecretName, Selector, TenantName};
use serde::{Deserialize, Serialize};

pub use limits::{Bandwidth, BandwidthError, Limits};
pub use path::{CanonicalPath, PathError, PathGlob, PathGlobError};
pub use pattern::{NamePattern, PatternError};
pub use port::{PortError, PortRange, PortSet, Protocol};
pub use rule::{
    Action, Destination, EgressRule, HttpRule, IngressPeer, IngressRule, Method, MethodError,
    NetworkChoice, RuleName, RuleNameError, RuleRef,
};
pub use secret::{
    Format, FormatError, HeaderName, HeaderNameError, ParameterName, ParameterNameError, Place,
    SecretUse, Signing, Slot, Treatment,
};

/// One document of a policy file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind")]
pub enum Document {
    /// A tenant's policy.
    Policy(Policy),
    /// An operator's bound on every tenant's policies.
    Guardrail(Guardrail),
}

impl Document {
    /// The document's full name.
    pub fn reference(&self) -> &PolicyRef {
        match self {
            Self::Policy(policy) => &policy.reference,
            Self::Guardrail(guardrail) => &guardrail.reference,
        }
    }

    /// The text that the document was read from; reading it again gives this document.
    pub fn source(&self) -> &str {
        match self {
            Self::Policy(policy) => &policy.source,
            Self::Guardrail(guardrail) => &guardrail.source,
        }
    }
}

/// Whether a document refuses, or only says what it would refuse.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// What is not permitted is refused.
    #[default]
    Enforce,
    /// What is not permitted passes and is marked in the audit log.
    Audit,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enforce => "enforce",
            Self::Audit => "audit",
        })
    }
}

/// A tenant's policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// Its full name; the tenant is always there.
    #[serde(flatten)]
    pub reference: PolicyRef,
    /// The tenant, once more, without the option.
    #[serde(skip)]
    pub tenant: TenantName,
    /// Which of the tenant's sandboxes it applies to.
    pub selector: Selector,
    /// Whether it refuses.
    pub mode: Mode,
    /// What sandboxes may reach. Absent and empty both permit nothing.
    pub egress: Option<Vec<EgressRule>>,
    /// Who may reach the sandboxes. Absent: every member of a shared network; empty: nobody.
    pub ingress: Option<Vec<IngressRule>>,
    /// Which secrets leave, where to and how.
    pub secrets: BTreeMap<SecretName, SecretUse>,
    /// How much may be used.
    pub limits: Limits,
    /// The text that the policy was read from.
    #[serde(skip)]
    pub source: String,
}

impl Policy {
    /// Whether the policy applies to a sandbox of `tenant` that carries `labels`.
    pub fn selects(&self, tenant: &TenantName, labels: &Labels) -> bool {
        self.tenant == *tenant && self.selector.selects(labels)
    }
}

/// An operator's bound. It applies to every sandbox of every tenant: labels are chosen by
/// tenants, so no label takes a sandbox out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Guardrail {
    /// Its full name, without a tenant.
    #[serde(flatten)]
    pub reference: PolicyRef,
    /// Whether it refuses.
    pub mode: Mode,
    /// The most that policies may permit. Absent: no bound; empty: nothing passes.
    pub egress: Option<Vec<EgressRule>>,
    /// The most that ingress rules may permit. Absent: no bound; empty: nobody.
    pub ingress: Option<Vec<IngressRule>>,
    /// Upper bounds on each limit.
    pub limits: Limits,
    /// The text that the guardrail was read from.
    #[serde(skip)]
    pub source: String,
}

/// Serialises a type as the text that its `Display` gives.
macro_rules! serialize_display {
    ($($type:ty),+) => {
        $(impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        })+
    };
}
use serialize_display;
