//! The books of one request: opened when its model is known, closed once, whatever ends it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use roost_kv::WorkerRank;

use super::{
    Endpoint, ErrorType, ModelMetrics, Outcome, RequestKind, Stage, StageTimer, WorkerType,
    worker::WorkerGauges,
};
use crate::respond::tiers::CachedTiers;

/// Counts a request into the gauges and takes it out when it is dropped, also on a panic.
///
/// A guard that is dropped without [`Self::finish`] belongs to a client that went away: `cancelled`.
#[derive(Debug)]
pub struct RequestGuard {
    model: Arc<ModelMetrics>,
    endpoint: Endpoint,
    kind: RequestKind,
    received: Instant,
    stage: Option<StageTimer>,
    inflight: bool,
    waiting: bool,
    isl: u64,
    output: u64,
    output_told: Option<u64>,
    cached: Option<u64>,
    cached_tiers: Option<CachedTiers>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    worker: Option<Arc<WorkerGauges>>,
    failure: Option<(&'static str, &'static str)>,
    closed: bool,
}

impl RequestGuard {
    /// Opens the books. `received` is when the request began, before its body was read.
    pub fn new(model: Arc<ModelMetrics>, endpoint: Endpoint, kind: RequestKind, received: Instant) -> Self {
        model.route(endpoint, kind).started.inc();
        model.active.inc();
        model.queued.inc();
        model.all_active.fetch_add(1, Ordering::Relaxed);
        Self {
            stage: Some(StageTimer::start(Arc::clone(&model.families), Stage::Preprocess, received)),
            model,
            endpoint,
            kind,
            received,
            inflight: false,
            waiting: true,
            isl: 0,
            output: 0,
            output_told: None,
            cached: None,
            cached_tiers: None,
            first_token: None,
            last_token: None,
            worker: None,
            failure: None,
            closed: false,
        }
    }

    /// The prompt was rendered.
    pub fn rendered(&mut self, took: Duration) {
        self.model.families.template.observe(took.as_secs_f64());
    }

    /// The prompt was tokenized.
    pub fn tokenized(&mut self, took: Duration) {
        self.model.families.tokenize.observe(took.as_secs_f64());
        self.model.families.tokenize_latency.observe(took.as_secs_f64() * 1e3);
    }

    /// The answer was turned into text, all of it: once per request.
    pub fn detokenized(&mut self, took: Duration, tokens: u64) {
        self.model.families.detokenize_latency.observe(took.as_secs_f64() * 1e3);
        self.model.families.detokenize_us.inc_by(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.model.families.detokenize_tokens.inc_by(tokens);
    }

    /// The request is ready to be given to a worker.
    pub fn prepared(&mut self, isl: u64) {
        self.isl = isl;
        if !std::mem::replace(&mut self.inflight, true) {
            self.model.inflight.inc();
            self.model.families.plane.inflight.inc();
            self.model.families.router.started.inc();
        }
        // Ends the stage before: its timer is dropped.
        self.stage =
            Some(StageTimer::start(Arc::clone(&self.model.families), Stage::Dispatch, Instant::now()));
    }

    /// A worker has begun to answer. `expected_cached` is what the router believed to be cached there, tokens.
    pub fn routed(&mut self, rank: WorkerRank, expected_cached: u32) {
        if let Some(stage) = self.stage.take() {
            self.model.families.plane.first_item.observe(stage.started.elapsed().as_secs_f64());
        }
        self.worker = Some(self.model.families.workers.of(rank, WorkerType::Decode));
        if self.isl > 0 {
            let rate = f64::from(expected_cached) / self.isl as f64;
            self.model.families.router.hit_rate.observe(rate.min(1.0));
        }
    }

    /// The first token is there. Further calls change nothing.
    pub fn first_token(&mut self, now: Instant) {
        if self.first_token.is_some() {
            return;
        }
        self.first_token = Some(now);
        self.leave_queue();
        let ttft = now.saturating_duration_since(self.received).as_secs_f64();
        self.model.time_to_first_token.observe(ttft);
        self.model.input_tokens.observe(self.isl as f64);
        self.model.router_input_tokens.observe(self.isl as f64);
        self.model.families.router.time_to_first_token.observe(ttft);
        if let Some(worker) = &self.worker {
            worker.last_ttft.set(ttft);
            worker.last_isl.set(i64::try_from(self.isl).unwrap_or(i64::MAX));
        }
    }

    /// Tokens arrived together. The first call counts as the first token.
    pub fn tokens(&mut self, count: u32, now: Instant) {
        if count == 0 {
            return;
        }
        self.first_token(now);
        self.output += u64::from(count);
        self.model.output_total.inc_by(u64::from(count));
        if let Some(last) = self.last_token.replace(now) {
            let gap = now.saturating_duration_since(last).as_secs_f64() / f64::from(count);
            for _ in 0..count {
                self.model.inter_token_latency.observe(gap);
            }
            if let Some(worker) = &self.worker {
                worker.last_itl.set(gap);
            }
        }
    }

    /// The worker says how much of the prompt it had cached, tokens; the last word counts.
    pub fn cached(&mut self, tokens: u64) {
        self.cached = Some(tokens);
    }

    /// Where the cached part of the prompt was found, if the engine tells; the last word counts.
    pub(crate) fn cached_tiers(&mut self, tiers: Option<CachedTiers>) {
        self.cached_tiers = tiers;
    }

    /// The length of the answer where it is known better than by counting, tokens.
    pub fn output(&mut self, tokens: u64) {
        self.output_told = Some(tokens);
    }

    /// All lengths at once: prompt, answer and cached part of the prompt, tokens.
    pub fn usage(&mut self, isl: u64, osl: u64, cached: Option<u64>) {
        self.isl = isl;
        self.output_told = Some(osl);
        self.cached = cached.or(self.cached);
    }

    /// Labels `class` and `reason` of the failure that will end the request.
    pub fn failure(&mut self, class_and_reason: (&'static str, &'static str)) {
        self.failure = Some(class_and_reason);
    }

    /// Closes the books. Further calls change nothing.
    pub fn finish(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.stage = None;
        self.leave_queue();
        self.model.active.dec();
        self.model.all_active.fetch_sub(1, Ordering::Relaxed);
        if std::mem::replace(&mut self.inflight, false) {
            self.model.inflight.dec();
            self.model.families.plane.inflight.dec();
            self.model.families.router.finished.inc();
        }
        self.model.duration.observe(self.received.elapsed().as_secs_f64());
        self.record_lengths();
        self.record_outcome(outcome);
    }

    fn record_lengths(&self) {
        let (Some(first), Some(last)) = (self.first_token, self.last_token.or(self.first_token)) else {
            return;
        };
        let output = self.output_told.unwrap_or(self.output);
        self.model.output_tokens.observe(output as f64);
        self.model.families.router.output_tokens.observe(output as f64);
        if self.output > 1 {
            let mean = last.saturating_duration_since(first).as_secs_f64() / (self.output - 1) as f64;
            self.model.families.router.inter_token_latency.observe(mean);
        }
        if let Some(cached) = self.cached {
            self.model.cached_tokens.observe(cached as f64);
            self.model.router_reused.inc_by(cached);
            self.model.cached_tiers.count(cached, self.cached_tiers);
        }
    }

    fn record_outcome(&self, outcome: Outcome) {
        let route = self.model.route(self.endpoint, self.kind);
        route.ended[outcome.index()].inc();
        let Outcome::Error(error) = outcome else { return };
        match error {
            // A client that leaves is no failure of the server.
            ErrorType::Cancelled => {
                route.cancelled.inc();
                self.model.families.disconnected.inc();
                return;
            }
            ErrorType::Overload => route.rejected.inc(),
            _ => {}
        }
        let (class, reason) = self.failure.unwrap_or(error.class_and_reason());
        self.model.families.failures.with_label_values(&[class, reason]).inc();
    }

    fn leave_queue(&mut self) {
        if std::mem::replace(&mut self.waiting, false) {
            self.model.queued.dec();
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.finish(Outcome::Error(ErrorType::Cancelled));
    }
}
