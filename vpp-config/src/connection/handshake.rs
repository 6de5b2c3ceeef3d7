//! The first exchange: who the client is, and which number each message has.

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::frame::{Frame, Received, take};
use super::{CloseReason, ConnectError};
use crate::messages::memclnt::{
    ControlPing, SOCKCLNT_CREATE_ID, SOCKCLNT_CREATE_REPLY_ID, SockclntCreate, SockclntCreateReply,
};
use crate::messages::{Reply, ReplyError, Request};
use crate::options::Options;
use crate::retval::Retval;
use crate::table::MessageTable;
use crate::wire::{DecodeError, EncodeError, Reader, Wire};

/// What VPP says to a new client.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) table: MessageTable,
    pub(super) client_index: u32,
    /// What was received beyond it.
    pub(super) input: BytesMut,
    max_frame: usize,
}

/// Any context will do, since nothing else is under way.
const CONTEXT: u32 = 1;

pub(super) async fn greet(
    stream: &mut UnixStream,
    options: &Options,
) -> Result<Greeting, ConnectError> {
    let create = SockclntCreate {
        context: CONTEXT,
        name: options.name.clone(),
    };
    let frame = Frame::build(|out| {
        SOCKCLNT_CREATE_ID.put(out)?;
        create.put(out)
    });
    send(stream, frame).await?;

    let mut input = BytesMut::new();
    let received = receive(stream, &mut input, options.max_frame, |received| {
        received.number == SOCKCLNT_CREATE_REPLY_ID
    })
    .await?;
    // The reply has an index where others have their context.
    let mut body = Reader::new(&received.body);
    let reply = SockclntCreateReply {
        client_index: received.context,
        ..SockclntCreateReply::after_index(&mut body).map_err(protocol)?
    };
    let response = Retval(reply.response);
    if response != Retval::OK {
        return Err(ConnectError::Refused { response });
    }
    Ok(Greeting {
        table: MessageTable::new(&reply.message_table),
        client_index: reply.index,
        input,
        max_frame: options.max_frame,
    })
}

/// Asks for the process id of VPP.
pub(super) async fn ping(
    stream: &mut UnixStream,
    greeting: &mut Greeting,
) -> Result<u32, ConnectError> {
    let numbers = |id| greeting.table.number(id).unwrap_or(0);
    let (number, answer) = (numbers(ControlPing::ID), numbers(ControlPing::REPLY_ID));
    let frame = Frame::new(number, greeting.client_index, |out| ControlPing {}.put(out)).map(
        |mut frame| {
            frame.set_context(CONTEXT);
            frame
        },
    );
    send(stream, frame).await?;
    let max = greeting.max_frame;
    let received = receive(stream, &mut greeting.input, max, |received| {
        received.number == answer && received.context == CONTEXT
    })
    .await?;
    match <ControlPing as Request>::Reply::read(&received.body) {
        Ok(reply) => Ok(reply.vpe_pid),
        Err(ReplyError::Refused(response)) => Err(ConnectError::Refused { response }),
        Err(ReplyError::Decode(source)) => Err(protocol(source)),
    }
}

async fn send(
    stream: &mut UnixStream,
    frame: Result<Frame, EncodeError>,
) -> Result<(), ConnectError> {
    // Both messages have a length of their own, far below any limit.
    let frame = frame.map_err(|_cannot_be| protocol(DecodeError::NoCount))?;
    stream
        .write_all(&frame.into_bytes())
        .await
        .map_err(|error| socket(&error))
}

/// Waits for one message, and passes over others.
async fn receive(
    stream: &mut UnixStream,
    input: &mut BytesMut,
    max: usize,
    wanted: impl Fn(&Received) -> bool,
) -> Result<Received, ConnectError> {
    loop {
        while let Some(received) =
            take(input, max).map_err(|reason| ConnectError::Closed { reason })?
        {
            if wanted(&received) {
                return Ok(received);
            }
        }
        input.reserve(super::reader::CHUNK);
        match stream.read_buf(input).await {
            Ok(0) => {
                return Err(ConnectError::Closed {
                    reason: CloseReason::Peer,
                });
            }
            Ok(_) => {}
            Err(error) => return Err(socket(&error)),
        }
    }
}

fn socket(error: &std::io::Error) -> ConnectError {
    ConnectError::Closed {
        reason: CloseReason::Socket(error.kind()),
    }
}

fn protocol(source: DecodeError) -> ConnectError {
    ConnectError::Protocol { source }
}
