//! The packet filter of the router namespace.
//!
//! [`Ruleset`] is the fixed structure, written once by the `nft` program; [`Filter`] changes
//! what is in its sets over netlink, which takes microseconds where `nft` takes milliseconds.
//! The encoders and decoders ([`wire`], [`message`]) are pure and take any bytes.
//!
//! Nothing here knows more of a sandbox than its elements.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use causeway_types::{Layer, Reason, SandboxUid};

use crate::backend::BackendError;
use crate::elements::{Element, ElementChanges, PortIndexes};

mod epoch;
mod install;
mod lower;
pub mod message;
mod ruleset;
mod set;
mod socket;
pub mod wire;

pub use epoch::{Epoch, Epochs};
pub use install::Installed;
pub use lower::Raised;
pub use ruleset::{Ruleset, TABLE};
pub use set::{Entry, Field, Set};
pub use wire::WireError;

use message::{Action, FIRST_CHANGE, Family, Reply, decode_reply};
use socket::Socket;
use wire::Messages;

/// How often a dump is begun again because something changed while it ran.
const DUMP_ATTEMPTS: usize = 16;
/// No message of ours that holds one entry is longer.
const LONGEST_CHANGE: usize = 256;

/// Why the packet filter could not be changed or read.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The netlink socket failed.
    #[error("could not {operation} over netlink")]
    Socket {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The kernel's answer makes no sense.
    #[error("the kernel's answer cannot be read")]
    Answer {
        /// What is wrong with it.
        #[from]
        source: WireError,
    },
    /// The kernel refused one entry, and with it the whole transaction.
    #[error("the kernel refused `{entry}` in the set `{}`", set.name())]
    Refused {
        /// The set.
        set: Set,
        /// The entry, as `nft` writes it.
        entry: String,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// The kernel refused a transaction or a request without naming an entry.
    #[error("the kernel refused to {operation}")]
    Request {
        /// What was tried.
        operation: &'static str,
        /// The error number.
        #[source]
        source: io::Error,
    },
    /// The table is not there.
    #[error("there is no packet filter in the router's namespace")]
    Missing,
    /// Other programs change the packet filter all the time.
    #[error("the set `{}` kept changing while it was read", set.name())]
    Unstable {
        /// The set.
        set: Set,
    },
    /// An element names a port that has no interface.
    #[error("sandbox {uid} has no port to filter")]
    NoPort {
        /// The sandbox.
        uid: SandboxUid,
    },
    /// The `nft` program is missing.
    #[error("the program `nft` is not installed: install the package `nftables`")]
    NoProgram,
    /// The `nft` program could not be run.
    #[error("could not run `nft`")]
    Program {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The `nft` program refused the ruleset.
    #[error("`nft` refused the ruleset ({status}): {message}")]
    Rules {
        /// How it ended.
        status: std::process::ExitStatus,
        /// The first lines that it wrote.
        message: String,
    },
}

impl NftError {
    fn socket(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Socket { operation, source }
    }

    fn request(operation: &'static str, errno: i32) -> Self {
        if errno == libc::ENOENT {
            return Self::Missing;
        }
        Self::Request {
            operation,
            source: io::Error::from_raw_os_error(errno),
        }
    }
}

impl From<NftError> for BackendError {
    fn from(error: NftError) -> Self {
        match error {
            NftError::Missing => Self::NotSetUp,
            NftError::NoProgram => Self::ProgramMissing {
                program: "nft",
                package: "nftables",
            },
            NftError::Rules { status, message } => Self::ProgramFailed {
                program: "nft",
                status,
                message,
            },
            other => Self::Filter {
                operation: "change or read its sets",
                source: Box::new(other),
            },
        }
    }
}

/// Packets dropped, by interface index and reason.
pub type Drops = BTreeMap<(u32, Reason), u64>;

/// A handle on the tables of one network namespace: that of the thread that opens it. It can be
/// used from any thread afterwards, except where a method says otherwise.
#[derive(Debug)]
pub struct Filter {
    socket: Socket,
    sequence: u32,
    /// How many epochs were ended by this handle.
    endings: u64,
}

impl Filter {
    /// Opens the packet filter of this thread's network namespace.
    pub fn open() -> Result<Self, NftError> {
        let socket = Socket::open().map_err(NftError::socket("open a socket"))?;
        Ok(Self {
            socket,
            sequence: 0,
            endings: 0,
        })
    }

    /// Changes set elements in one transaction: all or nothing, as long as the change fits
    /// into the socket's buffer (some thirty thousand elements where the process may choose it).
    ///
    /// Adding what is there and removing what is not changes nothing.
    ///
    /// A change that takes a right away ends the [epoch](Epoch) in the same transaction. That is
    /// for the caller to [begin anew](Epochs::ended), and until then every packet is judged.
    pub fn apply(
        &mut self,
        changes: &ElementChanges,
        indexes: &PortIndexes,
    ) -> Result<(), NftError> {
        let mut entries = Vec::with_capacity(changes.len() * 2 + 2);
        if changes.revokes() {
            entries.extend(epoch::end());
            self.endings += 1;
        }
        let lists = [
            (Action::Delete, &changes.remove),
            (Action::Add, &changes.add),
        ];
        for (action, list) in lists {
            for element in list {
                let lowered = lower::lower(element, indexes).ok_or_else(|| no_port(element))?;
                entries.extend(
                    lowered
                        .into_iter()
                        .map(|entry| (action, Family::Inet, entry)),
                );
            }
        }
        self.change(&entries)
    }

    /// What is in the sets, drops excepted.
    pub fn elements(&mut self, indexes: &PortIndexes) -> Result<Raised, NftError> {
        let mut entries = Vec::new();
        for &set in Set::ALL.iter().filter(|set| **set != Set::Drops) {
            entries.extend(self.entries(set)?);
        }
        Ok(lower::raise(entries, indexes))
    }

    /// Removes entries that belong to no element.
    pub fn remove_strays(&mut self, strays: Vec<Entry>) -> Result<(), NftError> {
        if strays.is_empty() {
            return Ok(());
        }
        let deletions = strays
            .into_iter()
            .map(|entry| (Action::Delete, Family::Inet, entry));
        self.endings += 1;
        let changes: Vec<_> = epoch::end().into_iter().chain(deletions).collect();
        self.change(&changes)
    }

    /// The epoch whose stamps count; none in the moments after one was ended.
    pub fn epoch(&mut self) -> Result<Option<Epoch>, NftError> {
        let entries = self.entries(Set::Fresh)?;
        Ok(entries.first().and_then(epoch::read))
    }

    /// How many epochs were ended through this handle.
    pub fn endings(&self) -> u64 {
        self.endings
    }

    /// Ends the epoch that there is and begins another. Whoever calls this has made sure that
    /// no packet is still on its way through the rules that was met by one of the sets as they
    /// were before the last change that takes a right away.
    pub fn begin_epoch(&mut self, epoch: Epoch) -> Result<(), NftError> {
        self.change(&epoch::begin(epoch))
    }

    /// Packets dropped since the structure was written.
    pub fn drops(&mut self) -> Result<Drops, NftError> {
        let mut drops = Drops::new();
        for family in [Family::Inet, Family::Arp] {
            for raw in self.dump(family, Set::Drops)? {
                if let (Some(key), Some((packets, _))) = (message::drop_key(&raw.key), raw.counter)
                {
                    *drops.entry(key).or_default() += packets;
                }
            }
        }
        Ok(drops)
    }

    /// Forgets the drops of an interface that is gone.
    pub fn forget_drops(&mut self, index: u32) -> Result<(), NftError> {
        let reasons = Reason::ALL
            .iter()
            .filter(|reason| reason.layer() == Layer::Dataplane);
        let mut changes: Vec<_> = reasons
            .map(|reason| message::drop_entry(index, u32::from(reason.code())))
            .map(|entry| (Action::Delete, Family::Inet, entry))
            .collect();
        let not_ipv6 = message::drop_entry(index, u32::from(Reason::NotIpv6.code()));
        changes.push((Action::Delete, Family::Arp, not_ipv6));
        self.change(&changes)
    }

    /// Makes changes in as few transactions as they fit into.
    fn change(&mut self, changes: &[(Action, Family, Entry)]) -> Result<(), NftError> {
        let most = (self.socket.capacity() / LONGEST_CHANGE).max(1);
        for part in changes.chunks(most) {
            let mut part: Vec<_> = part.iter().map(|(a, f, entry)| (*a, *f, entry)).collect();
            // What is not there to be deleted fails the transaction: it is made once more
            // without that. Each round deletes less, so there is an end to it.
            while !part.is_empty() {
                let absent = self.transact(&part)?;
                if absent.is_empty() {
                    break;
                }
                let mut position = 0;
                part.retain(|_| {
                    position += 1;
                    !absent.contains(&(position - 1))
                });
            }
        }
        Ok(())
    }

    /// Makes one transaction. Returns the positions of deletions that found nothing, for
    /// whose sake the transaction was not made.
    fn transact(
        &mut self,
        changes: &[(Action, Family, &Entry)],
    ) -> Result<BTreeSet<usize>, NftError> {
        let batch = message::encode_batch(changes);
        debug_assert!(batch.len() <= changes.len() * LONGEST_CHANGE + 64);
        let mut absent = BTreeSet::new();
        for (sequence, errno) in self.exchange(&batch, changes.len())? {
            let position = sequence.checked_sub(FIRST_CHANGE).map(|at| at as usize);
            let change = position.and_then(|at| Some((at, changes.get(at)?)));
            match change {
                Some((at, (Action::Delete, ..))) if errno == libc::ENOENT => {
                    absent.insert(at);
                }
                Some((_, (Action::Add | Action::Empty, ..))) if errno == libc::ENOENT => {
                    self.socket.drain();
                    return Err(NftError::Missing);
                }
                Some((_, (_, _, entry))) => {
                    self.socket.drain();
                    return Err(NftError::Refused {
                        set: entry.set,
                        entry: entry.text(),
                        source: io::Error::from_raw_os_error(errno),
                    });
                }
                None => {
                    self.socket.drain();
                    return Err(NftError::request("change sets", errno));
                }
            }
        }
        Ok(absent)
    }

    /// Sends a batch of `count` changes and collects the errors, up to the answer to the last
    /// change or an answer to the batch as a whole.
    fn exchange(&mut self, batch: &[u8], count: usize) -> Result<Vec<(u32, i32)>, NftError> {
        self.socket
            .send(batch)
            .map_err(NftError::socket("send a transaction"))?;
        let mut errors = Vec::new();
        loop {
            let bytes = self
                .socket
                .receive()
                .map_err(NftError::socket("receive an answer"))?;
            for message in Messages::new(bytes) {
                let Reply::Status { sequence, errno } = decode_reply(&message?)? else {
                    continue;
                };
                if errno != 0 {
                    errors.push((sequence, errno));
                }
                let position = sequence.checked_sub(FIRST_CHANGE).map(|at| at as usize);
                if position.is_none_or(|at| at + 1 >= count) {
                    return Ok(errors);
                }
            }
        }
    }

    fn entries(&mut self, set: Set) -> Result<Vec<Entry>, NftError> {
        let raw = self.dump(Family::Inet, set)?;
        Ok(message::entries(set, raw)?)
    }

    fn dump(&mut self, family: Family, set: Set) -> Result<Vec<message::RawElement>, NftError> {
        for _ in 0..DUMP_ATTEMPTS {
            let request = message::encode_dump(family, set, self.next_sequence());
            let mut elements = Vec::new();
            let whole = self.request("read a set", &request, |payload| {
                elements.extend(message::decode_elements(payload)?);
                Ok(())
            })?;
            if whole {
                return Ok(elements);
            }
        }
        Err(NftError::Unstable { set })
    }

    /// Sends a request and hands each part of the answer to `take`. Says whether the answer is
    /// of one piece: nothing changed while it was given.
    fn request(
        &mut self,
        operation: &'static str,
        request: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), WireError>,
    ) -> Result<bool, NftError> {
        let sequence = self.sequence;
        self.socket
            .send(request)
            .map_err(NftError::socket("send a request"))?;
        let mut whole = true;
        loop {
            let bytes = self
                .socket
                .receive()
                .map_err(NftError::socket("receive an answer"))?;
            for message in Messages::new(bytes) {
                let message = message?;
                // The rest of an answer that somebody gave up waiting for.
                if message.sequence != sequence {
                    continue;
                }
                match decode_reply(&message)? {
                    Reply::Data {
                        payload,
                        interrupted,
                    } => {
                        whole &= !interrupted;
                        take(payload)?;
                    }
                    Reply::Done {
                        errno: 0,
                        interrupted,
                    } => return Ok(whole && !interrupted),
                    Reply::Status { errno: 0, .. } => return Ok(whole),
                    Reply::Done { errno, .. } | Reply::Status { errno, .. } => {
                        return Err(NftError::request(operation, errno));
                    }
                }
            }
        }
    }

    /// The next request's number. Those of batches are small; these begin above.
    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1) | 1 << 31;
        self.sequence
    }
}

fn no_port(element: &Element) -> NftError {
    match element {
        Element::Source {
            port: crate::elements::PortRef::Sandbox(uid),
            ..
        } => NftError::NoPort { uid: *uid },
        // Only sources name ports, and an index stands for itself.
        _ => NftError::Missing,
    }
}
