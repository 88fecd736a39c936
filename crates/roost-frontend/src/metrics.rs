//! What the frontend counts: families, the handles of a model, and the guard that keeps a request's books.
//!
//! Labels come from small enums, from cards and from workers, never from a request: the number of series is bounded
//! by what is deployed. Names, types, labels and buckets of `dynamo_*` families are a contract with dashboards made
//! for Dynamo; `roost_*` families are ours. docs/metrics.md is made from the registered families.

mod connections;
mod curves;
mod families;
mod ingress;
mod labels;
mod model;
mod overhead;
mod prompt_cache;
mod queue;
mod request;
mod runtime;
mod sample;
mod share;
mod tiers;
mod worker;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use roost_kv::{Applied, KvEventData};
use roost_openai::ApiError;
use roost_telemetry::{Error, Registry, buckets};

pub use connections::{OpenConnection, Severed};
pub(crate) use curves::{Curves, Distribution};
use families::Families;
pub use labels::{Endpoint, ErrorType, Outcome, RequestKind, Stage, WorkerType};
pub use model::{Migration, ModelMetrics};
pub use overhead::Overhead;
pub use request::RequestGuard;
pub use sample::{PoolSample, Sample};

/// Label value of a model that no card names.
const UNKNOWN_MODEL: &str = "unknown_model";

/// Bounds of the histograms and the names of this router in `dynamo_component_router_*` series.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsOptions {
    /// Request duration, seconds.
    pub request_duration: Vec<f64>,
    /// Time to first token, seconds.
    pub time_to_first_token: Vec<f64>,
    /// Time between tokens, seconds.
    pub inter_token_latency: Vec<f64>,
    /// Prompt length and cached part of it, tokens.
    pub input_sequence: Vec<f64>,
    /// Answer length, tokens.
    pub output_sequence: Vec<f64>,
    /// Label `dynamo_namespace`.
    pub namespace: String,
    /// Label `dynamo_component`.
    pub component: String,
    /// Labels `worker_id` and `router_id`: this frontend.
    pub router_id: u64,
}

impl Default for MetricsOptions {
    /// Dynamo's bounds, and more where agents' requests would fall outside of them or all into one: short answers,
    /// answers of many minutes, prompts of up to a million tokens.
    fn default() -> Self {
        let with = |mut bounds: Vec<f64>, more: &[f64]| {
            bounds.extend(more);
            bounds.sort_by(f64::total_cmp);
            bounds
        };
        Self {
            request_duration: with(
                buckets::logarithmic(1.0, 512.0, 10),
                &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 1000.0, 2000.0, 4000.0],
            ),
            time_to_first_token: with(buckets::logarithmic(0.001, 480.0, 18), &[1000.0, 2000.0]),
            inter_token_latency: buckets::logarithmic(0.001, 80.0, 20),
            input_sequence: with(
                buckets::logarithmic(50.0, 128_000.0, 12),
                &[260_000.0, 530_000.0, 1_100_000.0],
            ),
            output_sequence: with(
                buckets::logarithmic(50.0, 32_000.0, 10),
                &[66_000.0, 130_000.0, 260_000.0],
            ),
            namespace: "dynamo".to_owned(),
            component: "backend".to_owned(),
            router_id: 0,
        }
    }
}

/// Every metric of the frontend. Cheap to clone; clones share all series.
#[derive(Debug, Clone)]
pub struct Metrics {
    families: Arc<Families>,
    models: Arc<Mutex<HashMap<Box<str>, Arc<ModelMetrics>>>>,
    sampled: Arc<Mutex<sample::Sampled>>,
    inflight: Arc<AtomicUsize>,
    started: Instant,
}

impl Metrics {
    /// Registers every family.
    ///
    /// # Errors
    /// If `registry` has one of the names already, or bounds are not in order.
    pub fn new(registry: &Registry, options: &MetricsOptions) -> Result<Self, Error> {
        Ok(Self {
            families: Arc::new(Families::register(registry, options)?),
            models: Arc::default(),
            sampled: Arc::default(),
            inflight: Arc::default(),
            started: Instant::now(),
        })
    }

    /// The handles of a model. To be called with names from cards only: each new name makes series that stay.
    pub fn model(&self, name: &str) -> Arc<ModelMetrics> {
        let mut models = self.models.lock();
        if let Some(model) = models.get(name) {
            return Arc::clone(model);
        }
        let model = Arc::new(ModelMetrics::new(name, &self.families, &self.inflight));
        models.insert(name.into(), Arc::clone(&model));
        model
    }

    /// Counts a request that was refused before it had a [`RequestGuard`]: unknown model, unreadable body, overload.
    /// A request that had one is counted by it; calling this too would count it twice.
    pub fn refused(&self, endpoint: Endpoint, kind: RequestKind, error: &ApiError) {
        let error_type = ErrorType::from_status(error.status());
        let labels = [UNKNOWN_MODEL, endpoint.as_str(), kind.as_str(), "error", error_type.as_str()];
        self.families.requests.with_label_values(&labels).inc();
        if error_type == ErrorType::Overload {
            self.families.rejections.with_label_values(&[UNKNOWN_MODEL, endpoint.as_str()]).inc();
        }
        let (class, reason) = labels::class_and_reason(error.status());
        self.families.failures.with_label_values(&[class, reason]).inc();
    }

    /// Counts request members that are not known and were ignored.
    pub fn ignored_fields(&self, count: usize) {
        self.families.ignored_fields.inc_by(count as u64);
    }

    /// Counts a placement: what it cost, and if the worker with most of the prompt cached was not chosen, the `lost`
    /// blocks by which it was ahead.
    pub fn routed(&self, worker_type: WorkerType, overhead: Overhead, lost: f64) {
        self.families.overhead.observe(overhead);
        if lost > 0.0 {
            self.families.router.overlap_lost[worker_type as usize].observe(lost);
        }
    }

    /// Counts a request on the plane: how long it took to encode it, and from there until a worker had accepted it or
    /// refused.
    pub fn called(&self, encoding: Duration, sending: Duration) {
        self.families.plane.queue.observe(encoding.as_secs_f64());
        self.families.plane.send.observe(sending.as_secs_f64());
    }

    /// Counts a handover: the time from the end of the prompt's computation to the first token elsewhere.
    pub fn transferred(&self, took: Duration) {
        self.families.router.transfer.observe(took.as_secs_f64());
    }

    /// Watches the runtime it is polled on, until it is dropped.
    pub async fn watch_runtime(&self) {
        self.families.runtime.watch().await;
    }

    /// Counts what a KV event changed in an index.
    pub fn kv_applied(&self, event: &KvEventData, applied: &Applied) {
        self.families.ingress.kv_event(event, applied);
        let kv = &self.families.kv_blocks;
        kv.stored.inc_by(u64::from(applied.stored));
        kv.duplicate.inc_by(u64::from(applied.duplicate));
        kv.skipped.inc_by(u64::from(applied.skipped));
        kv.removed.inc_by(u64::from(applied.removed));
        kv.unknown_removed.inc_by(u64::from(applied.unknown_removed));
    }

    /// Counts the caller into a stage until the returned timer is dropped, which records how long it took.
    pub fn stage(&self, stage: Stage) -> StageTimer {
        StageTimer::start(Arc::clone(&self.families), stage, Instant::now())
    }

    /// Requests between the creation and the end of their [`RequestGuard`], over all models.
    pub fn active_requests(&self) -> usize {
        self.inflight.load(Ordering::Relaxed)
    }

    /// Takes over what others count, just before a scrape: routers, indexes, planes. Series of workers that are in no
    /// sample any more are removed.
    pub fn sample(&self, sample: &Sample<'_>) {
        self.families.runtime.up(self.started.elapsed());
        self.sampled.lock().take(&self.families, sample);
    }
}

/// A request in a stage.
#[derive(Debug)]
pub struct StageTimer {
    families: Arc<Families>,
    stage: Stage,
    started: Instant,
}

impl StageTimer {
    fn start(families: Arc<Families>, stage: Stage, started: Instant) -> Self {
        families.stage_requests[stage.index()].inc();
        Self { families, stage, started }
    }
}

impl Drop for StageTimer {
    fn drop(&mut self) {
        self.families.stage_requests[self.stage.index()].dec();
        self.families.stage_duration[self.stage.index()].observe(self.started.elapsed().as_secs_f64());
    }
}
