//! Streams around streams.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most that is read ahead.
const AHEAD: usize = 64 * 1024;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; AHEAD].into_boxed_slice());
}

/// Reads as much of a stream as there is at once, for a reader that takes it in small pieces, as
/// TLS does. While nothing waits to be taken it holds no memory.
#[derive(Debug)]
pub(crate) struct ReadAhead<S> {
    stream: S,
    ahead: Bytes,
}

impl<S> ReadAhead<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            ahead: Bytes::new(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ahead.is_empty() {
            return SHARED.with_borrow_mut(|shared| {
                let mut read = ReadBuf::new(shared);
                ready!(Pin::new(&mut this.stream).poll_read(context, &mut read))?;
                let filled = read.filled();
                let (now, later) = filled.split_at(filled.len().min(buffer.remaining()));
                buffer.put_slice(now);
                this.ahead = Bytes::copy_from_slice(later);
                Poll::Ready(Ok(()))
            });
        }
        let count = this.ahead.len().min(buffer.remaining());
        buffer.put_slice(&this.ahead.split_to(count));
        if this.ahead.is_empty() {
            // Frees the memory now and not with the next read.
            this.ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

/// Gathers what a stream gives in small pieces, as TLS gives its records, into one read, as far as
/// it is there at once.
#[derive(Debug)]
pub(crate) struct Gathered<S> {
    stream: S,
    /// What went wrong after bytes that were handed on.
    failed: Option<io::Error>,
}

impl<S> Gathered<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            failed: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        let start = buffer.filled().len();
        loop {
            let before = buffer.filled().len();
            let read = Pin::new(&mut self.stream).poll_read(context, buffer);
            let first = before == start;
            match read {
                Poll::Pending if first => return Poll::Pending,
                Poll::Ready(Err(error)) if first => return Poll::Ready(Err(error)),
                Poll::Ready(Err(error)) => {
                    self.failed = Some(error);
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(())) if buffer.filled().len() > before && buffer.remaining() > 0 => {
                }
                // Full, at the end, or nothing more is there yet.
                Poll::Ready(Ok(())) | Poll::Pending => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// Writes go to the stream inside as they are.
macro_rules! writes_pass_through {
    ($stream:ident) => {
        impl<S: AsyncWrite + Unpin> AsyncWrite for $stream<S> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write(context, bytes)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write_vectored(context, slices)
            }

            fn is_write_vectored(&self) -> bool {
                self.stream.is_write_vectored()
            }

            fn poll_flush(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_flush(context)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_shutdown(context)
            }
        }
    };
}

writes_pass_through!(ReadAhead);
writes_pass_through!(Gathered);
writes_pass_through!(Prefixed);
writes_pass_through!(Counted);

/// A stream of which the first bytes were read already.
#[derive(Debug)]
pub(crate) struct Prefixed<S> {
    prefix: Bytes,
    stream: S,
}

impl<S> Prefixed<S> {
    pub(crate) fn new(prefix: Bytes, stream: S) -> Self {
        Self { prefix, stream }
    }

    /// What was not read of the first bytes, and the stream.
    pub(crate) fn into_parts(self) -> (Bytes, S) {
        (self.prefix, self.stream)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix[..count]);
        self.prefix.advance(count);
        if self.prefix.is_empty() {
            // Frees the buffer now and not when the connection ends.
            self.prefix = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

/// Counts what is read from a stream.
#[derive(Debug)]
pub(crate) struct Counted<S> {
    stream: S,
    read: Arc<AtomicU64>,
}

impl<S> Counted<S> {
    pub(crate) fn new(stream: S, read: Arc<AtomicU64>) -> Self {
        Self { stream, read }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let count = buffer.filled().len() - before;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Gives a byte at a time, then fails, then ends.
    struct Drip(u8);

    impl AsyncRead for Drip {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.0 += 1;
            match self.0 {
                byte @ 1..4 => buffer.put_slice(&[byte]),
                4 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                _ => {}
            }
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_came_before_an_error_is_read_before_it() {
        let mut reader = Gathered::new(Drip(0));
        let mut buffer = [0; 16];
        assert_eq!(reader.read(&mut buffer).await.unwrap(), 3);
        assert_eq!(buffer[..3], [1, 2, 3]);
        assert!(reader.read(&mut buffer).await.is_err());
        assert_eq!(reader.read(&mut buffer).await.unwrap(), 0);
    }

    proptest! {
        #[test]
        fn reading_ahead_changes_no_byte(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..3000), 0..8),
            room in 1_usize..2000,
        ) {
            let sent = pieces.concat();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let got = runtime.block_on(async move {
                let (mut writer, reader) = tokio::io::duplex(4096);
                let write = async move {
                    for piece in pieces {
                        writer.write_all(&piece).await.unwrap();
                    }
                };
                let read = async move {
                    let mut reader = Gathered::new(ReadAhead::new(reader));
                    let mut got = Vec::new();
                    let mut buffer = vec![0; room];
                    loop {
                        match reader.read(&mut buffer).await.unwrap() {
                            0 => return got,
                            count => got.extend_from_slice(&buffer[..count]),
                        }
                    }
                };
                tokio::join!(write, read).1
            });
            prop_assert_eq!(got, sent);
        }
    }
}
