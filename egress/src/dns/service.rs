//! The sandbox side: sockets, limits and the order in which things are done.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_types::{DomainName, Reason, SandboxUid};
use hickory_proto::op::ResponseCode;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use super::answer::{self, Conclusion, Verdict};
use super::limits::{Admission, Limits};
use super::wire::{self, ExtendedError, Parsed, Question, Reply};
use super::{Asker, Directory, Refusal, Resolver, tcp};
use crate::pins::Pins;

/// Where and how much the resolver answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceConfig {
    /// The address to listen on, UDP and TCP. It need not exist yet.
    pub bind: SocketAddrV6,
    /// Queries a second for each sandbox.
    pub rate: NonZeroU32,
    /// Queries in one burst for each sandbox.
    pub burst: NonZeroU32,
    /// Queries being resolved at once for each sandbox.
    pub concurrent: u32,
    /// Queries over UDP being resolved at once, for all sandboxes together.
    pub queries: usize,
    /// TCP connections for each sandbox.
    pub connections_each: usize,
    /// TCP connections for all sandboxes together.
    pub connections: usize,
    /// How long a TCP connection may be idle, or slow in sending or receiving one message.
    pub idle: Duration,
}

impl ServiceConfig {
    /// The defaults, on this address.
    pub const fn new(bind: SocketAddrV6) -> Self {
        const RATE: NonZeroU32 = NonZeroU32::new(200).unwrap();
        const BURST: NonZeroU32 = NonZeroU32::new(1000).unwrap();
        Self {
            bind,
            rate: RATE,
            burst: BURST,
            concurrent: 100,
            queries: 4096,
            connections_each: 8,
            connections: 1024,
            idle: Duration::from_secs(10),
        }
    }
}

/// Why the resolver does not listen.
#[derive(Debug, thiserror::Error)]
#[error("the resolver cannot listen on {protocol} {address}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddrV6,
    /// UDP or TCP.
    pub protocol: &'static str,
    /// What went wrong.
    pub source: io::Error,
}

/// The resolver that sandboxes see. Bound with privileges, run without.
#[derive(Debug)]
pub struct Service {
    config: ServiceConfig,
    udp: std::net::UdpSocket,
    tcp: std::net::TcpListener,
}

impl Service {
    /// Opens the sockets. Needs the right to bind port 53, and no runtime.
    pub fn bind(config: ServiceConfig) -> Result<Self, BindError> {
        let udp = socket(config.bind, Type::DGRAM)
            .map(std::net::UdpSocket::from)
            .map_err(|source| bind_error(config.bind, "UDP", source))?;
        // With port 0, TCP gets the port that UDP was given.
        let port = udp.local_addr().map_or(config.bind.port(), |a| a.port());
        let address = SocketAddrV6::new(*config.bind.ip(), port, 0, config.bind.scope_id());
        let tcp = socket(address, Type::STREAM)
            .and_then(|socket| {
                socket.listen(1024)?;
                Ok(std::net::TcpListener::from(socket))
            })
            .map_err(|source| bind_error(address, "TCP", source))?;
        Ok(Self { config, udp, tcp })
    }

    /// The address that it listens on.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Answers until dropped; what is being answered then is dropped too. Fails when the
    /// runtime cannot watch the sockets.
    pub async fn run<D: Directory>(
        self,
        directory: Arc<D>,
        resolver: Resolver,
        pins: Arc<Pins>,
    ) -> io::Result<()> {
        let udp = UdpSocket::from_std(self.udp)?;
        let tcp = TcpListener::from_std(self.tcp)?;
        let desk = Arc::new(Desk::new(self.config, directory, resolver, pins));
        tokio::join!(
            serve_udp(Arc::clone(&desk), Arc::new(udp)),
            tcp::serve(desk, tcp),
        );
        Ok(())
    }
}

fn bind_error(address: SocketAddrV6, protocol: &'static str, source: io::Error) -> BindError {
    BindError {
        address,
        protocol,
        source,
    }
}

fn socket(address: SocketAddrV6, kind: Type) -> io::Result<Socket> {
    let protocol = if kind == Type::STREAM {
        Protocol::TCP
    } else {
        Protocol::UDP
    };
    let socket = Socket::new(Domain::IPV6, kind, Some(protocol))?;
    socket.set_only_v6(true)?;
    socket.set_freebind_v6(true)?;
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Where queries are decided, whatever way they came in.
pub(super) struct Desk {
    pub(super) config: ServiceConfig,
    pub(super) directory: Arc<dyn Directory>,
    resolver: Resolver,
    pins: Arc<Pins>,
    limits: Arc<Mutex<Limits<Option<SandboxUid>>>>,
}

/// What is left to do for a packet.
pub(super) enum Task {
    /// Send this back, if there is something.
    Send(Option<Vec<u8>>),
    /// Resolve first, with [`Desk::resolve`].
    Resolve(Box<Pending>),
}

/// A permitted query that waits for the upstream.
pub(super) struct Pending {
    source: Ipv6Addr,
    question: Question,
    name: DomainName,
    asker: Arc<dyn Asker>,
    encode: Encode,
    _ticket: Ticket,
}

/// How an answer is written: for UDP or for TCP.
pub(super) type Encode = fn(&Question, &Reply) -> Vec<u8>;

/// A place among the queries of one sandbox, given back on drop.
struct Ticket {
    limits: Arc<Mutex<Limits<Option<SandboxUid>>>>,
    key: Option<SandboxUid>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.release(&self.key);
    }
}

impl Desk {
    fn new(
        config: ServiceConfig,
        directory: Arc<dyn Directory>,
        resolver: Resolver,
        pins: Arc<Pins>,
    ) -> Self {
        const SANDBOXES: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
        let limits = Limits::new(config.rate, config.burst, config.concurrent, SANDBOXES);
        Self {
            config,
            directory,
            resolver,
            pins,
            limits: Arc::new(Mutex::new(limits)),
        }
    }

    /// Reads and judges a packet. Never waits.
    pub(super) fn receive(&self, packet: &[u8], source: Ipv6Addr, encode: Encode) -> Task {
        let asker = self.directory.asker(source);
        let sandbox = asker.as_ref().map(|asker| asker.uid());
        let ticket = self.admit(sandbox);
        let refuse = |reason| self.refuse(source, sandbox, None, reason);
        let question = match wire::parse(packet) {
            Parsed::Question(question) => question,
            // Not counted against anybody: an error is as short as what caused it.
            Parsed::Error(error) if ticket.is_ok() && asker.is_some() => {
                return Task::Send(Some(error));
            }
            Parsed::Error(_) | Parsed::Ignored => return Task::Send(None),
        };
        let ticket = match ticket {
            Ok(ticket) => ticket,
            Err(note) => {
                if note {
                    refuse(match asker {
                        Some(_) => Reason::LimitReached,
                        None => Reason::UnknownSandbox,
                    });
                }
                let reply = Reply::empty(ResponseCode::Refused)
                    .because(ExtendedError::Prohibited, Reason::LimitReached.name());
                let known = asker.is_some();
                return Task::Send(known.then(|| encode(&question, &reply)));
            }
        };
        // Whoever is not known is not told that there is a resolver.
        let Some(asker) = asker else {
            refuse(Reason::UnknownSandbox);
            return Task::Send(None);
        };
        match answer::judge(&question.query, &*asker) {
            Verdict::Reply(conclusion) => {
                self.note(source, &*asker, &question, conclusion.refused);
                Task::Send(Some(encode(&question, &conclusion.reply)))
            }
            Verdict::Resolve(name) => Task::Resolve(Box::new(Pending {
                source,
                question,
                name,
                asker,
                encode,
                _ticket: ticket,
            })),
        }
    }

    /// Asks upstream and writes the answer. The pins are set before the answer exists as a
    /// packet: no connection can be faster than its pin.
    pub(super) async fn resolve(&self, pending: Pending) -> Vec<u8> {
        let outcome = self.resolver.resolve(&pending.name).await;
        let asker = &*pending.asker;
        let Conclusion { reply, refused } =
            answer::conclude(&pending.question.query, &outcome, asker);
        let now = Instant::now();
        for address in &reply.addresses {
            let (uid, name) = (asker.uid(), &pending.name);
            self.pins.insert(uid, *address, name, reply.ttl, now);
        }
        self.note(pending.source, asker, &pending.question, refused);
        (pending.encode)(&pending.question, &reply)
    }

    fn admit(&self, key: Option<SandboxUid>) -> Result<Ticket, bool> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        match limits.admit(key, Instant::now()) {
            Admission::Granted => Ok(Ticket {
                limits: Arc::clone(&self.limits),
                key,
            }),
            Admission::Refused { note } => Err(note),
        }
    }

    fn note(
        &self,
        source: Ipv6Addr,
        asker: &dyn Asker,
        question: &Question,
        reason: Option<Reason>,
    ) {
        if let Some(reason) = reason {
            let asked = question.query.name().to_ascii();
            let name = DomainName::parse(&asked).map_or(asked, String::from);
            self.refuse(source, Some(asker.uid()), Some(name), reason);
        }
    }

    pub(super) fn refuse(
        &self,
        source: Ipv6Addr,
        sandbox: Option<SandboxUid>,
        name: Option<String>,
        reason: Reason,
    ) {
        self.directory.refused(Refusal {
            source,
            sandbox,
            name,
            reason,
        });
    }
}

async fn serve_udp(desk: Arc<Desk>, socket: Arc<UdpSocket>) {
    // One byte more than is read, so that a longer packet is seen to be too long.
    let mut buffer = [0; wire::MAX_QUERY + 1];
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let (length, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(%error, "the resolver's socket reports an error");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let SocketAddr::V6(source) = peer else {
            continue;
        };
        match desk.receive(&buffer[..length], *source.ip(), wire::encode_udp) {
            Task::Send(None) => {}
            Task::Send(Some(answer)) => send(&socket, &answer, peer).await,
            // Not answered: the client asks again, and by then there is room.
            Task::Resolve(pending) if tasks.len() >= desk.config.queries => {
                let (asker, question) = (&*pending.asker, &pending.question);
                desk.note(pending.source, asker, question, Some(Reason::LimitReached));
            }
            Task::Resolve(pending) => {
                let (desk, socket) = (Arc::clone(&desk), Arc::clone(&socket));
                tasks.spawn(async move {
                    let answer = desk.resolve(*pending).await;
                    send(&socket, &answer, peer).await;
                });
            }
        }
    }
}

async fn send(socket: &UdpSocket, answer: &[u8], peer: SocketAddr) {
    if let Err(error) = socket.send_to(answer, peer).await {
        tracing::debug!(%peer, %error, "an answer could not be sent");
    }
}
