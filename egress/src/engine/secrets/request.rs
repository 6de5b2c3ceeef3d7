//! Secrets in the body of a request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use causeway_types::Reason;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderValue};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::sync::OwnedSemaphorePermit;
use zeroize::Zeroize;

use super::coding::{Coding, Decoded, Side};
use super::{Carried, wiped};
use crate::engine::body::{Body, BodyError, Watched, full};
use crate::engine::http::Entry;
use crate::metrics::Metrics;
use crate::secrets::sigv4::chunked::{ChunkError, Chunks};
use crate::secrets::syntax::Unwritable;
use crate::secrets::{Swapper, Syntax};
use crate::state::Shared;

/// The longest body that is read whole before it is sent, so that its length is known: some
/// servers refuse a body without one. Longer ones are sent in chunks.
pub(super) const MOST_GATHERED: u64 = 1024 * 1024;
/// What a body that was read whole may grow to.
const MOST_GROWN: usize = 16 * 1024 * 1024;
/// How long a client may pause in a body that is read whole.
const PAUSE: Duration = Duration::from_secs(60);
/// Bytes that are given out at a time.
const PIECE: usize = 64 * 1024;

/// The body of a request on its way to the upstream.
pub(crate) enum RequestBody {
    /// As it comes from the client.
    Plain(Watched<Arc<Entry>>),
    /// With placeholders swapped as it passes.
    Swapped(Box<Swapped>),
    /// Signed chunk by chunk as it passes.
    Chunked(Box<Chunked>),
    /// Read whole. The room that it takes is given back with it.
    Whole(Full<Bytes>, Option<OwnedSemaphorePermit>),
}

/// Makes the body that goes upstream, and its headers right.
pub(in crate::engine) async fn outgoing(
    carried: Option<&Arc<Carried>>,
    headers: &mut HeaderMap,
    body: Watched<Arc<Entry>>,
    entry: &Arc<Entry>,
    shared: &Shared,
) -> Result<RequestBody, Reason> {
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let empty = body.is_end_stream() || length == Some(0);
    let Some(carried) = carried.filter(|_| !empty) else {
        return Ok(RequestBody::Plain(body));
    };
    if carried.body.is_empty() {
        if carried.header.is_empty() {
            return Ok(RequestBody::Plain(body));
        }
        // Only its trailers may have placeholders.
        let body = Source::Plain(body.boxed_unsync());
        let stream = Swapped::new(body, None, carried, entry, None);
        return Ok(RequestBody::Swapped(Box::new(stream)));
    }
    let coding = Coding::of(headers, Side::Request)?;
    let media_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let syntax = Syntax::of_media_type(media_type);
    let mut body = body.boxed_unsync();
    if let Some(length) = length.filter(|length| *length <= MOST_GATHERED) {
        let pieces = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
        if let Ok(permit) = Arc::clone(&shared.body_room).try_acquire_many_owned(pieces) {
            headers.remove(EXPECT);
            let bytes = gather(body, length).await?;
            match rewrite(carried, syntax, coding, &bytes).await? {
                Rewritten::Same => {
                    return Ok(RequestBody::Whole(Full::new(bytes), Some(permit)));
                }
                Rewritten::Other(new) => {
                    shared.metrics.replacements_total.add(1);
                    headers.remove(CONTENT_ENCODING);
                    headers.insert(CONTENT_LENGTH, HeaderValue::from(new.len()));
                    return Ok(RequestBody::Whole(Full::new(wiped(new)), Some(permit)));
                }
                Rewritten::Long => body = full(bytes),
            }
        }
    }
    headers.remove(CONTENT_LENGTH);
    headers.remove(CONTENT_ENCODING);
    let metrics = Some(Arc::clone(&shared.metrics));
    let body = match coding {
        None => Source::Plain(body),
        Some(coding) => Source::Coded(Box::new(Decoded::new(coding, body, Side::Request))),
    };
    let swapper = Some(Swapper::new(carried.body.clone(), syntax));
    let stream = Swapped::new(body, swapper, carried, entry, metrics);
    Ok(RequestBody::Swapped(Box::new(stream)))
}

/// Reads a body of at most `most` bytes.
pub(super) async fn gather(mut body: Body, most: u64) -> Result<Bytes, Reason> {
    let mut bytes = Vec::new();
    loop {
        match tokio::time::timeout(PAUSE, body.frame()).await {
            Err(_elapsed) => return Err(Reason::TimedOut),
            Ok(None) => return Ok(bytes.into()),
            Ok(Some(Err(BodyError::Cut(reason) | BodyError::Refused(reason)))) => {
                return Err(reason);
            }
            Ok(Some(Err(BodyError::Broken(_client)))) => return Err(Reason::TimedOut),
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    bytes.extend_from_slice(data);
                }
                if bytes.len() as u64 > most {
                    return Err(Reason::TooLarge);
                }
            }
        }
    }
}

enum Rewritten {
    /// There was no placeholder.
    Same,
    /// The new content, which is not coded.
    Other(Vec<u8>),
    /// It is too long for here when it is decoded.
    Long,
}

async fn rewrite(
    carried: &Carried,
    syntax: Syntax,
    coding: Option<Coding>,
    bytes: &Bytes,
) -> Result<Rewritten, Reason> {
    let content = match coding {
        None => bytes.clone(),
        Some(coding) => {
            let mut decoded = Decoded::new(coding, full(bytes.clone()), Side::Request);
            let mut content = Vec::new();
            while let Some(frame) = decoded.frame().await {
                let frame = frame.map_err(|error| {
                    crate::engine::body::cut_reason(&error).unwrap_or(Reason::UnreadableBody)
                })?;
                if let Some(data) = frame.data_ref() {
                    content.extend_from_slice(data);
                }
                if content.len() > MOST_GROWN {
                    return Ok(Rewritten::Long);
                }
            }
            content.into()
        }
    };
    let mut swapper = Swapper::new(carried.body.clone(), syntax);
    swapper.push(&content);
    let mut out = Vec::with_capacity(content.len());
    let more = swapper.take(&mut out, MOST_GROWN, true);
    match more {
        Ok(_more) if swapper.swapped() == 0 => Ok(Rewritten::Same),
        Ok(false) => Ok(Rewritten::Other(out)),
        Ok(true) => {
            out.zeroize();
            Err(Reason::TooLarge)
        }
        Err(Unwritable) => {
            out.zeroize();
            Err(Reason::SecretMisplaced)
        }
    }
}

/// A body whose placeholders are swapped as it passes.
pub(crate) struct Swapped {
    body: Source,
    swapper: Option<Swapper>,
    carried: Arc<Carried>,
    entry: Arc<Entry>,
    /// Whether the swapper has more to give of what it was given.
    more: bool,
    /// The content has ended.
    last: bool,
    trailers: Option<HeaderMap>,
    ended: bool,
    metrics: Option<Arc<Metrics>>,
}

enum Source {
    Plain(Body),
    Coded(Box<Decoded>),
}

impl Swapped {
    fn new(
        body: Source,
        swapper: Option<Swapper>,
        carried: &Arc<Carried>,
        entry: &Arc<Entry>,
        metrics: Option<Arc<Metrics>>,
    ) -> Self {
        Self {
            body,
            swapper,
            carried: Arc::clone(carried),
            entry: Arc::clone(entry),
            more: false,
            last: false,
            trailers: None,
            ended: false,
            metrics,
        }
    }

    fn poll_source(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.body {
            Source::Plain(body) => Pin::new(body).poll_frame(context),
            Source::Coded(body) => Pin::new(&mut **body).poll_frame(context),
        }
    }

    /// The next piece of content; empty when nothing is ready.
    fn piece(&mut self) -> Result<Bytes, BodyError> {
        let Some(swapper) = &mut self.swapper else {
            return Ok(Bytes::new());
        };
        let before = swapper.swapped();
        let mut out = Vec::new();
        let taken = swapper.take(&mut out, PIECE, self.last);
        if let Some(metrics) = self.metrics.take_if(|_| swapper.swapped() > 0) {
            metrics.replacements_total.add(1);
        }
        let Ok(more) = taken else {
            out.zeroize();
            return Err(BodyError::Refused(Reason::SecretMisplaced));
        };
        self.more = more;
        Ok(if swapper.swapped() > before {
            wiped(out)
        } else {
            out.into()
        })
    }
}

impl HttpBody for Swapped {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(self.poll_swapped(context));
        if let Some(Err(BodyError::Refused(reason))) = &frame {
            self.entry.cut(*reason);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.swapper, &self.body) {
            (None, Source::Plain(body)) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
}

impl Swapped {
    fn poll_swapped(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.more || (self.last && !self.ended) {
                let piece = self.piece()?;
                self.ended = self.last && !self.more;
                if !piece.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
                continue;
            }
            if self.ended {
                let trailers = self.trailers.take();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            match ready!(self.poll_source(context)) {
                None => self.last = true,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => match &mut self.swapper {
                        None => return Poll::Ready(Some(Ok(Frame::data(data)))),
                        Some(swapper) => {
                            swapper.push(&data);
                            self.more = true;
                        }
                    },
                    Err(frame) => {
                        if let Ok(mut trailers) = frame.into_trailers() {
                            let written = self.carried.write_trailers(&mut trailers);
                            written.map_err(BodyError::Refused)?;
                            self.trailers = Some(trailers);
                        }
                        self.last = true;
                    }
                },
            }
        }
    }
}

/// A body whose chunks are signed anew.
pub(crate) struct Chunked {
    body: Watched<Arc<Entry>>,
    chunks: Chunks,
}

impl RequestBody {
    /// A body whose chunks are signed anew.
    pub(super) fn chunked(body: Watched<Arc<Entry>>, chunks: Chunks) -> Self {
        Self::Chunked(Box::new(Chunked { body, chunks }))
    }
}

impl Chunked {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let refused = |error| {
            let reason = match error {
                ChunkError::Malformed => Reason::AmbiguousRequest,
                ChunkError::TooLong { .. } => Reason::TooLarge,
            };
            Some(Err(BodyError::Refused(reason)))
        };
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => return Poll::Ready(self.chunks.finish().err().and_then(refused)),
                Some(frame) => frame?,
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            let mut out = Vec::with_capacity(data.len());
            if let Err(error) = self.chunks.push(&data, &mut out) {
                return Poll::Ready(refused(error));
            }
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Plain(body) => Pin::new(body).poll_frame(context),
            Self::Swapped(body) => Pin::new(&mut **body).poll_frame(context),
            Self::Chunked(body) => body.poll_frame(context),
            Self::Whole(body, _room) => Pin::new(body)
                .poll_frame(context)
                .map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain(body) => body.is_end_stream(),
            Self::Swapped(body) => body.is_end_stream(),
            Self::Chunked(body) => body.body.is_end_stream(),
            Self::Whole(body, _room) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain(body) => body.size_hint(),
            Self::Swapped(body) => body.size_hint(),
            // New signatures are as long as the old ones.
            Self::Chunked(body) => body.body.size_hint(),
            Self::Whole(body, _room) => body.size_hint(),
        }
    }
}
