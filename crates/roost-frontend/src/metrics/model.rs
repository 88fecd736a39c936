//! The handles of one model, resolved once.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use prometheus::{Histogram, IntCounter, IntGauge};
use roost_cluster::ModelCard;

use super::{Endpoint, Outcome, RequestKind, WorkerType, families::Families, tiers::TierCounters};

/// When a request moves to another worker: label `migration_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migration {
    /// Before its first token.
    NewRequest,
    /// After it.
    OngoingRequest,
}

/// Everything counted per model.
#[derive(Debug)]
pub struct ModelMetrics {
    pub(super) families: Arc<Families>,
    pub(super) all_active: Arc<AtomicUsize>,
    pub(super) active: IntGauge,
    pub(super) inflight: IntGauge,
    pub(super) queued: IntGauge,
    pub(super) duration: Histogram,
    pub(super) time_to_first_token: Histogram,
    pub(super) inter_token_latency: Histogram,
    pub(super) input_tokens: Histogram,
    pub(super) output_tokens: Histogram,
    pub(super) cached_tokens: Histogram,
    pub(super) output_total: IntCounter,
    pub(super) router_input_tokens: Histogram,
    pub(super) router_reused: IntCounter,
    pub(super) cached_tiers: TierCounters,
    tokenizer_cached: IntCounter,
    tokenizer_uncached: IntCounter,
    migrations: [MigrationMetrics; Migration::ALL.len()],
    /// Answers that did not move because they were too long.
    pub(crate) too_long_to_migrate: IntCounter,
    /// Prompts that a decode worker computed itself although there were prefill workers.
    pub(crate) local_prefills: IntCounter,
    by_route: [[RouteMetrics; RequestKind::ALL.len()]; Endpoint::ALL.len()],
    card: CardGauges,
}

/// Everything counted per model, endpoint and kind of answer.
#[derive(Debug)]
pub(super) struct RouteMetrics {
    pub(super) started: IntCounter,
    pub(super) ended: [IntCounter; Outcome::ALL.len()],
    pub(super) cancelled: IntCounter,
    pub(super) rejected: IntCounter,
}

/// By whether it succeeded.
#[derive(Debug)]
struct MigrationMetrics {
    total: IntCounter,
    duration: [Histogram; 2],
}

#[derive(Debug)]
struct CardGauges {
    context_length: IntGauge,
    block_size: IntGauge,
    total_kv_blocks: IntGauge,
    max_num_seqs: IntGauge,
    max_num_batched_tokens: IntGauge,
    migration_limit: IntGauge,
    ready: IntGauge,
    mismatched_pages: IntGauge,
}

impl ModelMetrics {
    pub(super) fn new(name: &str, families: &Arc<Families>, all_active: &Arc<AtomicUsize>) -> Self {
        let f = families;
        let model = &[name];
        let phase = WorkerType::Decode.phase();
        let by_route = Endpoint::ALL.map(|endpoint| {
            RequestKind::ALL.map(|kind| {
                let route = [name, endpoint.as_str(), kind.as_str()];
                RouteMetrics {
                    started: f.started.with_label_values(&route),
                    ended: Outcome::ALL.map(|outcome| {
                        let [name, endpoint, kind] = route;
                        f.requests.with_label_values(&[
                            name,
                            endpoint,
                            kind,
                            outcome.status(),
                            outcome.error_type(),
                        ])
                    }),
                    cancelled: f.cancellations.with_label_values(&route),
                    rejected: f.rejections.with_label_values(&[name, endpoint.as_str()]),
                }
            })
        });
        Self {
            all_active: Arc::clone(all_active),
            active: f.active.with_label_values(model),
            inflight: f.inflight.with_label_values(model),
            queued: f.queued.with_label_values(model),
            duration: f.duration.with_label_values(model),
            time_to_first_token: f.time_to_first_token.with_label_values(model),
            inter_token_latency: f.inter_token_latency.with_label_values(model),
            input_tokens: f.input_tokens.with_label_values(model),
            output_tokens: f.output_tokens.with_label_values(model),
            cached_tokens: f.cached_tokens.with_label_values(model),
            output_total: f.output_total.with_label_values(model),
            router_input_tokens: f.router.input_tokens(name, phase),
            router_reused: f.router.reused(name, phase),
            cached_tiers: TierCounters::new(&f.cached_by_tier, name),
            tokenizer_cached: f.prompt_cache.cached_tokens.with_label_values(model),
            tokenizer_uncached: f.prompt_cache.uncached_tokens.with_label_values(model),
            migrations: Migration::ALL.map(|migration| MigrationMetrics {
                total: f.retries.with_label_values(&[migration.as_str(), name]),
                duration: ["failure", "success"]
                    .map(|outcome| f.retry_duration.with_label_values(&[migration.as_str(), name, outcome])),
            }),
            local_prefills: f.local_prefills.with_label_values(model),
            too_long_to_migrate: f.too_long_to_migrate.with_label_values(model),
            by_route,
            card: CardGauges {
                context_length: f.card.context_length.with_label_values(model),
                block_size: f.card.block_size.with_label_values(model),
                total_kv_blocks: f.card.total_kv_blocks.with_label_values(model),
                max_num_seqs: f.card.max_num_seqs.with_label_values(model),
                max_num_batched_tokens: f.card.max_num_batched_tokens.with_label_values(model),
                migration_limit: f.card.migration_limit.with_label_values(model),
                ready: f.card.ready.with_label_values(model),
                mismatched_pages: f.card.mismatched_pages.with_label_values(model),
            },
            families: Arc::clone(families),
        }
    }

    /// Takes the facts of the model's card; what the card does not say is 0.
    pub fn card(&self, card: &ModelCard) {
        let runtime = &card.runtime_config;
        let gauge = &self.card;
        gauge.context_length.set(i64::from(card.context_length_tokens()));
        gauge.block_size.set(i64::from(card.block_size_tokens().unwrap_or(0)));
        gauge.total_kv_blocks.set(whole(runtime.total_kv_blocks));
        gauge.max_num_seqs.set(whole(runtime.max_num_seqs));
        gauge.max_num_batched_tokens.set(whole(runtime.max_num_batched_tokens));
        gauge.migration_limit.set(i64::from(card.migration_limit));
    }

    /// Counts a prompt that went through the prompt memory: its tokens, and how many an earlier turn had made.
    pub fn prompt(&self, reused: usize, tokens: usize) {
        self.families.prompt_cache.prompt(reused, tokens);
        self.tokenizer_cached.inc_by(reused as u64);
        self.tokenizer_uncached.inc_by(tokens.saturating_sub(reused) as u64);
    }

    /// Says whether the model can be served.
    pub fn ready(&self, ready: bool) {
        self.card.ready.set(i64::from(ready));
    }

    /// Says how many of its workers have KV blocks of another size than prompts are cut into.
    pub fn mismatched_pages(&self, workers: usize) {
        self.card.mismatched_pages.set(i64::try_from(workers).unwrap_or(i64::MAX));
    }

    /// Counts a request that is placed on another worker after a failure.
    pub fn migrated(&self, migration: Migration) {
        self.migrations[migration as usize].total.inc();
    }

    /// Records how such a request went on, and how long after the first failure.
    pub fn migration_ended(&self, migration: Migration, took: Duration, succeeded: bool) {
        self.migrations[migration as usize].duration[usize::from(succeeded)].observe(took.as_secs_f64());
    }

    pub(super) fn route(&self, endpoint: Endpoint, kind: RequestKind) -> &RouteMetrics {
        &self.by_route[endpoint.index()][kind.index()]
    }
}

impl Migration {
    const ALL: [Self; 2] = [Self::NewRequest, Self::OngoingRequest];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewRequest => "new_request",
            Self::OngoingRequest => "ongoing_request",
        }
    }
}

/// A gauge holds signed numbers; no count of a card comes near their limit.
fn whole(value: Option<u64>) -> i64 {
    value.and_then(|value| i64::try_from(value).ok()).unwrap_or(0)
}
