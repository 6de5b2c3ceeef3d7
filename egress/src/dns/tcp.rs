//! Queries over TCP (RFC 7766): one at a time per connection, with bounds on everything.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use causeway_types::{Reason, SandboxUid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::exchange::framed;
use super::service::{Desk, Task};
use super::wire;

pub(super) async fn serve(desk: Arc<Desk>, listener: TcpListener) {
    let seats = Arc::new(Seats::default());
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, for example: passes when connections end.
                tracing::warn!(%error, "the resolver cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let SocketAddr::V6(source) = peer else {
            continue;
        };
        let Some(seat) = admit(&desk, &seats, *source.ip(), tasks.len()) else {
            continue;
        };
        let desk = Arc::clone(&desk);
        tasks.spawn(async move {
            let _seat = seat;
            if let Err(error) = converse(&desk, stream, *source.ip()).await {
                tracing::debug!(%source, %error, "a connection to the resolver ended early");
            }
        });
    }
}

fn admit(desk: &Desk, seats: &Arc<Seats>, source: Ipv6Addr, open: usize) -> Option<Seat> {
    let Some(asker) = desk.directory.asker(source) else {
        desk.refuse(source, None, None, Reason::UnknownSandbox);
        return None;
    };
    let seat = (open < desk.config.connections)
        .then(|| seats.take(asker.uid(), desk.config.connections_each))
        .flatten();
    if seat.is_none() {
        desk.refuse(source, Some(asker.uid()), None, Reason::LimitReached);
    }
    seat
}

/// Answers queries until the client closes, is idle for too long, or sends what is no query.
async fn converse(desk: &Desk, mut stream: TcpStream, source: Ipv6Addr) -> io::Result<()> {
    loop {
        let Some(packet) = in_time(desk, read(&mut stream)).await? else {
            return Ok(());
        };
        let answer = match desk.receive(&packet, source, wire::encode_tcp) {
            Task::Send(None) => return Ok(()),
            Task::Send(Some(answer)) => answer,
            Task::Resolve(pending) => desk.resolve(*pending).await,
        };
        in_time(desk, stream.write_all(&framed(&answer))).await?;
    }
}

async fn in_time<T>(desk: &Desk, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(desk.config.idle, work).await {
        Ok(result) => result,
        Err(elapsed) => Err(elapsed.into()),
    }
}

/// One query. None when the client has closed, or announces more than a query can be.
async fn read(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let length = match stream.read_u16().await {
        Ok(length) => usize::from(length),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    if length > wire::MAX_QUERY {
        return Ok(None);
    }
    let mut packet = vec![0; length];
    stream.read_exact(&mut packet).await?;
    Ok(Some(packet))
}

/// Connections by sandbox.
#[derive(Default)]
struct Seats {
    taken: Mutex<HashMap<SandboxUid, usize>>,
}

struct Seat {
    seats: Arc<Seats>,
    sandbox: SandboxUid,
}

impl Seats {
    fn take(self: &Arc<Self>, sandbox: SandboxUid, most: usize) -> Option<Seat> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(sandbox).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Seat {
            seats: Arc::clone(self),
            sandbox,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self
            .seats
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.sandbox) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.sandbox);
            }
        }
    }
}
