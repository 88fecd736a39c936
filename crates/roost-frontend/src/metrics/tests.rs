//! The guard's books, and what is taken over from elsewhere.

mod families;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use roost_cluster::events::SocketStats;
use roost_kv::{WorkerId, WorkerRank};
use roost_router::{RankSnapshot, RebindReason, Snapshot, Stats};

use super::*;

const MODEL: &str = "org/model";
const OF_COMPONENT: &str = "dynamo_component=\"backend\",dynamo_namespace=\"dynamo\"";

struct Bench {
    registry: Registry,
    metrics: Metrics,
    model: Arc<ModelMetrics>,
}

impl Bench {
    fn new() -> Self {
        let registry = Registry::default();
        let metrics = Metrics::new(&registry, &MetricsOptions::default()).expect("names are unique");
        let model = metrics.model(MODEL);
        Self { registry, metrics, model }
    }

    fn guard(&self, received: Instant) -> RequestGuard {
        RequestGuard::new(Arc::clone(&self.model), Endpoint::ChatCompletions, RequestKind::Stream, received)
    }

    /// The value of a series as it is exported; `None` if there is no such series.
    fn value(&self, series: &str) -> Option<f64> {
        let text = String::from_utf8(self.registry.encode()).expect("the format is text");
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    #[track_caller]
    fn check(&self, series: &str, expected: f64) {
        assert_eq!(self.value(series), Some(expected), "{series}");
    }

    #[track_caller]
    fn check_ended(&self, status: &str, error_type: &str, expected: f64) {
        self.check(
            &format!(
                "dynamo_frontend_requests_total{{endpoint=\"chat_completions\",error_type=\"{error_type}\",\
                 model=\"{MODEL}\",request_type=\"stream\",status=\"{status}\"}}"
            ),
            expected,
        );
    }

    #[track_caller]
    fn check_idle(&self) {
        for gauge in ["active_requests", "inflight_requests", "queued_requests"] {
            self.check(&format!("dynamo_frontend_{gauge}{{model=\"{MODEL}\"}}"), 0.0);
        }
        for stage in Stage::ALL {
            let [stage, phase] = stage.request_labels();
            self.check(
                &format!("dynamo_frontend_stage_requests{{phase=\"{phase}\",stage=\"{stage}\"}}"),
                0.0,
            );
        }
        self.check("dynamo_request_plane_inflight_requests", 0.0);
        assert_eq!(self.metrics.active_requests(), 0);
    }
}

fn rank(worker: u64) -> WorkerRank {
    WorkerRank { worker: WorkerId(worker), dp_rank: 0 }
}

fn of_model(family: &str) -> String {
    format!("dynamo_frontend_{family}{{model=\"{MODEL}\"}}")
}

#[test]
fn an_answer_of_several_frames() {
    let bench = Bench::new();
    let received = Instant::now();
    let mut guard = bench.guard(received);
    bench.check(&of_model("active_requests"), 1.0);
    bench.check(&of_model("queued_requests"), 1.0);
    bench.check("dynamo_frontend_stage_requests{phase=\"\",stage=\"preprocess\"}", 1.0);
    guard.rendered(Duration::from_millis(2));
    guard.tokenized(Duration::from_millis(3));
    guard.prepared(100_000);
    bench.check(&of_model("inflight_requests"), 1.0);
    bench.check("dynamo_frontend_stage_requests{phase=\"aggregated\",stage=\"dispatch\"}", 1.0);
    guard.routed(rank(7), 75_000);
    bench.check("dynamo_frontend_stage_duration_seconds_count{stage=\"transport_roundtrip\"}", 1.0);
    guard.tokens(1, received + Duration::from_millis(500));
    bench.check(&of_model("queued_requests"), 0.0);
    bench.check(&of_model("active_requests"), 1.0);
    guard.tokens(4, received + Duration::from_millis(700));
    guard.cached(74_000);
    guard.finish(Outcome::Success);
    drop(guard);

    bench.check_ended("success", "", 1.0);
    bench.check_ended("error", "cancelled", 0.0);
    bench.check_idle();
    bench.check(&of_model("output_tokens_total"), 5.0);
    bench.check(&of_model("time_to_first_token_seconds_sum"), 0.5);
    bench.check(&of_model("inter_token_latency_seconds_count"), 4.0);
    bench.check(&of_model("inter_token_latency_seconds_sum"), 0.2);
    bench.check(&of_model("input_sequence_tokens_sum"), 100_000.0);
    bench.check(&of_model("output_sequence_tokens_sum"), 5.0);
    bench.check(&of_model("cached_tokens_sum"), 74_000.0);
    bench.check(&of_model("request_duration_seconds_count"), 1.0);
    bench.check("dynamo_frontend_tokenizer_latency_ms_sum{operation=\"tokenize\"}", 3.0);
    bench.check("dynamo_frontend_template_seconds_sum", 0.002);
    bench.check("dynamo_frontend_disconnected_clients", 0.0);
    let worker = "{dp_rank=\"0\",worker_id=\"7\",worker_type=\"decode\"}";
    bench.check(&format!("dynamo_frontend_worker_last_time_to_first_token_seconds{worker}"), 0.5);
    bench.check(&format!("dynamo_frontend_worker_last_inter_token_latency_seconds{worker}"), 0.05);
    bench.check(&format!("dynamo_frontend_worker_last_input_sequence_tokens{worker}"), 100_000.0);
    let router = "{dynamo_component=\"backend\",dynamo_namespace=\"dynamo\",router_id=\"0\",worker_id=\"0\"}";
    bench.check(&format!("dynamo_component_router_kv_hit_rate_sum{router}"), 0.75);
    bench.check(&format!("dynamo_component_router_requests_total{router}"), 1.0);
}

#[test]
fn what_the_worker_says_of_lengths_wins_over_counting() {
    let bench = Bench::new();
    let mut guard = bench.guard(Instant::now());
    guard.prepared(10);
    guard.tokens(3, Instant::now());
    guard.usage(12, 4, None);
    guard.finish(Outcome::Success);
    bench.check(&of_model("output_sequence_tokens_sum"), 4.0);
    assert_eq!(bench.value(&of_model("cached_tokens_count")), Some(0.0));
}

#[test]
fn every_way_to_end_leaves_nothing_behind() {
    let bench = Bench::new();
    for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
        // In turn: before it is prepared, before its first token, in mid-stream.
        let mut guard = bench.guard(Instant::now());
        if index % 3 > 0 {
            guard.prepared(10);
            guard.routed(rank(1), 0);
        }
        if index % 3 > 1 {
            guard.tokens(1, Instant::now());
        }
        guard.finish(outcome);
        guard.finish(Outcome::Success);
        drop(guard);
        bench.check_idle();
        bench.check_ended(outcome.status(), outcome.error_type(), 1.0);
    }
    bench.check(&of_model("request_duration_seconds_count"), Outcome::ALL.len() as f64);
    let started = "endpoint=\"chat_completions\",model=\"org/model\",request_type=\"stream\"";
    bench.check(&format!("dynamo_frontend_requests_started_total{{{started}}}"), Outcome::ALL.len() as f64);
    bench.check(&format!("dynamo_frontend_model_cancellation_total{{{started}}}"), 1.0);
    let rejected = "dynamo_frontend_model_rejection_total{endpoint=\"chat_completions\",model=\"org/model\"}";
    bench.check(rejected, 1.0);
    // A client that left is no failure.
    assert_eq!(
        bench.value("dynamo_frontend_failures_total{class=\"Cancelled\",reason=\"request.cancelled\"}"),
        None
    );
    bench.check("dynamo_frontend_failures_total{class=\"NotFound\",reason=\"request.not_found\"}", 1.0);
}

#[test]
fn a_client_that_leaves_is_counted_once_as_cancelled() {
    let bench = Bench::new();
    drop(bench.guard(Instant::now()));
    let mut streaming = bench.guard(Instant::now());
    streaming.prepared(10);
    streaming.tokens(2, Instant::now());
    drop(streaming);
    bench.check_ended("error", "cancelled", 2.0);
    bench.check("dynamo_frontend_disconnected_clients", 2.0);
    bench.check_idle();
}

#[test]
fn a_panic_closes_the_books() {
    let bench = Bench::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut guard = bench.guard(Instant::now());
        guard.prepared(10);
        panic!("a handler that breaks");
    }));
    assert!(panicked.is_err());
    bench.check_idle();
    bench.check_ended("error", "cancelled", 1.0);
}

#[test]
fn a_failure_has_the_labels_it_was_given() {
    let bench = Bench::new();
    let mut guard = bench.guard(Instant::now());
    guard.failure(("Unavailable", "transport.cannot_connect"));
    guard.finish(Outcome::Error(ErrorType::Unavailable));
    bench.check(
        "dynamo_frontend_failures_total{class=\"Unavailable\",reason=\"transport.cannot_connect\"}",
        1.0,
    );
}

#[test]
fn free_text_of_clients_makes_no_series() {
    let bench = Bench::new();
    let error = |status| ApiError::new(status, "no");
    bench.metrics.refused(Endpoint::Completions, RequestKind::Unary, &error(404));
    let before = bench.registry.series();
    for index in 0..2000 {
        let named = ApiError::model_not_found(&format!("model \"{index}\"\n"));
        bench.metrics.refused(Endpoint::Completions, RequestKind::Unary, &named);
    }
    assert_eq!(bench.registry.series(), before);
    let labels = "endpoint=\"completions\",error_type=\"not_found\",model=\"unknown_model\",request_type=\"unary\",\
                  status=\"error\"";
    bench.check(&format!("dynamo_frontend_requests_total{{{labels}}}"), 2001.0);
    bench.metrics.refused(Endpoint::Completions, RequestKind::Unary, &error(413));
    bench.check(
        "dynamo_frontend_failures_total{class=\"PayloadTooLarge\",reason=\"request.payload_too_large\"}",
        1.0,
    );
}

/// Values of long agent requests fall into finite buckets that are no more than a factor 2.5 wide.
#[test]
fn long_requests_fall_between_bounds() {
    let bench = Bench::new();
    let cases: [(&str, &[f64]); 4] = [
        ("dynamo_frontend_request_duration_seconds", &[0.02, 0.2, 2.0, 20.0, 700.0]),
        ("dynamo_frontend_time_to_first_token_seconds", &[0.02, 0.2, 2.0, 20.0, 700.0]),
        ("dynamo_frontend_input_sequence_tokens", &[250.0, 10_000.0, 300_000.0, 900_000.0]),
        ("dynamo_frontend_output_sequence_tokens", &[250.0, 10_000.0, 100_000.0]),
    ];
    for (name, values) in cases {
        let families = bench.registry.families();
        let family = families.iter().find(|family| family.name == name).expect("the family is registered");
        for value in values {
            let above = family.buckets.partition_point(|bound| bound < value);
            assert!(above < family.buckets.len(), "{name}: {value} is beyond the last bound");
            let (low, high) = (family.buckets[above - 1], family.buckets[above]);
            assert!(high / low <= 2.5, "{name}: {value} falls between {low} and {high}");
        }
    }
    let bounds = MetricsOptions::default().request_duration;
    assert!(bounds[1] < 2.0, "{bounds:?}");
}

fn pool(stats: Stats, ranks: &[WorkerRank]) -> PoolSample<'static> {
    let ranks = ranks.iter().map(|rank| RankSnapshot {
        rank: *rank,
        bindings: 3,
        active_blocks: 40,
        prefill_tokens: 500,
        active_requests: 2,
        placed: 5,
        asked_tokens: 700,
        cached_tokens: 300,
        used_blocks: None,
        total_blocks: None,
        busy: true,
        quarantined: false,
        draining: false,
    });
    PoolSample {
        model: MODEL,
        version: "1",
        worker_type: WorkerType::Decode,
        target: ["ns", "backend", "generate"],
        without_events: 1,
        router: Snapshot { stats, ranks: ranks.collect(), ..Snapshot::default() },
        index: roost_kv::IndexStats { blocks: 9, bytes: 900, ..roost_kv::IndexStats::default() },
    }
}

#[test]
fn what_routers_count_is_taken_over_and_only_grows() {
    let bench = Bench::new();
    let mut stats = Stats { placed: 5, affinity_hits: 3, best_cached_tokens: 900, ..Stats::default() };
    stats.selected_cached_tokens = 600;
    stats.rebinds[RebindReason::WorkerFailed.index()] = 2;
    let take = |stats| {
        let pools = vec![pool(stats, &[rank(1)])];
        bench.metrics.sample(&Sample { pools, ..Sample::default() });
    };
    take(stats);
    take(stats);
    let of_pool = "model=\"org/model\",worker_type=\"decode\"";
    bench.check(&format!("roost_router_placed_total{{{of_pool}}}"), 5.0);
    bench.check(&format!("roost_router_lost_tokens_total{{{of_pool}}}"), 300.0);
    bench.check(
        "roost_affinity_rebinds_total{model=\"org/model\",reason=\"worker_failed\",worker_type=\"decode\"}",
        2.0,
    );
    bench
        .check("roost_affinity_turns_total{model=\"org/model\",outcome=\"hit\",worker_type=\"decode\"}", 3.0);
    bench.check(&format!("roost_index_blocks{{{of_pool}}}"), 9.0);
    // The pool is made anew and begins at zero: what it counts is added.
    take(Stats { placed: 2, ..Stats::default() });
    bench.check(&format!("roost_router_placed_total{{{of_pool}}}"), 7.0);
    bench.check(&format!("roost_router_lost_tokens_total{{{of_pool}}}"), 300.0);
    // Two versions of the model serve at the same time: the series are the sums.
    let second =
        |placed| PoolSample { version: "2", ..pool(Stats { placed, ..Stats::default() }, &[rank(2)]) };
    for placed in [1, 4] {
        let first = pool(Stats { placed: 2, ..Stats::default() }, &[rank(1)]);
        bench.metrics.sample(&Sample { pools: vec![first, second(placed)], ..Sample::default() });
        bench.check(&format!("roost_router_placed_total{{{of_pool}}}"), 7.0 + placed as f64);
        bench.check(&format!("roost_index_blocks{{{of_pool}}}"), 18.0);
    }
    bench.metrics.sample(&Sample { pools: vec![second(4)], ..Sample::default() });
    bench.check(&format!("roost_router_placed_total{{{of_pool}}}"), 11.0);
    bench.check(&format!("roost_index_blocks{{{of_pool}}}"), 9.0);
    // And gone.
    bench.metrics.sample(&Sample::default());
    bench.check(&format!("roost_router_placed_total{{{of_pool}}}"), 11.0);
    bench.check(&format!("roost_index_blocks{{{of_pool}}}"), 0.0);
    take(Stats { placed: 1, ..Stats::default() });
    bench.check(&format!("roost_router_placed_total{{{of_pool}}}"), 12.0);
}

#[test]
fn series_of_a_worker_leave_with_it() {
    let bench = Bench::new();
    let take = |ranks: &[WorkerRank]| {
        let pools = vec![pool(Stats::default(), ranks)];
        bench.metrics.sample(&Sample { pools, ..Sample::default() });
    };
    take(&[rank(1), rank(2)]);
    let of = |worker: u64| format!("{{dp_rank=\"0\",worker_id=\"{worker}\",worker_type=\"decode\"}}");
    let first = of(1);
    bench.check(&format!("dynamo_frontend_worker_active_decode_blocks{first}"), 40.0);
    bench.check(&format!("dynamo_frontend_worker_active_prefill_tokens{first}"), 500.0);
    bench.check(&format!("roost_affinity_bindings{first}"), 3.0);
    bench.check(&format!("roost_worker_busy{first}"), 1.0);
    let with_both = bench.registry.series();
    take(&[rank(2)]);
    let text = String::from_utf8(bench.registry.encode()).expect("the format is text");
    assert!(!text.contains("worker_id=\"1\""), "series of worker 1 are left");
    assert!(bench.registry.series() < with_both);
    bench.check(&format!("roost_worker_active_requests{}", of(2)), 2.0);
    let registered = "dp_rank=\"0\"";
    bench.check(
        &format!(
            "dynamo_component_router_worker_registered{{{registered},{OF_COMPONENT},router_worker_id=\"2\",\
             worker_id=\"0\",worker_type=\"decode\"}}"
        ),
        1.0,
    );
    assert!(!text.contains("router_worker_id=\"1\""), "worker 1 is registered no more");
}

#[test]
fn the_planes_counters_are_taken_over() {
    let bench = Bench::new();
    let client = roost_wire::ClientStats {
        calls: 4,
        call_home_timeouts: 1,
        connect_failures: 2,
        open_connections: 3,
        ..roost_wire::ClientStats::default()
    };
    let cluster = roost_cluster::ClusterStats {
        kv_gaps: 2,
        kv_events: 8,
        ranks_forgotten: 3,
        ranks_with_holes: 1,
        kv_lag_ms: 40,
        kv_sockets: SocketStats { messages: 5, connected: 1, started: 3, ..SocketStats::default() },
        sequence_sockets: SocketStats { followed: 2, gaps: 4, ..SocketStats::default() },
        ..roost_cluster::ClusterStats::default()
    };
    for _ in 0..2 {
        let listener = roost_wire::ListenerStats { received_bytes: 100, ..Default::default() };
        bench.metrics.sample(&Sample { client, listener, cluster, prepare_waiting: 6, ..Sample::default() });
    }
    bench.check("roost_plane_calls_total", 4.0);
    bench.check("roost_plane_deadlines_total{wait=\"call_home\"}", 1.0);
    bench.check("dynamo_transport_tcp_errors_total", 2.0);
    bench.check("roost_plane_connections", 3.0);
    bench.check("roost_kv_event_gaps_total", 2.0);
    bench.check("roost_kv_ranks_forgotten_total", 3.0);
    bench.check("roost_kv_ranks_with_holes", 1.0);
    bench.check("roost_kv_event_lag_milliseconds", 40.0);
    bench.check("roost_kv_events_total{result=\"applied\"}", 8.0);
    bench.check("roost_prepare_waiting", 6.0);
    let component = format!("{{{OF_COMPONENT},worker_id=\"0\"}}");
    bench.check(&format!("dynamo_component_router_kv_zmq_ingress_batches_total{component}"), 5.0);
    let socket = |label| format!("{{{label},{OF_COMPONENT},worker_id=\"0\"}}");
    let started = socket("action=\"started\"");
    bench.check(&format!("dynamo_component_router_kv_zmq_ingress_lifecycle_total{started}"), 3.0);
    let active = format!("{{{OF_COMPONENT},state=\"active\",worker_id=\"0\"}}");
    bench.check(&format!("dynamo_component_router_kv_zmq_ingress_sources{active}"), 1.0);
    let sequences = "dynamo_component_router_active_sequence_zmq_ingress";
    bench.check(&format!("{sequences}_sources{component}"), 2.0);
    bench.check(&format!("{sequences}_sequence_gaps_total{component}"), 4.0);
    bench.check("dynamo_transport_tcp_bytes_received_total", 100.0);
    assert!(bench.value("dynamo_component_uptime_seconds{worker_id=\"0\"}").is_some_and(|up| up >= 0.0));
}

#[test]
fn what_the_prompt_caches_save() {
    let bench = Bench::new();
    bench.model.prompt(0, 40);
    bench.model.prompt(40, 45);
    let segments = roost_tokenizer::CacheStats {
        hits: 3,
        misses: 1,
        cached_tokens: 30,
        uncached_tokens: 9,
        entries: 1,
        bytes: 116,
    };
    for _ in 0..2 {
        bench.metrics.sample(&Sample { segments, session_bytes: 500, ..Sample::default() });
    }
    for (name, session, segment) in [
        ("hits_total", 1.0, 3.0),
        ("misses_total", 1.0, 1.0),
        ("reused_tokens_total", 40.0, 30.0),
        ("new_tokens_total", 45.0, 9.0),
        ("bytes", 500.0, 116.0),
    ] {
        bench.check(&format!("roost_prompt_cache_{name}{{cache=\"session\"}}"), session);
        bench.check(&format!("roost_prompt_cache_{name}{{cache=\"segment\"}}"), segment);
    }
    bench.check("dynamo_frontend_tokenizer_cache_hits_total", 1.0);
    bench.check("dynamo_frontend_tokenizer_cache_misses_total", 1.0);
    bench.check(&of_model("tokenizer_cache_cached_tokens_total"), 40.0);
    bench.check(&of_model("tokenizer_cache_uncached_tokens_total"), 45.0);
}

#[test]
fn small_counters() {
    let bench = Bench::new();
    bench.metrics.ignored_fields(3);
    bench.model.migrated(Migration::NewRequest);
    bench.model.migration_ended(Migration::NewRequest, Duration::from_millis(30), true);
    bench.model.ready(true);
    let orphans = Applied { stored: 5, skipped: 1, ..Applied::default() };
    bench.metrics.kv_applied(&KvEventData::Stored { parent: None, blocks: Vec::new() }, &orphans);
    drop(bench.metrics.stage(Stage::Route));
    bench.check("roost_ignored_fields_total", 3.0);
    bench.check(
        "dynamo_frontend_model_migration_total{migration_type=\"new_request\",model=\"org/model\"}",
        1.0,
    );
    bench.check(
        "dynamo_frontend_model_migration_duration_seconds_count{migration_type=\"new_request\",model=\"org/model\",\
         outcome=\"success\"}",
        1.0,
    );
    bench.check(&of_model("model_ready"), 1.0);
    bench.check("roost_kv_blocks_total{change=\"stored\"}", 5.0);
    bench.check("dynamo_frontend_stage_duration_seconds_count{stage=\"route\"}", 1.0);
    bench.check_idle();
}

#[test]
fn kv_events_count_by_what_came_of_them() {
    let bench = Bench::new();
    let stored = KvEventData::Stored { parent: None, blocks: Vec::new() };
    let removed = KvEventData::Removed { blocks: Vec::new() };
    let whole = Applied::default();
    bench.metrics.kv_applied(&stored, &Applied { stored: 2, duplicate: 1, ..whole });
    bench.metrics.kv_applied(&stored, &Applied { skipped: 1, ..whole });
    bench.metrics.kv_applied(&removed, &Applied { removed: 2, ..whole });
    bench.metrics.kv_applied(&removed, &Applied { removed: 1, unknown_removed: 1, ..whole });
    bench.metrics.kv_applied(&removed, &Applied { unknown_removed: 1, ..whole });
    bench.metrics.kv_applied(&KvEventData::Cleared, &whole);
    for (kind, status, count) in [
        ("stored", "ok", 1.0),
        ("stored", "parent_block_not_found", 1.0),
        ("removed", "ok", 1.0),
        ("removed", "block_not_found", 2.0),
        ("cleared", "ok", 1.0),
    ] {
        let labels = format!("{OF_COMPONENT},event_type=\"{kind}\",status=\"{status}\",worker_id=\"0\"");
        bench.check(&format!("dynamo_component_kv_cache_events_applied{{{labels}}}"), count);
    }
    bench.check(
        &format!(
            "dynamo_component_kv_cache_event_warnings{{{OF_COMPONENT},warning_kind=\"duplicate_store\",worker_id=\"0\"}}"
        ),
        1.0,
    );
}

#[test]
fn what_a_placement_costs_and_gives_up() {
    let bench = Bench::new();
    let overhead = Overhead {
        hashing: Duration::from_micros(500),
        finding: Duration::from_micros(250),
        scheduling: Duration::from_micros(250),
    };
    bench.metrics.routed(WorkerType::Prefill, overhead, 3.5);
    bench.metrics.routed(WorkerType::Decode, overhead, 0.0);
    for (name, sum) in
        [("block_hashing", 1.0), ("indexer_find_matches", 0.5), ("scheduling", 0.5), ("total", 2.0)]
    {
        bench.check(&format!("dynamo_router_overhead_{name}_ms_count{{router_id=\"0\"}}"), 2.0);
        bench.check(&format!("dynamo_router_overhead_{name}_ms_sum{{router_id=\"0\"}}"), sum);
    }
    let lost = |kind| format!("{OF_COMPONENT},router_id=\"0\",worker_id=\"0\",worker_type=\"{kind}\"");
    let family = "dynamo_component_router_overlap_blocks_lost";
    bench.check(&format!("{family}_sum{{{}}}", lost("prefill")), 3.5);
    bench.check(&format!("{family}_count{{{}}}", lost("decode")), 0.0);
    bench.metrics.called(Duration::from_millis(1), Duration::from_millis(250));
    bench.check("dynamo_request_plane_queue_seconds_sum", 0.001);
    bench.check("dynamo_request_plane_send_seconds_sum", 0.25);
    bench.metrics.transferred(Duration::from_millis(500));
    let router = format!("{OF_COMPONENT},router_id=\"0\",worker_id=\"0\"");
    bench.check(
        &format!("dynamo_component_router_kv_transfer_estimated_latency_seconds_sum{{{router}}}"),
        0.5,
    );
}

#[test]
fn the_prefix_renames_what_may_be_renamed() {
    let registry = Registry::new("edge");
    let metrics = Metrics::new(&registry, &MetricsOptions::default()).expect("names are unique");
    metrics.model(MODEL);
    let names: Vec<String> = registry.families().into_iter().map(|family| family.name).collect();
    for renamed in [
        "edge_tokenizer_latency_ms",
        "edge_requests_total",
        "edge_time_to_first_token_seconds",
        "edge_model_ready",
    ] {
        assert!(names.contains(&renamed.to_owned()), "{renamed}");
    }
    for fixed in [
        "dynamo_frontend_tokenize_seconds",
        "dynamo_frontend_stage_requests",
        "dynamo_frontend_worker_active_decode_blocks",
    ] {
        assert!(names.contains(&fixed.to_owned()), "{fixed}");
    }
}
