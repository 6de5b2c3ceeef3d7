//! Packets: reading what a sandbox sends, and writing what it gets back.

use std::net::Ipv6Addr;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::AAAA;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{DNSClass, RData, Record};

/// The largest query that is read, in bytes: one question and a few EDNS options.
pub const MAX_QUERY: usize = 2048;
/// The largest answer over UDP, in bytes: what passes every link unfragmented.
pub const MAX_UDP: u16 = 1232;
/// The smallest size that every client takes over UDP (RFC 1035), in bytes.
const MIN_UDP: u16 = 512;
const HEADER: usize = 12;
/// EDNS, a signature and some slack.
const MAX_ADDITIONALS: u16 = 4;
/// The option code of extended errors (RFC 8914).
const EXTENDED_ERROR: u16 = 15;

/// A query that can be answered.
#[derive(Debug, Clone)]
pub struct Question {
    /// Echoed in the answer.
    pub id: u16,
    /// What is asked, with the name in the spelling of the client.
    pub query: Query,
    /// The size of UDP packet that the client takes, if it speaks EDNS (RFC 6891).
    pub edns: Option<u16>,
    recursion_desired: bool,
    checking_disabled: bool,
}

/// What a packet turned out to be.
#[derive(Debug, Clone)]
pub enum Parsed {
    /// A query to be judged.
    Question(Question),
    /// Something that gets this error back.
    Error(Vec<u8>),
    /// Something that gets nothing back: too short for a header, or itself a response.
    Ignored,
}

/// The extended error codes of RFC 8914 that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendedError {
    /// The answer was withheld by a policy on addresses.
    Blocked,
    /// The answer was withheld by a policy on names.
    Filtered,
    /// The client may not ask.
    Prohibited,
    /// The upstream resolvers could not be reached, or failed.
    NetworkError,
}

impl ExtendedError {
    const fn code(self) -> u16 {
        match self {
            Self::Blocked => 15,
            Self::Filtered => 17,
            Self::Prohibited => 18,
            Self::NetworkError => 23,
        }
    }
}

/// What goes into an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Success, no such name, or an error.
    pub code: ResponseCode,
    /// The addresses of the name; only ever for a question of type AAAA.
    pub addresses: Vec<Ipv6Addr>,
    /// How long the addresses may be kept.
    pub ttl: Duration,
    /// Why there are none, for clients that speak EDNS: the code and a word for people.
    pub error: Option<(ExtendedError, &'static str)>,
}

impl Reply {
    /// A reply without addresses.
    pub const fn empty(code: ResponseCode) -> Self {
        Self {
            code,
            addresses: Vec::new(),
            ttl: Duration::ZERO,
            error: None,
        }
    }

    /// The same with the reason for it.
    #[must_use]
    pub const fn because(mut self, error: ExtendedError, text: &'static str) -> Self {
        self.error = Some((error, text));
        self
    }
}

/// Reads a packet from a sandbox. Takes any bytes; counts are checked before anything is
/// decoded, so that twelve bytes do not make us allocate for 65,535 questions.
pub fn parse(packet: &[u8]) -> Parsed {
    let Some(header) = packet.first_chunk::<HEADER>() else {
        return Parsed::Ignored;
    };
    let word = |index: usize| u16::from_be_bytes([header[index], header[index + 1]]);
    if header[2] & 0x80 != 0 {
        return Parsed::Ignored;
    }
    let id = word(0);
    let op_code = OpCode::from_u8((header[2] >> 3) & 0x0f);
    if op_code != OpCode::Query {
        return Parsed::Error(bare(id, op_code, ResponseCode::NotImp));
    }
    let format_error = || Parsed::Error(bare(id, op_code, ResponseCode::FormErr));
    if word(4) != 1 || word(6) != 0 || word(8) != 0 || word(10) > MAX_ADDITIONALS {
        return format_error();
    }
    if packet.len() > MAX_QUERY {
        return format_error();
    }
    let Ok(mut message) = Message::from_vec(packet) else {
        return format_error();
    };
    let Some(query) = message.queries.pop() else {
        return format_error();
    };
    let question = Question {
        id,
        query,
        edns: message.edns.as_ref().map(Edns::max_payload),
        recursion_desired: message.metadata.recursion_desired,
        checking_disabled: message.metadata.checking_disabled,
    };
    if message.version() != 0 {
        return Parsed::Error(encode_udp(&question, &Reply::empty(ResponseCode::BADVERS)));
    }
    if question.query.query_class() != DNSClass::IN {
        return Parsed::Error(encode_udp(&question, &Reply::empty(ResponseCode::Refused)));
    }
    Parsed::Question(question)
}

/// Writes an answer for UDP. One that does not fit says so, and the client asks over TCP.
pub fn encode_udp(question: &Question, reply: &Reply) -> Vec<u8> {
    let limit = question.edns.unwrap_or(MIN_UDP).clamp(MIN_UDP, MAX_UDP);
    encode(question, reply, usize::from(limit))
}

/// Writes an answer for TCP, without the length in front.
pub fn encode_tcp(question: &Question, reply: &Reply) -> Vec<u8> {
    encode(question, reply, usize::from(u16::MAX))
}

fn encode(question: &Question, reply: &Reply, limit: usize) -> Vec<u8> {
    let message = message(question, reply);
    let whole = message.to_vec().unwrap_or_default();
    if !whole.is_empty() && whole.len() <= limit {
        return whole;
    }
    let cut = message.truncate().to_vec().unwrap_or_default();
    if !cut.is_empty() && cut.len() <= limit {
        return cut;
    }
    // A question is at most 271 bytes, so this is only reached if the codec refuses it.
    bare(question.id, OpCode::Query, ResponseCode::ServFail)
}

fn message(question: &Question, reply: &Reply) -> Message {
    let mut message = Message::new(question.id, MessageType::Response, OpCode::Query);
    message.metadata.recursion_desired = question.recursion_desired;
    message.metadata.checking_disabled = question.checking_disabled;
    message.metadata.recursion_available = true;
    message.metadata.response_code = reply.code;
    message.add_query(question.query.clone());
    let ttl = u32::try_from(reply.ttl.as_secs()).unwrap_or(u32::MAX);
    let name = question.query.name();
    for address in &reply.addresses {
        let data = RData::AAAA(AAAA(*address));
        message.add_answer(Record::from_rdata(name.clone(), ttl, data));
    }
    if question.edns.is_some() {
        message.set_edns(edns(reply));
    }
    message
}

fn edns(reply: &Reply) -> Edns {
    let mut edns = Edns::new();
    edns.set_max_payload(MAX_UDP);
    if let Some((error, text)) = reply.error {
        let mut data = error.code().to_be_bytes().to_vec();
        data.extend_from_slice(text.as_bytes());
        let code = EdnsCode::from(EXTENDED_ERROR);
        let option = EdnsOption::Unknown(EXTENDED_ERROR, data);
        edns.options_mut().options.push((code, option));
    }
    edns
}

/// A header and nothing else: never longer than what it answers.
fn bare(id: u16, op_code: OpCode, code: ResponseCode) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    let flags = 0x80 | (u8::from(op_code) << 3);
    vec![high, low, flags, code.low(), 0, 0, 0, 0, 0, 0, 0, 0]
}
