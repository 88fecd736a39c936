//! Answers in progress on one connection, and what becomes of those that a client does not take.
//!
//! An HTTP/2 client may stop reading one stream and go on with others: the socket is not blocked then, only the body
//! of that stream is not asked for more. Its answer is dropped, which frees the worker and everything else it holds;
//! the stream itself ends when the client looks at it again or the connection closes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::watch::Running;

/// The answers of one connection.
#[derive(Debug)]
pub(super) struct Answers {
    stall: Option<Duration>,
    slots: Mutex<Vec<Arc<Slot>>>,
}

#[derive(Debug)]
struct Slot(Mutex<Part>);

#[derive(Debug)]
struct Part {
    /// `None`: the client did not take it.
    body: Option<Body>,
    /// When the client was given the bytes after which it has not asked for more.
    given: Option<Instant>,
}

impl Answers {
    /// `stall` bounds how long a client may take no bytes.
    pub(super) fn new(stall: Option<Duration>) -> Self {
        Answers { stall, slots: Mutex::default() }
    }

    /// Drops the answers that have not been asked for more for too long; tells when the next one would be.
    pub(super) fn cut_stalled(&self, now: Instant) -> Option<Instant> {
        let stall = self.stall?;
        let mut next = None;
        let mut dropped = Vec::new();
        for slot in &*self.slots.lock() {
            // One that is locked is just being asked for more.
            let Some(mut part) = slot.0.try_lock() else { continue };
            let Some(given) = part.given.filter(|_| part.body.is_some()) else { continue };
            match given.checked_add(stall) {
                Some(at) if at <= now => dropped.push(part.body.take()),
                Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                None => {}
            }
        }
        if !dropped.is_empty() {
            tracing::info!(answers = dropped.len(), "client does not read: answer dropped");
        }
        next
    }
}

/// An answer on its way to a client.
#[derive(Debug)]
pub(super) struct Answer {
    slot: Arc<Slot>,
    running: Running,
}

impl Answer {
    pub(super) fn new(body: Body, running: Running) -> Self {
        let slot = Arc::new(Slot(Mutex::new(Part { body: Some(body), given: None })));
        running.watch().answers.slots.lock().push(Arc::clone(&slot));
        Answer { slot, running }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut slots = self.running.watch().answers.slots.lock();
        if let Some(at) = slots.iter().position(|slot| Arc::ptr_eq(slot, &self.slot)) {
            slots.swap_remove(at);
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let part = &mut *self.slot.0.lock();
        let Some(body) = &mut part.body else {
            return Poll::Ready(Some(Err(axum::Error::new(Stalled))));
        };
        let polled = Pin::new(body).poll_frame(cx);
        part.given = matches!(polled, Poll::Ready(Some(Ok(_)))).then(Instant::now);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.slot.0.lock().body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.slot.0.lock().body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

/// The client came back for an answer that it had not read for too long.
#[derive(Debug, thiserror::Error)]
#[error("the client did not read its answer in time")]
struct Stalled;
