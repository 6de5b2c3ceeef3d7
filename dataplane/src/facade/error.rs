//! Why an operation of the dataplane failed.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use causeway_types::{SandboxId, SandboxUid};

use crate::backend::BackendError;

/// Why the dataplane could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("the router could not be set up")]
pub struct OpenError(#[source] pub BackendError);

/// Why a sandbox could not be attached. Nothing of it is left, unless leftovers are named.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The sandbox is attached, in another way than asked.
    #[error("sandbox {id} ({uid}) is attached already: detach it first")]
    AlreadyAttached {
        /// The sandbox that is attached.
        id: SandboxId,
        /// Its identifier.
        uid: SandboxUid,
    },
    /// Another sandbox holds the address.
    #[error("{address} belongs to sandbox {holder}, which is attached")]
    AddressInUse {
        /// The address.
        address: Ipv6Addr,
        /// Who has it.
        holder: SandboxUid,
    },
    /// The port could not be made.
    #[error("sandbox {id} could not be wired")]
    Port {
        /// The sandbox.
        id: SandboxId,
        /// Why.
        #[source]
        source: BackendError,
    },
    /// The set elements could not be written.
    #[error(
        "the rules of sandbox {id} could not be written{}",
        Leftovers(leftovers)
    )]
    Filter {
        /// The sandbox.
        id: SandboxId,
        /// Why.
        #[source]
        source: Arc<BackendError>,
        /// What failed while taking the port away again.
        leftovers: Vec<Arc<BackendError>>,
    },
    /// The dataplane is shutting down.
    #[error("the dataplane has stopped")]
    Stopped,
}

struct Leftovers<'a>(&'a [Arc<BackendError>]);

impl fmt::Display for Leftovers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for error in self.0 {
            write!(f, "; taking the port away failed too: {error}")?;
        }
        Ok(())
    }
}

/// Why a sandbox is not wholly detached: everything that failed. The rest was done.
#[derive(Debug, thiserror::Error)]
#[error("sandbox {uid} is not wholly detached{}", Causes(errors))]
pub struct DetachError {
    /// The sandbox.
    pub uid: SandboxUid,
    /// What failed.
    pub errors: Vec<Arc<BackendError>>,
}

impl DetachError {
    pub(super) fn unless_empty(
        uid: SandboxUid,
        errors: Vec<Arc<BackendError>>,
    ) -> Result<(), Self> {
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Self { uid, errors })
        }
    }

    pub(super) fn stopped(uid: SandboxUid) -> Self {
        Self {
            uid,
            errors: vec![Arc::new(BackendError::Stopped)],
        }
    }
}

struct Causes<'a>(&'a [Arc<BackendError>]);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for error in self.0 {
            write!(f, ": {error}")?;
        }
        Ok(())
    }
}

/// Why a change of rules did not take effect everywhere.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The set elements could not be written. They are compared afresh at the next change.
    #[error("the rules could not be written")]
    Filter(#[source] Arc<BackendError>),
    /// Some sandboxes are not attached. The others were changed.
    #[error("not attached: {}", Uids(uids))]
    NotAttached {
        /// Those sandboxes.
        uids: Vec<SandboxUid>,
    },
    /// Some sandboxes would need another port. The others were changed.
    #[error(
        "address, attachment or MTU changed, which needs detach and attach: {}",
        Uids(uids)
    )]
    Rewired {
        /// Those sandboxes.
        uids: Vec<SandboxUid>,
    },
}

struct Uids<'a>(&'a [SandboxUid]);

impl fmt::Display for Uids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, uid) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{uid}")?;
        }
        Ok(())
    }
}

/// Why reality could not be compared with the desired state, or rules not be written.
#[derive(Debug, thiserror::Error)]
#[error("could not {operation}")]
pub struct ReconcileError {
    /// What was tried.
    pub operation: &'static str,
    /// Why it failed.
    #[source]
    pub source: BackendError,
}

/// Why something may be left behind.
#[derive(Debug, thiserror::Error)]
#[error("the dataplane was not removed wholly")]
pub struct TeardownError(#[source] pub BackendError);
