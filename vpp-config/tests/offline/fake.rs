//! A VPP that says what a test wants.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use vpp_config::messages::memclnt::{ControlPing, SockclntCreateReply, TableEntry};
use vpp_config::messages::reply::Pid;
use vpp_config::messages::{MessageId, Reply, Request, declared};
use vpp_config::wire::{Wire, Writer, encode};
use vpp_config::{Client, ConnectError, Needs, Options};

/// A listener where a client looks for VPP.
pub(crate) struct FakeVpp {
    folder: TempDir,
    listener: UnixListener,
}

/// A connected client, as VPP sees it.
pub(crate) struct Peer {
    pub(crate) stream: UnixStream,
    pub(crate) numbers: Arc<Numbers>,
}

/// The message table of one run.
pub(crate) struct Numbers {
    ids: Vec<MessageId>,
    base: u16,
}

/// A message from the client.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) number: u16,
    pub(crate) context: u32,
    pub(crate) body: Vec<u8>,
}

impl Numbers {
    /// Everything that is declared, from a number on.
    pub(crate) fn from(base: u16) -> Arc<Self> {
        Self::without(base, &[])
    }

    /// Everything but some names.
    pub(crate) fn without(base: u16, names: &[&str]) -> Arc<Self> {
        let ids = declared()
            .map(|declared| declared.id)
            .filter(|id| !names.contains(&id.name))
            .collect();
        Arc::new(Self { ids, base })
    }

    pub(crate) fn of(&self, id: MessageId) -> u16 {
        let at = self.ids.iter().position(|known| *known == id).unwrap();
        self.base + u16::try_from(at).unwrap()
    }

    /// What a new client is told.
    pub(crate) fn greeting(&self) -> SockclntCreateReply {
        let entry = |(id, index): (&MessageId, u16)| TableEntry {
            index,
            name: id.to_string().as_str().try_into().unwrap(),
        };
        SockclntCreateReply {
            client_index: 0,
            context: 1,
            response: 0,
            index: INDEX,
            message_table: self.ids.iter().zip(self.base..).map(entry).collect(),
        }
    }
}

impl FakeVpp {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let listener = UnixListener::bind(folder.path().join("api.sock")).unwrap();
        Self { folder, listener }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("api.sock")
    }

    /// A client that has not said anything yet.
    pub(crate) async fn accept(&self) -> UnixStream {
        self.listener.accept().await.unwrap().0
    }

    /// A client that has been greeted, and told a process id.
    pub(crate) async fn greet(&self, numbers: Arc<Numbers>, pid: u32) -> Peer {
        let mut peer = Peer {
            stream: self.accept().await,
            numbers,
        };
        let (number, _) = read(&mut peer.stream).await.unwrap();
        assert_eq!(number, 15);
        let reply = peer.numbers.greeting();
        peer.raw(16, &encode(&reply).unwrap()).await;
        let ping = peer.receive().await;
        assert_eq!(ping.number, peer.numbers.of(ControlPing::ID));
        peer.pong(ping.context, pid).await;
        peer
    }

    /// A connected client, and its other end.
    pub(crate) async fn connect(&self, options: Options) -> (Client, Peer) {
        self.connect_to(options, Numbers::from(100)).await
    }

    /// The same with a message table.
    pub(crate) async fn connect_to(
        &self,
        options: Options,
        numbers: Arc<Numbers>,
    ) -> (Client, Peer) {
        let (client, peer) = tokio::join!(
            Client::connect(self.socket(), options, Needs::new()),
            self.greet(numbers, 1)
        );
        (client.unwrap(), peer)
    }
}

const INDEX: u32 = 0x8000_0001;

impl Peer {
    /// The client's next message.
    pub(crate) async fn receive(&mut self) -> Incoming {
        self.try_receive().await.expect("the client is there")
    }

    /// The same, unless the client has gone.
    pub(crate) async fn try_receive(&mut self) -> Option<Incoming> {
        let (number, rest) = read(&mut self.stream).await?;
        let (index, rest) = rest.split_first_chunk::<4>().unwrap();
        let (context, body) = rest.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_be_bytes(*index), INDEX);
        Some(Incoming {
            number,
            context: u32::from_be_bytes(*context),
            body: body.into(),
        })
    }

    /// Whether the client says nothing for a while.
    pub(crate) async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(100), self.stream.read(&mut [0]))
            .await
            .is_err()
    }

    /// Sends a message without a context.
    pub(crate) async fn raw(&mut self, number: u16, rest: &[u8]) {
        let mut message = number.to_be_bytes().to_vec();
        message.extend_from_slice(rest);
        self.stream.write_all(&frame(&message)).await.unwrap();
    }

    /// Sends details, or an event.
    pub(crate) async fn send<T: Wire>(&mut self, id: MessageId, context: u32, body: &T) {
        let mut rest = context.to_be_bytes().to_vec();
        rest.append(&mut encode(body).unwrap());
        self.raw(self.numbers.of(id), &rest).await;
    }

    /// Sends a reply that does not refuse.
    pub(crate) async fn reply<R: Request>(&mut self, context: u32, body: &R::Reply) {
        let mut out = Writer::new();
        context.put(&mut out).unwrap();
        body.write(&mut out).unwrap();
        self.raw(self.numbers.of(R::REPLY_ID), &out.into_bytes())
            .await;
    }

    /// Answers a ping.
    pub(crate) async fn pong(&mut self, context: u32, vpe_pid: u32) {
        let pid = Pid {
            client_index: 0,
            vpe_pid,
        };
        self.reply::<ControlPing>(context, &pid).await;
    }
}

/// A frame around a message.
pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 16];
    frame[8..12].copy_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(message);
    frame
}

/// The number and the rest of the next message.
async fn read(stream: &mut UnixStream) -> Option<(u16, Vec<u8>)> {
    let mut header = [0; 16];
    stream.read_exact(&mut header).await.ok()?;
    let len = u32::from_be_bytes(header[8..12].try_into().unwrap());
    let mut message = vec![0; len.try_into().unwrap()];
    stream.read_exact(&mut message).await.ok()?;
    let rest = message.split_off(2);
    Some((u16::from_be_bytes([message[0], message[1]]), rest))
}

/// Short deadlines, for tests in which they run out.
pub(crate) fn impatient() -> Options {
    Options {
        deadline: Duration::from_millis(100),
        dump_deadline: Duration::from_millis(200),
        connect_deadline: Duration::from_millis(200),
        ..Options::default()
    }
}

/// Connects to what may not be a VPP.
pub(crate) async fn try_connect(fake: &FakeVpp, needs: Needs) -> ConnectError {
    Client::connect(fake.socket(), impatient(), needs)
        .await
        .unwrap_err()
}
