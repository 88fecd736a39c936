//! One worker's answer, by whichever way it comes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use roost_wire::message::EngineOutput;
use roost_wire::{ResponseStream, StreamError};

use crate::failure::Failure;
use crate::hosted::{HostedError, HostedStream};

/// Where items come from. Dropping it tells the worker to stop.
pub(super) enum Answer {
    /// A worker that has called home.
    Plane(ResponseStream),
    /// An engine in this process.
    Hosted(HostedStream),
}

impl Answer {
    /// The next output; `None` at the normal end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<EngineOutput, Failure>>> {
        match self {
            Answer::Plane(stream) => loop {
                match ready!(Pin::new(&mut *stream).poll_next(cx)) {
                    None => return Poll::Ready(None),
                    Some(Err(error)) => return Poll::Ready(Some(Err(Failure::stream(&error)))),
                    // Without data it is nothing but an event or a comment.
                    Some(Ok(item)) => {
                        if let Some(output) = item.data {
                            return Poll::Ready(Some(Ok(output)));
                        }
                    }
                }
            },
            Answer::Hosted(stream) => {
                let item = ready!(stream.as_mut().poll_next(cx));
                Poll::Ready(item.map(|item| item.map_err(|error| Failure::stream(&as_on_the_plane(error)))))
            }
        }
    }

    /// Whether the next poll can tell something that is here already.
    pub(super) fn has_received(&self) -> bool {
        match self {
            Answer::Plane(stream) => stream.has_received(),
            Answer::Hosted(_) => false,
        }
    }
}

/// The same failure as a worker on the plane would have caused it.
fn as_on_the_plane(error: HostedError) -> StreamError {
    match error {
        HostedError::Reported(error) => StreamError::Worker(error),
        HostedError::Lost(text) => StreamError::Broken(std::io::Error::other(text)),
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Plane(stream) => f.debug_tuple("Plane").field(stream).finish(),
            Answer::Hosted(_) => f.debug_tuple("Hosted").finish_non_exhaustive(),
        }
    }
}
