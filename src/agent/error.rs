//! Why the agent refused, or failed at, what it was asked.

use causeway_dataplane::BackendError;
use causeway_ipam::AllocateError;
use causeway_policy::PolicyErrors;
use causeway_types::{Generation, NetworkId, SandboxId};

use super::convert::WiringError;
use super::proxy::Stopped;
use crate::secrets::{SealError, SecretValueError};
use crate::store::WriteError;

/// Any failure of a dataplane operation.
pub type DataplaneFailure = Box<dyn std::error::Error + Send + Sync>;

/// Why the agent refused, or failed at, what it was asked. Except for `NotInEffect` nothing was
/// changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such thing.
    #[error("there is no {kind} `{name}`")]
    NotFound {
        /// What kind of thing.
        kind: &'static str,
        /// Its full name.
        name: String,
    },
    /// The name is taken.
    #[error("the {kind} `{name}` already exists")]
    Exists {
        /// What kind of thing.
        kind: &'static str,
        /// Its full name.
        name: String,
    },
    /// A network still has members.
    #[error("the network `{network}` still has {count} members, `{first}` among them")]
    NetworkInUse {
        /// The network.
        network: NetworkId,
        /// How many members.
        count: usize,
        /// One of them.
        first: SandboxId,
    },
    /// The sandbox is wired in a way that cannot be.
    #[error("the attachment cannot be made")]
    Wiring(#[from] WiringError),
    /// The destination or protocol of a question is not one.
    #[error("`{text}` is not {expected}")]
    Question {
        /// The text, as given.
        text: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A prefix length is out of range.
    #[error("a sandbox's prefix of /{length} cannot be had: 64 to 127 are taken")]
    PrefixLength {
        /// The length, as given.
        length: u8,
    },
    /// No address.
    #[error("no address can be leased")]
    Allocate(#[from] AllocateError),
    /// The owner of a lease is not one.
    #[error("no address can be leased")]
    Owner(#[from] causeway_ipam::OwnerError),
    /// The sandbox could not be wired.
    #[error("the sandbox `{sandbox}` could not be attached")]
    Attach {
        /// The sandbox.
        sandbox: SandboxId,
        /// Why.
        #[source]
        source: DataplaneFailure,
    },
    /// The sandbox could not be taken down. It is still there.
    #[error("the sandbox `{sandbox}` could not be detached")]
    Detach {
        /// The sandbox.
        sandbox: SandboxId,
        /// Why.
        #[source]
        source: DataplaneFailure,
    },
    /// The dataplane could not be looked at or repaired.
    #[error("the dataplane failed")]
    Dataplane(#[source] DataplaneFailure),
    /// The change is accepted and durable, and the dataplane does not follow yet.
    #[error("generation {generation} is accepted, but not in effect yet")]
    NotInEffect {
        /// The generation.
        generation: Generation,
        /// Why.
        #[source]
        source: DataplaneFailure,
    },
    /// The change is in effect, and not on disk.
    #[error("generation {generation} is in effect, but could not be stored")]
    NotDurable {
        /// The generation.
        generation: Generation,
        /// Why.
        #[source]
        source: WriteError,
    },
    /// A policy file has errors.
    #[error("the policy file has {} errors", .0.problems().len())]
    Policy(Box<PolicyErrors>),
    /// A policy file names the same document twice.
    #[error("the policy file has two documents named `{name}`")]
    PolicyTwice {
        /// The document's full name.
        name: String,
    },
    /// A policy file has no document.
    #[error("the policy file holds no policy")]
    PolicyEmpty,
    /// The most policies of one tenant.
    #[error("more than {max} policies")]
    TooManyPolicies {
        /// The limit.
        max: usize,
    },
    /// More text of policies than one message to the proxy takes.
    #[error("the policies of one owner have {bytes} bytes together, and {max} is the most")]
    PoliciesTooLarge {
        /// What they would have.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A secret's value was refused.
    #[error("the value of the secret cannot be used")]
    SecretValue(#[from] SecretValueError),
    /// A secret could not be encrypted.
    #[error("the secret could not be encrypted")]
    Seal(#[from] SealError),
    /// The store failed.
    #[error("the change could not be stored")]
    Store(#[from] WriteError),
    /// The agent is stopping.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] getrandom::Error),
}

impl Error {
    /// A word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::Exists { .. } => "exists",
            Self::NetworkInUse { .. } => "in_use",
            Self::Wiring(_) | Self::Question { .. } | Self::PrefixLength { .. } => "invalid",
            Self::Allocate(AllocateError::Exhausted { .. }) => "exhausted",
            Self::Allocate(_) | Self::Owner(_) => "address_unavailable",
            Self::Attach { .. } => "attach_failed",
            Self::Detach { .. } => "detach_failed",
            Self::Dataplane(_) => "dataplane_failed",
            Self::NotInEffect { .. } => "not_in_effect",
            Self::Policy(_) | Self::PolicyTwice { .. } | Self::PolicyEmpty => "policy_invalid",
            Self::TooManyPolicies { .. } | Self::PoliciesTooLarge { .. } => "too_many",
            Self::SecretValue(SecretValueError::TooLong { .. }) => "too_large",
            Self::SecretValue(_) => "invalid",
            Self::NotDurable { .. } => "not_durable",
            Self::Store(_) | Self::Seal(_) => "store_failed",
            Self::Stopped(_) => "stopping",
            Self::Random(_) => "internal",
        }
    }

    /// Whether the one who asked can do something about it, rather than the operator.
    pub fn is_callers_fault(&self) -> bool {
        match self {
            Self::Attach { source, .. } => matches!(
                backend_error(source.as_ref()),
                Some(
                    BackendError::NamespaceMissing { .. }
                        | BackendError::NotANamespace { .. }
                        | BackendError::ReservedNamespace { .. }
                        | BackendError::InterfaceExists { .. }
                        | BackendError::UnsupportedAttachment { .. }
                        | BackendError::SharedMemory
                        | BackendError::PortExists { .. }
                )
            ),
            _ => false,
        }
    }

    /// What to do about it.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            Self::NotFound { kind, .. } => return not_found_help(kind).map(str::to_owned),
            Self::Exists {
                kind: "sandbox", ..
            } => "nothing was changed; delete it first, or choose another name",
            Self::Exists { .. } => "nothing was changed",
            Self::NetworkInUse { .. } => "let its members leave first: `causeway network leave`",
            Self::Wiring(WiringError::Relative { .. }) => {
                "write the path from the root: /run/netns/…"
            }
            Self::Wiring(_) => "correct it and try again",
            Self::Question { .. } => "correct it and ask again",
            Self::PrefixLength { .. } => "ask for 64 to 127",
            Self::Allocate(AllocateError::Exhausted { .. }) => {
                "delete sandboxes, wait for the end of the quarantine, or give the node a larger \
                 block (`address.node_block`)"
            }
            Self::Allocate(AllocateError::NoSuchPool { .. }) => {
                "add a pool for prefixes of that length to the configuration (`address.prefix_pools`)"
            }
            Self::Attach { source, .. } => return attach_help(source.as_ref()),
            Self::Detach { .. } | Self::Dataplane(_) => {
                "see `causeway status`; `causeway reconcile` tries again"
            }
            Self::NotInEffect { .. } => {
                "the agent keeps trying; see `causeway status` and `causeway reconcile`"
            }
            Self::NotDurable { .. } => {
                "it is lost when the agent restarts: check the disk of the state directory, and \
                 make the change again"
            }
            Self::Policy(_) => "nothing was applied; correct the file and try again",
            Self::PolicyTwice { .. } => "nothing was applied; give each document its own name",
            Self::PolicyEmpty => "see `causeway policy --help` for what one looks like",
            Self::TooManyPolicies { .. } => "put several rules into one policy",
            Self::PoliciesTooLarge { .. } => "use wildcards and shorter prefixes",
            Self::Store(_) => "nothing was changed; check the disk of the state directory",
            Self::Stopped(_) => "start the agent again: `causeway up`",
            _ => return None,
        };
        Some(help.to_owned())
    }
}

fn not_found_help(kind: &str) -> Option<&'static str> {
    match kind {
        "sandbox" => Some("see `causeway sandbox list`"),
        "network" => Some("see `causeway network list`; create it with `causeway network create`"),
        "policy" | "guardrail" => Some("see `causeway policy list`"),
        "secret" => Some("see `causeway secret list`"),
        _ => None,
    }
}

/// Looks through an error and what it came from for a backend's.
pub(super) fn backend_error<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a BackendError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<BackendError>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn attach_help(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let help = match backend_error(error)? {
        BackendError::NamespaceMissing { .. } | BackendError::NotANamespace { .. } => {
            "nothing was changed; make the namespace first: `ip netns add NAME`"
        }
        BackendError::InterfaceExists { .. } => {
            "nothing was changed; name another interface: `--attach netns:PATH,interface=NAME`"
        }
        _ => "nothing was changed",
    };
    Some(help.to_owned())
}
