//! Bodies on their way through: counted, watched, never gathered.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use super::secrets::remove_alike;
use bytes::Bytes;
use causeway_types::Reason;
use http::HeaderMap;
use http::header::HeaderName;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use crate::flows::{Cut, Flow};

/// What went wrong in a body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// The flow is no longer permitted.
    #[error("cut: {0}")]
    Cut(Reason),
    /// It cannot be carried on, for this reason.
    #[error("refused: {0}")]
    Refused(Reason),
    /// The side that sends the body broke off.
    #[error("the body broke off")]
    Broken(#[from] hyper::Error),
}

/// The body of an answer.
pub(super) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body that is there already.
pub(super) fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never: std::convert::Infallible| match never {})
        .boxed_unsync()
}

/// A body that ends when its flow is cut. `K` is kept until the body is done or dropped.
pub(super) struct Watched<K> {
    inner: Incoming,
    cut: Cut<Arc<Flow>>,
    counter: Arc<AtomicU64>,
    forbidden_trailers: Vec<HeaderName>,
    kept: Option<K>,
    done: fn(K),
}

impl<K> Watched<K> {
    /// Watches `inner`. `done` gets what is kept when the body ends well.
    pub(super) fn new(
        inner: Incoming,
        cut: Cut<Arc<Flow>>,
        counter: Arc<AtomicU64>,
        kept: K,
        done: fn(K),
    ) -> Self {
        let mut body = Self {
            inner,
            cut,
            counter,
            forbidden_trailers: Vec::new(),
            kept: Some(kept),
            done,
        };
        if body.inner.is_end_stream() {
            body.finish();
        }
        body
    }

    /// Removes these from the trailers: what is injected as a header must not come again.
    pub(super) fn without_trailers(mut self, names: Vec<HeaderName>) -> Self {
        self.forbidden_trailers = names;
        self
    }

    fn finish(&mut self) {
        if let Some(kept) = self.kept.take() {
            (self.done)(kept);
        }
    }

    fn filter(&self, trailers: &mut HeaderMap) {
        for name in &self.forbidden_trailers {
            remove_alike(trailers, name);
        }
    }
}

impl<K: Unpin> HttpBody for Watched<K> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(reason) = Pin::new(&mut self.cut).poll(context) {
            return Poll::Ready(Some(Err(BodyError::Cut(reason))));
        }
        let next = ready!(Pin::new(&mut self.inner).poll_frame(context));
        Poll::Ready(match next {
            None => {
                self.finish();
                None
            }
            Some(Err(error)) => Some(Err(error.into())),
            Some(Ok(mut frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.counter.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                if let Some(trailers) = frame.trailers_mut() {
                    self.filter(trailers);
                }
                // The other side may know that this was the last frame and not ask again.
                if self.inner.is_end_stream() {
                    self.finish();
                }
                Some(Ok(frame))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Why we ended a body, when an error chain says that we did.
pub(super) fn cut_reason(error: &(dyn Error + 'static)) -> Option<Reason> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(BodyError::Cut(reason) | BodyError::Refused(reason)) =
            error.downcast_ref::<BodyError>()
        {
            return Some(*reason);
        }
        next = error.source();
    }
    None
}
