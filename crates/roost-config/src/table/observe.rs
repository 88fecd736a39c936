//! Metrics and logs.

use super::NOT_AVAILABLE;
use crate::spec::{Kind, OptionSpec, bytes, choice, integer, milliseconds, number, option, seconds};

pub(crate) static METRICS: &[OptionSpec] = &[
    option(
        "metrics-prefix",
        Kind::Text,
        "Prefix of the families that may be renamed; docs/metrics.md says which.",
    )
    .env(&["DYN_METRICS_PREFIX"])
    .default("dynamo_frontend"),
    option(
        "metrics-federate",
        Kind::Words,
        "Workers whose `sglang:*` families are shown on our page under their own names, with a label `worker`: \
         `http://HOST:PORT`, an SGLang server or the system port of a Dynamo worker.",
    ),
    option(
        "metrics-federate-interval-secs",
        seconds(1.0, 3600.0),
        "Pause between two fetches of their pages. A page of more than 4 MiB or 20,000 series is not shown.",
    )
    .default("5"),
    option(
        "metrics-request-duration-min",
        number(1e-9, 1e15),
        "Request duration: start of the logarithmic scale of buckets, seconds.",
    )
    .env(&["DYN_METRICS_REQUEST_DURATION_MIN"])
    .dynamo_default("1"),
    option(
        "metrics-request-duration-max",
        number(1e-9, 1e15),
        "Request duration: end of the logarithmic scale of buckets, seconds.",
    )
    .env(&["DYN_METRICS_REQUEST_DURATION_MAX"])
    .dynamo_default("512"),
    option("metrics-request-duration-count", integer(2, 512), "Request duration: number of bucket bounds.")
        .env(&["DYN_METRICS_REQUEST_DURATION_COUNT"])
        .dynamo_default("10"),
    option(
        "metrics-input-sequence-min",
        number(1e-9, 1e15),
        "Input length: start of the logarithmic scale of buckets, tokens.",
    )
    .env(&["DYN_METRICS_INPUT_SEQUENCE_MIN"])
    .dynamo_default("50"),
    option(
        "metrics-input-sequence-max",
        number(1e-9, 1e15),
        "Input length: end of the logarithmic scale of buckets, tokens.",
    )
    .env(&["DYN_METRICS_INPUT_SEQUENCE_MAX"])
    .dynamo_default("128000"),
    option("metrics-input-sequence-count", integer(2, 512), "Input length: number of bucket bounds.")
        .env(&["DYN_METRICS_INPUT_SEQUENCE_COUNT"])
        .dynamo_default("12"),
    option(
        "metrics-output-sequence-min",
        number(1e-9, 1e15),
        "Output length: start of the logarithmic scale of buckets, tokens.",
    )
    .env(&["DYN_METRICS_OUTPUT_SEQUENCE_MIN"])
    .dynamo_default("50"),
    option(
        "metrics-output-sequence-max",
        number(1e-9, 1e15),
        "Output length: end of the logarithmic scale of buckets, tokens.",
    )
    .env(&["DYN_METRICS_OUTPUT_SEQUENCE_MAX"])
    .dynamo_default("32000"),
    option("metrics-output-sequence-count", integer(2, 512), "Output length: number of bucket bounds.")
        .env(&["DYN_METRICS_OUTPUT_SEQUENCE_COUNT"])
        .dynamo_default("10"),
    option(
        "metrics-ttft-min",
        number(1e-9, 1e15),
        "Time to first token: start of the logarithmic scale of buckets, seconds.",
    )
    .env(&["DYN_METRICS_TTFT_MIN"])
    .dynamo_default("0.001"),
    option(
        "metrics-ttft-max",
        number(1e-9, 1e15),
        "Time to first token: end of the logarithmic scale of buckets, seconds.",
    )
    .env(&["DYN_METRICS_TTFT_MAX"])
    .dynamo_default("480"),
    option("metrics-ttft-count", integer(2, 512), "Time to first token: number of bucket bounds.")
        .env(&["DYN_METRICS_TTFT_COUNT"])
        .dynamo_default("18"),
    option(
        "metrics-itl-min",
        number(1e-9, 1e15),
        "Inter-token latency: start of the logarithmic scale of buckets, seconds.",
    )
    .env(&["DYN_METRICS_ITL_MIN"])
    .dynamo_default("0.001"),
    option(
        "metrics-itl-max",
        number(1e-9, 1e15),
        "Inter-token latency: end of the logarithmic scale of buckets, seconds.",
    )
    .env(&["DYN_METRICS_ITL_MAX"])
    .dynamo_default("80"),
    option("metrics-itl-count", integer(2, 512), "Inter-token latency: number of bucket bounds.")
        .env(&["DYN_METRICS_ITL_COUNT"])
        .dynamo_default("20"),
    option("metrics-embedding-latency-min", number(1e-9, 1e15), "Start of the scale of buckets.")
        .env(&["DYN_METRICS_EMBEDDING_LATENCY_MIN"])
        .no_effect("there are no embeddings"),
    option("metrics-embedding-latency-max", number(1e-9, 1e15), "End of the scale of buckets.")
        .env(&["DYN_METRICS_EMBEDDING_LATENCY_MAX"])
        .no_effect("there are no embeddings"),
    option("metrics-embedding-latency-count", integer(2, 512), "Number of bucket bounds.")
        .env(&["DYN_METRICS_EMBEDDING_LATENCY_COUNT"])
        .no_effect("there are no embeddings"),
];

pub(crate) static LOG: &[OptionSpec] = &[
    option(
        "log-filter",
        Kind::Text,
        "What is logged, in the syntax of RUST_LOG: a level, or `target=level` pairs separated by commas.",
    )
    .aliases(&["log"])
    .env(&["DYN_LOG"])
    .default("info"),
    option("log-jsonl", Kind::Switch, "One JSON object per line instead of text.")
        .env(&["DYN_LOGGING_JSONL"])
        .default("false"),
    option(
        "log-console-format",
        choice(&["default", "jsonl"]),
        "The same by another name: jsonl or default.",
    )
    .env(&["DYN_LOGGING_CONSOLE_FORMAT"])
    .default("default"),
    option("log-disable-ansi", Kind::Switch, "No colour in text lines.")
        .env(&["DYN_SDK_DISABLE_ANSI_LOGGING"])
        .default("false"),
    option("log-use-local-tz", Kind::Switch, "Times in the local zone.")
        .env(&["DYN_LOG_USE_LOCAL_TZ"])
        .default("false")
        .no_effect("log times are in UTC"),
    option("log-span-events", Kind::Switch, "Log when spans open and close.")
        .env(&["DYN_LOGGING_SPAN_EVENTS"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("log-config-path", Kind::Path, "Dynamo's logging file.")
        .env(&["DYN_LOGGING_CONFIG_PATH"])
        .refused("use --log-filter: reading a logging file is not available in this build"),
];

/// Tracing and request records.
pub(crate) static TRACE: &[OptionSpec] = &[
    option(
        "otel-export-enabled",
        Kind::Switch,
        "Tell an OpenTelemetry collector of the spans of requests, and workers of the trace: docs/observability.md.",
    )
    .env(&["OTEL_EXPORT_ENABLED"])
    .default("false"),
    option("otel-exporter-otlp-protocol", choice(&["grpc", "http/protobuf"]), "How the collector is spoken to.")
        .env(&["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"])
        .default("grpc"),
    option(
        "otel-exporter-otlp-endpoint",
        Kind::Text,
        "The collector, `http://HOST:PORT`; by default port 4317 of this host for grpc, 4318 for http/protobuf, where \
         `/v1/traces` is added.",
    )
    .env(&["OTEL_EXPORTER_OTLP_ENDPOINT"]),
    option("otel-exporter-otlp-traces-endpoint", Kind::Text, "The same for spans alone; nothing is added to it.")
        .env(&["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]),
    option("otel-exporter-otlp-headers", Kind::Text, "Headers of every call: `name=value`, separated by commas.")
        .env(&["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"])
        .secret(),
    option("otel-service-name", Kind::Text, "`service.name` of the spans.")
        .env(&["OTEL_SERVICE_NAME"])
        .default("roost")
        .dynamo_default("dynamo"),
    option(
        "otel-resource-attributes",
        Kind::Text,
        "Further attributes of the process: `name=value`, separated by commas.",
    )
    .env(&["OTEL_RESOURCE_ATTRIBUTES"]),
    option(
        "otel-traces-sample-ratio",
        number(0.0, 1.0),
        "Part of the requests that are told of, where the caller has not decided.",
    )
    .env(&["OTEL_TRACES_SAMPLE_RATIO"])
    .default("1"),
    option("otel-bsp-schedule-delay", milliseconds(1.0, 3_600_000.0), "Longest time that a span waits for others.")
        .env(&["OTEL_BSP_SCHEDULE_DELAY"])
        .default("5000"),
    option(
        "request-trace",
        Kind::Switch,
        "Write one record per request, with the hashes of its prompt and without its text: docs/observability.md.",
    )
    .env(&["DYN_REQUEST_TRACE"])
    .default("false"),
    option(
        "request-trace-records",
        Kind::Choice {
            accepted: &["request_end"],
            unavailable: &[
                ("request_payload", "texts of prompts and answers are not recorded"),
                ("tool", "events of tools are not read"),
            ],
        },
        "What is recorded.",
    )
    .env(&["DYN_REQUEST_TRACE_RECORDS"])
    .default("request_end"),
    option(
        "request-trace-sinks",
        Kind::Choice {
            accepted: &["file"],
            unavailable: &[
                ("stderr", NOT_AVAILABLE),
                ("nats", NOT_AVAILABLE),
                ("otel", NOT_AVAILABLE),
                ("s3", NOT_AVAILABLE),
            ],
        },
        "Where those records go.",
    )
    .env(&["DYN_REQUEST_TRACE_SINKS", "DYN_AUDIT_SINKS"])
    .default("file"),
    option("request-trace-file-path", Kind::Path, "The file of records; full ones are renamed, `.000000` and so on.")
        .env(&["DYN_REQUEST_TRACE_FILE_PATH", "DYN_REQUEST_TRACE_OUTPUT_PATH"])
        .default("/tmp/dynamo-request-trace.jsonl")
        .dynamo_default("/tmp/dynamo-request-trace"),
    option(
        "request-trace-file-format",
        Kind::Choice {
            accepted: &["jsonl"],
            unavailable: &[("jsonl_gz", "write `jsonl`; full files can be compressed by others")],
        },
        "Form of the file.",
    )
    .env(&["DYN_REQUEST_TRACE_FILE_FORMAT"])
    .default("jsonl")
    .dynamo_default("jsonl_gz"),
    option("request-trace-file-roll-bytes", bytes(1 << 10, 1 << 40), "Bytes after which the file is full.")
        .env(&["DYN_REQUEST_TRACE_FILE_ROLL_BYTES", "DYN_REQUEST_TRACE_JSONL_GZ_ROLL_BYTES"])
        .default("268435456"),
    option("request-trace-file-roll-lines", integer(1, u64::MAX), "Records after which the file is full.")
        .env(&["DYN_REQUEST_TRACE_FILE_ROLL_LINES", "DYN_REQUEST_TRACE_JSONL_GZ_ROLL_LINES"]),
    option("request-trace-file-keep", integer(1, 1_000_000), "Full files that are kept, the newest ones.")
        .default("64"),
    option(
        "request-trace-file-flush-interval-ms",
        milliseconds(1.0, 3_600_000.0),
        "Longest time that a record waits in memory once it is in its turn.",
    )
    .env(&["DYN_REQUEST_TRACE_FILE_FLUSH_INTERVAL_MS", "DYN_REQUEST_TRACE_JSONL_FLUSH_INTERVAL_MS"])
    .default("1000"),
    option("request-trace-capacity", integer(1, 1_000_000), "Records that may wait for the disk; more are dropped.")
        .env(&["DYN_REQUEST_TRACE_CAPACITY", "DYN_AUDIT_CAPACITY"])
        .default("1024"),
    option("audit-force-logging", Kind::Switch, "Record every request.")
        .env(&["DYN_AUDIT_FORCE_LOGGING"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("lifecycle-trace-enabled", Kind::Switch, "Log the phases of every request.")
        .env(&["DYN_LIFECYCLE_TRACE_ENABLED"])
        .default("false")
        .refused(NOT_AVAILABLE),
];
