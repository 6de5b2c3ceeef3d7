//! Bytes from one TCP connection to another, both ways, unseen.
//!
//! Small pieces are copied through memory that all connections of a thread share, so that an idle
//! connection holds none. Once much comes at a time, the kernel moves it (splice(2)) through a pipe
//! that is borrowed for as long as that lasts.

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The most that is copied at a time, and what is called much.
const PIECE: usize = 64 * 1024;
/// The most that is spliced at a time.
const PIPE: usize = 256 * 1024;
/// Pipes that a thread keeps for the next connection.
const SPARE: usize = 16;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE].into_boxed_slice());
    static PIPES: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// An empty pipe.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    fn take() -> io::Result<Self> {
        if let Some(pipe) = PIPES.with_borrow_mut(Vec::pop) {
            return Ok(pipe);
        }
        let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        // A smaller one does as well: a user has only so much memory for pipes.
        let _as_it_was = fcntl_setpipe_size(&write, PIPE);
        Ok(Self { read, write })
    }

    /// Gives it back, empty.
    fn give_back(self) {
        PIPES.with_borrow_mut(|pipes| {
            if pipes.len() < SPARE {
                pipes.push(self);
            }
        });
    }
}

/// Why a way of moving bytes came to its end.
#[derive(Debug, PartialEq, Eq)]
enum Until {
    /// The sender has closed its side.
    End,
    /// Much comes at a time now, or no longer.
    Changed,
}

/// Moves bytes both ways until both directions have ended, handing on the end of each as it
/// comes. `out` counts those from `client`, `back` those from `upstream`.
pub(crate) async fn relay(
    client: &TcpStream,
    upstream: &TcpStream,
    out: &AtomicU64,
    back: &AtomicU64,
) -> io::Result<()> {
    tokio::try_join!(
        one_way(client, upstream, out),
        one_way(upstream, client, back)
    )?;
    Ok(())
}

async fn one_way(from: &TcpStream, to: &TcpStream, moved: &AtomicU64) -> io::Result<()> {
    loop {
        if copied(from, to, moved).await? == Until::End {
            break;
        }
        // Without descriptors for a pipe, copying goes on.
        let Ok(pipe) = Pipe::take() else { continue };
        let until = spliced(from, to, moved, &pipe).await?;
        pipe.give_back();
        if until == Until::End {
            break;
        }
    }
    match SockRef::from(to).shutdown(Shutdown::Write) {
        // The other side is gone altogether, which its own direction tells.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        done => done,
    }
}

/// Copies until the end, or until much came at a time.
async fn copied(from: &TcpStream, to: &TcpStream, moved: &AtomicU64) -> io::Result<Until> {
    loop {
        from.readable().await?;
        let Some((count, rest)) = SHARED.with_borrow_mut(|shared| copy_piece(from, to, shared))?
        else {
            continue;
        };
        moved.fetch_add(count as u64, Ordering::Relaxed);
        write_rest(to, &rest).await?;
        match count {
            0 => return Ok(Until::End),
            PIECE => return Ok(Until::Changed),
            _ => {}
        }
    }
}

/// Copies what is there, and gives its length and what the receiver does not take yet. None when
/// nothing is there after all.
fn copy_piece(
    from: &TcpStream,
    to: &TcpStream,
    shared: &mut [u8],
) -> io::Result<Option<(usize, Vec<u8>)>> {
    let count = match from.try_read(shared) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        read => read?,
    };
    let piece = shared.get(..count).unwrap_or_default();
    if piece.is_empty() {
        return Ok(Some((0, Vec::new())));
    }
    let written = match to.try_write(piece) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        written => written?,
    };
    let rest = piece.get(written..).unwrap_or_default();
    Ok(Some((count, rest.to_vec())))
}

async fn write_rest(to: &TcpStream, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        to.writable().await?;
        match to.try_write(rest) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => rest = rest.get(written?..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Splices until the end, or until little came at a time. The pipe is empty again afterwards.
async fn spliced(
    from: &TcpStream,
    to: &TcpStream,
    moved: &AtomicU64,
    pipe: &Pipe,
) -> io::Result<Until> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    loop {
        from.readable().await?;
        let taken = from.try_io(Interest::READABLE, || {
            Ok(splice(from, None, &pipe.write, None, PIPE, flags)?)
        });
        let count = match taken {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            taken => taken?,
        };
        moved.fetch_add(count as u64, Ordering::Relaxed);
        let mut left = count;
        while left > 0 {
            to.writable().await?;
            let given = to.try_io(Interest::WRITABLE, || {
                Ok(splice(&pipe.read, None, to, None, left, flags)?)
            });
            match given {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                given => left = left.saturating_sub(given?),
            }
        }
        match count {
            0 => return Ok(Until::End),
            count if count < PIECE / 4 => return Ok(Until::Changed),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("[::1]:0").await.unwrap();
        let connect = TcpStream::connect(listener.local_addr().unwrap());
        let (here, there) = tokio::join!(connect, listener.accept());
        (here.unwrap(), there.unwrap().0)
    }

    struct World {
        client: TcpStream,
        server: TcpStream,
        relay: tokio::task::JoinHandle<io::Result<()>>,
        counts: Arc<[AtomicU64; 2]>,
    }

    async fn world() -> World {
        let (client, inner) = pair().await;
        let (outer, server) = pair().await;
        let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let counted = Arc::clone(&counts);
        let relay = tokio::spawn(async move {
            let [out, back] = &*counted;
            relay(&inner, &outer, out, back).await
        });
        World {
            client,
            server,
            relay,
            counts,
        }
    }

    /// Bytes that do not repeat within a piece.
    fn bytes(count: usize) -> Vec<u8> {
        (0..count)
            .map(|at| u8::try_from((at * 31 + at / 251) % 256).unwrap())
            .collect()
    }

    #[tokio::test]
    async fn every_byte_arrives_both_ways_at_any_size() {
        let mut world = world().await;
        for size in [1, 5000, PIECE, 3 * PIECE + 7, 40 * PIPE + 1, 12] {
            let sent = bytes(size);
            let (mut there, mut back) = (vec![0; size], vec![0; size]);
            let (client_read, client_write) = world.client.split();
            let (server_read, server_write) = world.server.split();
            let (mut client_read, mut client_write) = (client_read, client_write);
            let (mut server_read, mut server_write) = (server_read, server_write);
            let all = async {
                tokio::try_join!(
                    client_write.write_all(&sent),
                    server_write.write_all(&sent),
                    server_read.read_exact(&mut there),
                    client_read.read_exact(&mut back),
                )
            };
            tokio::time::timeout(Duration::from_secs(30), all)
                .await
                .unwrap()
                .unwrap();
            assert!(there == sent && back == sent, "{size}");
        }
        drop((world.client, world.server));
        // Both sides closed: it ends, in order or because the second close found nobody.
        let _ended = world.relay.await.unwrap();
        let [out, back] = &*world.counts;
        assert_eq!(
            out.load(Ordering::Relaxed),
            back.load(Ordering::Relaxed),
            "as much there as back"
        );
    }

    #[tokio::test]
    async fn one_direction_ends_and_the_other_goes_on() {
        let mut world = world().await;
        world.client.write_all(b"question").await.unwrap();
        world.client.shutdown().await.unwrap();
        let mut asked = Vec::new();
        world.server.read_to_end(&mut asked).await.unwrap();
        assert_eq!(asked, b"question");
        let answer = bytes(5 * PIPE);
        let sent = answer.clone();
        let server = tokio::spawn(async move {
            world.server.write_all(&sent).await.unwrap();
            drop(world.server);
        });
        let mut got = Vec::new();
        world.client.read_to_end(&mut got).await.unwrap();
        assert!(got == answer);
        server.await.unwrap();
        world.relay.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_reset_ends_both() {
        let world = world().await;
        SockRef::from(&world.server)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(world.server);
        let ended = tokio::time::timeout(Duration::from_secs(10), world.relay).await;
        assert!(ended.unwrap().unwrap().is_err());
    }

    #[tokio::test]
    async fn a_reader_that_stops_holds_the_writer_back() {
        let mut world = world().await;
        let piece = bytes(PIPE);
        let mut sent = 0;
        while let Ok(Ok(count)) =
            tokio::time::timeout(Duration::from_millis(300), world.client.write(&piece)).await
        {
            sent += count;
            assert!(sent < 256 << 20, "bounded by buffers of the kernel");
        }
        let mut left = sent;
        let mut buffer = vec![0; PIPE];
        while left > 0 {
            let room = left.min(PIPE);
            left -= world.server.read(&mut buffer[..room]).await.unwrap();
        }
        assert_eq!(world.counts[0].load(Ordering::Relaxed), sent as u64);
    }
}
