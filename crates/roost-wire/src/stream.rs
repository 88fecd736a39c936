//! The answer to a request, read from the worker's connection as it is asked for.

mod error;
mod items;

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_core::Stream;

pub use self::error::StreamError;
use self::items::Items;
use crate::{
    Codec,
    line::Line,
    message::{Annotated, ControlSignal, EngineOutput},
};

/// The answer to an engine request.
///
/// Owns the worker's connection; there is no task behind it. It reads from the socket only when polled, so a slow
/// consumer makes the worker wait. It ends after the first error. When dropped before its end it tells the
/// worker to stop at once, without blocking, and closes.
#[derive(Debug)]
pub struct ResponseStream(Items);

impl ResponseStream {
    pub(crate) fn new(line: Line, codec: Codec) -> Self {
        Self(Items::new(line, codec))
    }

    /// Waits for the next item; `None` after a normal end. Cancel safe.
    ///
    /// # Errors
    /// The worker reported a failure, broke off, or broke the protocol. Nothing follows.
    pub async fn next(&mut self) -> Option<Result<Annotated<EngineOutput>, StreamError>> {
        std::future::poll_fn(|cx| self.0.poll(cx, decode)).await
    }

    /// The next item if it has been received already; never reads from the socket.
    ///
    /// Lets a consumer handle everything that came with one read together.
    pub fn next_received(&mut self) -> Option<Result<Annotated<EngineOutput>, StreamError>> {
        self.0.next_received(decode)
    }

    /// Whether a frame has been received that has not been taken: the next poll yields without reading, unless that frame
    /// is the end mark.
    #[must_use]
    pub fn has_received(&self) -> bool {
        self.0.has_received()
    }

    /// Asks the worker to end after its current step. The stream goes on, as a rule with
    /// [`StreamError::Incomplete`] at its end. Has no effect after the end.
    pub fn stop(&mut self) {
        self.0.signal(ControlSignal::Stop);
    }

    /// Tells the worker to end now and closes the connection, as dropping does.
    pub fn kill(self) {}
}

impl Stream for ResponseStream {
    type Item = Result<Annotated<EngineOutput>, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(cx, decode)
    }
}

/// An answer whose items are not decoded.
#[derive(Debug)]
pub struct RawStream(Items);

impl RawStream {
    pub(crate) fn new(line: Line, codec: Codec) -> Self {
        Self(Items::new(line, codec))
    }

    /// Waits for the next item, in the codec of the request; `None` after a normal end. Cancel safe.
    ///
    /// # Errors
    /// As [`ResponseStream::next`], except that failures reported in an item are not looked for.
    pub async fn next(&mut self) -> Option<Result<Bytes, StreamError>> {
        std::future::poll_fn(|cx| self.0.poll(cx, |_, item| Ok(Bytes::copy_from_slice(item)))).await
    }
}

fn decode(codec: Codec, item: &[u8]) -> Result<Annotated<EngineOutput>, StreamError> {
    let mut item: Annotated<EngineOutput> = codec.decode(item).map_err(StreamError::Undecodable)?;
    match item.take_error() {
        Some(error) => Err(StreamError::Worker(Box::new(error))),
        None => Ok(item),
    }
}
