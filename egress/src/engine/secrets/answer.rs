//! Answers on their way back, searched for the secrets that the upstream was given.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use causeway_types::Reason;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::response::Parts;
use http::{StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::Carried;
use super::coding::{Coding, Decoded, Side};
use crate::engine::body::{Body, BodyError};
use crate::engine::http::Entry;
use crate::metrics::Metrics;
use crate::secrets::{Needles, Redactor};

/// How long a stream may pause before the few bytes that are held back go on.
const PAUSE: Duration = Duration::from_millis(50);

/// Searches one answer.
pub(in crate::engine) struct Guard {
    carried: Arc<Carried>,
    entry: Arc<Entry>,
    redactor: Box<Redactor>,
    metrics: Arc<Metrics>,
    found: bool,
}

impl Guard {
    /// None when there is nothing to look for.
    pub(in crate::engine) fn new(
        carried: &Arc<Carried>,
        entry: &Arc<Entry>,
        metrics: &Arc<Metrics>,
    ) -> Option<Self> {
        let redactor = Box::new(carried.redactor()?);
        Some(Self {
            carried: Arc::clone(carried),
            entry: Arc::clone(entry),
            redactor,
            metrics: Arc::clone(metrics),
            found: false,
        })
    }

    /// Takes secrets out of the head, and gives the coding of the body. An answer that cannot be
    /// searched is refused.
    pub(in crate::engine) fn head(&mut self, parts: &mut Parts) -> Result<Answered, Reason> {
        let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
        let framed = parts.version == Version::HTTP_2
            || parts.headers.get_all(TRANSFER_ENCODING).iter().all(chunked);
        if !framed || parts.status == StatusCode::PARTIAL_CONTENT {
            return Err(Reason::UnreadableAnswer);
        }
        let coding = Coding::of(&parts.headers, Side::Answer)?;
        self.fields(&mut parts.headers);
        // The reason phrase, and header names as the upstream spelled them.
        parts.extensions.clear();
        Ok(Answered { coding })
    }

    /// The body with secrets overwritten.
    pub(in crate::engine) fn body(
        self,
        answered: &Answered,
        headers: &mut HeaderMap,
        body: Body,
    ) -> Body {
        if body.is_end_stream() {
            return body;
        }
        match answered.coding {
            None => Redacting::new(self, body).boxed_unsync(),
            Some(coding) => {
                headers.remove(CONTENT_ENCODING);
                headers.remove(CONTENT_LENGTH);
                let decoded = Decoded::new(coding, body, Side::Answer);
                Redacting::new(self, decoded).boxed_unsync()
            }
        }
    }

    /// Takes secrets out of headers or trailers.
    fn fields(&mut self, fields: &mut HeaderMap) {
        for value in fields.values_mut() {
            if let Some(redacted) = self.redactor.whole(value.as_bytes()) {
                self.found = true;
                *value = HeaderValue::from_bytes(&redacted)
                    .unwrap_or_else(|_never| HeaderValue::from_static("*"));
            }
        }
        let shortest = self
            .carried
            .secrets
            .iter()
            .map(|secret| secret.expose().len());
        let shortest = shortest.min().unwrap_or_default().max(Needles::SHORTEST);
        let mut named: Vec<_> = fields
            .keys()
            .filter(|name| name.as_str().len() >= shortest)
            .cloned()
            .collect();
        if named.is_empty() {
            return;
        }
        // Names come in lower case, whatever case the secret has.
        let lower = self
            .carried
            .secrets
            .iter()
            .filter_map(|secret| Needles::in_lower_case(secret.expose()).map(Arc::new));
        if let Some(mut redactor) = Redactor::new(&lower.collect::<Vec<_>>()) {
            named.retain(|name| redactor.whole(name.as_str().as_bytes()).is_some());
            for name in named {
                self.found = true;
                fields.remove(name);
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.found || self.redactor.redacted() > 0 {
            self.metrics.redactions_total.add(1);
        }
    }
}

/// What the head of an answer says of its body.
pub(in crate::engine) struct Answered {
    coding: Option<Coding>,
}

/// The few bytes that are held back, until they go on.
#[derive(Default)]
struct Pause(Option<Pin<Box<Sleep>>>);

impl Pause {
    /// Whether the stream has paused for long enough.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let pause = self.0.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
        ready!(pause.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(())
    }

    fn is_over(&mut self) {
        self.0 = None;
    }
}

/// A body whose secrets are overwritten as it passes.
struct Redacting<B> {
    body: B,
    guard: Guard,
    pause: Pause,
    /// Nothing more is asked of the body.
    last: bool,
    trailers: Option<HeaderMap>,
}

impl<B> Redacting<B> {
    fn new(guard: Guard, body: B) -> Self {
        Self {
            body,
            guard,
            pause: Pause::default(),
            last: false,
            trailers: None,
        }
    }
}

impl<B: HttpBody<Data = Bytes, Error = BodyError> + Unpin> HttpBody for Redacting<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if this.last {
                let trailers = this.trailers.take();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let redactor = &mut this.guard.redactor;
            let mut ready = match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Pending => {
                    if !redactor.holds() {
                        return Poll::Pending;
                    }
                    ready!(this.pause.poll(context));
                    let released = redactor.release();
                    if released.is_empty() {
                        // More than a few characters of a secret: they wait for what follows.
                        return Poll::Pending;
                    }
                    released
                }
                Poll::Ready(None) => {
                    this.last = true;
                    redactor.finish()
                }
                Poll::Ready(Some(Err(error))) => {
                    if let BodyError::Refused(reason) = &error {
                        this.guard.entry.cut(*reason);
                    }
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    this.pause.is_over();
                    match frame.into_data() {
                        Ok(data) => redactor.push(&data),
                        Err(frame) => {
                            this.last = true;
                            let rest = redactor.finish();
                            if let Ok(mut trailers) = frame.into_trailers() {
                                this.guard.fields(&mut trailers);
                                this.trailers = Some(trailers);
                            }
                            rest
                        }
                    }
                }
            };
            if !this.last && this.body.is_end_stream() {
                this.last = true;
                ready.extend_from_slice(&this.guard.redactor.finish());
            }
            if !ready.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(ready.into()))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.last && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that another protocol is spoken on, with secrets overwritten in what it sends.
/// Frames of WebSocket keep their lengths, and what is in them is not compressed.
pub(in crate::engine) struct Scrubbed<S> {
    stream: S,
    guard: Guard,
    pause: Pause,
    ready: Bytes,
    buffer: Vec<u8>,
    ended: bool,
}

impl<S> Scrubbed<S> {
    pub(in crate::engine) fn new(guard: Guard, stream: S) -> Self {
        Self {
            stream,
            guard,
            pause: Pause::default(),
            ready: Bytes::new(),
            buffer: vec![0; 16 * 1024],
            ended: false,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Scrubbed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.ready.is_empty() && !this.ended {
            let redactor = &mut this.guard.redactor;
            let mut read = ReadBuf::new(&mut this.buffer);
            match Pin::new(&mut this.stream).poll_read(context, &mut read) {
                Poll::Pending => {
                    if !redactor.holds() {
                        return Poll::Pending;
                    }
                    ready!(this.pause.poll(context));
                    this.ready = redactor.release().into();
                    if this.ready.is_empty() {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if read.filled().is_empty() => {
                    this.ended = true;
                    this.ready = redactor.finish().into();
                }
                Poll::Ready(Ok(())) => {
                    this.pause.is_over();
                    this.ready = redactor.push(read.filled()).into();
                }
            }
        }
        let count = this.ready.len().min(out.remaining());
        out.put_slice(&this.ready[..count]);
        this.ready.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Scrubbed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
