//! The listener that the dataplane delivers connections to.

use std::io;
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::dial::reset_on_close;
use crate::session::{Accepted, Way};
use crate::state::Shared;
use crate::workers::Workers;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Connections of all sandboxes together. Each holds two descriptors and up to about 100 KiB.
const MAX_CONNECTIONS: usize = 16_384;
/// How long to wait after the system had no descriptor or memory for another connection.
const EXHAUSTED: Duration = Duration::from_millis(50);

/// Opens the listening socket. It is transparent: the kernel delivers connections to any
/// address, and the local address of each is where the sandbox meant to go.
pub(crate) fn listen(address: SocketAddrV6) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.set_ip_transparent_v6(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A connection on its way to the thread that will serve it.
#[derive(Debug)]
pub(crate) struct Intercepted {
    stream: std::net::TcpStream,
    source: SocketAddrV6,
    destination: SocketAddrV6,
    way: Way,
    place: OwnedSemaphorePermit,
}

impl Intercepted {
    /// The connection, watched by the calling thread's runtime, and its place among all.
    pub(crate) fn accepted(self) -> io::Result<(Accepted, OwnedSemaphorePermit)> {
        let accepted = Accepted {
            stream: TcpStream::from_std(self.stream)?,
            source: self.source,
            destination: self.destination,
            way: self.way,
        };
        Ok((accepted, self.place))
    }
}

/// Opens a listening socket at an address of the proxy's own, which need not exist yet.
pub(crate) fn listen_at(address: SocketAddrV6) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.set_freebind_v6(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The places for connections of all sandboxes together.
pub(crate) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_CONNECTIONS))
}

/// Accepts connections until dropped, and hands them to the workers.
pub(crate) async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    way: Way,
    places: Arc<Semaphore>,
    workers: Arc<Workers>,
) {
    loop {
        let (stream, source) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            }
        };
        let (Ok(SocketAddr::V6(destination)), SocketAddr::V6(source)) =
            (stream.local_addr(), source)
        else {
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            shared.metrics.refused(causeway_types::Reason::LimitReached);
            reset_on_close(&stream);
            continue;
        };
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be handed on");
                continue;
            }
        };
        workers
            .serve(Intercepted {
                stream,
                source,
                destination,
                way,
                place,
            })
            .await;
    }
}
