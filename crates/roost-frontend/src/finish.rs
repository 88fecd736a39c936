//! Where a request's books are closed: metrics and access log, once, whatever ended it.

mod early;
mod extras;

use std::sync::Arc;
use std::time::{Duration, Instant};

use roost_kv::WorkerRank;
use roost_openai::{ApiError, Finish};
use roost_router::AffinityOutcome;
use roost_telemetry::spans::{Kind, SpanContext, Spans};

use crate::dispatch::Answers;
use crate::failure::Failure;
use crate::metrics::{Endpoint, ErrorType, Outcome, RequestGuard, RequestKind};
use crate::models::Model;
use crate::respond::choices::Choices;
use crate::session::Session;
use crate::shared::Shared;
use crate::trace::{self, Traced};

pub(crate) use self::early::Early;
pub(crate) use self::extras::Extras;
use self::extras::{Ended, Timing};

/// The books of one request, from its model lookup on. Dropped without a word, it counts as cancelled.
#[derive(Debug)]
pub(crate) struct Finisher {
    guard: RequestGuard,
    model: Arc<Model>,
    overload_status: u16,
    received: Instant,
    isl: u64,
    request_id: String,
    /// Its name on the plane and in the logs of workers.
    plane_id: uuid::Uuid,
    session: Option<Box<str>>,
    /// The session is over when the answer is whole.
    ends_session: bool,
    extras: Extras,
    /// The request was ready for a worker.
    prepared: Option<Instant>,
    expected_cached_tokens: u32,
    rank: Option<WorkerRank>,
    prefill_rank: Option<WorkerRank>,
    attempts: usize,
    affinity: AffinityOutcome,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    cached: Option<u64>,
    finish: Option<Finish>,
    /// Who is told of its spans.
    spans: Option<(Spans, SpanContext)>,
    endpoint: Endpoint,
    /// What the request trace will tell.
    traced: Option<Box<Traced>>,
    /// Tokens turned into text, and the time it took.
    decoded: u64,
    decoding: Duration,
    closed: bool,
}

impl Finisher {
    /// Opens the books. `received` is when the head of the request was read.
    pub(crate) fn begin(
        shared: &Shared,
        model: &Arc<Model>,
        endpoint: Endpoint,
        stream: bool,
        session: &Session,
        received: Instant,
    ) -> Self {
        let kind = if stream { RequestKind::Stream } else { RequestKind::Unary };
        Finisher {
            guard: RequestGuard::new(Arc::clone(&model.metrics), endpoint, kind, received),
            model: Arc::clone(model),
            overload_status: shared.config.http.overload_status,
            received,
            isl: 0,
            request_id: session.echo(),
            plane_id: session.uuid,
            session: session.id.clone(),
            ends_session: session.is_final,
            extras: Extras::default(),
            prepared: None,
            expected_cached_tokens: 0,
            rank: None,
            prefill_rank: None,
            attempts: 0,
            affinity: AffinityOutcome::None,
            first_token: None,
            last_token: None,
            cached: None,
            finish: None,
            spans: shared.spans.clone().zip(session.trace),
            endpoint,
            traced: None,
            decoded: 0,
            decoding: Duration::ZERO,
            closed: false,
        }
    }

    /// Passes a result on; an error closes the books.
    pub(crate) fn check<T>(&mut self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        if let Err(error) = &result {
            self.close(Outcome::Error(ErrorType::from_status(error.status())), Some(error.message()));
        }
        result
    }

    pub(crate) fn rendered(&mut self, took: Duration) {
        self.guard.rendered(took);
    }

    pub(crate) fn tokenized(&mut self, took: Duration) {
        self.guard.tokenized(took);
    }

    pub(crate) fn prepared(&mut self, isl: u64, extras: Extras) {
        self.isl = isl;
        self.prepared = Some(Instant::now());
        self.extras = extras;
        self.guard.prepared(isl);
    }

    /// The request trace will tell of it.
    pub(crate) fn trace(&mut self, traced: Traced) {
        self.traced = Some(Box::new(traced));
    }

    /// A worker has given its first item.
    pub(crate) fn answered(&mut self, answers: &Answers) {
        self.runs_on(answers);
        self.affinity = answers.affinity();
        self.expected_cached_tokens = answers.expected_cached_tokens();
        self.guard.routed(answers.rank(), self.expected_cached_tokens);
    }

    fn runs_on(&mut self, answers: &Answers) {
        self.rank = Some(answers.rank());
        self.prefill_rank = Some(answers.prefill_rank());
        self.attempts = answers.attempts();
    }

    /// What was asked for beside the text.
    pub(crate) fn extras(&self) -> &Extras {
        &self.extras
    }

    /// `nvext` member of a chunk that brings these ids.
    pub(crate) fn nvext(&self, ids: &[u32]) -> Option<String> {
        self.extras.member(self.ranks(), ids, None)
    }

    /// `nvext` member of the last chunk of a choice, or of a whole answer; `stop` is the stop string that was met, `engine_data` what
    /// the engine told about itself.
    pub(crate) fn last_nvext(
        &self,
        ids: &[u32],
        finish: Finish,
        stop: Option<&str>,
        engine_data: Option<&serde_json::Value>,
    ) -> Option<String> {
        if self.extras.is_empty() {
            return None;
        }
        let timing = Timing {
            received: self.received,
            prepared: self.prepared,
            first_token: self.first_token,
            now: Instant::now(),
            hit_rate: self.hit_rate(),
            queued: self.model.pool.router.snapshot().queue.requests,
        };
        self.extras.member(self.ranks(), ids, Some(Ended { finish, stop, engine_data, timing }))
    }

    /// Where the prompt and the answer were computed.
    fn ranks(&self) -> Option<(WorkerRank, WorkerRank)> {
        self.rank.map(|rank| (self.prefill_rank.unwrap_or(rank), rank))
    }

    /// Tokens arrived.
    pub(crate) fn tokens(&mut self, count: u32, choices: &Choices, answers: &mut Answers) {
        if count == 0 {
            return;
        }
        let now = Instant::now();
        if self.first_token.is_none() {
            self.first_token = Some(now);
            self.guard.first_token(now);
        }
        self.last_token = Some(now);
        self.guard.tokens(count, now);
        self.decoding = choices.decoding();
        self.decoded += u64::from(count);
        self.cached = choices.usage().cached_tokens.or(self.cached);
        if let Some(cached) = choices.usage().cached_tokens {
            self.guard.cached(cached);
        }
        answers.tokens(count);
        self.runs_on(answers);
    }

    /// The answer is whole.
    pub(crate) fn succeed(&mut self, choices: &Choices) {
        self.finish = choices.finish();
        self.cached = choices.usage().cached_tokens.or(self.cached);
        if let Some(cached) = choices.usage().cached_tokens {
            self.guard.cached(cached);
        }
        self.guard.cached_tiers(choices.cached_tiers());
        self.guard.output(choices.usage().completion_tokens);
        if let Some(session) = self.session.as_deref().filter(|_| self.ends_session) {
            self.model.pool.router.unbind(session);
            if let Some(prefill) = &*self.model.prefill.load() {
                prefill.router.unbind(session);
            }
        }
        self.close(Outcome::Success, None);
    }

    /// The answer failed; returns what the client is told.
    pub(crate) fn fail(&mut self, failure: &Failure) -> ApiError {
        let error = failure.to_api(self.overload_status);
        self.guard.failure(failure.class_and_reason());
        self.close(Outcome::Error(failure.error_type()), Some(&failure.to_string()));
        error
    }

    fn end_trace(&mut self) {
        let Some(traced) = self.traced.take() else { return };
        traced.end(&trace::Ended {
            model: &self.model.name,
            isl: self.isl,
            osl: self.decoded,
            cached: self.cached,
            hit_rate: self.hit_rate(),
            ranks: self.ranks(),
            received: self.received,
            prepared: self.prepared,
            first_token: self.first_token,
            last_token: self.last_token,
            now: Instant::now(),
            finish: self.finish,
        });
    }

    /// Tells of the request, of its preparation and of its answer; dispatch has told of its own parts.
    fn end_spans(&mut self, outcome: Outcome, detail: Option<&str>) {
        let Some((spans, context)) = self.spans.take().filter(|(_, context)| context.sampled) else { return };
        let now = Instant::now();
        let prepared = self.prepared.unwrap_or(now);
        spans.put(context.child("prepare", Kind::Internal, (self.received, prepared)));
        if let Some(first) = self.first_token {
            let mut stream = context.child("stream", Kind::Internal, (first, now));
            stream.attributes.push(("gen_ai.usage.output_tokens", self.decoded.into()));
            spans.put(stream);
        }
        let mut root = context.root(self.endpoint.as_str(), (self.received, now));
        let attributes = &mut root.attributes;
        attributes.push(("gen_ai.request.model", (*self.model.name).into()));
        attributes.push(("gen_ai.usage.input_tokens", self.isl.into()));
        attributes.push(("gen_ai.usage.output_tokens", self.decoded.into()));
        attributes.push(("request.id", self.request_id.as_str().into()));
        attributes.extend(self.session.as_deref().map(|session| ("session.id", session.into())));
        attributes.extend(self.rank.map(|rank| ("roost.worker", format!("{:x}", rank.worker.0).into())));
        attributes.push(("roost.attempts", (self.attempts as u64).into()));
        attributes.push(("roost.outcome", outcome.as_str().into()));
        if let Outcome::Error(error) = outcome {
            root.error = Some(detail.unwrap_or(error.as_str()).to_owned());
        }
        spans.put(root);
    }

    /// Part of the prompt that the router expected in the worker's cache.
    fn hit_rate(&self) -> f64 {
        (f64::from(self.expected_cached_tokens) / (self.isl.max(1) as f64)).min(1.0)
    }

    fn close(&mut self, outcome: Outcome, detail: Option<&str>) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        if self.decoded > 0 {
            self.guard.detokenized(self.decoding, self.decoded);
        }
        self.guard.finish(outcome);
        self.end_trace();
        self.end_spans(outcome, detail);
        let total = self.received.elapsed();
        let ttft_ms = self.first_token.map(|at| at.duration_since(self.received).as_secs_f64() * 1e3);
        tracing::info!(
            target: "roost::access",
            model = %self.model.name,
            request_id = %self.request_id,
            plane_id = %self.plane_id,
            session = self.session.as_deref(),
            worker = self.rank.map(|rank| tracing::field::display(format!("{:x}", rank.worker.0))),
            dp_rank = self.rank.map(|rank| rank.dp_rank),
            isl = self.isl,
            ttft_ms,
            total_ms = total.as_secs_f64() * 1e3,
            affinity = ?self.affinity,
            attempts = self.attempts,
            outcome = outcome.as_str(),
            detail,
            "request"
        );
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        self.close(Outcome::Error(ErrorType::Cancelled), None);
    }
}
