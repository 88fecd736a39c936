//! Every family, registered once.

use prometheus::{Gauge, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use roost_telemetry::{Error, Name, Registry, buckets};

use super::{
    MetricsOptions, Stage, WorkerType,
    connections::{self, ConnectionFamilies},
    ingress::IngressFamilies,
    overhead::OverheadFamilies,
    prompt_cache::PromptCacheFamilies,
    queue::QueueFamilies,
    runtime::RuntimeFamilies,
    worker::Workers,
};

/// Labels of the router's own series, whose values are those of this process.
const ROUTER: [&str; 4] = ["dynamo_namespace", "dynamo_component", "worker_id", "router_id"];
/// The same with the model and the phase of a request.
const ROUTER_MODEL: [&str; 6] =
    ["dynamo_namespace", "dynamo_component", "worker_id", "router_id", "model", "phase"];
/// Labels of a rank of a worker.
pub(super) const RANK: [&str; 3] = ["worker_id", "dp_rank", "worker_type"];
/// Labels of a pool of workers.
const POOL: [&str; 2] = ["model", "worker_type"];

/// Handles and families of the whole frontend.
#[derive(Debug)]
pub(super) struct Families {
    // Requests.
    pub(super) requests: IntCounterVec,
    pub(super) started: IntCounterVec,
    pub(super) active: IntGaugeVec,
    pub(super) inflight: IntGaugeVec,
    pub(super) queued: IntGaugeVec,
    pub(super) disconnected: IntGauge,
    pub(super) failures: IntCounterVec,
    pub(super) rejections: IntCounterVec,
    pub(super) cancellations: IntCounterVec,
    pub(super) ignored_fields: IntCounter,
    pub(super) connections: ConnectionFamilies,
    // Times and lengths.
    pub(super) duration: HistogramVec,
    pub(super) time_to_first_token: HistogramVec,
    pub(super) inter_token_latency: HistogramVec,
    pub(super) input_tokens: HistogramVec,
    pub(super) output_tokens: HistogramVec,
    pub(super) cached_tokens: HistogramVec,
    pub(super) output_total: IntCounterVec,
    pub(super) tokenize_latency: Histogram,
    pub(super) detokenize_latency: Histogram,
    pub(super) tokenize: Histogram,
    pub(super) template: Histogram,
    pub(super) detokenize_us: IntCounter,
    pub(super) detokenize_tokens: IntCounter,
    pub(super) stage_duration: [Histogram; Stage::ALL.len()],
    pub(super) stage_requests: [IntGauge; Stage::ALL.len()],
    // Retries.
    pub(super) retries: IntCounterVec,
    pub(super) retry_duration: HistogramVec,
    pub(super) too_long_to_migrate: IntCounterVec,
    pub(super) local_prefills: IntCounterVec,
    pub(super) cached_by_tier: IntCounterVec,
    // Models.
    pub(super) card: CardFamilies,
    // The router's own view.
    pub(super) router: RouterFamilies,
    /// Gauges of workers.
    pub(super) workers: Workers,
    pub(super) pool: PoolFamilies,
    pub(super) queue: QueueFamilies,
    pub(super) kv_blocks: KvBlocks,
    pub(super) plane: PlaneFamilies,
    pub(super) cluster: ClusterFamilies,
    pub(super) prepare_waiting: IntGauge,
    pub(super) held: IntGauge,
    pub(super) prompt_cache: PromptCacheFamilies,
    /// Records of the request trace: written, dropped, failed.
    pub(super) traced: [IntCounter; 3],
    /// Spans: exported, dropped, failed.
    pub(super) spans: [IntCounter; 3],
    pub(super) ingress: IngressFamilies,
    pub(super) overhead: OverheadFamilies,
    pub(super) runtime: RuntimeFamilies,
}

/// Facts of a model from its card.
#[derive(Debug)]
pub(super) struct CardFamilies {
    pub(super) context_length: IntGaugeVec,
    pub(super) block_size: IntGaugeVec,
    pub(super) total_kv_blocks: IntGaugeVec,
    pub(super) max_num_seqs: IntGaugeVec,
    pub(super) max_num_batched_tokens: IntGaugeVec,
    pub(super) migration_limit: IntGaugeVec,
    pub(super) ready: IntGaugeVec,
    pub(super) mismatched_pages: IntGaugeVec,
}

/// `dynamo_component_router_*`, with the labels of this process filled in.
#[derive(Debug)]
pub(super) struct RouterFamilies {
    pub(super) started: IntCounter,
    pub(super) finished: IntCounter,
    pub(super) time_to_first_token: Histogram,
    pub(super) inter_token_latency: Histogram,
    pub(super) output_tokens: Histogram,
    pub(super) hit_rate: Histogram,
    pub(super) transfer: Histogram,
    /// By [`WorkerType`](super::WorkerType).
    pub(super) overlap_lost: [Histogram; 2],
    input_tokens: HistogramVec,
    reused: IntCounterVec,
    best: IntCounterVec,
    selected: IntCounterVec,
    non_max: IntCounterVec,
    identity: [String; ROUTER.len()],
}

/// What a pool of workers and its router count.
#[derive(Debug)]
pub(super) struct PoolFamilies {
    pub(super) placed: IntCounterVec,
    pub(super) rejected: IntCounterVec,
    pub(super) turns: IntCounterVec,
    pub(super) rebinds: IntCounterVec,
    pub(super) ended: IntCounterVec,
    pub(super) told: IntCounterVec,
    pub(super) untold: IntCounterVec,
    pub(super) table_bytes: IntGaugeVec,
    pub(super) waiting_bindings: IntGaugeVec,
    pub(super) remote_requests: IntGaugeVec,
    pub(super) saved: IntCounterVec,
    pub(super) lost: IntCounterVec,
    pub(super) spread_lost: IntCounterVec,
    pub(super) bookings_expired: IntCounterVec,
    pub(super) worker_failures: IntCounterVec,
    pub(super) index_blocks: IntGaugeVec,
    pub(super) index_residencies: IntGaugeVec,
    pub(super) index_bytes: IntGaugeVec,
    pub(super) index_skipped: IntCounterVec,
}

/// Blocks in KV events, by what they changed.
#[derive(Debug)]
pub(super) struct KvBlocks {
    pub(super) stored: IntCounter,
    pub(super) duplicate: IntCounter,
    pub(super) skipped: IntCounter,
    pub(super) removed: IntCounter,
    pub(super) unknown_removed: IntCounter,
}

/// The request plane.
#[derive(Debug)]
pub(super) struct PlaneFamilies {
    pub(super) calls: IntCounter,
    pub(super) acks: IntCounterVec,
    pub(super) deadlines: IntCounterVec,
    pub(super) failures: IntCounterVec,
    pub(super) inflight: IntGauge,
    pub(super) first_item: Histogram,
    pub(super) queue: Histogram,
    pub(super) send: Histogram,
    pub(super) received_bytes: IntCounter,
    pub(super) accept_pauses: IntCounter,
    pub(super) connections: IntGauge,
    pub(super) sent_bytes: IntCounter,
    pub(super) errors: IntCounter,
}

/// Discovery and events.
#[derive(Debug)]
pub(super) struct ClusterFamilies {
    pub(super) events: IntCounterVec,
    pub(super) gaps: IntCounter,
    pub(super) recoveries: IntCounterVec,
    pub(super) overflows: IntCounter,
    pub(super) late: IntCounter,
    pub(super) undecodable: IntCounter,
    pub(super) bad_records: IntCounter,
    pub(super) announced: IntCounterVec,
    pub(super) forgotten: IntCounter,
    pub(super) holes: IntGauge,
    pub(super) lag: IntGauge,
    pub(super) ambiguous: IntGauge,
    pub(super) silent: IntGauge,
    pub(super) subscriptions: IntGauge,
    pub(super) connected: IntGauge,
    pub(super) joined: IntCounter,
    pub(super) left: IntCounter,
    pub(super) store_unreachable: Gauge,
}

impl Families {
    pub(super) fn register(registry: &Registry, options: &MetricsOptions) -> Result<Self, Error> {
        use Name::{FixedFrontend as Fixed, Frontend, Full};
        let r = registry;
        let model = &["model"][..];
        let fine = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0];
        let latency = buckets::exponential(0.5, 2.0, 11);
        let latency = r.histogram_vec(
            Frontend("tokenizer_latency_ms"),
            "Milliseconds a request spent in the tokenizer, by operation.",
            &["operation"],
            &latency,
        )?;
        let stages = r.histogram_vec(
            Fixed("stage_duration_seconds"),
            "Seconds a request spent in a stage.",
            &["stage"],
            &fine,
        )?;
        let staged = r.gauge_vec(Fixed("stage_requests"), "Requests in a stage now.", &["stage", "phase"])?;
        Ok(Self {
            requests: r.counter_vec(
                Frontend("requests_total"),
                "Requests that ended, by how.",
                &["model", "endpoint", "request_type", "status", "error_type"],
            )?,
            started: r.counter_vec(
                Frontend("requests_started_total"),
                "Requests whose body was read and whose model is known.",
                &["model", "endpoint", "request_type"],
            )?,
            active: r.gauge_vec(Frontend("active_requests"), "Requests from their start to the end of their answer.", model)?,
            inflight: r.gauge_vec(Frontend("inflight_requests"), "Requests that are routed or with a worker.", model)?,
            queued: r.gauge_vec(Frontend("queued_requests"), "Requests that wait for their first token.", model)?,
            disconnected: r.gauge(Frontend("disconnected_clients"), "Clients that went away before the end of their answer, since the start.")?,
            failures: r.counter_vec(Frontend("failures_total"), "Requests that failed, by class and reason.", &["class", "reason"])?,
            rejections: r.counter_vec(Frontend("model_rejection_total"), "Requests refused because of overload.", &["model", "endpoint"])?,
            cancellations: r.counter_vec(
                Frontend("model_cancellation_total"),
                "Requests whose client went away.",
                &["model", "endpoint", "request_type"],
            )?,
            ignored_fields: r.counter(Full("roost_ignored_fields_total"), "Members of requests that are not known and were ignored.")?,
            connections: ConnectionFamilies {
                open: r.gauge(Full("roost_http_connections"), "Open connections of clients.")?,
                severed: r.counter_vec(
                    Full("roost_http_connections_severed_total"),
                    "Connections of clients that were ended from this side, by why.",
                    &connections::REASON,
                )?,
            },
            duration: r.histogram_vec(
                Frontend("request_duration_seconds"),
                "Seconds from the start of a request to its end.",
                model,
                &options.request_duration,
            )?,
            time_to_first_token: r.histogram_vec(
                Frontend("time_to_first_token_seconds"),
                "Seconds from the start of a request to its first token.",
                model,
                &options.time_to_first_token,
            )?,
            inter_token_latency: r.histogram_vec(
                Frontend("inter_token_latency_seconds"),
                "Seconds between tokens; a gap before several tokens is shared among them.",
                model,
                &options.inter_token_latency,
            )?,
            input_tokens: r.histogram_vec(Frontend("input_sequence_tokens"), "Tokens of a prompt.", model, &options.input_sequence)?,
            output_tokens: r.histogram_vec(Frontend("output_sequence_tokens"), "Tokens of an answer.", model, &options.output_sequence)?,
            cached_tokens: r.histogram_vec(
                Frontend("cached_tokens"),
                "Tokens of a prompt that the worker had cached, as it reports.",
                model,
                &options.input_sequence,
            )?,
            output_total: r.counter_vec(Frontend("output_tokens_total"), "Tokens of all answers.", model)?,
            tokenize_latency: latency.with_label_values(&["tokenize"]),
            detokenize_latency: latency.with_label_values(&["detokenize"]),
            tokenize: r.histogram(Fixed("tokenize_seconds"), "Seconds to turn a prompt into tokens.", &fine[..9])?,
            template: r.histogram(
                Fixed("template_seconds"),
                "Seconds to render a prompt.",
                &[0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05],
            )?,
            detokenize_us: r.counter(Fixed("detokenize_total_us"), "Microseconds spent on turning tokens into text.")?,
            detokenize_tokens: r.counter(Fixed("detokenize_token_count"), "Tokens turned into text.")?,
            stage_duration: Stage::ALL.map(|stage| stages.with_label_values(&[stage.duration_label()])),
            stage_requests: Stage::ALL.map(|stage| staged.with_label_values(&stage.request_labels())),
            retries: r.counter_vec(
                Frontend("model_migration_total"),
                "Requests tried on another worker.",
                &["migration_type", "model"],
            )?,
            retry_duration: r.histogram_vec(
                Frontend("model_migration_duration_seconds"),
                "Seconds from the first failure of a request to its first item from another worker, or to its end.",
                &["migration_type", "model", "outcome"],
                &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0],
            )?,
            too_long_to_migrate: r.counter_vec(
                Frontend("model_migration_max_seq_len_exceeded_total"),
                "Broken answers that were not continued because they were too long.",
                &["model"],
            )?,
            local_prefills: r.counter_vec(
                Full("roost_local_prefills_total"),
                "Prompts that a decode worker computed itself although there were prefill workers.",
                &["model"],
            )?,
            cached_by_tier: r.counter_vec(
                Full("roost_engine_cached_tokens_total"),
                "Prompt tokens that engines found in their caches, by tier: device, host, storage, or untold.",
                &["model", "tier"],
            )?,
            card: CardFamilies::register(r)?,
            router: RouterFamilies::register(r, options)?,
            workers: Workers::register(r, options)?,
            pool: PoolFamilies::register(r)?,
            queue: QueueFamilies::register(r)?,
            kv_blocks: KvBlocks::register(r)?,
            plane: PlaneFamilies::register(r)?,
            cluster: ClusterFamilies::register(r)?,
            prompt_cache: PromptCacheFamilies::register(r)?,
            traced: traced(r)?,
            spans: spans(r)?,
            ingress: IngressFamilies::register(r, options)?,
            overhead: OverheadFamilies::register(r, options)?,
            runtime: RuntimeFamilies::register(r, options.router_id)?,
            held: r.gauge(Full("roost_held_requests"), "Requests that wait for their model to become ready.")?,
            prepare_waiting: r.gauge(Full("roost_prepare_waiting"), "Requests that wait for a thread to render and tokenize.")?,
        })
    }
}

impl CardFamilies {
    fn register(r: &Registry) -> Result<Self, Error> {
        let gauge = |name, help| r.gauge_vec(Name::Frontend(name), help, &["model"]);
        Ok(Self {
            context_length: gauge("model_context_length", "Tokens of prompt and answer together.")?,
            block_size: gauge("model_kv_cache_block_size", "Tokens per KV block.")?,
            total_kv_blocks: gauge("model_total_kv_blocks", "KV blocks per rank.")?,
            max_num_seqs: gauge("model_max_num_seqs", "Requests a rank runs at once.")?,
            max_num_batched_tokens: gauge("model_max_num_batched_tokens", "Tokens a rank computes at once.")?,
            migration_limit: gauge("model_migration_limit", "Retries a request may have.")?,
            ready: gauge("model_ready", "1 while the model can be served.")?,
            mismatched_pages: r.gauge_vec(
                Name::Full("roost_kv_block_size_mismatched_workers"),
                "Workers whose KV events are in vain: their blocks have another size than prompts are cut into, or are hashed another way (EAGLE).",
                &["model"],
            )?,
        })
    }
}

impl RouterFamilies {
    fn register(r: &Registry, options: &MetricsOptions) -> Result<Self, Error> {
        let id = options.router_id.to_string();
        let identity = [options.namespace.clone(), options.component.clone(), id.clone(), id];
        let counter = |name, help| {
            Ok::<_, Error>(r.counter_vec(Name::Full(name), help, &ROUTER)?.with_label_values(&identity))
        };
        let histogram = |name, help, bounds: &[f64]| {
            Ok::<_, Error>(
                r.histogram_vec(Name::Full(name), help, &ROUTER, bounds)?.with_label_values(&identity),
            )
        };
        let of_model = |name, help| r.counter_vec(Name::Full(name), help, &ROUTER_MODEL);
        let with_type = ["dynamo_namespace", "dynamo_component", "worker_id", "router_id", "worker_type"];
        let lost = r.histogram_vec(
            Name::Full("dynamo_component_router_overlap_blocks_lost"),
            "Blocks by which the worker with most of a prompt cached was ahead of the chosen one, where it was another.",
            &with_type,
            &buckets::exponential(0.25, 2.0, 16),
        )?;
        let lost = |kind| {
            let values: Vec<&str> = identity.iter().map(String::as_str).chain([kind]).collect();
            lost.with_label_values(&values)
        };
        Ok(Self {
            started: counter(
                "dynamo_component_router_requests_started_total",
                "Requests given to the router.",
            )?,
            finished: counter(
                "dynamo_component_router_requests_total",
                "Requests the router has finished with.",
            )?,
            time_to_first_token: histogram(
                "dynamo_component_router_time_to_first_token_seconds",
                "Seconds from the start of a request to its first token.",
                &buckets::logarithmic(0.001, 480.0, 18),
            )?,
            inter_token_latency: histogram(
                "dynamo_component_router_inter_token_latency_seconds",
                "Mean seconds between the tokens of an answer.",
                &buckets::logarithmic(0.001, 2.0, 13),
            )?,
            output_tokens: histogram(
                "dynamo_component_router_output_sequence_tokens",
                "Tokens of an answer.",
                &buckets::logarithmic(50.0, 32_000.0, 10),
            )?,
            hit_rate: histogram(
                "dynamo_component_router_kv_hit_rate",
                "Part of a prompt that the chosen worker is expected to have cached.",
                &buckets::linear(0.0, 0.05, 21),
            )?,
            transfer: histogram(
                "dynamo_component_router_kv_transfer_estimated_latency_seconds",
                "Seconds from the end of a prompt's computation to the first token from another worker.",
                &buckets::logarithmic(0.001, 10.0, 15),
            )?,
            overlap_lost: [WorkerType::Prefill, WorkerType::Decode].map(|kind| lost(kind.as_str())),
            input_tokens: r.histogram_vec(
                Name::Full("dynamo_component_router_input_sequence_tokens"),
                "Tokens of a prompt.",
                &ROUTER_MODEL,
                &buckets::logarithmic(50.0, 128_000.0, 12),
            )?,
            reused: of_model(
                "dynamo_component_router_kv_worker_reused_tokens_total",
                "Prompt tokens that workers report to have had cached.",
            )?,
            best: of_model(
                "dynamo_component_router_kv_best_eligible_cached_prefix_tokens_total",
                "Prompt tokens cached on the eligible worker that had most of them.",
            )?,
            selected: of_model(
                "dynamo_component_router_kv_selected_cached_prefix_tokens_total",
                "Prompt tokens cached on the chosen worker.",
            )?,
            non_max: r.counter_vec(
                Name::Full("dynamo_component_router_non_max_overlap_selections_total"),
                "Requests that went to another worker than the one with most of the prompt cached.",
                &with_type,
            )?,
            identity,
        })
    }

    /// Prompt lengths of a model.
    pub(super) fn input_tokens(&self, model: &str, phase: &str) -> Histogram {
        self.input_tokens.with_label_values(&self.with(&[model, phase]))
    }

    /// Cached tokens that workers of a model report.
    pub(super) fn reused(&self, model: &str, phase: &str) -> IntCounter {
        self.reused.with_label_values(&self.with(&[model, phase]))
    }

    /// Cached tokens on the best worker.
    pub(super) fn best(&self, model: &str, phase: &str) -> IntCounter {
        self.best.with_label_values(&self.with(&[model, phase]))
    }

    /// Cached tokens on the chosen worker.
    pub(super) fn selected(&self, model: &str, phase: &str) -> IntCounter {
        self.selected.with_label_values(&self.with(&[model, phase]))
    }

    /// Choices of another worker than the best.
    pub(super) fn non_max(&self, worker_type: &str) -> IntCounter {
        self.non_max.with_label_values(&self.with(&[worker_type]))
    }

    fn with<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.identity.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }
}

impl PoolFamilies {
    fn register(r: &Registry) -> Result<Self, Error> {
        let counter = |name, help| r.counter_vec(Name::Full(name), help, &POOL);
        let by = |name, help, label| r.counter_vec(Name::Full(name), help, &["model", "worker_type", label]);
        let gauge = |name, help| r.gauge_vec(Name::Full(name), help, &POOL);
        Ok(Self {
            placed: counter("roost_router_placed_total", "Requests given a worker.")?,
            rejected: by("roost_router_rejected_total", "Requests given no worker, by reason.", "reason")?,
            turns: by(
                "roost_affinity_turns_total",
                "Turns of sessions: hit stayed with its worker, new is a first turn, followed came while the first was \
                 being placed, unbound found the table full of running sessions.",
                "outcome",
            )?,
            rebinds: by(
                "roost_affinity_rebinds_total",
                "Sessions that had to leave their worker, by reason.",
                "reason",
            )?,
            ended: by(
                "roost_affinity_ended_total",
                "Bindings that ended: expired by idle time, evicted by new ones, or closed by their session.",
                "reason",
            )?,
            told: by(
                "roost_affinity_replica_bindings_total",
                "Bindings told by other frontends or read after a restart: imported, confirmed what was known, or \
                 ignored.",
                "result",
            )?,
            untold: counter(
                "roost_affinity_replica_dropped_total",
                "Events for other frontends that were dropped because nobody took them.",
            )?,
            table_bytes: gauge(
                "roost_affinity_table_bytes",
                "Memory of the table of bindings in bytes, the ids not included.",
            )?,
            waiting_bindings: gauge(
                "roost_affinity_waiting_bindings",
                "Bindings kept until their worker joins.",
            )?,
            remote_requests: gauge(
                "roost_router_remote_requests",
                "Running requests that other frontends placed and that count as load here.",
            )?,
            saved: counter(
                "roost_router_cached_tokens_total",
                "Prompt tokens that were cached on the chosen worker.",
            )?,
            lost: counter(
                "roost_router_lost_tokens_total",
                "Prompt tokens that were cached on a better worker than the chosen one.",
            )?,
            spread_lost: counter(
                "roost_router_spread_lost_tokens_total",
                "Of the lost tokens, those given up so that new sessions spread over the workers.",
            )?,
            bookings_expired: counter(
                "roost_router_bookings_expired_total",
                "Bookings of other frontends' requests dropped because nothing was heard of them.",
            )?,
            worker_failures: counter(
                "roost_router_worker_failures_total",
                "Failures of workers that led to their quarantine.",
            )?,
            index_blocks: gauge("roost_index_blocks", "Distinct KV blocks in the index.")?,
            index_residencies: gauge(
                "roost_index_residencies",
                "KV blocks in the index, counted once per holder.",
            )?,
            index_bytes: gauge("roost_index_bytes", "Memory of the index in bytes, estimated.")?,
            index_skipped: counter(
                "roost_index_skipped_events_total",
                "Stored events that followed no known block.",
            )?,
        })
    }
}

impl KvBlocks {
    fn register(r: &Registry) -> Result<Self, Error> {
        let blocks = r.counter_vec(
            Name::Full("roost_kv_blocks_total"),
            "Blocks in KV events, by what they changed.",
            &["change"],
        )?;
        let change = |change| blocks.with_label_values(&[change]);
        Ok(Self {
            stored: change("stored"),
            duplicate: change("duplicate"),
            skipped: change("skipped"),
            removed: change("removed"),
            unknown_removed: change("unknown_removed"),
        })
    }
}

impl PlaneFamilies {
    fn register(r: &Registry) -> Result<Self, Error> {
        let by = |name, help, label| r.counter_vec(Name::Full(name), help, &[label]);
        Ok(Self {
            calls: r.counter(Name::Full("roost_plane_calls_total"), "Requests sent to workers.")?,
            acks: by("roost_plane_acks_total", "Acknowledgements of workers, by what they say.", "result")?,
            deadlines: by("roost_plane_deadlines_total", "Waits for workers that took too long.", "wait")?,
            failures: by("roost_plane_failures_total", "Requests that did not reach a worker.", "failure")?,
            inflight: r.gauge(
                Name::Full("dynamo_request_plane_inflight_requests"),
                "Requests that are routed or with a worker.",
            )?,
            first_item: r.histogram(
                Name::Full("dynamo_request_plane_roundtrip_ttft_seconds"),
                "Seconds from the routing of a request to the worker's first item.",
                &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0],
            )?,
            queue: r.histogram(
                Name::Full("dynamo_request_plane_queue_seconds"),
                "Seconds to encode a request for its worker.",
                &[0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0],
            )?,
            send: r.histogram(
                Name::Full("dynamo_request_plane_send_seconds"),
                "Seconds from there until the worker has accepted the request, or will not.",
                &[0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0],
            )?,
            received_bytes: r.counter(
                Name::Full("dynamo_transport_tcp_bytes_received_total"),
                "Bytes of answers read from workers.",
            )?,
            accept_pauses: r.counter(
                Name::Full("dynamo_transport_tcp_accept_backoff_total"),
                "Times that connections of workers could not be accepted for a moment.",
            )?,
            connections: r.gauge(Name::Full("roost_plane_connections"), "Open connections to workers.")?,
            sent_bytes: r.counter(Name::Full("dynamo_transport_tcp_bytes_sent_total"), "Bytes of requests sent to workers.")?,
            errors: r.counter(
                Name::Full("dynamo_transport_tcp_errors_total"),
                "Requests that failed on their way: no connection, no acknowledgement in time, connection lost.",
            )?,
        })
    }
}

impl ClusterFamilies {
    fn register(r: &Registry) -> Result<Self, Error> {
        let counter = |name, help| r.counter(Name::Full(name), help);
        let by_result = |name, help| r.counter_vec(Name::Full(name), help, &["result"]);
        let gauge = |name, help| r.gauge(Name::Full(name), help);
        Ok(Self {
            events: by_result(
                "roost_kv_events_total",
                "KV events of workers: applied; ignored, because they concern other caches; stale, because they were \
                 seen before; foreign, because they name another rank than their source's.",
            )?,
            gaps: counter("roost_kv_event_gaps_total", "Gaps in the numbers of a rank's KV events.")?,
            recoveries: by_result(
                "roost_kv_recoveries_total",
                "Questions to a worker for what it holds, by how they ended.",
            )?,
            overflows: counter(
                "roost_kv_recovery_overflows_total",
                "KV events given up because too many waited for a recovery.",
            )?,
            late: counter("roost_event_late_messages_total", "Messages of workers that had gone.")?,
            undecodable: counter(
                "roost_event_undecodable_messages_total",
                "Messages that could not be read.",
            )?,
            bad_records: counter(
                "roost_discovery_bad_records_total",
                "Discovery records that could not be used.",
            )?,
            announced: by_result(
                "roost_replica_events_total",
                "Bindings and steps of requests for other frontends: published, or dropped since too many waited.",
            )?,
            forgotten: counter(
                "roost_kv_ranks_forgotten_total",
                "Times that a rank's blocks were forgotten because KV events were lost for good.",
            )?,
            holes: gauge(
                "roost_kv_ranks_with_holes",
                "Ranks whose blocks are known in part, because their worker does not say what was missed.",
            )?,
            lag: gauge(
                "roost_kv_event_lag_milliseconds",
                "Age of the newest message of KV events when it was read, by the clocks of both sides.",
            )?,
            ambiguous: gauge(
                "roost_kv_ambiguous_ranks",
                "Ranks with more than one source of KV events; they are not indexed.",
            )?,
            silent: gauge("roost_kv_silent_workers", "Workers that ought to publish KV events and do not.")?,
            subscriptions: gauge("roost_event_subscriptions", "Event publishers that are followed.")?,
            connected: gauge("roost_event_connections", "Event publishers that are connected.")?,
            joined: counter("roost_discovery_joined_total", "Workers that joined.")?,
            left: counter("roost_discovery_left_total", "Workers that left.")?,
            store_unreachable: r.float_gauge(
                Name::Full("roost_discovery_unreachable_seconds"),
                "For how long the discovery store has been out of reach; 0 while it can be read. The last known workers stay.",
            )?,
        })
    }
}

fn traced(r: &Registry) -> Result<[IntCounter; 3], Error> {
    let records = r.counter_vec(
        Name::Full("roost_trace_records_total"),
        "Records of the request trace: written, dropped because too many waited, failed because the file could not be \
         written.",
        &["result"],
    )?;
    Ok(["written", "dropped", "failed"].map(|result| records.with_label_values(&[result])))
}

fn spans(r: &Registry) -> Result<[IntCounter; 3], Error> {
    let spans = r.counter_vec(
        Name::Full("roost_spans_total"),
        "Spans for the collector: exported, dropped because too many waited, failed because it did not take them.",
        &["result"],
    )?;
    Ok(["exported", "dropped", "failed"].map(|result| spans.with_label_values(&[result])))
}
