//! Content codings undone in a stream (RFC 9110, section 8.4).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{
    BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder,
};
use async_compression::zstd::DParameter;
use bytes::{Buf, Bytes};
use causeway_types::Reason;
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use crate::engine::body::{Body, BodyError};

/// Bytes that are decoded at a time.
const BUFFER: usize = 16 * 1024;
/// The window of zstd: what RFC 9659 has every decoder support, 8 MiB.
const WINDOW_LOG: u32 = 23;
/// How much longer than coded a request may be: what text hardly ever reaches, and bombs do.
const MAX_GROWTH: u64 = 200;
/// Where that begins to count.
const FREE_GROWTH: u64 = 1024 * 1024;

/// Whose body is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// A sandbox's: it must not make much out of little.
    Request,
    /// An upstream's: the sandbox reads it as fast as it likes.
    Answer,
}

impl Side {
    fn unreadable(self) -> Reason {
        match self {
            Self::Request => Reason::UnreadableBody,
            Self::Answer => Reason::UnreadableAnswer,
        }
    }
}

/// A content coding that is undone here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    /// In the format of zlib, as the standard says, or without, as some send it.
    Deflate,
    Brotli,
    Zstd,
}

impl Coding {
    /// The coding that headers name; none when the content is as it is.
    pub(super) fn of(headers: &HeaderMap, side: Side) -> Result<Option<Self>, Reason> {
        let mut coding = None;
        for value in headers.get_all(CONTENT_ENCODING) {
            let value = value.to_str().map_err(|_binary| side.unreadable())?;
            for name in value.split(',') {
                let next = match name.trim().to_ascii_lowercase().as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    "br" => Self::Brotli,
                    "zstd" => Self::Zstd,
                    _ => return Err(side.unreadable()),
                };
                // One inside another would need as much memory again.
                if coding.replace(next).is_some() {
                    return Err(side.unreadable());
                }
            }
        }
        Ok(coding)
    }
}

/// A body as it was before it was coded.
pub(super) struct Decoded {
    decoder: Decoder,
    buffer: Vec<u8>,
    side: Side,
    given: u64,
    ended: bool,
}

enum Decoder {
    /// Before the first byte is there.
    Unknown(Option<(Coding, Source)>),
    Gzip(Box<GzipDecoder<Source>>),
    Zlib(Box<ZlibDecoder<Source>>),
    Deflate(Box<DeflateDecoder<Source>>),
    Brotli(Box<BrotliDecoder<Source>>),
    Zstd(Box<ZstdDecoder<Source>>),
}

impl Decoded {
    pub(super) fn new(coding: Coding, body: Body, side: Side) -> Self {
        let source = Source {
            body,
            chunk: Bytes::new(),
            taken: 0,
            trailers: None,
            ended: false,
        };
        Self {
            decoder: Decoder::Unknown(Some((coding, source))),
            buffer: vec![0; BUFFER],
            side,
            given: 0,
            ended: false,
        }
    }

    fn source(&mut self) -> Option<&mut Source> {
        Some(match &mut self.decoder {
            Decoder::Unknown(source) => &mut source.as_mut()?.1,
            Decoder::Gzip(decoder) => decoder.get_mut(),
            Decoder::Zlib(decoder) => decoder.get_mut(),
            Decoder::Deflate(decoder) => decoder.get_mut(),
            Decoder::Brotli(decoder) => decoder.get_mut(),
            Decoder::Zstd(decoder) => decoder.get_mut(),
        })
    }

    /// Chooses the decoder when the first bytes are there. An empty body stays empty.
    fn poll_begin(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let side = self.side;
        let Decoder::Unknown(unknown) = &mut self.decoder else {
            return Poll::Ready(Ok(()));
        };
        let Some((coding, source)) = unknown else {
            return Poll::Ready(Ok(()));
        };
        let coding = *coding;
        let first = ready!(Pin::new(&mut *source).poll_fill_buf(context))
            .map_err(|error| wrong(error, side))?;
        if first.is_empty() {
            return Poll::Ready(Ok(()));
        }
        // RFC 1950, section 2.2: the method in the low bits, and a check over two bytes.
        let zlib = first[0] & 0x0f == 8
            && first.get(1).is_none_or(|next| {
                (u16::from(first[0]) << 8 | u16::from(*next)).is_multiple_of(31)
            });
        let Some((_coding, source)) = unknown.take() else {
            return Poll::Ready(Ok(()));
        };
        self.decoder = match coding {
            Coding::Gzip => {
                let mut decoder = GzipDecoder::new(source);
                decoder.multiple_members(true);
                Decoder::Gzip(Box::new(decoder))
            }
            Coding::Deflate if zlib => Decoder::Zlib(Box::new(ZlibDecoder::new(source))),
            Coding::Deflate => Decoder::Deflate(Box::new(DeflateDecoder::new(source))),
            Coding::Brotli => Decoder::Brotli(Box::new(BrotliDecoder::new(source))),
            Coding::Zstd => {
                let window = [DParameter::window_log_max(WINDOW_LOG)];
                let mut decoder = ZstdDecoder::with_params(source, &window);
                decoder.multiple_members(true);
                Decoder::Zstd(Box::new(decoder))
            }
        };
        Poll::Ready(Ok(()))
    }

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let side = self.side;
        ready!(self.poll_begin(context))?;
        let mut buffer = ReadBuf::new(&mut self.buffer);
        let read = match &mut self.decoder {
            Decoder::Unknown(_empty) => Poll::Ready(Ok(())),
            Decoder::Gzip(decoder) => Pin::new(decoder).poll_read(context, &mut buffer),
            Decoder::Zlib(decoder) => Pin::new(decoder).poll_read(context, &mut buffer),
            Decoder::Deflate(decoder) => Pin::new(decoder).poll_read(context, &mut buffer),
            Decoder::Brotli(decoder) => Pin::new(decoder).poll_read(context, &mut buffer),
            Decoder::Zstd(decoder) => Pin::new(decoder).poll_read(context, &mut buffer),
        };
        ready!(read).map_err(|error| wrong(error, side))?;
        let data = Bytes::copy_from_slice(buffer.filled());
        self.given += data.len() as u64;
        let taken = self.source().map_or(0, |source| source.taken);
        if self.side == Side::Request && self.given > FREE_GROWTH + MAX_GROWTH.saturating_mul(taken)
        {
            return Poll::Ready(Err(BodyError::Refused(Reason::TooLarge)));
        }
        Poll::Ready(Ok(data))
    }

    /// Reads on to the end of the message: nothing may follow what was coded.
    fn poll_rest(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, BodyError>> {
        let side = self.side;
        let Some(source) = self.source() else {
            return Poll::Ready(Ok(None));
        };
        let rest = ready!(Pin::new(&mut *source).poll_fill_buf(context))
            .map_err(|error| wrong(error, side))?;
        Poll::Ready(if rest.is_empty() {
            Ok(source.trailers.take())
        } else {
            Err(BodyError::Refused(side.unreadable()))
        })
    }
}

impl HttpBody for Decoded {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.poll_data(context)) {
            Err(error) => {
                self.ended = true;
                Poll::Ready(Some(Err(error)))
            }
            Ok(data) if !data.is_empty() => Poll::Ready(Some(Ok(Frame::data(data)))),
            Ok(_end) => {
                let trailers = ready!(self.poll_rest(context));
                self.ended = true;
                Poll::Ready(
                    trailers
                        .map(|trailers| trailers.map(Frame::trailers))
                        .transpose(),
                )
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// A body as bytes to read, with its trailers kept aside.
struct Source {
    body: Body,
    chunk: Bytes,
    taken: u64,
    trailers: Option<HeaderMap>,
    ended: bool,
}

impl AsyncBufRead for Source {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        while this.chunk.is_empty() && !this.ended {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                None => this.ended = true,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.chunk = data,
                    Err(frame) => this.trailers = frame.into_trailers().ok(),
                },
            }
        }
        Poll::Ready(Ok(&this.chunk))
    }

    fn consume(mut self: Pin<&mut Self>, count: usize) {
        self.chunk.advance(count);
        self.taken += count as u64;
    }
}

impl AsyncRead for Source {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let chunk = ready!(self.as_mut().poll_fill_buf(context))?;
        let count = chunk.len().min(buffer.remaining());
        buffer.put_slice(&chunk[..count]);
        self.consume(count);
        Poll::Ready(Ok(()))
    }
}

/// What went wrong: the body itself, or its coding.
fn wrong(error: io::Error, side: Side) -> BodyError {
    match error.downcast::<BodyError>() {
        Ok(error) => error,
        Err(_malformed) => BodyError::Refused(side.unreadable()),
    }
}

#[cfg(test)]
#[path = "coding/tests.rs"]
mod tests;
