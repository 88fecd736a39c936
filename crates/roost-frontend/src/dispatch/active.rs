//! A worker that answers, from its first item on: the other leg, silence, and the move to another worker.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use roost_kv::WorkerRank;
use roost_router::{AffinityOutcome, End};
use roost_wire::message::EngineOutput;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Request;
use super::leg::Leg;
use super::message::Progress;
use super::prefill::PrefillLeg;
use super::retries::Retries;
use super::seat::Tried;
use crate::failure::Failure;
use crate::metrics::Migration;
use crate::models::Pool;
use crate::prepare::Prepared;
use crate::shared::Shared;

/// A move to another worker under way, with what the request has tried.
type Moving = Pin<Box<dyn Future<Output = (Result<Running, Failure>, Tried)> + Send>>;

/// The legs of a request on one worker, or one pair of workers.
#[derive(Debug)]
pub(super) struct Running {
    leg: Leg,
    /// The other leg, until it has ended well.
    prefill: Option<(PrefillLeg, Arc<Pool>)>,
    first: Option<EngineOutput>,
    prefill_rank: WorkerRank,
    cached_tokens: u32,
    /// The router knows that the prompt is computed.
    prefilled: bool,
}

/// A request whose answer has begun. Dropping it stops every worker that runs it and gives the bookings back.
pub(crate) struct Active {
    shared: Arc<Shared>,
    prepared: Arc<Prepared>,
    /// `None` while it moves, and after a failure.
    running: Option<Running>,
    moving: Option<Moving>,
    tried: Tried,
    /// The answer so far, kept only if it may have to go on elsewhere.
    answer: Option<Vec<u32>>,
    moves: u32,
    /// Prompt tokens of the present worker that are answer of those before.
    inherited: u32,
    finished: bool,
    silence: Option<Silence>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Where the answer comes from.
    pub(crate) rank: WorkerRank,
    /// Where the prompt was computed.
    pub(crate) prefill_rank: WorkerRank,
    /// Prompt tokens that the router expected in the worker's cache.
    pub(crate) expected_cached_tokens: u32,
    /// How the session took part.
    pub(crate) affinity: AffinityOutcome,
}

/// The limit of a worker's silence.
struct Silence {
    limit: Duration,
    heard: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Running {
    /// One worker does everything.
    pub(super) fn whole(leg: Leg, first: EngineOutput) -> Self {
        let (prefill_rank, cached_tokens) = (leg.rank(), leg.placement.cached_tokens);
        Running { leg, prefill: None, first: Some(first), prefill_rank, cached_tokens, prefilled: false }
    }

    /// Prefill and decode; the prefill leg is there if it has not ended.
    pub(super) fn split(
        leg: Leg,
        first: EngineOutput,
        prefill: Option<(PrefillLeg, Arc<Pool>)>,
        (prefill_rank, cached_tokens): (WorkerRank, u32),
    ) -> Self {
        Running { leg, prefill, first: Some(first), prefill_rank, cached_tokens, prefilled: false }
    }

    /// The next output. How the prefill leg ends matters no more: the decode worker has what it needs, or it would not
    /// have begun.
    fn poll(
        &mut self,
        prepared: &Prepared,
        tried: &mut Tried,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<EngineOutput, Failure>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some((prefill, _)) = &mut self.prefill
            && let Poll::Ready(ended) = prefill.poll_end(cx)
            && let Some((leg, pool)) = self.prefill.take()
        {
            match ended {
                Ok(()) => leg.done(&pool, prepared),
                Err(failure) => {
                    let failure = leg.failed(failure, tried);
                    tracing::warn!(request_id = %prepared.session.name(), session = prepared.session.id.as_deref(), %failure, "ended badly after its work was done");
                }
            }
        }
        self.leg.poll_output(cx)
    }
}

impl Active {
    pub(super) fn new(shared: Arc<Shared>, prepared: Arc<Prepared>, running: Running, tried: Tried) -> Self {
        let silence = shared.config.http.worker_silence.map(Silence::new);
        let may_move = shared.config.route.migration_limit > 0 && may_move(&prepared);
        Active {
            cut: Box::pin(shared.cut.clone().cancelled_owned()),
            rank: running.leg.rank(),
            prefill_rank: running.prefill_rank,
            expected_cached_tokens: running.cached_tokens,
            affinity: running.leg.placement.affinity,
            answer: may_move.then(Vec::new),
            running: Some(running),
            moving: None,
            tried,
            moves: 0,
            inherited: 0,
            finished: false,
            silence,
            shared,
            prepared,
        }
    }

    /// Workers called so far.
    pub(crate) fn attempts(&self) -> usize {
        self.tried.calls
    }

    /// The item that began the answer; once.
    pub(crate) fn take_first(&mut self) -> Option<EngineOutput> {
        let first = self.running.as_mut()?.first.take()?;
        Some(self.note(first))
    }

    /// The next item, from whichever worker it comes.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<EngineOutput, Failure>>> {
        loop {
            let failure = match self.poll_worker(cx) {
                Poll::Ready(Some(Ok(output))) => return Poll::Ready(Some(Ok(self.note(output)))),
                Poll::Ready(Some(Err(failure))) => failure,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    if self.cut.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Some(Err(Failure::shutting_down())));
                    }
                    match self.poll_silence(cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(()) => Failure::silence(),
                    }
                }
            };
            if !self.move_on(&failure) {
                return Poll::Ready(Some(Err(failure)));
            }
        }
    }

    /// Whether more of the answer has come already.
    pub(super) fn has_received(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.leg.stream.has_received())
    }

    fn poll_worker(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<EngineOutput, Failure>>> {
        if let Some(moving) = &mut self.moving {
            let (moved, tried) = std::task::ready!(moving.as_mut().poll(cx));
            self.moving = None;
            self.tried = tried;
            match moved {
                Ok(running) => {
                    self.rank = running.leg.rank();
                    self.prefill_rank = running.prefill_rank;
                    self.running = Some(running);
                }
                Err(failure) => return Poll::Ready(Some(Err(failure))),
            }
        }
        match &mut self.running {
            Some(running) => running.poll(&self.prepared, &mut self.tried, cx),
            None => Poll::Ready(None),
        }
    }

    /// Keeps what is needed to go on elsewhere, and tells usage as the client is to see it.
    fn note(&mut self, mut output: EngineOutput) -> EngineOutput {
        if let Some(silence) = &mut self.silence {
            silence.heard = Instant::now();
        }
        if let Some(answer) = &mut self.answer {
            answer.extend_from_slice(&output.token_ids);
        }
        self.finished |= output.finish_reason.is_some();
        if self.inherited > 0
            && let Some(usage) = &mut output.completion_usage
        {
            // To this worker the answer so far is prompt, cached or not; to the client it is not.
            usage.prompt_tokens = usage.prompt_tokens.saturating_sub(self.inherited);
            usage.prompt_tokens_details = None;
        }
        output
    }

    /// Ends what runs and, if the answer can go on elsewhere, starts looking for a worker. False: the failure stands.
    fn move_on(&mut self, failure: &Failure) -> bool {
        let Some(running) = self.running.take() else { return false };
        let failure = running.leg.failed(failure.clone(), &mut self.tried);
        let route = &self.shared.config.route;
        if self.finished || !failure.retryable || self.moves >= route.migration_limit {
            return false;
        }
        let Some(answer) = &self.answer else { return false };
        let progress = Progress::of(&self.prepared.engine, answer);
        if route.migration_max_tokens.is_some_and(|limit| progress.isl() > limit) {
            self.prepared.model.metrics.too_long_to_migrate.inc();
            return false;
        }
        self.moves += 1;
        self.inherited = progress.generated;
        tracing::warn!(
            request_id = %self.prepared.session.name(), session = self.prepared.session.id.as_deref(),
            %failure,
            tokens = progress.generated,
            "the answer goes on on another worker"
        );
        let (shared, prepared) = (Arc::clone(&self.shared), Arc::clone(&self.prepared));
        let mut tried = std::mem::take(&mut self.tried);
        self.moving = Some(Box::pin(async move {
            let request = Request { shared: &shared, prepared: &prepared, progress: &progress };
            let mut retries = Retries::new(&prepared.model.metrics, Migration::OngoingRequest);
            retries.failed(std::time::Instant::now());
            let moved = request.run(&mut tried, &mut retries).await;
            (moved, tried)
        }));
        true
    }

    /// Ready when the worker has said nothing for too long. A move has limits of its own.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.silence {
            Some(silence) if self.moving.is_none() => silence.poll(cx),
            _ => Poll::Pending,
        }
    }

    /// Tells the books about tokens.
    pub(crate) fn tokens(&mut self, count: u32) {
        let Some(running) = &mut self.running else { return };
        if !std::mem::replace(&mut running.prefilled, true) {
            running.leg.booking.lease.first_token();
        }
        running.leg.booking.lease.output_tokens(count);
    }

    /// The answer is whole.
    pub(crate) fn succeeded(self) {
        let Some(Running { leg, prefill, .. }) = self.running else { return };
        let Leg { stream, booking, .. } = leg;
        drop(stream);
        booking.lease.finish(End::Ok);
        if let Some((prefill, _)) = prefill {
            prefill.settle();
        }
    }

    /// The answer broke for a reason that [`Active::poll_next`] has not told.
    pub(crate) fn failed(mut self, failure: &Failure) {
        if let Some(running) = self.running.take() {
            let _told = running.leg.failed(failure.clone(), &mut self.tried);
        }
    }
}

/// Whether a request may go on elsewhere in the middle of its answer: pins bind it to its worker, a grammar's state is
/// in the engine, and several answers at once cannot be one prompt.
fn may_move(prepared: &Prepared) -> bool {
    let sampling = &prepared.engine.sampling_options;
    prepared.pin.worker.is_none()
        && prepared.prefill_pin.worker.is_none()
        && sampling.guided_decoding.is_none()
        && sampling.n.is_none_or(|n| n <= 1)
}

impl Silence {
    fn new(limit: Duration) -> Self {
        let heard = Instant::now();
        Silence { limit, heard, timer: Box::pin(tokio::time::sleep_until(heard + limit)) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            std::task::ready!(self.timer.as_mut().poll(cx));
            let due = self.heard + self.limit;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            // A timer that fires early is cheaper than one moved on every item.
            self.timer.as_mut().reset(due);
        }
    }
}

impl std::fmt::Debug for Active {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Active").field("running", &self.running).finish_non_exhaustive()
    }
}
