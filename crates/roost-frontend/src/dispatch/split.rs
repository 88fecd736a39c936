//! A request whose prompt is computed on one worker and whose answer comes from another. The two legs live and die
//! together.

use std::borrow::Cow;
use std::sync::Arc;

use roost_cluster::record::TransferConstraint;
use roost_kv::Overlap;
use roost_router::Constraints;
use tokio::time::Instant;

use super::active::Running;
use super::message::Handoff;
use super::prefill::PrefillLeg;
use super::retries::Retries;
use super::seat::{Seat, Tried, Wish};
use super::{Failed, Request};
use crate::failure::Failure;
use crate::models::Pool;
use crate::prepare::Prepared;

/// Why the wait for the decode leg ended before it did.
enum Stopped {
    /// The prefill leg failed.
    Prefill(Failure),
    /// Its time is over.
    Late,
}

/// The prefill leg beside a decode leg that has not begun.
struct Beside<'a> {
    /// `None` once it has ended well.
    prefill: Option<PrefillLeg>,
    pool: &'a Arc<Pool>,
    deadline: Option<Instant>,
    /// When the prompt was computed.
    computed: Option<Instant>,
}

impl Request<'_> {
    /// Places both legs, calls prefill, calls decode as soon as prefill is accepted, and waits for its first output.
    pub(super) async fn split(
        &self,
        pool: &Arc<Pool>,
        tried: &mut Tried,
        retries: &mut Retries<'_>,
    ) -> Result<Running, Failed> {
        let prepared = self.prepared;
        let routing = self.routing();
        let overlap = || pool.overlap(&prepared.blocks.sequence);
        let prefill = self
            .seat(pool, overlap, self.prefill_wish(), tried)
            .await
            .map_err(|failure| Failed::unplaced(failure.in_prefill()))?;
        // Where decode workers compute prompts now and then, what they keep of them is a reason to come back.
        let keeps = self.shared.config.route.local_prefill.is_some();
        let kept = || match keeps {
            true => prepared.model.pool.overlap(&prepared.blocks.sequence),
            false => Overlap::default(),
        };
        // Both places before any call: a prompt is not computed for an answer that nobody can give.
        let reach = Reach::of(prepared, &prefill);
        let constraints = Constraints { required: &reach.required, preferred: &reach.preferred };
        let wish = Wish { constraints, ..self.wish() };
        let decode = self.seat(&prepared.model.pool, kept, wish, tried).await.map_err(Failed::unplaced)?;
        drop(routing);
        retries.placed();
        let deadline = self.shared.config.route.first_token.map(|limit| Instant::now() + limit);

        let mut handoff = Handoff::at(&prefill.instance.info, prefill.placement.rank.dp_rank);
        let prefill_rank = prefill.rank();
        let cached_tokens = prefill.placement.cached_tokens;
        let message = self.progress.prefill(&prepared.engine, prefill_rank, &handoff);
        let leg = self.call(prefill, &message, tried).await.map_err(Failure::in_prefill)?;
        let mut prefill = PrefillLeg::new(leg);
        let mut computed = None;
        if handoff.bootstrap.is_none() {
            match within(deadline, prefill.result()).await {
                Ok(result) => {
                    handoff = Handoff::from_result(result);
                    computed = Some(Instant::now());
                }
                Err(failure) => return Err(prefill.failed(failure, tried).into()),
            }
        }
        let mut message =
            self.progress.decode(&prepared.engine, decode.placement.rank.dp_rank, prefill_rank, &handoff);
        if let Some(router) = message.router_config_override.as_mut().filter(|_| keeps) {
            router.overlap_score_credit = None;
        }
        let mut beside = Beside { prefill: Some(prefill), pool, deadline, computed };
        let call = self.call(decode, &message, tried);
        let mut leg = match beside.wait(self, call).await {
            Ok(Ok(leg)) => leg,
            Ok(Err(failure)) => return Err(failure.into()),
            Err(stopped) => return Err(beside.failed(stopped, tried).into()),
        };
        match beside.wait(self, leg.first_output()).await {
            Ok(Ok(first)) => {
                if let Some(computed) = beside.computed {
                    self.shared.metrics.transferred(computed.elapsed());
                }
                leg.booking.lease.committed();
                let decode = &prepared.model.pool;
                if keeps && !decode.has_events(leg.booking.info()) {
                    decode.approximate.record(
                        std::time::Instant::now(),
                        leg.placement.rank,
                        &prepared.blocks.sequence,
                    );
                }
                if let Some(prefill) = &beside.prefill {
                    prefill.committed();
                }
                let prefill = beside.prefill.map(|leg| (leg, Arc::clone(pool)));
                Ok(Running::split(leg, first, prefill, (prefill_rank, cached_tokens)))
            }
            // The prefill worker is told at once, by the drop of its leg: its partner will not come.
            Ok(Err(failure)) => Err(leg.failed(failure, tried).into()),
            Err(Stopped::Late) if beside.prefill.is_none() => {
                Err(leg.failed(Failure::no_transfer(), tried).into())
            }
            // So is the decode worker.
            Err(stopped) => Err(beside.failed(stopped, tried).into()),
        }
    }
}

/// What a decode worker must and had better have.
struct Reach<'a> {
    required: Cow<'a, [String]>,
    preferred: Cow<'a, [(String, f64)]>,
}

impl<'a> Reach<'a> {
    /// What the client asks for, and what the prefill worker says of where its cache may go.
    fn of(prepared: &'a Prepared, prefill: &Seat) -> Self {
        let (mut required, mut preferred) = (Cow::from(&prepared.required), Cow::from(&prepared.preferred));
        match prefill.instance.info.card.runtime_config.transfer_constraint() {
            None => {}
            Some(TransferConstraint { taint, weight: None }) => required.to_mut().push(taint),
            Some(TransferConstraint { taint, weight: Some(weight) }) => {
                preferred.to_mut().push((taint, weight));
            }
        }
        Reach { required, preferred }
    }
}

impl Beside<'_> {
    /// Waits for a step of the decode leg, but not beyond the deadline, nor once the prefill leg has failed. The
    /// step is dropped then.
    async fn wait<T>(&mut self, request: &Request<'_>, step: impl Future<Output = T>) -> Result<T, Stopped> {
        let mut step = std::pin::pin!(step);
        loop {
            let end = async {
                match self.prefill.as_mut() {
                    Some(leg) => leg.end().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                ended = end => match ended {
                    Err(failure) => return Err(Stopped::Prefill(failure)),
                    Ok(()) => {
                        if let Some(leg) = self.prefill.take() {
                            leg.done(self.pool, request.prepared);
                        }
                        let now = Instant::now();
                        self.computed.get_or_insert(now);
                        let limit = request.shared.config.route.kv_transfer;
                        let transfer = limit.map(|limit| now + limit);
                        self.deadline = [self.deadline, transfer].into_iter().flatten().min();
                    }
                },
                done = &mut step => return Ok(done),
                () = until(self.deadline) => return Err(Stopped::Late),
            }
        }
    }

    /// Closes the books of the prefill leg. When nothing says which of the two is stuck, it comes first.
    fn failed(&mut self, stopped: Stopped, tried: &mut Tried) -> Failure {
        let failure = match stopped {
            Stopped::Prefill(failure) => failure,
            Stopped::Late => Failure::no_first_token().in_prefill(),
        };
        match self.prefill.take() {
            Some(leg) => leg.failed(failure, tried),
            None => failure,
        }
    }
}

async fn within<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        done = work => done,
        () = until(deadline) => Err(Failure::no_first_token().in_prefill()),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
