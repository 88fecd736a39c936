//! One worker's answer under way, with its booking.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use roost_kv::WorkerRank;
use roost_router::Placement;
use roost_wire::ResponseStream;
use roost_wire::message::{EngineOutput, FinishReason};

use super::seat::{Booking, Tried};
use crate::failure::Failure;

/// A leg whose worker has accepted it. Dropping it tells the worker to stop and gives the booking back.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) stream: ResponseStream,
    pub(super) placement: Placement,
    pub(super) booking: Booking,
}

impl Leg {
    /// Where it runs, under the name that workers and clients know.
    pub(super) fn rank(&self) -> WorkerRank {
        WorkerRank::new(self.booking.worker(), self.placement.rank.dp_rank)
    }

    /// The leg failed: its worker is told to stop before another is asked.
    pub(super) fn failed(self, failure: Failure, tried: &mut Tried) -> Failure {
        let Leg { stream, booking, .. } = self;
        drop(stream);
        booking.failed(failure, tried)
    }

    /// The next output; `None` at the normal end of the stream.
    pub(super) fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<EngineOutput, Failure>>> {
        loop {
            return match ready!(Pin::new(&mut self.stream).poll_next(cx)) {
                None => Poll::Ready(None),
                Some(Err(error)) => Poll::Ready(Some(Err(Failure::stream(&error)))),
                Some(Ok(item)) => match item.data {
                    // Nobody here asked for that: an answer cut by its worker must not look whole.
                    Some(output) if output.finish_reason == Some(FinishReason::Cancelled) => {
                        Poll::Ready(Some(Err(Failure::aborted())))
                    }
                    Some(output) => Poll::Ready(Some(Ok(output))),
                    // Nothing but an event or a comment.
                    None => continue,
                },
            };
        }
    }

    /// The first output that says something: tokens or an end. Cancel safe.
    pub(super) async fn first_output(&mut self) -> Result<EngineOutput, Failure> {
        loop {
            match std::future::poll_fn(|cx| self.poll_output(cx)).await {
                Some(Ok(output)) if !output.token_ids.is_empty() || output.finish_reason.is_some() => {
                    return Ok(output);
                }
                // An empty output: the answer has not begun.
                Some(Ok(_)) => {}
                Some(Err(failure)) => return Err(failure),
                None => return Err(Failure::no_finish()),
            }
        }
    }
}
