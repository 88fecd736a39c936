//! A place for one leg: the router's choice, its booking, and the instance that leads to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use roost_cluster::WorkerInfo;
use roost_kv::{Overlap, WorkerId, WorkerRank};
use roost_router::{Constraints, Lease, Pin, Placement, Request as RouteRequest, Submission};
use roost_telemetry::spans::{Kind, OpenSpan};
use roost_wire::Call;
use roost_wire::message::{EngineRequest, TokenIdFormat};

use super::Request;
use super::answer::Answer;
use super::leg::Leg;
use crate::failure::Failure;
use crate::metrics::{Overhead, WorkerType};
use crate::models::{Engine, Instance, Pool};

/// How long a worker that has left discovery may still take to accept a call: one that leaves in good order does so
/// at once, one that has died never does.
const FAREWELL: Duration = Duration::from_secs(1);

/// Who failed a request already. Both pools' workers in one list: their ids are unique.
#[derive(Debug, Default)]
pub(super) struct Tried {
    pub(super) instances: Vec<WorkerId>,
    engines: Vec<WorkerId>,
    /// Workers that were lost after they had taken the request.
    pub(super) losses: u32,
    /// Legs that were called, the successful ones included.
    pub(super) calls: usize,
    /// A decode worker refused to compute the prompt itself.
    pub(super) refused_local: bool,
}

/// Which workers will do for a leg.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) pin: Pin,
    pub(super) constraints: Constraints<'a>,
}

/// A booked place.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) placement: Placement,
    lease: Lease,
    engine: Arc<Engine>,
    pub(super) instance: Arc<Instance>,
}

/// What becomes of a leg's booking: told how the leg ended, or given back when dropped.
#[derive(Debug)]
pub(super) struct Booking {
    pub(super) lease: Lease,
    engine: Arc<Engine>,
    instance: Arc<Instance>,
}

impl Request<'_> {
    /// What the client wants of the worker that answers.
    pub(super) fn wish(&self) -> Wish<'_> {
        let prepared = self.prepared;
        let constraints = Constraints { required: &prepared.required, preferred: &prepared.preferred };
        Wish { pin: prepared.pin, constraints }
    }

    /// What the client wants of the worker that computes the prompt.
    pub(super) fn prefill_wish(&self) -> Wish<'_> {
        Wish { pin: self.prepared.prefill_pin, ..self.wish() }
    }

    /// Asks the pool's router for a place, waits for its turn if it must, and takes it.
    ///
    /// `overlap` is asked again after each wait: caches have changed. Cancel safe: dropped, it leaves the queue.
    pub(super) async fn seat(
        &self,
        pool: &Pool,
        overlap: impl Fn() -> Overlap,
        wish: Wish<'_>,
        tried: &Tried,
    ) -> Result<Seat, Failure> {
        let mut span = self.span("route", Kind::Internal);
        let mut waiting = None;
        let (placement, lease) = loop {
            let began = Instant::now();
            let overlap = overlap();
            let found = Instant::now();
            let request = self.route_request(pool, &overlap, wish, tried);
            let submitted = pool.router.submit(&request, waiting.take());
            let (finding, scheduling) = (found - began, found.elapsed());
            let submitted = submitted.map_err(|rejection| {
                let failure = Failure::rejected(&rejection);
                if let Some(span) = span.take() {
                    span.fail(failure.to_string());
                }
                failure
            });
            match submitted? {
                Submission::Placed(placement, lease) => {
                    self.count(pool, &placement, finding, scheduling);
                    break (placement, lease);
                }
                Submission::Waits(turn) => waiting.insert(turn).turn().await,
            }
        };
        let engine = pool.engine(placement.rank.worker).ok_or_else(Failure::gone)?;
        let instance =
            engine.pick(Instant::now(), wish.pin.worker, &tried.instances).ok_or_else(Failure::gone)?;
        if let Some(mut span) = span {
            tell(&mut span, &instance, &placement);
            span.set("roost.cached_tokens", u64::from(placement.cached_tokens));
            span.set("roost.affinity", format!("{:?}", placement.affinity));
            span.end();
        }
        Ok(Seat { placement, lease, engine, instance })
    }

    /// Begins a part of the request, if spans are told of.
    fn span(&self, name: &'static str, kind: Kind) -> Option<OpenSpan> {
        self.shared.spans.as_ref()?.open(self.prepared.session.trace?, name, kind)
    }

    fn count(&self, pool: &Pool, placement: &Placement, finding: Duration, scheduling: Duration) {
        let worker_type = WorkerType::of(pool.role);
        let overhead = Overhead { hashing: self.prepared.hashing, finding, scheduling };
        let lost = placement.best_cached_tokens.saturating_sub(placement.cached_tokens);
        let block_size = f64::from(self.prepared.blocks.cut.block_size.max(1));
        self.shared.metrics.routed(worker_type, overhead, f64::from(lost) / block_size);
    }

    /// The request as the pool's router sees it.
    pub(super) fn route_request<'r>(
        &'r self,
        pool: &Pool,
        overlap: &'r Overlap,
        wish: Wish<'r>,
        tried: &'r Tried,
    ) -> RouteRequest<'r> {
        let prepared = self.prepared;
        RouteRequest {
            id: Some(&prepared.id),
            session: prepared.session.id.as_deref(),
            parent: prepared.session.parent.as_deref(),
            pin: Pin { worker: wish.pin.worker.map(|worker| pool.engine_of(worker)), ..wish.pin },
            constraints: wish.constraints,
            exclude: &tried.engines,
            expected_output_tokens: prepared.expected_output_tokens,
            priority: prepared.priority,
            strict_priority: prepared.strict_priority,
            ..RouteRequest::new(
                self.progress.isl(),
                prepared.blocks.cut.block_size,
                &prepared.blocks.sequence,
                overlap,
            )
        }
    }

    fn token_format(&self) -> TokenIdFormat {
        match self.shared.config.route.token_ids_as_bytes {
            true => TokenIdFormat::Bytes,
            false => TokenIdFormat::Array,
        }
    }

    /// Calls a leg and waits until its worker has accepted it. A failure closes the booking.
    pub(super) async fn call(
        &self,
        seat: Seat,
        body: &EngineRequest,
        tried: &mut Tried,
    ) -> Result<Leg, Failure> {
        let Seat { placement, lease, engine, instance } = seat;
        tried.calls += 1;
        let mut span = self.span("dispatch", Kind::Client);
        if let Some(span) = &mut span {
            tell(span, &instance, &placement);
        }
        if let Some(hosted) = &self.shared.hosted {
            let booking = Booking { lease, engine, instance };
            return match hosted.generate(booking.worker(), &self.prepared.id, body.clone()) {
                Some(stream) => Ok(Leg { stream: Answer::Hosted(stream), placement, booking, span }),
                None => Err(booking.failed(Failure::gone(), tried)),
            };
        }
        let began = Instant::now();
        let target = &instance.info.target;
        let codec = crate::plane::codec(target.codec);
        let body = body.encode(codec, self.token_format()).map_err(|e| Failure::encode(&e))?;
        let target = crate::plane::target(target);
        let metadata = self.prepared.session.metadata.as_deref();
        let session = &self.prepared.session;
        let parent = session
            .trace
            .map(|trace| trace.traceparent(span.as_ref().map_or_else(|| fastrand::u64(1..), OpenSpan::id)));
        let mut headers = Vec::new();
        headers.extend(parent.as_deref().map(|parent| ("traceparent", parent)));
        headers.extend(session.trace_state.as_deref().map(|state| ("tracestate", state)));
        let call = Call { metadata, headers: &headers, ..Call::new(&self.prepared.id, body) };
        let encoded = Instant::now();
        let call = self.shared.client.call(&target, call);
        let farewell = async {
            instance.gone.cancelled().await;
            tokio::time::sleep(FAREWELL).await;
        };
        let called = tokio::select! {
            biased;
            called = call => called.map_err(|error| Failure::call(&error)),
            () = farewell => Err(Failure::gone()),
        };
        self.shared.metrics.called(encoded - began, encoded.elapsed());
        let booking = Booking { lease, engine: Arc::clone(&engine), instance: Arc::clone(&instance) };
        match called {
            Ok(stream) => Ok(Leg { stream: Answer::Plane(stream), placement, booking, span }),
            Err(failure) => {
                if let Some(span) = span {
                    span.fail(failure.to_string());
                }
                Err(booking.failed(failure, tried))
            }
        }
    }
}

/// Says in a span where it leads.
fn tell(span: &mut OpenSpan, instance: &Instance, placement: &Placement) {
    span.set("roost.worker", format!("{:x}", instance.info.worker.0));
    span.set("roost.dp_rank", u64::from(placement.rank.dp_rank));
    span.set("roost.role", instance.info.role.as_str());
}

impl Seat {
    /// Where it is, under the name that workers and clients know.
    pub(super) fn rank(&self) -> WorkerRank {
        WorkerRank::new(self.instance.info.worker, self.placement.rank.dp_rank)
    }
}

impl Booking {
    /// Where the leg runs, under the name that workers and clients know.
    pub(super) fn worker(&self) -> WorkerId {
        self.instance.info.worker
    }

    /// What the worker announces.
    pub(super) fn info(&self) -> &WorkerInfo {
        &self.instance.info
    }

    /// The leg failed: gives the booking back, remembers the worker as tried, and has it avoided if it is to blame.
    ///
    /// Of the workers that one request loses only the first is blamed: the second loss speaks against the request,
    /// and a request that kills workers must not have the rest of the fleet avoided.
    pub(super) fn failed(self, failure: Failure, tried: &mut Tried) -> Failure {
        let now = Instant::now();
        let id = self.worker();
        tried.instances.push(id);
        if self.engine.is_exhausted(&tried.instances) {
            tried.engines.push(self.engine.id);
        }
        tried.losses += u32::from(failure.lost_worker);
        let failure = if failure.lost_worker && tried.losses > 1 { failure.blameless() } else { failure };
        self.close(now, &failure);
        failure
    }

    /// Gives the booking back; a worker at fault is avoided for a while.
    pub(super) fn close(self, now: Instant, failure: &Failure) {
        match failure.worker_failure() {
            None => self.lease.finish(roost_router::End::Failed),
            Some(_) if self.engine.has_other_ways(now, self.worker()) => {
                self.instance.avoid(now);
                self.lease.finish(roost_router::End::Failed);
            }
            Some(kind) => self.lease.worker_failed(kind),
        }
    }
}
