//! Command lines from published recipes, unchanged.

use std::{net::Ipv4Addr, path::PathBuf, time::Duration};

use super::{mock_worker, parse_line, serve};
use crate::{
    AffinityMode, AnswerMode, Command, DiscoveryBackend, HistogramRange, LogFormat, NamespaceFilter,
    RouterMode, TokenizerBackend, WorkerRole,
};

const THRESHOLDS_OFF: &str = "--active-decode-blocks-threshold None --active-prefill-tokens-threshold None \
                              --active-prefill-tokens-threshold-frac None";

const ENVIRONMENT: [(&str, &str); 9] = [
    ("DYN_TOKENIZER", "fastokens"),
    ("DYN_TOKENIZER_CACHE", "1"),
    ("DYN_TOKENIZER_CACHE_BYTES", "8000000000"),
    ("DYN_ROUTER_TEMPERATURE", "0"),
    ("DYN_ROUTER_QUEUE_THRESHOLD", "None"),
    ("DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS", "3600"),
    ("DYN_TCP_CHANNEL_BUFFER", "128"),
    ("DYN_TCP_REQUEST_TIMEOUT", "60"),
    ("DYN_REQUEST_PLANE", "tcp"),
];

#[test]
fn the_recipe_of_october() {
    let line = format!(
        "--http-port=8000 --router-mode kv --router-session-affinity-ttl-secs 14400 {THRESHOLDS_OFF}"
    );
    let serve = serve(&line, &ENVIRONMENT);
    assert_eq!(serve.http.port, 8000);
    assert_eq!(serve.router.mode, RouterMode::Kv);
    assert_eq!(serve.router.affinity.decode_ttl, Some(Duration::from_secs(14_400)));
    assert_eq!(serve.router.affinity.prefill_ttl, Some(Duration::from_secs(14_400)));
    assert_eq!(serve.router.affinity.mode, AffinityMode::Bounded);
    assert_eq!(serve.router.busy.active_decode_blocks, None);
    assert_eq!(serve.router.busy.active_prefill_tokens, None);
    assert_eq!(serve.router.busy.active_prefill_tokens_frac, None);
    assert_eq!(serve.router.cost.temperature, 0.0);
    assert_eq!(serve.router.active_request_expiry, Duration::from_secs(3600));
    assert_eq!(serve.plane.channel_buffer, 128);
    assert_eq!(serve.plane.request_timeout, Duration::from_secs(60));
    assert_eq!(serve.tokenizer.backend, TokenizerBackend::Fastokens);
    assert_eq!((serve.tokenizer.cache, serve.tokenizer.cache_bytes), (true, Some(8_000_000_000)));
    assert!(serve.notices.is_empty(), "{:?}", serve.notices);
}

#[test]
fn the_older_recipe() {
    let line =
        format!("--http-port=8000 --router-mode kv --router-session-affinity-ttl-secs 3600 {THRESHOLDS_OFF}");
    let environment = [
        ("DYN_ROUTER_TEMPERATURE", "10000000"),
        ("DYN_NATS_REQUEST_TIMEOUT_SECS", "60"),
        ("NATS_SERVER", "nats://infra:4222"),
        ("DYN_REQUEST_PLANE", "tcp"),
    ];
    let serve = serve(&line, &environment);
    assert_eq!(serve.router.affinity.decode_ttl, Some(Duration::from_secs(3600)));
    assert_eq!(serve.router.cost.temperature, 10_000_000.0);
    assert!(serve.notices.is_empty(), "{:?}", serve.notices);
}

#[test]
fn nothing_given() {
    let serve = serve("serve", &[]);
    assert_eq!(serve.http.host, Ipv4Addr::UNSPECIFIED);
    assert_eq!(serve.http.port, 8000);
    assert_eq!(serve.http.body_limit_bytes, 45 << 20);
    assert_eq!(serve.http.graceful_shutdown_timeout, Duration::from_secs(5));
    assert_eq!(serve.http.backend_stream_timeout, Some(Duration::from_secs(600)));
    assert_eq!(serve.http.keep_alive_interval, Some(Duration::from_secs(15)));
    assert_eq!(serve.http.overload_status, 529);
    assert_eq!(serve.router.mode, RouterMode::RoundRobin);
    assert_eq!(serve.router.affinity.decode_ttl, None);
    assert_eq!(serve.router.affinity.capacity, 65_536);
    assert!(serve.router.kv_events);
    assert_eq!(serve.router.cost.host_cache_hit_weight, 0.75);
    assert_eq!(serve.router.quarantine, Some(Duration::from_secs(5)));
    assert_eq!(serve.plane.request_timeout, Duration::from_secs(5));
    assert_eq!(serve.plane.max_message_bytes, 32 << 20);
    let DiscoveryBackend::Etcd(etcd) = &serve.discovery.backend else { panic!("Dynamo's default is etcd") };
    assert_eq!(etcd.endpoints, ["http://localhost:2379"]);
    assert_eq!((etcd.lease_ttl, etcd.startup_timeout), (Duration::from_secs(30), Duration::from_secs(120)));
    assert_eq!(etcd.ping_interval, Some(Duration::from_secs(15)));
    assert_eq!((&etcd.user, &etcd.ca, &etcd.client), (&None, &None, &None));
    assert_eq!(serve.discovery.namespaces, NamespaceFilter::All);
    assert_eq!(serve.metrics.prefix, "dynamo_frontend");
    assert_eq!(serve.metrics.time_to_first_token, None);
    assert_eq!(serve.log.format, LogFormat::Console);
    assert_eq!(serve.process.fd_limit_target, Some(8192));
    assert_eq!(serve.effective.changed().count(), 0);
    assert!(serve.notices.is_empty());
}

#[test]
fn affinity_of_one_leg_can_differ_or_be_off() {
    let serve = serve(
        "serve --router-session-affinity-ttl-secs 3600 --router-session-affinity-decode-ttl-secs 0 \
         --router-session-affinity-prefill-ttl-secs 2h --router-session-affinity-mode soft",
        &[],
    );
    assert_eq!(serve.router.affinity.decode_ttl, None);
    assert_eq!(serve.router.affinity.prefill_ttl, Some(Duration::from_secs(7200)));
    assert_eq!(serve.router.affinity.mode, AffinityMode::Soft);
}

#[test]
fn affinity_can_be_off_by_name() {
    let line = "serve --router-session-affinity-ttl-secs 3600 --router-session-affinity-prefill-ttl-secs off";
    let one_leg = serve(line, &[]).router.affinity;
    assert_eq!((one_leg.prefill_ttl, one_leg.decode_ttl), (None, Some(Duration::from_secs(3600))));
    for (name, mode) in [
        ("strict", AffinityMode::Hard),
        ("hard", AffinityMode::Hard),
        ("bounded", AffinityMode::Bounded),
        ("off", AffinityMode::Off),
    ] {
        let serve = serve("serve", &[("DYN_ROUTER_SESSION_AFFINITY_MODE", name)]);
        assert_eq!(serve.router.affinity.mode, mode);
    }
}

#[test]
fn presets_win_over_what_they_stand_for() {
    let load = serve("serve --load-aware --router-kv-events --router-mode random", &[]);
    assert_eq!(load.router.mode, RouterMode::Kv);
    assert!(!load.router.kv_events);
    assert!(!load.router.assume_kv_reuse);
    assert_eq!(load.router.cost.overlap_credit, 0.0);
    let origin = load.effective.get("router-mode").map(|entry| entry.source.to_string());
    assert_eq!(origin.as_deref(), Some("implied by --load-aware"));

    let weight = serve("serve", &[("DYN_OVERLAP_SCORE_WEIGHT", "2.5")]);
    assert_eq!(weight.router.cost.prefill_load_scale, 2.5);
    assert_eq!(weight.router.cost.overlap_credit, 1.0);
    let zero = serve("serve --kv-overlap-score-weight 0", &[]);
    assert_eq!((zero.router.cost.prefill_load_scale, zero.router.cost.overlap_credit), (0.0, 0.0));
}

#[test]
fn a_mock_worker() {
    let worker = mock_worker(
        "mock-worker --role prefill --workers 2 --data-parallel-size 4 --discovery-backend mem --speed 100 \
         --inter-token-latency-ms 2.5 --system-port 0 --answer random --no-kv-events",
        &[("DYN_NAMESPACE", "ns"), ("DYN_TCP_RPC_PORT", "7000")],
    );
    assert_eq!((worker.plane.namespace.as_str(), worker.plane.component), ("ns", None));
    assert_eq!(worker.role, WorkerRole::Prefill);
    assert_eq!((worker.workers, worker.data_parallel_size, worker.plane.port), (2, 4, 7000));
    assert_eq!(worker.plane.system_port, Some(0));
    assert_eq!(worker.inter_token_latency, Duration::from_micros(2500));
    assert_eq!(worker.plane.discovery, DiscoveryBackend::Memory);
    assert_eq!(worker.answer, AnswerMode::Random);
    assert!(!worker.kv_events);
}

#[test]
fn tls_on_the_plane_is_the_same_for_both_ends() {
    let environment = [
        ("DYN_TCP_TLS_CERT_PATH", "/tls/own.pem"),
        ("DYN_TCP_TLS_KEY_PATH", "/tls/own.key"),
        ("DYN_TCP_TLS_CA_CERT_PATH", "/tls/ca.pem"),
        ("DYN_TCP_TLS_CLIENT_CERT_PATH", "/tls/client.pem"),
        ("DYN_TCP_TLS_CLIENT_KEY_PATH", "/tls/client.key"),
        ("DYN_TCP_TLS_CLIENT_CA_CERT_PATH", "/tls/clients.pem"),
        ("DYN_TCP_TLS_SERVER_NAME", "worker.internal"),
        ("DYN_TCP_TLS_HANDSHAKE_TIMEOUT_SECS", "7"),
    ];
    let path = |path: &str| Some(PathBuf::from(path));
    for tls in [serve("serve", &environment).plane.tls, mock_worker("mock-worker", &environment).plane.tls] {
        assert_eq!((tls.cert, tls.key), (path("/tls/own.pem"), path("/tls/own.key")));
        assert_eq!((tls.ca, tls.insecure), (path("/tls/ca.pem"), false));
        assert_eq!((tls.client_cert, tls.client_key), (path("/tls/client.pem"), path("/tls/client.key")));
        assert_eq!(tls.client_ca, path("/tls/clients.pem"));
        assert_eq!(tls.server_name.as_deref(), Some("worker.internal"));
        assert_eq!(tls.handshake_timeout, Duration::from_secs(7));
    }
}

#[test]
fn the_limits_of_a_worker() {
    let limits = |environment: &[(&str, &str)]| {
        let worker = mock_worker("mock-worker", environment);
        (worker.plane.max_active, worker.plane.max_queued)
    };
    assert_eq!(limits(&[]), (10_000, 40_000));
    assert_eq!(limits(&[("DYN_TCP_WORKER_POOL_SIZE", "5"), ("DYN_TCP_WORK_QUEUE_SIZE", "6")]), (5, 6));
    assert_eq!(limits(&[("DYN_ENGINE_REQUEST_LIMIT", "3")]), (3, 16));
    assert_eq!(limits(&[("DYN_ENGINE_REQUEST_LIMIT", "3"), ("DYN_DYNAMO_REQUEST_QUEUE_LIMIT", "0")]), (3, 0));
}

#[test]
fn a_demo() {
    match parse_line("demo --once --port 0", &[]) {
        Ok(Command::Demo(demo)) => {
            assert!(demo.once);
            assert_eq!((demo.host.to_string().as_str(), demo.port, demo.workers), ("127.0.0.1", 0, 2));
        }
        other => panic!("expected options of demo, got {other:?}"),
    }
}

#[test]
fn what_is_not_given_of_a_set_of_buckets_is_dynamos() {
    let environment = [("DYN_METRICS_TTFT_MAX", "900"), ("DYN_METRICS_ITL_COUNT", "5")];
    let metrics = serve("serve", &environment).metrics;
    assert_eq!(metrics.time_to_first_token, Some(HistogramRange { min: 0.001, max: 900.0, count: 18 }));
    assert_eq!(metrics.inter_token_latency, Some(HistogramRange { min: 0.001, max: 80.0, count: 5 }));
    assert_eq!(metrics.request_duration, None);
}
