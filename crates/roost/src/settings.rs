//! From the option table's words to each crate's own configuration. Nothing is decided here.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use roost_config as options;
use roost_frontend as frontend;
use roost_frontend::metrics::MetricsOptions;
use roost_frontend::{RequestRecord, RequestTrace};
use roost_telemetry::spans::{Protocol, SpanExport, SpanKeeper, Spans};
use roost_telemetry::{RecordFile, RecordKeeper, buckets};
use roost_wire::Transport;

use crate::access::Access;

/// A wait that is as good as none.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

pub(crate) fn frontend(o: &options::Serve, access: &Access) -> frontend::Config {
    frontend::Config {
        http: frontend::Http {
            body_limit: usize::try_from(o.http.body_limit_bytes).unwrap_or(usize::MAX),
            body_stall: o.limits.body_stall_timeout,
            body_memory: o.limits.body_memory_bytes,
            head: o.limits.header_timeout,
            idle: o.limits.idle_timeout,
            write_stall: o.limits.write_stall_timeout,
            max_head_bytes: o.limits.max_header_bytes,
            max_headers: o.limits.max_headers,
            max_connections: o.limits.max_connections,
            max_inflight: o.limits.max_inflight,
            model_wait: o.limits.model_wait,
            held_requests: o.limits.held_requests,
            api_keys: access.api_keys.clone(),
            admin_keys: access.admin_keys.clone(),
            cors: access.cors.clone(),
            keep_alive: o.http.keep_alive_interval,
            worker_silence: o.http.backend_stream_timeout,
            overload_status: o.http.overload_status,
            error_shape: match o.http.error_shape {
                options::ErrorShape::Both => roost_openai::ErrorShape::Both,
                options::ErrorShape::Openai => roost_openai::ErrorShape::OpenAi,
                options::ErrorShape::Dynamo => roost_openai::ErrorShape::Dynamo,
            },
            fields: if o.http.strict_fields {
                roost_openai::FieldPolicy::Refuse
            } else {
                roost_openai::FieldPolicy::Ignore
            },
            nvext: o.http.nvext,
            advertised: frontend::Advertised {
                context_window: o.http.context_window,
                max_output_tokens: o.http.max_output_tokens,
            },
            admin_api: o.http.admin_api,
            force_usage: o.http.force_usage,
            metadata_prefix: o.http.metadata_prefix.clone(),
            reasoning_field: match o.http.reasoning_field {
                options::ReasoningField::ReasoningContent => "reasoning_content",
                options::ReasoningField::Reasoning => "reasoning",
            },
            paths: frontend::Paths {
                chat: o.http.paths.chat.clone(),
                completions: o.http.paths.completions.clone(),
                responses: o.http.paths.responses.clone(),
                messages: o.http.paths.messages.clone(),
                models: o.http.paths.models.clone(),
                health: o.http.paths.health.clone(),
                live: o.http.paths.live.clone(),
                metrics: o.http.paths.metrics.clone(),
            },
            messages_api: o.http.anthropic_api,
            strip_anthropic_preamble: o.http.strip_anthropic_preamble,
            drain: o.http.graceful_shutdown_timeout,
            notice: o.http.shutdown_notice,
        },
        prepare: frontend::Prepare {
            threads: o.limits.prepare_threads,
            queue: o.limits.prepare_queue,
            memory: memory(&o.tokenizer),
            literal_control_tokens: o.model.literal_control_tokens,
            ..frontend::Prepare::default()
        },
        route: frontend::Route {
            router: router(&o.router),
            kv_events: o.router.kv_events,
            approximate_ttl: o.router.approximate_ttl,
            block_size: o.router.block_size,
            prefill_affinity_ttl: o.router.affinity.prefill_ttl,
            decode_without_prefill: o.reliability.decode_without_prefill,
            local_prefill: o.router.local_prefill.as_ref().map(local_prefill),
            attempts: o.reliability.attempts,
            migration_limit: o.reliability.migration_limit,
            migration_max_tokens: o.reliability.migration_max_tokens,
            first_token: o.reliability.first_token_timeout,
            kv_transfer: o.reliability.kv_transfer_timeout,
            min_initial_workers: o.router.min_initial_workers,
            bindings_file: o.router.affinity.file.clone().map(|path| frontend::BindingsFile {
                path,
                interval: o.router.affinity.file_interval,
                // Several models, and two tables each where prefill is apart.
                limit: o.router.affinity.capacity.saturating_mul(8),
            }),
            seed: o.router.seed.unwrap_or_else(|| fastrand::u64(..)),
            token_ids_as_bytes: o.plane.token_ids_as_bytes,
        },
        models: frontend::ModelSource {
            name: o.model.name.clone(),
            path: o.model.path.clone(),
            cache_dir: card_cache(o.discovery.card_cache_dir.as_deref()),
            backend: match o.tokenizer.backend {
                options::TokenizerBackend::Fastokens => roost_tokenizer::Backend::Fast,
                options::TokenizerBackend::Default => roost_tokenizer::Backend::Hf,
            },
            fallback: o.tokenizer.fallback,
            deepseek: if o.model.deepseek_as_dynamo {
                frontend::DeepSeekStyle::Dynamo
            } else {
                frontend::DeepSeekStyle::Publisher
            },
        },
    }
}

/// Four fifths for sessions, the rest for segments that several of them share.
fn memory(o: &options::TokenizerOptions) -> frontend::MemoryConfig {
    match (o.cache, o.cache_bytes) {
        (false, _) => frontend::MemoryConfig { session_bytes: 0, segment_bytes: 0 },
        (true, None) => frontend::MemoryConfig::default(),
        (true, Some(bytes)) => {
            frontend::MemoryConfig { session_bytes: bytes / 5 * 4, segment_bytes: bytes / 5 }
        }
    }
}

fn card_cache(given: Option<&std::path::Path>) -> PathBuf {
    given.map_or_else(|| std::env::temp_dir().join("roost-model-cards"), PathBuf::from)
}

fn local_prefill(o: &options::LocalPrefillOptions) -> roost_router::LocalPrefill {
    roost_router::LocalPrefill {
        policy: match o.policy {
            options::LocalPrefillPolicy::IslBounding => roost_router::LocalPrefillPolicy::NewTokens,
            options::LocalPrefillPolicy::PrefillLoad => roost_router::LocalPrefillPolicy::PrefillLoad,
            options::LocalPrefillPolicy::IslOrLoad => roost_router::LocalPrefillPolicy::NewTokensOrLoad,
        },
        new_tokens: o.new_tokens,
        new_share: o.new_share,
        prefill_busy: o.prefill_busy,
        decode_busy: o.decode_busy,
    }
}

pub(crate) fn router(o: &options::RouterOptions) -> roost_router::Config {
    let mut quarantine = roost_router::QuarantineConfig::default();
    match o.quarantine {
        Some(first) => quarantine.first = first,
        None => {
            quarantine.first = Duration::ZERO;
            quarantine.longest = Duration::ZERO;
            quarantine.overloaded = Duration::ZERO;
        }
    }
    roost_router::Config {
        mode: match o.mode {
            options::RouterMode::Kv => roost_router::Mode::Kv,
            options::RouterMode::RoundRobin => roost_router::Mode::RoundRobin,
            options::RouterMode::Random => roost_router::Mode::Random,
            options::RouterMode::PowerOfTwo => roost_router::Mode::PowerOfTwo,
            options::RouterMode::LeastLoaded => roost_router::Mode::LeastLoaded,
            options::RouterMode::Direct => roost_router::Mode::Direct,
        },
        cost: roost_router::CostConfig {
            overlap_credit: o.cost.overlap_credit,
            credit_decay: o.cost.overlap_credit_decay,
            prefill_scale: o.cost.prefill_load_scale,
            request_weight: o.cost.decode_active_request_weight,
            host_weight: o.cost.host_cache_hit_weight,
            disk_weight: o.cost.disk_cache_hit_weight,
            temperature: o.cost.temperature,
            ..roost_router::CostConfig::default()
        },
        affinity: roost_router::AffinityConfig {
            ttl: o.affinity.decode_ttl,
            mode: match o.affinity.mode {
                options::AffinityMode::Hard => roost_router::AffinityMode::Hard,
                options::AffinityMode::Soft => roost_router::AffinityMode::Soft,
                options::AffinityMode::Bounded => roost_router::AffinityMode::Bounded,
                options::AffinityMode::Off => roost_router::AffinityMode::Off,
            },
            capacity: o.affinity.capacity,
            bound: roost_router::BoundConfig {
                ratio: o.affinity.load_ratio,
                rebuild_factor: o.affinity.rebuild_factor,
                floor_tokens: o.affinity.hot_tokens,
                ..roost_router::BoundConfig::default()
            },
            future_weight: o.affinity.promise_weight,
            future_cap_tokens: o.affinity.promise_cap_tokens,
            ..roost_router::AffinityConfig::default()
        },
        busy: roost_router::BusyThresholds {
            active_decode_blocks: o.busy.active_decode_blocks,
            active_prefill_tokens: o.busy.active_prefill_tokens,
            active_prefill_tokens_frac: o.busy.active_prefill_tokens_frac,
        },
        queue: roost_router::QueueConfig {
            threshold: o.queue.threshold,
            policy: match o.queue.policy {
                options::QueuePolicy::Fcfs => roost_router::QueuePolicy::Fcfs,
                options::QueuePolicy::Lcfs => roost_router::QueuePolicy::Lcfs,
                options::QueuePolicy::Wspt => roost_router::QueuePolicy::Wspt,
            },
            capacity: o.queue.limit,
            max_wait: o.queue.max_wait,
        },
        quarantine,
        decode_overlap: o.local_prefill.is_some(),
        track_active_blocks: o.track_active_blocks,
        track_output_blocks: o.track_output_blocks,
        track_prefill_tokens: o.track_prefill_tokens,
        assume_kv_reuse: o.assume_kv_reuse,
        booking_expiry: o.active_request_expiry,
        ..roost_router::Config::default()
    }
}

pub(crate) fn client(o: &options::PlaneOptions, transport: Transport) -> roost_wire::ClientConfig {
    roost_wire::ClientConfig {
        transport,
        pool_size: o.pool_size,
        channel_buffer: o.channel_buffer,
        connect_timeout: o.connect_timeout,
        connect_limit: o.global_connect_limit,
        ack_timeout: o.request_timeout,
        farewell_timeout: o.farewell_timeout,
        call_home_timeout: o.call_home_timeout,
        prologue_timeout: o.prologue_timeout.unwrap_or(FOREVER),
        max_message_bytes: o.max_message_bytes,
        idle_ttl: o.host_idle_ttl,
        ..roost_wire::ClientConfig::default()
    }
}

/// The address workers call home to: as given (address or interface), else the one by which this host reaches the
/// network, else loopback.
pub(crate) fn response_address(o: &options::PlaneOptions) -> Result<SocketAddr> {
    let host = match &o.response_host {
        Some(host) => resolve(host)?,
        None => outward().unwrap_or(IpAddr::from([127, 0, 0, 1])),
    };
    Ok(SocketAddr::new(host, o.response_port))
}

fn resolve(host: &str) -> Result<IpAddr> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    let interfaces = if_addrs::get_if_addrs().context("cannot list network interfaces")?;
    let mut of_name: Vec<IpAddr> =
        interfaces.into_iter().filter(|i| i.name == host).map(|i| i.ip()).collect();
    of_name.sort_by_key(IpAddr::is_ipv6);
    of_name.into_iter().next().with_context(|| {
        format!("DYN_TCP_RESPONSE_STREAM_HOST={host} is neither an IP address nor a network interface of this host")
    })
}

/// The local address of a route outwards. No packet is sent: connecting a datagram socket only picks a route.
fn outward() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified()).then_some(address)
}

pub(crate) fn log_format(o: &options::LogOptions) -> roost_telemetry::logging::Format {
    match o.format {
        options::LogFormat::Json => roost_telemetry::logging::Format::Json,
        options::LogFormat::Console => roost_telemetry::logging::Format::Console { ansi: o.ansi },
    }
}

/// Bucket sets: ours unless a range was asked for.
pub(crate) fn metrics(o: &options::MetricsOptions) -> MetricsOptions {
    let defaults = MetricsOptions::default();
    let bounds = |range: &Option<options::HistogramRange>, default: Vec<f64>| match range {
        Some(range) => buckets::logarithmic(range.min, range.max, range.count),
        None => default,
    };
    MetricsOptions {
        request_duration: bounds(&o.request_duration, defaults.request_duration),
        time_to_first_token: bounds(&o.time_to_first_token, defaults.time_to_first_token),
        inter_token_latency: bounds(&o.inter_token_latency, defaults.inter_token_latency),
        input_sequence: bounds(&o.input_sequence, defaults.input_sequence),
        output_sequence: bounds(&o.output_sequence, defaults.output_sequence),
        router_id: fastrand::u64(1..1 << 53),
        ..defaults
    }
}

/// Opens the request trace, if one is wanted, and returns what ends it.
pub(crate) fn trace(
    o: Option<&options::TraceOptions>,
) -> Result<(Option<RequestTrace>, Option<RecordKeeper<RequestRecord>>)> {
    let Some(o) = o else { return Ok((None, None)) };
    let file = RecordFile {
        path: o.path.clone(),
        roll_bytes: o.roll_bytes,
        roll_lines: o.roll_lines,
        keep: o.keep,
        capacity: o.capacity,
        flush: o.flush,
    };
    let (trace, keeper) = RequestTrace::open(file)
        .with_context(|| format!("--request-trace-file-path {}", o.path.display()))?;
    Ok((Some(trace), Some(keeper)))
}

/// Begins to tell a collector of spans, if one is wanted, and returns what ends it. Must be called on a runtime.
pub(crate) fn spans(o: Option<&options::SpanOptions>) -> Result<(Option<Spans>, Option<SpanKeeper>)> {
    let Some(o) = o else { return Ok((None, None)) };
    let export = SpanExport {
        endpoint: o.endpoint.clone(),
        protocol: if o.grpc { Protocol::Grpc } else { Protocol::Http },
        headers: o.headers.clone(),
        resource: o.resource.clone(),
        ratio: o.ratio,
        delay: o.delay,
    };
    let (spans, keeper) = Spans::start(export).context("--otel-exporter-otlp-endpoint")?;
    Ok((Some(spans), Some(keeper)))
}
