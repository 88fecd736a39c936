//! From named values to the typed options, and the rules that span several options.

use std::time::Duration;

use super::local_prefill;
use super::{
    AffinityMode, AffinityOptions, BusyThresholds, CostOptions, DiscoveryBackend, DiscoveryOptions,
    DoorOptions, ErrorShape, EtcdOptions, EventOptions, FederationOptions, HistogramRange, HttpOptions,
    KubernetesOptions, LimitOptions, LocalPrefillOptions, LogFormat, LogOptions, MetricsOptions,
    ModelOptions, NamespaceFilter, NatsOptions, PathOptions, PlaneOptions, PlaneTls, ProcessOptions,
    QueueOptions, QueuePolicy, ReasoningField, ReliabilityOptions, RouterMode, RouterOptions, Serve,
    SglangOptions, SpanOptions, TokenizerBackend, TokenizerOptions, TraceOptions, routes, sglang,
};
use crate::{effective::Effective, problem::Problem, resolve::Resolved, value::Value, values::Values};

/// Sets of buckets whose bounds can be chosen, with Dynamo's bounds: what of a set is not given is taken from there.
const RANGES: [(&str, HistogramRange); 5] = [
    ("request-duration", HistogramRange { min: 1.0, max: 512.0, count: 10 }),
    ("input-sequence", HistogramRange { min: 50.0, max: 128_000.0, count: 12 }),
    ("output-sequence", HistogramRange { min: 50.0, max: 32_000.0, count: 10 }),
    ("ttft", HistogramRange { min: 0.001, max: 480.0, count: 18 }),
    ("itl", HistogramRange { min: 0.001, max: 80.0, count: 20 }),
];

/// Options that stand for several others.
pub(crate) fn apply_presets(resolved: &mut Resolved) {
    if let Some(Value::Number(weight)) = resolved.value("router-kv-overlap-score-weight").cloned() {
        const BY: &str = "--router-kv-overlap-score-weight";
        resolved.imply(BY, "router-prefill-load-scale", Value::Number(weight));
        if weight == 0.0 {
            resolved.imply(BY, "router-kv-overlap-score-credit", Value::Number(0.0));
        }
    }
    if resolved.value("load-aware") == Some(&Value::Switch(true)) {
        const BY: &str = "--load-aware";
        resolved.imply(BY, "router-mode", Value::Choice("kv"));
        resolved.imply(BY, "router-kv-overlap-score-credit", Value::Number(0.0));
        resolved.imply(BY, "router-kv-events", Value::Switch(false));
        resolved.imply(BY, "router-assume-kv-reuse", Value::Switch(false));
        resolved.imply(BY, "router-track-active-blocks", Value::Switch(true));
        resolved.imply(BY, "router-track-prefill-tokens", Value::Switch(true));
    }
}

/// Rules that one option alone cannot state.
pub(crate) fn check(resolved: &mut Resolved) {
    local_prefill::check(resolved);
    routes::check(resolved);
    sglang::check(resolved);
    for (name, usual) in RANGES {
        let bound = |end: &str, usual: f64| match resolved.value(&format!("metrics-{name}-{end}")) {
            Some(Value::Number(given)) => *given,
            _ => usual,
        };
        let (min, max) = (bound("min", usual.min), bound("max", usual.max));
        if min >= max {
            let message =
                format!("{min} must be below the highest bound, which is {max} (--metrics-{name}-max)");
            resolved.problems.push(Problem::new(format!("--metrics-{name}-min"), message));
        }
    }
    pair(resolved, "tls-cert-path", "tls-key-path");
    needs(resolved, "tls-client-ca-cert-path", "tls-cert-path");
    if resolved.is_set("namespace") && resolved.is_set("namespace-prefix") {
        resolved.notices.push("--namespace has no effect: --namespace-prefix wins".to_owned());
    }
}

pub(crate) fn build(values: &Values, effective: Effective, notices: Vec<String>) -> Serve {
    Serve {
        http: http(values),
        door: DoorOptions::of(values),
        limits: limits(values),
        router: router(values),
        reliability: ReliabilityOptions::of(values),
        plane: plane(values),
        discovery: DiscoveryOptions {
            backend: discovery(values),
            namespaces: match (values.text("namespace-prefix"), values.text("namespace")) {
                (Some(prefix), _) => NamespaceFilter::Prefix(prefix),
                (None, Some(name)) => NamespaceFilter::Exact(name),
                (None, None) => NamespaceFilter::All,
            },
            poll_interval: values.duration("discovery-poll-interval-ms"),
            card_cache_dir: values.path("card-cache-dir"),
        },
        sglang: SglangOptions::of(values),
        events: EventOptions {
            queue_capacity: values.size("event-queue-capacity"),
            replica_sync: values.switch("router-replica-sync"),
            host: values.text("event-plane-host"),
            nats: nats(values),
        },
        model: ModelOptions {
            name: values.text("model-name"),
            path: values.path("model-path"),
            deepseek_as_dynamo: values.choice("deepseek-rendering") == "dynamo",
            literal_control_tokens: values.switch("literal-control-tokens"),
        },
        tokenizer: TokenizerOptions {
            backend: match values.choice("tokenizer") {
                "default" => TokenizerBackend::Default,
                _ => TokenizerBackend::Fastokens,
            },
            fallback: values.switch("tokenizer-fallback"),
            cache: values.switch("tokenizer-cache"),
            cache_bytes: values.optional_size("tokenizer-cache-bytes"),
        },
        metrics: metrics(values),
        log: log(values),
        trace: trace(values),
        spans: spans(values),
        process: ProcessOptions {
            worker_threads: values.optional_size("runtime-num-worker-threads"),
            max_blocking_threads: values.optional_size("runtime-max-blocking-threads"),
            fd_limit_target: Some(values.integer("frontend-fd-limit-target")).filter(|target| *target > 0),
        },
        effective,
        notices,
    }
}

/// The connection to NATS, if events go that way.
pub(crate) fn nats(values: &Values) -> Option<NatsOptions> {
    let options = NatsOptions {
        servers: values.required_text("nats-server"),
        user: values.text("nats-auth-username").zip(values.text("nats-auth-password")),
        token: values.text("nats-auth-token"),
        nkey: values.text("nats-auth-nkey"),
        credentials: values.path("nats-auth-credentials-file"),
        ca: values.path("nats-tls-ca-cert-path"),
        client: values.path("nats-tls-client-cert-path").zip(values.path("nats-tls-client-key-path")),
    };
    Some(options).filter(|_| values.choice("event-plane") == "nats")
}

/// An option that says nothing without another one.
fn needs(resolved: &mut Resolved, given: &str, missing: &str) {
    if let Some(source) = resolved.source(given).filter(|_| resolved.value(given).is_some())
        && resolved.value(missing).is_none()
    {
        let problem = Problem::new(source.to_string(), format!("is of no use without --{missing}"));
        resolved.problems.push(problem);
    }
}

/// Two options that only make sense together.
fn pair(resolved: &mut Resolved, one: &str, other: &str) {
    needs(resolved, one, other);
    needs(resolved, other, one);
}

/// Rules on the store of worker records.
pub(crate) fn check_discovery(resolved: &mut Resolved) {
    pair(resolved, "etcd-auth-username", "etcd-auth-password");
    pair(resolved, "etcd-auth-client-cert", "etcd-auth-client-key");
    let Some(Value::Choice(backend)) = resolved.value("discovery-backend") else { return };
    if *backend != "etcd"
        && let Some(source) = resolved.source("etcd-endpoints")
    {
        let notice = format!("{source} has no effect: the discovery backend is {backend}");
        resolved.notices.push(notice);
    }
}

/// The store of worker records.
pub(crate) fn discovery(values: &Values) -> DiscoveryBackend {
    let folder = values.path("file-kv").expect("an option with a default always has a value");
    let endpoints = values.required_text("etcd-endpoints");
    let etcd = EtcdOptions {
        endpoints: endpoints
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect(),
        lease_ttl: values.duration("etcd-lease-ttl"),
        startup_timeout: values.duration("etcd-startup-connect-timeout-seconds"),
        ping_interval: values.duration_or_off("etcd-keepalive-interval-seconds"),
        ping_timeout: values.duration("etcd-keepalive-timeout-seconds"),
        user: values.text("etcd-auth-username").zip(values.text("etcd-auth-password")),
        ca: values.text("etcd-auth-ca"),
        client: values.text("etcd-auth-client-cert").zip(values.text("etcd-auth-client-key")),
    };
    let kubernetes = kubernetes(values);
    match values.choice("discovery-backend") {
        "mem" => DiscoveryBackend::Memory,
        "kubernetes" => DiscoveryBackend::Kubernetes(Box::new(kubernetes)),
        "file" => DiscoveryBackend::File(folder),
        _ => DiscoveryBackend::Etcd(Box::new(etcd)),
    }
}

fn kubernetes(values: &Values) -> KubernetesOptions {
    let path = |name| values.path(name).expect("an option with a default always has a value");
    let port = values.integer("kube-service-port");
    let address = values.text("kube-service-host").map(|host| {
        if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
    });
    KubernetesOptions {
        server: values.text("kube-api-server").or(address),
        token_file: path("kube-token-file"),
        ca_file: path("kube-ca-file"),
        namespace: values.text("kube-namespace"),
        containers: values.choice("kube-discovery-mode") == "container",
        pod_name: values.text("kube-pod-name"),
        pod_uid: values.text("kube-pod-uid"),
        container_name: values.text("kube-container-name"),
        podinfo_dir: path("kube-podinfo-dir"),
        startup_timeout: values.duration("kube-startup-timeout-secs"),
    }
}

/// Log output.
pub(crate) fn log(values: &Values) -> LogOptions {
    let json = values.switch("log-jsonl");
    let json = values.choice("log-console-format") == "jsonl" || json;
    LogOptions {
        filter: values.required_text("log-filter"),
        format: if json { LogFormat::Json } else { LogFormat::Console },
        ansi: !values.switch("log-disable-ansi"),
    }
}

fn http(values: &Values) -> HttpOptions {
    HttpOptions {
        host: values.ip("http-host"),
        port: values.port("http-port"),
        listen_backlog: values.u32("http-listen-backlog"),
        body_limit_bytes: values.integer("http-body-limit-mb"),
        graceful_shutdown_timeout: values.duration("http-graceful-shutdown-timeout-secs"),
        shutdown_notice: values.duration("http-shutdown-notice-secs"),
        backend_stream_timeout: values.duration_or_off("http-backend-stream-timeout-secs"),
        keep_alive_interval: values.duration_or_off("http-sse-keep-alive-interval-ms"),
        overload_status: values.port("http-overload-status-code"),
        nvext: !values.switch("disable-frontend-nvext"),
        context_window: values.optional_integer("context-window"),
        max_output_tokens: values.optional_integer("max-output-tokens"),
        admin_api: !values.switch("disable-frontend-admin-api"),
        error_shape: match values.choice("error-shape") {
            "openai" => ErrorShape::Openai,
            "dynamo" => ErrorShape::Dynamo,
            _ => ErrorShape::Both,
        },
        strict_fields: values.switch("strict-fields"),
        force_usage: values.switch("enable-force-include-usage"),
        metadata_prefix: values.required_text("metadata-header").to_ascii_lowercase(),
        reasoning_field: match values.choice("reasoning-field-name") {
            "reasoning" => ReasoningField::Reasoning,
            _ => ReasoningField::ReasoningContent,
        },
        paths: PathOptions::of(values),
        anthropic_api: values.switch("enable-anthropic-api"),
        strip_anthropic_preamble: values.switch("strip-anthropic-preamble"),
    }
}

fn limits(values: &Values) -> LimitOptions {
    LimitOptions {
        max_inflight: Some(values.size("max-inflight")).filter(|limit| *limit > 0),
        model_wait: values.duration("model-wait-secs"),
        held_requests: values.size("held-requests"),
        prepare_threads: values.optional_size("prepare-threads"),
        prepare_queue: values.size("prepare-queue"),
        max_connections: values.size("max-connections"),
        header_timeout: values.duration_or_off("http-header-timeout-secs"),
        idle_timeout: values.duration_or_off("http-idle-timeout-secs"),
        body_stall_timeout: values.duration_or_off("http-body-stall-timeout-secs"),
        write_stall_timeout: values.duration_or_off("http-write-stall-timeout-secs"),
        body_memory_bytes: Some(values.size("http-body-memory-mb")).filter(|limit| *limit > 0),
        max_header_bytes: values.size("http-max-header-bytes"),
        max_headers: values.size("http-max-headers"),
    }
}

fn router(values: &Values) -> RouterOptions {
    let ttl = values.optional_duration("router-session-affinity-ttl-secs");
    let ttl_of = |name: &str| match values.optional_duration(name) {
        Some(Duration::ZERO) => None,
        Some(own) => Some(own),
        None => ttl,
    };
    RouterOptions {
        mode: match values.choice("router-mode") {
            "kv" => RouterMode::Kv,
            "random" => RouterMode::Random,
            "power-of-two" => RouterMode::PowerOfTwo,
            "least-loaded" => RouterMode::LeastLoaded,
            "direct" => RouterMode::Direct,
            _ => RouterMode::RoundRobin,
        },
        affinity: AffinityOptions {
            mode: match values.choice("router-session-affinity-mode") {
                "strict" | "hard" => AffinityMode::Hard,
                "soft" => AffinityMode::Soft,
                "off" => AffinityMode::Off,
                _ => AffinityMode::Bounded,
            },
            decode_ttl: ttl_of("router-session-affinity-decode-ttl-secs"),
            prefill_ttl: ttl_of("router-session-affinity-prefill-ttl-secs"),
            capacity: values.size("router-session-affinity-capacity"),
            file: values.path("router-session-affinity-file"),
            file_interval: values.duration("router-session-affinity-file-interval-secs"),
            load_ratio: values.number("router-session-affinity-load-ratio"),
            rebuild_factor: values.number("router-session-affinity-rebuild-factor"),
            hot_tokens: values.u32("router-session-affinity-hot-tokens"),
            promise_weight: values.number("router-session-affinity-promise-weight"),
            promise_cap_tokens: values.u32("router-session-affinity-promise-cap-tokens"),
        },
        cost: CostOptions {
            temperature: values.number("router-temperature"),
            overlap_credit: values.number("router-kv-overlap-score-credit"),
            overlap_credit_decay: values.number("router-kv-overlap-score-credit-decay"),
            prefill_load_scale: values.number("router-prefill-load-scale"),
            decode_active_request_weight: values.number("router-decode-active-request-weight"),
            host_cache_hit_weight: values.number("router-host-cache-hit-weight"),
            disk_cache_hit_weight: values.number("router-disk-cache-hit-weight"),
        },
        busy: BusyThresholds {
            active_decode_blocks: values.optional_number("active-decode-blocks-threshold"),
            active_prefill_tokens: values.optional_integer("active-prefill-tokens-threshold"),
            active_prefill_tokens_frac: values.optional_number("active-prefill-tokens-threshold-frac"),
        },
        queue: QueueOptions {
            threshold: values.optional_number("router-queue-threshold"),
            policy: match values.choice("router-queue-policy") {
                "lcfs" => QueuePolicy::Lcfs,
                "wspt" => QueuePolicy::Wspt,
                _ => QueuePolicy::Fcfs,
            },
            limit: values.size("router-queue-limit"),
            max_wait: values.duration("router-queue-max-wait-secs"),
        },
        local_prefill: LocalPrefillOptions::of(values),
        kv_events: values.switch("router-kv-events"),
        approximate_ttl: values.duration("router-ttl-secs"),
        track_active_blocks: values.switch("router-track-active-blocks"),
        track_output_blocks: values.switch("router-track-output-blocks"),
        track_prefill_tokens: values.switch("router-track-prefill-tokens"),
        assume_kv_reuse: values.switch("router-assume-kv-reuse"),
        active_request_expiry: values.duration("router-active-request-expiry-secs"),
        min_initial_workers: values.size("router-min-initial-workers"),
        block_size: values.optional_u32("kv-cache-block-size"),
        quarantine: values.duration_or_off("runtime-inhibited-duration-secs"),
        seed: values.optional_integer("seed"),
    }
}

fn plane(values: &Values) -> PlaneOptions {
    PlaneOptions {
        response_host: values.text("tcp-response-stream-host"),
        response_port: values.port("tcp-response-stream-port"),
        listen_backlog: values.u32("tcp-listen-backlog"),
        connect_timeout: values.duration("tcp-connect-timeout"),
        request_timeout: values.duration("tcp-request-timeout"),
        farewell_timeout: values.duration("farewell-timeout-secs"),
        call_home_timeout: values.duration("call-home-timeout-secs"),
        prologue_timeout: values.duration_or_off("prologue-timeout-secs"),
        channel_buffer: values.size("tcp-channel-buffer"),
        pool_size: values.size("tcp-pool-size"),
        global_connect_limit: values.size("tcp-global-connect-limit"),
        host_idle_ttl: values.duration("tcp-host-idle-ttl-secs"),
        max_message_bytes: values.size("tcp-max-message-size"),
        token_ids_as_bytes: values.switch("token-ids-as-bytes"),
        tls: plane_tls(values),
    }
}

/// TLS between frontends and workers.
pub(crate) fn plane_tls(values: &Values) -> PlaneTls {
    PlaneTls {
        cert: values.path("tcp-tls-cert-path"),
        key: values.path("tcp-tls-key-path"),
        ca: values.path("tcp-tls-ca-cert-path"),
        insecure: values.switch("tcp-tls-insecure"),
        server_name: values.text("tcp-tls-server-name"),
        client_cert: values.path("tcp-tls-client-cert-path"),
        client_key: values.path("tcp-tls-client-key-path"),
        client_ca: values.path("tcp-tls-client-ca-cert-path"),
        handshake_timeout: values.duration("tcp-tls-handshake-timeout-secs"),
    }
}

fn spans(values: &Values) -> Option<SpanOptions> {
    let pairs = |name: &str| -> Vec<(String, String)> {
        let text = values.text(name).unwrap_or_default();
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
    };
    let grpc = values.choice("otel-exporter-otlp-protocol") == "grpc";
    let base = values.text("otel-exporter-otlp-endpoint");
    let endpoint = values.text("otel-exporter-otlp-traces-endpoint").unwrap_or_else(|| match grpc {
        true => base.unwrap_or_else(|| "http://localhost:4317".to_owned()),
        false => {
            let base = base.unwrap_or_else(|| "http://localhost:4318".to_owned());
            format!("{}/v1/traces", base.trim_end_matches('/'))
        }
    });
    let mut resource = pairs("otel-resource-attributes");
    resource.retain(|(name, _)| name != "service.name");
    resource.insert(0, ("service.name".to_owned(), values.required_text("otel-service-name")));
    let options = SpanOptions {
        endpoint,
        grpc,
        headers: pairs("otel-exporter-otlp-headers"),
        resource,
        ratio: values.number("otel-traces-sample-ratio"),
        delay: values.duration("otel-bsp-schedule-delay"),
    };
    values.switch("otel-export-enabled").then_some(options)
}

fn trace(values: &Values) -> Option<TraceOptions> {
    for only in ["request-trace-records", "request-trace-sinks", "request-trace-file-format"] {
        // One word is accepted.
        let _checked = values.choice(only);
    }
    let options = TraceOptions {
        path: values.path("request-trace-file-path").expect("it has a default"),
        roll_bytes: values.integer("request-trace-file-roll-bytes"),
        roll_lines: values.optional_integer("request-trace-file-roll-lines"),
        keep: values.size("request-trace-file-keep"),
        flush: values.duration("request-trace-file-flush-interval-ms"),
        capacity: values.size("request-trace-capacity"),
    };
    values.switch("request-trace").then_some(options)
}

fn metrics(values: &Values) -> MetricsOptions {
    let range = |(name, usual): (&str, HistogramRange)| {
        let min = values.optional_number(&format!("metrics-{name}-min"));
        let max = values.optional_number(&format!("metrics-{name}-max"));
        let count = values.optional_size(&format!("metrics-{name}-count"));
        (min.is_some() || max.is_some() || count.is_some()).then(|| HistogramRange {
            min: min.unwrap_or(usual.min),
            max: max.unwrap_or(usual.max),
            count: count.unwrap_or(usual.count),
        })
    };
    let [request_duration, input_sequence, output_sequence, time_to_first_token, inter_token_latency] =
        RANGES.map(range);
    MetricsOptions {
        federation: FederationOptions {
            servers: values.words("metrics-federate"),
            interval: values.duration("metrics-federate-interval-secs"),
        },
        prefix: values.required_text("metrics-prefix"),
        request_duration,
        input_sequence,
        output_sequence,
        time_to_first_token,
        inter_token_latency,
    }
}
