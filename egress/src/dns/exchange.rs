//! One question to one upstream resolver: over UDP, and over TCP when the answer is too long.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::wire::MAX_UDP;

/// Packets that are not the answer and are read past, as somebody may be guessing.
const MAX_STRAYS: usize = 32;

/// Why a resolver gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The packet could not be sent or received.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What came is not an answer to the question.
    #[error("no answer among the packets received")]
    NoAnswer,
    /// The question cannot be written.
    #[error(transparent)]
    Encode(#[from] ProtoError),
    /// The system gave no random numbers.
    #[error("the system gave no random numbers: {0}")]
    Random(getrandom::Error),
}

/// Asks `server`, and gives up after `limit`. A server that does not know EDNS is asked
/// again without.
pub(super) async fn ask(
    server: SocketAddr,
    query: &Query,
    limit: Duration,
) -> Result<Message, ExchangeError> {
    let exchange = async {
        let response = over_udp(server, &question(query, true)?).await?;
        let response = match response.metadata.response_code {
            ResponseCode::FormErr | ResponseCode::NotImp => {
                over_udp(server, &question(query, false)?).await?
            }
            _ => response,
        };
        if response.metadata.truncation {
            return over_tcp(server, &question(query, true)?).await;
        }
        Ok(response)
    };
    timeout(limit, exchange)
        .await
        .map_err(|_elapsed| ExchangeError::TimedOut(limit))?
}

/// A message with an unpredictable identifier.
fn question(query: &Query, edns: bool) -> Result<Message, ExchangeError> {
    let mut id = [0; 2];
    getrandom::fill(&mut id).map_err(ExchangeError::Random)?;
    let mut message = Message::new(u16::from_be_bytes(id), MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(query.clone());
    if edns {
        let mut edns = Edns::new();
        edns.set_max_payload(MAX_UDP);
        message.set_edns(edns);
    }
    Ok(message)
}

/// A new socket for each question: the kernel picks an unpredictable port, and hands over only
/// what comes from the server.
async fn over_udp(server: SocketAddr, question: &Message) -> Result<Message, ExchangeError> {
    let local: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    socket.send(&question.to_vec()?).await?;
    let mut buffer = [0; 4096];
    for _ in 0..MAX_STRAYS {
        let length = socket.recv(&mut buffer).await?;
        if let Some(response) = accept(question, &buffer[..length]) {
            return Ok(response);
        }
    }
    Err(ExchangeError::NoAnswer)
}

async fn over_tcp(server: SocketAddr, question: &Message) -> Result<Message, ExchangeError> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&framed(&question.to_vec()?)).await?;
    let length = stream.read_u16().await?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await?;
    accept(question, &buffer).ok_or(ExchangeError::NoAnswer)
}

/// A message with its length in front (RFC 1035, section 4.2.2).
pub(super) fn framed(message: &[u8]) -> Vec<u8> {
    // What is longer than a length can say is never written by this crate; cut, not wrapped.
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(&message[..usize::from(length)]);
    framed
}

/// The response in a packet, if it is one to this question: same identifier, and the question
/// repeated. An error may come without the question.
pub(super) fn accept(question: &Message, packet: &[u8]) -> Option<Message> {
    if packet.get(..2)? != question.metadata.id.to_be_bytes() {
        return None;
    }
    // Counted before decoding: the decoder allocates for as many questions as it is told.
    let questions = u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]);
    if questions > 1 {
        return None;
    }
    let response = Message::from_vec(packet).ok()?;
    let metadata = &response.metadata;
    let repeated = match response.queries.as_slice() {
        [one] => question.queries.first().is_some_and(|asked| one == asked),
        [] => matches!(
            metadata.response_code,
            ResponseCode::FormErr | ResponseCode::NotImp
        ),
        _ => false,
    };
    let good = metadata.message_type == MessageType::Response
        && metadata.op_code == OpCode::Query
        && repeated;
    good.then_some(response)
}
