//! The prefill leg: nobody reads what it says, but how it ends matters to the other leg.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use roost_router::End;
use roost_wire::message::{EngineOutput, FinishReason, PrefillResult};

use super::leg::Leg;
use super::seat::{Booking, Tried};
use crate::failure::Failure;
use crate::models::Pool;
use crate::prepare::Prepared;

/// How long a prefill worker may take to end its stream after the whole answer has come from the decode worker.
const END_WAIT: Duration = Duration::from_secs(10);

/// A prefill leg whose worker has accepted it. Dropping it tells the worker to stop.
#[derive(Debug)]
pub(super) struct PrefillLeg {
    leg: Leg,
}

impl PrefillLeg {
    pub(super) fn new(leg: Leg) -> Self {
        PrefillLeg { leg }
    }

    /// Resolves when the stream has ended, or with what went wrong.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            match ready!(self.leg.poll_output(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(output)) => judge(&output)?,
                Some(Err(failure)) => return Poll::Ready(Err(failure.in_prefill())),
            }
        }
    }

    /// As [`PrefillLeg::poll_end`]. Cancel safe.
    pub(super) async fn end(&mut self) -> Result<(), Failure> {
        std::future::poll_fn(|cx| self.poll_end(cx)).await
    }

    /// The first output with something to hand over, for workers without a meeting place. Cancel safe.
    pub(super) async fn result(&mut self) -> Result<PrefillResult, Failure> {
        loop {
            match std::future::poll_fn(|cx| self.leg.poll_output(cx)).await {
                None => return Err(Failure::no_handoff().in_prefill()),
                Some(Err(failure)) => return Err(failure.in_prefill()),
                Some(Ok(output)) => {
                    judge(&output)?;
                    let usage = output.completion_usage.as_ref();
                    if let Some(disaggregated_params) = output.disaggregated_params {
                        let prompt_tokens_details = usage.and_then(|usage| usage.prompt_tokens_details);
                        return Ok(PrefillResult {
                            disaggregated_params: *disaggregated_params,
                            prompt_tokens_details,
                        });
                    }
                }
            }
        }
    }

    /// The prompt is computed and handed over: its load is off the worker.
    pub(super) fn done(mut self, pool: &Pool, prepared: &Prepared) {
        self.leg.answered();
        let Leg { placement, booking, .. } = self.leg;
        if !pool.has_events(booking.info()) {
            pool.approximate.record(Instant::now(), placement.rank, &prepared.blocks.sequence);
        }
        booking.lease.first_token();
        booking.lease.finish(End::Ok);
    }

    /// The session's place is certain.
    pub(super) fn committed(&self) {
        self.leg.booking.lease.committed();
    }

    /// The leg failed.
    pub(super) fn failed(self, failure: Failure, tried: &mut Tried) -> Failure {
        self.leg.failed(failure, tried)
    }

    /// Tells the worker to stop; what remains is the booking.
    pub(super) fn stopped(self) -> Booking {
        let Leg { stream, booking, .. } = self.leg;
        drop(stream);
        booking
    }

    /// The whole answer is there: gives the worker a moment to end by itself, on a task of its own.
    pub(super) fn settle(mut self) {
        tokio::spawn(async move {
            let ended = tokio::time::timeout(END_WAIT, self.end()).await;
            let end = if matches!(ended, Ok(Ok(()))) { End::Ok } else { End::Cancelled };
            if end == End::Ok {
                self.leg.answered();
            }
            self.stopped().lease.finish(end);
        });
    }
}

/// An end that is none.
fn judge(output: &EngineOutput) -> Result<(), Failure> {
    match &output.finish_reason {
        Some(FinishReason::Error(text)) => Err(Failure::engine(text).in_prefill()),
        _ => Ok(()),
    }
}
