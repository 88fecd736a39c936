//! One worker's answer under way, with its booking.

use std::task::{Context, Poll, ready};

use roost_kv::WorkerRank;
use roost_router::Placement;
use roost_telemetry::spans::OpenSpan;
use roost_wire::message::{EngineOutput, FinishReason};

use super::answer::Answer;
use super::seat::{Booking, Tried};
use crate::failure::Failure;

/// A leg whose worker has accepted it. Dropping it tells the worker to stop and gives the booking back.
#[derive(Debug)]
pub(super) struct Leg {
    pub(super) stream: Answer,
    pub(super) placement: Placement,
    pub(super) booking: Booking,
    /// The call, until it has brought what it was made for.
    pub(super) span: Option<OpenSpan>,
}

impl Leg {
    /// Where it runs, under the name that workers and clients know.
    pub(super) fn rank(&self) -> WorkerRank {
        WorkerRank::new(self.booking.worker(), self.placement.rank.dp_rank)
    }

    /// The call has brought what it was made for.
    pub(super) fn answered(&mut self) {
        if let Some(span) = self.span.take() {
            span.end();
        }
    }

    /// The leg failed: its worker is told to stop before another is asked.
    pub(super) fn failed(self, failure: Failure, tried: &mut Tried) -> Failure {
        let Leg { stream, booking, span, .. } = self;
        if let Some(span) = span {
            span.fail(failure.to_string());
        }
        drop(stream);
        booking.failed(failure, tried)
    }

    /// The next output; `None` at the normal end of the stream.
    pub(super) fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<EngineOutput, Failure>>> {
        Poll::Ready(match ready!(self.stream.poll(cx)) {
            // Nobody here asked for that: an answer cut by its worker must not look whole.
            Some(Ok(output)) if output.finish_reason == Some(FinishReason::Cancelled) => {
                Some(Err(Failure::aborted()))
            }
            next => next,
        })
    }

    /// The first output that says something: tokens or an end. Cancel safe.
    pub(super) async fn first_output(&mut self) -> Result<EngineOutput, Failure> {
        loop {
            match std::future::poll_fn(|cx| self.poll_output(cx)).await {
                Some(Ok(output)) if !output.token_ids.is_empty() || output.finish_reason.is_some() => {
                    self.answered();
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
