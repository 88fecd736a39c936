//! Mock workers.

use crate::spec::{Kind, OptionSpec, bytes, choice, integer, milliseconds, number, option};

pub(crate) static MODEL: &[OptionSpec] = &[
    option("model-name", Kind::Text, "Name under which the model is served.")
        .env(&["DYN_MODEL_NAME"])
        .default("mock-model"),
    option(
        "model-path",
        Kind::Path,
        "Folder with tokenizer, chat template and configuration; unset: a small built-in model.",
    )
    .env(&["DYN_MODEL_PATH"]),
    option(
        "context-length",
        integer(1, u32::MAX as u64),
        "Context length told to frontends; unset: the model folder's.",
    ),
];

pub(crate) static ENGINE: &[OptionSpec] = &[
    option("role", choice(&["aggregated", "prefill", "decode"]), "Leg of a request the workers serve.")
        .default("aggregated"),
    option("workers", integer(1, 1024), "Workers to start in this process.").default("1"),
    option("data-parallel-size", integer(1, 1024), "Data-parallel ranks per worker.").default("1"),
    option("block-size", integer(1, 1 << 20), "Tokens per KV block.").default("16"),
    option("kv-blocks", integer(1, 1 << 32), "KV blocks per rank.").default("16384"),
    option("max-num-seqs", integer(1, 1 << 20), "Requests a rank runs at once.").default("256"),
    option("max-num-batched-tokens", integer(1, 1 << 32), "Batch token limit told to frontends.")
        .default("8192"),
    option(
        "prefill-tokens-per-second",
        number(1.0, 1e12),
        "Uncached prompt tokens a rank computes per second.",
    )
    .default("20000"),
    option("inter-token-latency-ms", milliseconds(0.0, 3_600_000.0), "Time per generated token.")
        .default("10"),
    option("speed", number(1e-3, 1e9), "All simulated times are divided by this.").default("1"),
    option(
        "answer",
        choice(&["readable", "random"]),
        "What answers consist of: a short sentence about the request, or random tokens.",
    )
    .default("readable"),
    option("seed", integer(0, u64::MAX), "Seed of answers.").default("0"),
    option("script", Kind::Path, "JSON file with scripted answers, chosen by `@@name@@` in the prompt."),
    option("kv-events", Kind::Switch, "Publish KV events.").default("true"),
];

pub(crate) static NETWORK: &[OptionSpec] = &[
    option("namespace", Kind::Text, "Namespace to register in.").env(&["DYN_NAMESPACE"]).default("dynamo"),
    option("component", Kind::Text, "Component to register as; unset: prefill for that role, else backend."),
    option("host", Kind::Ip, "Address of every listener.").env(&["DYN_TCP_RPC_HOST"]).default("127.0.0.1"),
    option(
        "port",
        integer(0, 65_535),
        "Request port of the first worker, further workers take the next ones; 0 takes free ones.",
    )
    .env(&["DYN_TCP_RPC_PORT"])
    .default("0"),
    option(
        "request-plane-codec",
        choice(&["msgpack", "json"]),
        "Codec that frontends are told to use; every request is answered in its own.",
    )
    .env(&["DYN_REQUEST_PLANE_CODEC"])
    .default("msgpack"),
    option("tcp-worker-pool-size", integer(1, 1 << 20), "Requests a worker answers at once.")
        .env(&["DYN_TCP_WORKER_POOL_SIZE"])
        .default("10000"),
    option("tcp-work-queue-size", integer(0, 1 << 24), "Requests that wait beyond those; more are refused.")
        .env(&["DYN_TCP_WORK_QUEUE_SIZE"])
        .default("40000"),
    option(
        "engine-request-limit",
        integer(1, 1 << 20),
        "Requests a worker answers at once, with the short queue of --engine-request-queue-limit.",
    )
    .env(&["DYN_ENGINE_REQUEST_LIMIT"]),
    option(
        "engine-request-queue-limit",
        integer(0, 1 << 24),
        "Requests that wait beyond --engine-request-limit; more are refused.",
    )
    .env(&["DYN_DYNAMO_REQUEST_QUEUE_LIMIT"])
    .default("16"),
    option("tcp-max-message-size", bytes(1 << 16, 1 << 32), "Largest request frame.")
        .env(&["DYN_TCP_MAX_MESSAGE_SIZE"])
        .default("33554432"),
    option(
        "system-port",
        integer(0, 65_535),
        "Port at which the first worker offers its model files; 0 takes free ones. Unset: the card names local \
         paths.",
    ),
];
