//! The families against the peer's, and the reference document.

use std::fmt::Write as _;

use expect_test::expect_file;
use serde_json::Value;

use super::*;

fn peer() -> Vec<Value> {
    let text = include_str!("../../../../../tests/fixtures/http/metrics.json");
    let fixture: Value = serde_json::from_str(text).expect("the fixture is JSON");
    fixture["metrics"].as_array().expect("a list of families").clone()
}

fn peer_buckets(family: &Value) -> Vec<f64> {
    let bounds = family["buckets"].as_array().into_iter().flatten();
    bounds.filter_map(|bound| bound.as_str()?.parse().ok()).filter(|bound: &f64| bound.is_finite()).collect()
}

/// Families with more bounds than the peer's: its own are among them.
const FINER: [&str; 5] = [
    "dynamo_frontend_request_duration_seconds",
    "dynamo_frontend_time_to_first_token_seconds",
    "dynamo_frontend_input_sequence_tokens",
    "dynamo_frontend_output_sequence_tokens",
    "dynamo_frontend_cached_tokens",
];

/// Families of the peer that are not exported, and why; a name that ends with `*` is a beginning.
const LEFT_OUT: [(&str, &[&str]); 7] = [
    (
        "there is no such index: ours counts every block and forgets none",
        &["dynamo_component_ckf_mutation_total"],
    ),
    (
        "the approximate index keeps what was routed for a time, and has no other policy",
        &["dynamo_component_router_approximate_*"],
    ),
    (
        "what other frontends tell is applied in the order of its coming, and waits in its sockets in place of being dropped",
        &[
            "dynamo_component_router_active_sequence_ingress_drain_batches_total",
            "dynamo_component_router_active_sequence_ingress_queue_depth",
            "dynamo_component_router_active_sequence_zmq_ingress_dropped_events_total",
            "dynamo_component_router_active_sequence_zmq_ingress_forced_aborts_total",
            "dynamo_component_router_active_sequence_zmq_ingress_replacements_total",
        ],
    ),
    (
        "there is no lookup in a cache that workers share; their events tell of every tier",
        &[
            "dynamo_component_router_shared_cache_*",
            "dynamo_router_overhead_shared_cache_query_ms",
            "dynamo_router_shared_cache_errors_total",
        ],
    ),
    (
        "prompts are text",
        &[
            "dynamo_frontend_audio_per_request",
            "dynamo_frontend_image*",
            "dynamo_frontend_videos_per_request",
        ],
    ),
    (
        "hashes of blocks and of what is before them are made together (`dynamo_router_overhead_block_hashing_ms`)",
        &["dynamo_router_overhead_seq_hashing_ms"],
    ),
    (
        "tokio tells it only when built with its unstable interface",
        &[
            "dynamo_tokio_blocking_*",
            "dynamo_tokio_budget_forced_yield_total",
            "dynamo_tokio_queue_overload_warnings_total",
            "dynamo_tokio_worker_local_queue_depth",
            "dynamo_tokio_worker_mean_poll_time_ns",
            "dynamo_tokio_worker_overflow_count_total",
            "dynamo_tokio_worker_steal_count_total",
        ],
    ),
];

fn is_left_out(name: &str) -> bool {
    LEFT_OUT.iter().flat_map(|(_, names)| *names).any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *pattern,
    })
}

#[test]
fn every_family_of_the_peer_is_here_and_like_the_peers() {
    let ours = Bench::new().registry.families();
    for theirs in peer() {
        let name = theirs["name"].as_str().expect("a family has a name");
        let family = ours.iter().find(|family| family.name == name);
        assert_ne!(family.is_some(), is_left_out(name), "{name} is either exported or left out");
        let Some(family) = family else { continue };
        assert_eq!(theirs["type"], family.kind.as_str(), "{name}");
        let labels: Vec<_> =
            theirs["labels"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert_eq!(labels, family.labels, "{name}");
        let bounds = peer_buckets(&theirs);
        if FINER.contains(&name) {
            let missing: Vec<_> = bounds.iter().filter(|bound| !family.buckets.contains(bound)).collect();
            assert!(missing.is_empty(), "{name} lacks {missing:?}");
        } else {
            assert_eq!(bounds, family.buckets, "{name}");
        }
    }
}

#[test]
fn series_of_the_guard_have_the_peers_label_values() {
    let peer = peer();
    let family =
        |name: &str| peer.iter().find(|family| family["name"] == name).expect("the family is in the fixture");
    let values = |name: &str, label: &str| -> Vec<String> {
        let values =
            family(name)["observed_label_values"][label].as_array().expect("a list of values").clone();
        values.iter().map(|value| value.as_str().expect("a label value is text").to_owned()).collect()
    };
    let stages = values("dynamo_frontend_stage_duration_seconds", "stage");
    for stage in Stage::ALL {
        assert!(stages.contains(&stage.duration_label().to_owned()), "{stage:?}");
    }
    let endpoints = values("dynamo_frontend_requests_total", "endpoint");
    for endpoint in Endpoint::ALL {
        assert!(endpoints.contains(&endpoint.as_str().to_owned()), "{endpoint:?}");
    }
    let kinds = values("dynamo_frontend_requests_total", "request_type");
    assert_eq!(RequestKind::ALL.map(RequestKind::as_str).to_vec(), kinds);
    let error_types = values("dynamo_frontend_requests_total", "error_type");
    let ours = Outcome::ALL.map(Outcome::error_type);
    for error_type in &error_types {
        assert!(ours.contains(&error_type.as_str()), "{error_type}");
    }
}

#[test]
fn the_reference_document_is_current() {
    expect_file!["../../../../../docs/metrics.md"].assert_eq(&document());
}

/// `docs/metrics.md`.
fn document() -> String {
    let registry = Registry::new("PREFIX");
    registry.build_info("0.0.0").expect("the name is free");
    Metrics::new(&registry, &MetricsOptions::default()).expect("names are unique");
    let families = registry.families();
    let real = |name: &str| name.replacen("PREFIX_", "dynamo_frontend_", 1);
    let mut text = String::from(
        "# Metrics\n\n<!-- Generated from the registered families. Run `UPDATE_EXPECT=1 cargo test -p roost-frontend \
         metrics`. -->\n\n\
         `GET /metrics` answers in the Prometheus text format 0.0.4, without authentication. Label values come from the \
         deployment (cards, workers) and from fixed lists, never from requests; a request that names no known model \
         counts as `unknown_model`. Series of a worker are removed at the first scrape after it has left.\n\n\
         Families marked † follow `--metrics-prefix`; the others keep their names. Families of Dynamo have its names, \
         types and labels, and at least its buckets: the sets of five histograms are finer, because agents' requests \
         would otherwise all fall into one bucket or beyond the last. A variable such as `DYN_METRICS_TTFT_MAX` \
         replaces such a set by Dynamo's logarithmic one.\n",
    );
    for (title, is_ours) in [("Dynamo's families", false), ("Families of roost", true)] {
        let _ =
            write!(text, "\n## {title}\n\n| Family | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n");
        for family in families.iter().filter(|family| family.name.starts_with("roost_") == is_ours) {
            let mark = if family.name.starts_with("PREFIX_") { " †" } else { "" };
            let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(
                text,
                "| `{}`{mark} | {} | {} | {} |",
                real(&family.name),
                family.kind.as_str(),
                labels.join(", "),
                family.help
            );
        }
    }
    text.push_str("\n## Buckets\n\n| Family | Bounds |\n| --- | --- |\n");
    for family in families.iter().filter(|family| !family.buckets.is_empty()) {
        let bounds: Vec<String> = family.buckets.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "| `{}` | {} |", real(&family.name), bounds.join(", "));
    }
    text.push_str("\n## Dynamo's families that are not exported\n\n| Families | Why |\n| --- | --- |\n");
    for (why, names) in LEFT_OUT {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "| {} | {why} |", names.join(", "));
    }
    text
}
