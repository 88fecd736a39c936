//! Routing features of Dynamo that roost does not have, and options that no longer mean anything.

use super::NOT_AVAILABLE;
use crate::spec::{Kind, OptionSpec, choice, integer, number, option, seconds};

const GONE: &str = "it has no meaning since Dynamo 1.6";
const OWN_INDEX: &str = "the index of this build has no such thread pool";

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option("router-approximate-cache-policy", choice(&["ttl", "lru"]), "Retention of the approximate index.")
        .env(&["DYN_ROUTER_APPROXIMATE_CACHE_POLICY"])
        .default("ttl")
        .refused(NOT_AVAILABLE),
    option(
        "router-predicted-ttl-secs",
        seconds(0.0, 31_536_000.0),
        "With events, also record the routed prompt for this long.",
    )
    .env(&["DYN_ROUTER_PREDICTED_TTL_SECS"])
    .refused(NOT_AVAILABLE),
    option("router-event-threads", integer(1, 4096), "Threads of Dynamo's index.")
        .env(&["DYN_ROUTER_EVENT_THREADS"])
        .default("4")
        .no_effect(OWN_INDEX),
    option(
        "router-overlap-refresh-after-secs",
        seconds(0.0, 86_400.0),
        "Age of an overlap that is looked up again.",
    )
    .env(&["DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS"])
    .default("10")
    .no_effect("requests do not wait in the router, so an overlap does not age"),
    option(
        "router-model-card-wait-secs",
        seconds(0.0, 86_400.0),
        "How long Dynamo's router waits for a card.",
    )
    .env(&["DYN_ROUTER_MODEL_CARD_WAIT_SECS"])
    .no_effect("a worker is used as soon as its card is there"),
    option("router-prefill-load-model", choice(&["none", "ais"]), "Model that predicts prefill time.")
        .env(&["DYN_ROUTER_PREFILL_LOAD_MODEL"])
        .default("none")
        .refused(NOT_AVAILABLE),
    option("router-policy-config", Kind::Path, "Policy classes and selection plugins (YAML).")
        .env(&["DYN_ROUTER_POLICY_CONFIG"])
        .refused(NOT_AVAILABLE),
    option("router-prefill-policy", choice(&["default"]), "Named selection policy of prefill workers.")
        .env(&["DYN_ROUTER_PREFILL_POLICY"])
        .default("default")
        .refused(NOT_AVAILABLE),
    option("router-decode-policy", choice(&["default"]), "Named selection policy of decode workers.")
        .env(&["DYN_ROUTER_DECODE_POLICY"])
        .default("default")
        .refused(NOT_AVAILABLE),
    option("router-worker-selection-policy", Kind::Text, "Selection plugin.")
        .env(&["DYN_ROUTER_WORKER_SELECTION_POLICY"])
        .refused(NOT_AVAILABLE),
    option("use-remote-indexer", Kind::Switch, "Ask an index served by workers.")
        .env(&["DYN_USE_REMOTE_INDEXER"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("serve-indexer", Kind::Switch, "Serve the index to others.")
        .env(&["DYN_SERVE_INDEXER"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("shared-cache-type", choice(&["none", "hicache"]), "Shared cache to ask.")
        .env(&["DYN_SHARED_CACHE_TYPE"])
        .default("none")
        .refused(NOT_AVAILABLE),
    option("shared-cache-multiplier", number(0.0, 1.0), "Weight of blocks in the shared cache.")
        .env(&["DYN_SHARED_CACHE_MULTIPLIER"])
        .no_effect("there is no shared cache"),
    option(
        "router-tracking-hash",
        choice(&["public-xxh3-v1", "keyed-xxh3-v1"]),
        "Hash of bookings shared between frontends.",
    )
    .env(&["DYN_ROUTER_TRACKING_HASH"])
    .default("public-xxh3-v1")
    .refused(NOT_AVAILABLE),
    option("router-tracking-key-file", Kind::Path, "Key of that hash.")
        .env(&["DYN_ROUTER_TRACKING_KEY_FILE"])
        .refused(NOT_AVAILABLE),
    option("router-tracking-key-id", Kind::Text, "Name of that key.")
        .env(&["DYN_ROUTER_TRACKING_KEY_ID"])
        .refused(NOT_AVAILABLE),
    option(
        "encoder-cuda-to-cpu-ratio",
        integer(1, u64::MAX),
        "Share of accelerators in device-aware routing.",
    )
    .env(&["DYN_ENCODER_CUDA_TO_CPU_RATIO"])
    .no_effect("--router-mode device-aware-weighted is not available"),
    option("enable-session-prefix-index", Kind::Switch, "Block lineage per session.")
        .env(&["DYN_ENABLE_SESSION_PREFIX_INDEX"])
        .default("false")
        .no_effect("in Dynamo, too, nothing uses that index"),
    option("enforce-disagg", Kind::Switch, "Old topology switch.")
        .env(&["DYN_ENFORCE_DISAGG"])
        .default("false")
        .no_effect("the topology follows from the registered workers"),
    option("admission-control", choice(&["token-capacity", "none"]), "Old admission switch.")
        .env(&["DYN_ADMISSION_CONTROL"])
        .default("none")
        .no_effect(GONE),
    option("router-snapshot-threshold", integer(0, u64::MAX), "Old option.")
        .env(&["DYN_ROUTER_SNAPSHOT_THRESHOLD"])
        .no_effect(GONE),
    option("router-reset-states", Kind::Switch, "Old option.")
        .env(&["DYN_ROUTER_RESET_STATES"])
        .default("false")
        .no_effect(GONE),
    option("router-durable-kv-events", Kind::Switch, "Old option.")
        .aliases(&["durable-kv-events"])
        .env(&["DYN_ROUTER_DURABLE_KV_EVENTS"])
        .default("false")
        .no_effect(GONE),
    option("router-max-tree-size", integer(0, u64::MAX), "Old option.")
        .env(&["DYN_ROUTER_MAX_TREE_SIZE"])
        .no_effect(GONE),
    option("router-prune-target-ratio", number(0.0, 1.0), "Old option.")
        .env(&["DYN_ROUTER_PRUNE_TARGET_RATIO"])
        .no_effect(GONE),
    option("ais-perf-config", Kind::Text, "Prefill time model.")
        .env(&["DYN_AIS_PERF_CONFIG"])
        .refused(NOT_AVAILABLE),
    option("ais-backend", Kind::Text, "Prefill time model.")
        .aliases(&["aic-backend"])
        .env(&["DYN_AIS_BACKEND", "DYN_AIC_BACKEND"])
        .refused(NOT_AVAILABLE),
    option("ais-system", Kind::Text, "Prefill time model.")
        .aliases(&["aic-system"])
        .env(&["DYN_AIS_SYSTEM", "DYN_AIC_SYSTEM"])
        .refused(NOT_AVAILABLE),
    option("ais-backend-version", Kind::Text, "Prefill time model.")
        .aliases(&["aic-backend-version"])
        .env(&["DYN_AIS_BACKEND_VERSION", "DYN_AIC_BACKEND_VERSION"])
        .refused(NOT_AVAILABLE),
    option("ais-tp-size", integer(1, u64::MAX), "Prefill time model.")
        .aliases(&["aic-tp-size"])
        .env(&["DYN_AIS_TP_SIZE", "DYN_AIC_TP_SIZE"])
        .refused(NOT_AVAILABLE),
    option("ais-model-path", Kind::Text, "Prefill time model.")
        .aliases(&["aic-model-path"])
        .env(&["DYN_AIS_MODEL_PATH", "DYN_AIC_MODEL_PATH"])
        .refused(NOT_AVAILABLE),
    option("ais-moe-tp-size", integer(1, u64::MAX), "Prefill time model.")
        .aliases(&["aic-moe-tp-size"])
        .env(&["DYN_AIS_MOE_TP_SIZE", "DYN_AIC_MOE_TP_SIZE"])
        .refused(NOT_AVAILABLE),
    option("ais-moe-ep-size", integer(1, u64::MAX), "Prefill time model.")
        .aliases(&["aic-moe-ep-size"])
        .env(&["DYN_AIS_MOE_EP_SIZE", "DYN_AIC_MOE_EP_SIZE"])
        .refused(NOT_AVAILABLE),
    option("ais-attention-dp-size", integer(1, u64::MAX), "Prefill time model.")
        .aliases(&["aic-attention-dp-size"])
        .env(&["DYN_AIS_ATTENTION_DP_SIZE", "DYN_AIC_ATTENTION_DP_SIZE"])
        .refused(NOT_AVAILABLE),
    option("ais-nextn", integer(0, u64::MAX), "Prefill time model.")
        .aliases(&["aic-nextn"])
        .env(&["DYN_AIS_NEXTN", "DYN_AIC_NEXTN"])
        .refused(NOT_AVAILABLE),
    option("ais-nextn-accept-rates", Kind::Text, "Prefill time model.")
        .aliases(&["aic-nextn-accept-rates"])
        .env(&["DYN_AIS_NEXTN_ACCEPT_RATES", "DYN_AIC_NEXTN_ACCEPT_RATES"])
        .refused(NOT_AVAILABLE),
    option("ais-mtp-seed", integer(0, u64::MAX), "Prefill time model.")
        .aliases(&["aic-mtp-seed"])
        .env(&["DYN_AIS_MTP_SEED", "DYN_AIC_MTP_SEED"])
        .refused(NOT_AVAILABLE),
];
