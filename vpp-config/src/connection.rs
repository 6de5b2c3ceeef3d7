//! One connection to one VPP.

mod error;
mod frame;
mod handshake;
mod identity;
mod pending;
mod reader;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, broadcast, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::event::Event;
use crate::messages::memclnt::ControlPing;
use crate::messages::{Dump, Get, Message, MessageId, Reply, Request, Role, declared};
use crate::options::Options;
use crate::retval::Retval;
use crate::table::{MessageTable, Needs};
use crate::wire::{EncodeError, Reader, Wire, Writer, decode};
use frame::Frame;
use pending::{Answer, Expected, Failure, Pending};
use writer::Outgoing;

pub use error::{CallError, CloseReason, ConnectError};
pub use identity::{PeerProcess, VppIdentity};

/// A connection, until it closes. [`crate::Client`] makes a new one then.
///
/// Clones are the same connection. It closes when the last of them is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

impl Drop for Handle {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared.close(&CloseReason::Dropped);
    }
}

/// What calls, the reader and the writer share.
#[derive(Debug)]
struct Shared {
    table: MessageTable,
    client_index: u32,
    generation: u64,
    identity: VppIdentity,
    options: Arc<Options>,
    window: Semaphore,
    outgoing: mpsc::Sender<Outgoing>,
    pending: Pending,
    closed: watch::Sender<Option<CloseReason>>,
    /// The numbers of answers that have the client's index before their context.
    index_first: Vec<u16>,
    /// Messages of a known event, by number.
    event_ids: Vec<(u16, MessageId)>,
    events: broadcast::Sender<Event>,
    strays: AtomicU64,
}

impl Shared {
    fn close(&self, reason: &CloseReason) {
        self.pending.close(reason);
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            if first {
                *closed = Some(reason.clone());
            }
            first
        });
    }
}

impl Connection {
    /// Connects, and checks that VPP offers what is needed.
    pub async fn open(
        path: &Path,
        options: Arc<Options>,
        needs: &Needs,
        generation: u64,
        events: broadcast::Sender<Event>,
    ) -> Result<Self, ConnectError> {
        let deadline = Instant::now() + options.connect_deadline;
        let after = options.connect_deadline;
        timeout_at(
            deadline,
            Self::set_up(path, options, needs, generation, events),
        )
        .await
        .unwrap_or_else(|_elapsed| {
            Err(ConnectError::Deadline {
                path: path.into(),
                after,
            })
        })
    }

    async fn set_up(
        path: &Path,
        options: Arc<Options>,
        needs: &Needs,
        generation: u64,
        events: broadcast::Sender<Event>,
    ) -> Result<Self, ConnectError> {
        let mut stream =
            UnixStream::connect(path)
                .await
                .map_err(|source| ConnectError::Socket {
                    path: path.into(),
                    source,
                })?;
        let peer = identity::peer(&stream);
        let mut greeting = handshake::greet(&mut stream, &options).await?;
        let missing = needs.missing(&greeting.table);
        if !missing.is_empty() {
            return Err(ConnectError::Missing { missing });
        }
        let vpe_pid = handshake::ping(&mut stream, &mut greeting).await?;
        let (outgoing, queue) = mpsc::channel(options.window.max(1));
        let index_first = declared()
            .filter(|declared| matches!(declared.role, Role::Reply | Role::Details))
            .filter(|declared| declared.has_index())
            .filter_map(|declared| greeting.table.number(declared.id))
            .collect();
        let event_ids = declared()
            .filter(|declared| declared.role == Role::Event)
            .filter_map(|declared| Some((greeting.table.number(declared.id)?, declared.id)))
            .collect();
        let shared = Arc::new(Shared {
            table: greeting.table,
            client_index: greeting.client_index,
            generation,
            identity: VppIdentity { vpe_pid, peer },
            window: Semaphore::new(options.window.max(1)),
            options,
            outgoing,
            pending: Pending::default(),
            closed: watch::Sender::new(None),
            index_first,
            event_ids,
            events,
            strays: AtomicU64::new(0),
        });
        let (read, write) = stream.into_split();
        let tasks = [
            tokio::spawn(reader::run(read, greeting.input, shared.clone())).abort_handle(),
            tokio::spawn(writer::run(write, queue, shared.clone())).abort_handle(),
        ];
        Ok(Self {
            handle: Arc::new(Handle { shared, tasks }),
        })
    }

    /// Sends a request, and waits for its reply.
    ///
    /// Some of VPP's handlers answer with another message's reply (26.06: `policer_input_v2`,
    /// `acl_stats_intf_counters_enable`). It is taken where its CRC says that it has the same layout.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Reply, CallError> {
        self.call_within(request, self.shared().options.deadline)
            .await
    }

    /// The same with a deadline of its own.
    pub async fn call_within<R: Request>(
        &self,
        request: &R,
        deadline: Duration,
    ) -> Result<R::Reply, CallError> {
        let message = R::ID.name;
        let expected = Expected {
            details: None,
            end: self.number(message, R::REPLY_ID)?,
            end_crc: Some(R::REPLY_ID.crc),
        };
        let frame = self.frame(R::ID, |out| request.put(out))?;
        let answer = self
            .exchange(message, vec![frame], expected, deadline)
            .await?;
        R::Reply::read(&answer.end).map_err(|source| CallError::reply(message, source))
    }

    /// Asks for everything of a kind.
    pub async fn dump<D: Dump>(&self, request: &D) -> Result<Vec<D::Details>, CallError> {
        let message = D::ID.name;
        let expected = Expected {
            details: Some(self.number(message, D::DETAILS_ID)?),
            end: self.number(message, ControlPing::REPLY_ID)?,
            end_crc: None,
        };
        // VPP answers in order, so the ping's answer follows the last of the details. Both can have
        // one context, since the answers have different ids.
        let frames = vec![
            self.frame(D::ID, |out| request.put(out))?,
            self.frame(ControlPing::ID, |out| ControlPing {}.put(out))?,
        ];
        let deadline = self.shared().options.dump_deadline;
        let answer = self.exchange(message, frames, expected, deadline).await?;
        details(message, &answer.details)
    }

    /// Asks for everything of a kind, in as many rounds as VPP wants.
    pub async fn get<G: Get>(&self, request: &G) -> Result<Vec<G::Details>, CallError> {
        let message = G::ID.name;
        let expected = Expected {
            details: Some(self.number(message, G::DETAILS_ID)?),
            end: self.number(message, G::REPLY_ID)?,
            end_crc: None,
        };
        let deadline = self.shared().options.dump_deadline;
        let end = Instant::now() + deadline;
        let mut all = Vec::new();
        let mut cursor = 0u32;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let frame = self.frame(G::ID, |out| {
                cursor.put(out)?;
                request.put(out)
            })?;
            let answer = self
                .exchange(message, vec![frame], expected, left)
                .await
                .map_err(|error| error.with_deadline(deadline))?;
            all.append(&mut details(message, &answer.details)?);
            let mut input = Reader::new(&answer.end);
            let read = |input: &mut Reader<'_>| Ok((i32::get(input)?, u32::get(input)?));
            let (retval, next) =
                read(&mut input).map_err(|source| CallError::Decode { message, source })?;
            match Retval(retval) {
                Retval::OK => return Ok(all),
                Retval::EAGAIN => cursor = next,
                retval => return Err(CallError::Refused { message, retval }),
            }
        }
    }

    /// Whether VPP offers a message, with everything that answers it.
    pub fn has<M: Message>(&self) -> bool {
        self.shared().table.has::<M>()
    }

    /// Which messages VPP offers.
    pub fn table(&self) -> &MessageTable {
        &self.shared().table
    }

    /// Which connection this is: it grows with each.
    pub fn generation(&self) -> u64 {
        self.shared().generation
    }

    /// Which VPP it leads to.
    pub fn identity(&self) -> VppIdentity {
        self.shared().identity
    }

    /// How many messages came that nobody waited for: answers after their deadline, mostly.
    pub fn strays(&self) -> u64 {
        self.shared().strays.load(Ordering::Relaxed)
    }

    /// Why it is closed, if it is.
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.shared().closed.borrow().clone()
    }

    /// Waits until it closes.
    pub async fn closed(&self) -> CloseReason {
        let mut closed = self.shared().closed.subscribe();
        match closed.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(CloseReason::Dropped),
            Err(_gone) => CloseReason::Dropped,
        }
    }

    /// Closes it, and ends every call that waits.
    pub fn close(&self) {
        self.shared().close(&CloseReason::Dropped);
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    fn number(&self, message: &'static str, id: MessageId) -> Result<u16, CallError> {
        self.shared()
            .table
            .number(id)
            .ok_or(CallError::NotOffered { message, id })
    }

    fn frame(
        &self,
        id: MessageId,
        body: impl FnOnce(&mut Writer) -> Result<(), EncodeError>,
    ) -> Result<Frame, CallError> {
        let message = id.name;
        let number = self.number(message, id)?;
        Frame::new(number, self.shared().client_index, body)
            .map_err(|source| CallError::Encode { message, source })
    }

    /// Sends frames with one context, and waits for what ends them.
    async fn exchange(
        &self,
        message: &'static str,
        mut frames: Vec<Frame>,
        expected: Expected,
        after: Duration,
    ) -> Result<Answer, CallError> {
        let shared = self.shared();
        let deadline = Instant::now() + after;
        let late = |sent| CallError::Deadline {
            message,
            after,
            sent,
        };
        let closed = |reason, sent| CallError::Closed {
            message,
            reason,
            sent,
        };
        let Ok(permit) = timeout_at(deadline, shared.window.acquire()).await else {
            return Err(late(false));
        };
        // The semaphore is never closed; a connection that is says so below.
        let _permit = permit.ok();
        let max = shared.options.max_dump;
        let (slot, answer) = shared
            .pending
            .insert(expected, max)
            .map_err(|reason| closed(reason, false))?;
        for frame in &mut frames {
            frame.set_context(slot.context());
        }
        let outgoing = Outgoing {
            context: slot.context(),
            bytes: frames.into_iter().flat_map(Frame::into_bytes).collect(),
        };
        // When the writer has gone, the answer says why.
        if timeout_at(deadline, shared.outgoing.send(outgoing))
            .await
            .is_err()
        {
            return Err(late(false));
        }
        match timeout_at(deadline, answer).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(failure))) => Err(match failure {
                Failure::Closed { reason, sent } => closed(reason, sent),
                Failure::Unexpected { number } => CallError::Unexpected {
                    message,
                    got: shared.table.name(number).unwrap_or("unknown").to_owned(),
                },
                Failure::TooLarge => CallError::TooLarge { message, max },
            }),
            Ok(Err(_gone)) => Err(closed(CloseReason::Dropped, slot.sent())),
            Err(_elapsed) => Err(late(slot.sent())),
        }
    }
}

fn details<T: Wire>(message: &'static str, bodies: &[Bytes]) -> Result<Vec<T>, CallError> {
    bodies
        .iter()
        .map(|body| decode(body))
        .collect::<Result<_, _>>()
        .map_err(|source| CallError::Decode { message, source })
}
