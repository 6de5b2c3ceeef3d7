//! A small blocking rtnetlink client: many requests in one datagram, one error for each.
//!
//! The kernel works through a datagram before `send` returns, so that a batch costs two
//! system calls whatever its length.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::backend::BackendError;

/// Largest answer that is read at once. The kernel fits dumps to the reader's buffer.
const BUFFER: usize = 64 * 1024;
/// How often a dump is asked for again when the kernel lost a part of it.
const DUMP_TRIES: u32 = 5;

const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSGERR_ATTR_MSG: u16 = 1;

/// What should happen to what a request names.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verb {
    /// It must not exist yet.
    Create,
    /// It may exist, and is overwritten.
    Replace,
    /// It exists and changes or goes.
    Change,
}

impl Verb {
    const fn flags(self) -> u16 {
        NLM_F_REQUEST
            | match self {
                Self::Create => NLM_F_CREATE | NLM_F_EXCL,
                Self::Replace => NLM_F_CREATE | NLM_F_REPLACE,
                Self::Change => 0,
            }
    }
}

/// One request of a batch, with words for its error.
#[derive(Debug)]
struct Request {
    operation: &'static str,
    object: String,
    tolerated: Option<i32>,
}

/// Requests that are sent together, in order.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    requests: Vec<Request>,
}

impl Batch {
    /// Adds a request. `operation` and `object` complete "could not …".
    pub(crate) fn push(
        &mut self,
        verb: Verb,
        message: RouteNetlinkMessage,
        operation: &'static str,
        object: impl Into<String>,
    ) -> &mut Self {
        let mut message = NetlinkMessage::from(message);
        message.header.flags = verb.flags();
        // Numbered from 1 within the batch; the socket adds its own base when it sends.
        message.header.sequence_number = u32::try_from(self.requests.len()).unwrap_or(0);
        message.finalize();
        let start = self.bytes.len();
        let length = message.buffer_len();
        self.bytes.resize(start + length.next_multiple_of(4), 0);
        message.serialize(&mut self.bytes[start..start + length]);
        self.requests.push(Request {
            operation,
            object: object.into(),
            tolerated: None,
        });
        self
    }

    /// Lets the last request fail with this error number.
    pub(crate) fn tolerating(&mut self, errno: i32) -> &mut Self {
        if let Some(request) = self.requests.last_mut() {
            request.tolerated = Some(errno);
        }
        self
    }
}

/// A refusal of the kernel, before it is put into words.
#[derive(Debug)]
struct Refusal {
    request: usize,
    errno: i32,
    detail: Option<String>,
}

/// An rtnetlink socket of one network namespace: the one of the thread that opened it.
#[derive(Debug)]
pub(crate) struct RouteSocket {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl RouteSocket {
    pub(crate) fn open() -> Result<Self, BackendError> {
        Self::try_open().map_err(|source| netlink("open", "a netlink socket", None, source))
    }

    fn try_open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_cap_ack(true)?;
        socket.set_ext_ack(true)?;
        socket.set_netlink_get_strict_chk(true)?;
        Ok(Self {
            socket,
            sequence: 1,
            buffer: Vec::with_capacity(BUFFER),
        })
    }

    /// Sends a batch. The kernel carries out every request, and the first refusal that is
    /// not tolerated is the error.
    pub(crate) fn run(&mut self, mut batch: Batch) -> Result<(), BackendError> {
        let requests = std::mem::take(&mut batch.requests);
        match self.exchange(batch.bytes, &requests) {
            Ok(None) => Ok(()),
            Ok(Some(refusal)) => {
                let source = io::Error::from_raw_os_error(refusal.errno);
                Err(match requests.into_iter().nth(refusal.request) {
                    Some(request) => {
                        netlink(request.operation, request.object, refusal.detail, source)
                    }
                    None => netlink("talk to", "the kernel", None, source),
                })
            }
            Err(source) => Err(netlink("talk to", "the kernel over netlink", None, source)),
        }
    }

    fn exchange(
        &mut self,
        mut bytes: Vec<u8>,
        requests: &[Request],
    ) -> io::Result<Option<Refusal>> {
        if requests.is_empty() {
            return Ok(None);
        }
        let base = self.sequence;
        let count = u32::try_from(requests.len()).unwrap_or(u32::MAX);
        self.sequence = self.sequence.wrapping_add(count);
        prepare(&mut bytes, base);
        self.socket.send(&bytes, 0)?;
        let mut answered = false;
        let mut first: Option<Refusal> = None;
        while !answered {
            self.receive()?;
            for message in messages(&self.buffer) {
                let index = message.sequence.wrapping_sub(base) as usize;
                let Some(request) = requests.get(index) else {
                    continue;
                };
                if message.kind != NLMSG_ERROR {
                    continue;
                }
                answered |= index + 1 == requests.len();
                let errno = message.errno();
                if errno == 0 || request.tolerated == Some(errno) {
                    continue;
                }
                if first.as_ref().is_none_or(|first| index < first.request) {
                    first = Some(Refusal {
                        request: index,
                        errno,
                        detail: message.detail(),
                    });
                }
            }
        }
        Ok(first)
    }

    /// Asks for one object. `None` when there is none.
    pub(crate) fn get(
        &mut self,
        request: RouteNetlinkMessage,
        operation: &'static str,
        object: &str,
    ) -> Result<Option<RouteNetlinkMessage>, BackendError> {
        match self.query(request, NLM_F_REQUEST) {
            Ok(found) => Ok(found.into_iter().next()),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(source) => Err(netlink(operation, object, None, source)),
        }
    }

    /// Lists objects. Asks again when the list changed or overflowed while it was read.
    pub(crate) fn dump(
        &mut self,
        request: &RouteNetlinkMessage,
        object: &'static str,
    ) -> Result<Vec<RouteNetlinkMessage>, BackendError> {
        let mut tries = 1;
        loop {
            let result = self.query(request.clone(), NLM_F_REQUEST | NLM_F_DUMP);
            let lost = |error: &io::Error| {
                matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EINTR))
            };
            match result {
                Err(error) if lost(&error) && tries < DUMP_TRIES => {
                    // What is left of the broken answer must not mix with the next one.
                    *self = Self::open()?;
                    tries += 1;
                }
                other => return other.map_err(|source| netlink("list", object, None, source)),
            }
        }
    }

    fn query(
        &mut self,
        request: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        let mut message = NetlinkMessage::from(request);
        let sequence = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        message.header.flags = flags;
        message.header.sequence_number = sequence;
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut found = Vec::new();
        let mut interrupted = false;
        loop {
            self.receive()?;
            for message in messages(&self.buffer) {
                if message.sequence != sequence {
                    continue;
                }
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR => return Err(io::Error::from_raw_os_error(message.errno())),
                    NLMSG_DONE if interrupted => {
                        return Err(io::Error::from_raw_os_error(libc::EINTR));
                    }
                    NLMSG_DONE => return Ok(found),
                    _ => {
                        let parsed =
                            NetlinkMessage::<RouteNetlinkMessage>::deserialize(message.whole)
                                .map_err(io::Error::other)?;
                        if let NetlinkPayload::InnerMessage(inner) = parsed.payload {
                            found.push(inner);
                        }
                    }
                }
            }
            if !dump && !found.is_empty() {
                return Ok(found);
            }
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        self.buffer.clear();
        let length = loop {
            match self.socket.recv(&mut self.buffer, libc::MSG_TRUNC) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if length > self.buffer.capacity() {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        Ok(())
    }
}

/// Puts the kernel's refusal into words.
pub(crate) fn netlink(
    operation: &'static str,
    object: impl Into<String>,
    detail: Option<String>,
    source: io::Error,
) -> BackendError {
    if source.raw_os_error() == Some(libc::EPERM) {
        return BackendError::Permission { operation };
    }
    BackendError::Netlink {
        operation,
        object: object.into(),
        detail,
        source,
    }
}

/// The error number of a refusal, for callers that know what some of them mean.
pub(crate) fn errno(error: &BackendError) -> Option<i32> {
    match error {
        BackendError::Netlink { source, .. } => source.raw_os_error(),
        _ => None,
    }
}

/// One netlink message inside a datagram.
#[derive(Debug)]
struct Raw<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    whole: &'a [u8],
}

impl Raw<'_> {
    /// The error number of an `NLMSG_ERROR`, positive; 0 is success.
    fn errno(&self) -> i32 {
        let code = self.whole.get(HEADER..HEADER + 4);
        let code = code.and_then(|bytes| bytes.try_into().ok());
        code.map_or(libc::EIO, |bytes| {
            i32::from_ne_bytes(bytes).saturating_neg()
        })
    }

    /// The kernel's own words (extended acknowledgement), behind the error and the capped request.
    fn detail(&self) -> Option<String> {
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return None;
        }
        let mut rest = self.whole.get(HEADER + 4 + HEADER..)?;
        while let (Some(length), Some(kind)) = (half(rest, 0), half(rest, 2)) {
            let length = usize::from(length);
            if kind & 0x3fff == NLMSGERR_ATTR_MSG {
                let text = rest.get(4..length)?;
                let text = text.strip_suffix(&[0]).unwrap_or(text);
                return Some(String::from_utf8_lossy(text).into_owned());
            }
            if length < 4 {
                return None;
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
        None
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

fn messages(datagram: &[u8]) -> impl Iterator<Item = Raw<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = word(rest, 0)? as usize;
        let whole = rest.get(..length).filter(|_| length >= HEADER)?;
        let message = Raw {
            kind: half(whole, 4)?,
            flags: half(whole, 6)?,
            sequence: word(whole, 8)?,
            whole,
        };
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

/// Adds `base` to the sequence number of each message of a batch, and asks for an
/// acknowledgement of the last one. Refusals come unasked, so that its arrival ends the batch.
fn prepare(bytes: &mut [u8], base: u32) {
    let mut at = 0;
    let mut last = 0;
    while let (Some(length), Some(index)) = (word(bytes, at), word(bytes, at + 8)) {
        if let Some(field) = bytes.get_mut(at + 8..at + 12) {
            field.copy_from_slice(&base.wrapping_add(index).to_ne_bytes());
        }
        last = at;
        at += (length as usize).max(HEADER).next_multiple_of(4);
    }
    let flags = half(bytes, last + 6).unwrap_or(0) | NLM_F_ACK;
    if let Some(field) = bytes.get_mut(last + 6..last + 8) {
        field.copy_from_slice(&flags.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::LinkMessage;

    use super::*;

    #[test]
    fn a_batch_is_numbered_and_aligned() {
        let mut batch = Batch::default();
        for _ in 0..3 {
            let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
            batch.push(Verb::Change, message, "test", "x");
        }
        prepare(&mut batch.bytes, 40);
        let numbers: Vec<_> = messages(&batch.bytes)
            .map(|m| (m.sequence, m.flags & NLM_F_ACK != 0))
            .collect();
        assert_eq!(numbers, [(40, false), (41, false), (42, true)]);
    }

    #[test]
    fn cut_messages_end_the_iteration() {
        assert_eq!(messages(&[1, 0, 0]).count(), 0);
        assert_eq!(messages(&[0; 16]).count(), 0);
        assert_eq!(messages(&[255; 40]).count(), 0);
    }

    #[test]
    fn loopback_is_found_and_a_strange_name_is_not() {
        let mut socket = RouteSocket::open().unwrap();
        let mut message = LinkMessage::default();
        message.header.index = 1;
        let found = socket.get(RouteNetlinkMessage::GetLink(message), "find", "lo");
        assert!(found.unwrap().is_some());
        let mut message = LinkMessage::default();
        message.header.index = 0x7fff_fff0;
        let found = socket.get(RouteNetlinkMessage::GetLink(message), "find", "x");
        assert!(found.unwrap().is_none());
    }
}
