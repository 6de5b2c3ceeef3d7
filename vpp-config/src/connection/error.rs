//! Why there is no connection, or no answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::messages::{MessageId, ReplyError};
use crate::retval::Retval;
use crate::table::Missing;
use crate::wire::{DecodeError, EncodeError};

/// No connection was made.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The socket cannot be reached. VPP does not run, has no `socksvr` section, or has its socket
    /// elsewhere or for others.
    #[error("cannot connect to VPP's API socket {path}", path = path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// VPP did not answer in time. It is busy for that long, or hangs.
    #[error("VPP at {path} did not answer within {after:?}", path = path.display())]
    Deadline {
        /// The socket.
        path: PathBuf,
        /// How long it had.
        after: Duration,
    },
    /// The socket closed before VPP had answered.
    #[error("the API socket closed during the handshake")]
    Closed {
        /// Why.
        #[source]
        reason: CloseReason,
    },
    /// VPP does not want this client.
    #[error("VPP refused the client, with {response}")]
    Refused {
        /// What it answered.
        response: Retval,
    },
    /// What answered does not speak VPP's protocol.
    #[error("what listens on the API socket does not speak VPP's protocol")]
    Protocol {
        /// What is wrong with its answer.
        #[source]
        source: DecodeError,
    },
    /// VPP lacks messages that are needed: a plugin is not loaded, or the release is another.
    #[error("VPP does not offer {}", list(missing))]
    Missing {
        /// Which.
        missing: Vec<Missing>,
    },
}

fn list(missing: &[Missing]) -> String {
    let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    /// VPP closed it, or ended.
    #[error("VPP closed the connection")]
    Peer,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(io::ErrorKind),
    /// A frame is too long, so that the next one cannot be found.
    #[error("a frame of {len} bytes, where {max} are allowed")]
    FrameTooLong {
        /// Its length.
        len: u32,
        /// The limit.
        max: usize,
    },
    /// A frame is too short for any message.
    #[error("a frame of {len} bytes, which is no message")]
    FrameTooShort {
        /// Its length.
        len: usize,
    },
    /// This side closed it.
    #[error("the client closed the connection")]
    Dropped,
}

/// There is no answer to a request.
#[derive(Debug, Error)]
pub enum CallError {
    /// There is no connection at present.
    #[error("{message}: not connected to VPP")]
    NotConnected {
        /// The request.
        message: &'static str,
    },
    /// VPP does not offer a message that it takes.
    #[error("{message}: VPP does not offer {id}")]
    NotOffered {
        /// The request.
        message: &'static str,
        /// What is missing: the request itself, or what answers it.
        id: MessageId,
    },
    /// The request cannot be written.
    #[error("{message}: the request does not fit")]
    Encode {
        /// The request.
        message: &'static str,
        /// Why.
        #[source]
        source: EncodeError,
    },
    /// There was no answer in time.
    #[error("{message}: no answer within {after:?}{}", effect(*sent))]
    Deadline {
        /// The request.
        message: &'static str,
        /// How long there was.
        after: Duration,
        /// Whether it may have been sent, and so may have an effect.
        sent: bool,
    },
    /// The connection closed before there was an answer.
    #[error("{message}: the connection closed{}", effect(*sent))]
    Closed {
        /// The request.
        message: &'static str,
        /// Why.
        #[source]
        reason: CloseReason,
        /// Whether it may have been sent, and so may have an effect.
        sent: bool,
    },
    /// A message of another layout came as the answer.
    #[error("{message}: answered with {got}")]
    Unexpected {
        /// The request.
        message: &'static str,
        /// The answer's name.
        got: String,
    },
    /// The answer is larger than allowed.
    #[error("{message}: the answer has more than {max} bytes")]
    TooLarge {
        /// The request.
        message: &'static str,
        /// The limit.
        max: usize,
    },
    /// VPP refused.
    #[error("{message}: VPP answered {retval}")]
    Refused {
        /// The request.
        message: &'static str,
        /// The answer.
        retval: Retval,
    },
    /// The answer cannot be read.
    #[error("{message}: the answer cannot be read")]
    Decode {
        /// The request.
        message: &'static str,
        /// Why.
        #[source]
        source: DecodeError,
    },
}

fn effect(sent: bool) -> &'static str {
    if sent {
        ", and whether it took effect is not known"
    } else {
        "; it was not sent"
    }
}

impl CallError {
    pub(crate) fn reply(message: &'static str, error: ReplyError) -> Self {
        match error {
            ReplyError::Refused(retval) => Self::Refused { message, retval },
            ReplyError::Decode(source) => Self::Decode { message, source },
        }
    }

    /// The deadline of the whole, where one part of it ran out of time.
    pub(super) fn with_deadline(self, deadline: Duration) -> Self {
        match self {
            Self::Deadline { message, sent, .. } => Self::Deadline {
                message,
                after: deadline,
                sent,
            },
            other => other,
        }
    }

    /// What VPP answered, if it refused.
    pub fn retval(&self) -> Option<Retval> {
        match self {
            Self::Refused { retval, .. } => Some(*retval),
            _ => None,
        }
    }

    /// Whether the request certainly had no effect.
    pub fn is_without_effect(&self) -> bool {
        match self {
            Self::NotConnected { .. }
            | Self::NotOffered { .. }
            | Self::Encode { .. }
            | Self::Refused { .. } => true,
            Self::Deadline { sent, .. } | Self::Closed { sent, .. } => !sent,
            Self::Unexpected { .. } | Self::TooLarge { .. } | Self::Decode { .. } => false,
        }
    }
}
