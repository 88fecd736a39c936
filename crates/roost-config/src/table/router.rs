//! Worker selection and session affinity.

use crate::spec::{Kind, OptionSpec, choice, integer, number, option, seconds};

/// The longest lifetime Dynamo accepts: a year.
const YEAR_SECONDS: f64 = 31_536_000.0;

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "router-mode",
        Kind::Choice {
            accepted: &["kv", "round-robin", "random", "power-of-two", "least-loaded", "direct"],
            unavailable: &[("device-aware-weighted", "is not available in this build")],
        },
        "How a worker is chosen: by KV overlap and load, in turn, at random, the less loaded of two at random, the \
         least loaded, or the one the request names.",
    )
    .env(&["DYN_ROUTER_MODE"])
    .default("round-robin"),
    option(
        "load-aware",
        Kind::Switch,
        "Preset: --router-mode kv by load alone (overlap credit 0, no KV events, no assumed reuse). Wins over those \
         options.",
    )
    .env(&["DYN_ROUTER_LOAD_AWARE"])
    .default("false"),
    option(
        "router-min-initial-workers",
        integer(0, 1_000_000),
        "Not ready before this many workers were seen.",
    )
    .env(&["DYN_ROUTER_MIN_INITIAL_WORKERS"])
    .default("0"),
    option("kv-cache-block-size", integer(1, 1 << 20), "Tokens per KV block; unset: from the worker's card.")
        .env(&["DYN_KV_CACHE_BLOCK_SIZE"]),
    option(
        "router-kv-events",
        Kind::Switch,
        "Follow the workers' KV events. Off: an approximate index of the prompts routed before.",
    )
    .aliases(&["kv-events"])
    .env(&["DYN_ROUTER_USE_KV_EVENTS", "DYN_USE_KV_EVENTS"])
    .default("true"),
    option(
        "router-ttl-secs",
        seconds(0.001, YEAR_SECONDS),
        "Lifetime of an entry of the approximate index.",
    )
    .env(&["DYN_ROUTER_TTL_SECS"])
    .default("120"),
    option(
        "router-temperature",
        number(0.0, f64::MAX),
        "Softmax temperature over normalised cost. 0 takes the lowest cost; a very large one is uniform.",
    )
    .env(&["DYN_ROUTER_TEMPERATURE"])
    .default("0"),
    option(
        "router-kv-overlap-score-credit",
        number(0.0, f64::MAX),
        "Weight of prompt blocks a worker holds on its device; 0: no index.",
    )
    .env(&["DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"])
    .default("1"),
    option(
        "router-kv-overlap-score-credit-decay",
        number(0.0, f64::MAX),
        "How fast that weight falls on workers with more prefill than the least loaded one; 0: it does not.",
    )
    .env(&["DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY"])
    .default("0"),
    option(
        "router-kv-overlap-score-weight",
        number(0.0, f64::MAX),
        "Old option: sets --router-prefill-load-scale to its value, and the overlap credit to 0 when it is 0.",
    )
    .aliases(&["kv-overlap-score-weight"])
    .env(&["DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT", "DYN_OVERLAP_SCORE_WEIGHT"]),
    option(
        "router-prefill-load-scale",
        number(0.0, f64::MAX),
        "Weight of the prefill term of the cost.",
    )
    .env(&["DYN_ROUTER_PREFILL_LOAD_SCALE"])
    .default("1"),
    option(
        "router-decode-active-request-weight",
        number(0.0, f64::MAX),
        "Blocks charged per active request.",
    )
    .env(&["DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT"])
    .default("0"),
    option(
        "router-host-cache-hit-weight",
        number(0.0, 1.0),
        "Weight of blocks held in host memory.",
    )
    .env(&["DYN_ROUTER_HOST_CACHE_HIT_WEIGHT"])
    .default("0.75"),
    option("router-disk-cache-hit-weight", number(0.0, 1.0), "Weight of blocks held on disk.")
        .env(&["DYN_ROUTER_DISK_CACHE_HIT_WEIGHT"])
        .default("0.25"),
    option("router-track-active-blocks", Kind::Switch, "Count the prompt blocks of running requests.")
        .aliases(&["track-active-blocks"])
        .env(&["DYN_ROUTER_TRACK_ACTIVE_BLOCKS"])
        .default("true"),
    option("router-track-output-blocks", Kind::Switch, "Also count generated blocks.")
        .aliases(&["track-output-blocks"])
        .env(&["DYN_ROUTER_TRACK_OUTPUT_BLOCKS"])
        .default("false"),
    option("router-track-prefill-tokens", Kind::Switch, "Count prompt tokens until the first token.")
        .env(&["DYN_ROUTER_TRACK_PREFILL_TOKENS"])
        .default("true"),
    option(
        "router-assume-kv-reuse",
        Kind::Switch,
        "Equal prompt blocks of two running requests count once. Off: every request's blocks are its own.",
    )
    .aliases(&["assume-kv-reuse"])
    .env(&["DYN_ROUTER_ASSUME_KV_REUSE"])
    .default("true"),
    option(
        "router-active-request-expiry-secs",
        seconds(1.0, YEAR_SECONDS),
        "The booking of another frontend's request is dropped after one to two times this without a word of it.",
    )
    .env(&["DYN_ROUTER_ACTIVE_REQUEST_EXPIRY_SECS"])
    .default("300"),
    option(
        "active-decode-blocks-threshold",
        number(0.0, 1.0),
        "A worker is busy above this fraction of used KV blocks. Unset or None: off.",
    )
    .env(&["DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD"]),
    option(
        "active-prefill-tokens-threshold",
        integer(0, u64::MAX),
        "A worker is busy above this many prefill tokens in progress. Unset or None: off.",
    )
    .env(&["DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD"]),
    option(
        "active-prefill-tokens-threshold-frac",
        number(0.0, f64::MAX),
        "A worker is busy above this fraction of its batch token limit in prefill. Unset or None: off.",
    )
    .env(&["DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC"]),
    option(
        "router-queue-threshold",
        number(0.0, f64::MAX),
        "Hold requests while every worker has more prefill to do than this many times its batch token limit. Unset \
         or None: none waits.",
    )
    .env(&["DYN_ROUTER_QUEUE_THRESHOLD"]),
    option(
        "router-queue-policy",
        choice(&["fcfs", "lcfs", "wspt"]),
        "Which of the held requests goes first: the first to come, the last, or the one with the fewest tokens to \
         compute.",
    )
    .env(&["DYN_ROUTER_QUEUE_POLICY"])
    .default("fcfs"),
    option("router-queue-limit", integer(1, 1 << 20), "Requests that may be held; more are refused.")
        .default("4096"),
    option(
        "router-queue-max-wait-secs",
        seconds(0.0, 86_400.0),
        "A request held longer than this is refused with 429.",
    )
    .default("120"),
    option(
        "router-conditional-disagg",
        Kind::Switch,
        "Let decode workers compute prompts of which they have most already, beside prefill workers. For engines that \
         can: vLLM and TensorRT-LLM; SGLang's refuses.",
    )
    .env(&["DYN_ROUTER_CONDITIONAL_DISAGG"])
    .default("false"),
    option(
        "router-conditional-disagg-config",
        Kind::Text,
        "JSON object: policy (isl_bounding: fewer than eff_isl_threshold, 2048, new tokens, and less than \
         eff_isl_ratio_threshold, 0.7, of the prompt; prefill_load: the prefill worker has more prompt tokens to compute \
         than prefill_busy_threshold times its batch token limit; isl_or_load) and decode_busy_threshold, the share of KV \
         blocks beyond which a decode worker is left alone.",
    )
    .env(&["DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG"]),
    option(
        "runtime-inhibited-duration-secs",
        seconds(0.0, 86_400.0),
        "First quarantine of a failed worker; it doubles while the worker keeps failing. 0: off.",
    )
    .env(&["DYN_RUNTIME_INHIBITED_DURATION_SECS"])
    .default("5"),
    option(
        "seed",
        integer(0, u64::MAX),
        "Seed of tie-breaks and draws, to repeat a run; unset: from the operating system.",
    ),
];

pub(crate) static AFFINITY: &[OptionSpec] = &[
    option(
        "router-session-affinity-ttl-secs",
        seconds(1.0, YEAR_SECONDS),
        "Turns affinity on: the turns of a session go to the same worker until it was idle for this long. Prefill \
         and decode workers each have their own table.",
    )
    .env(&["DYN_ROUTER_SESSION_AFFINITY_TTL_SECS"]),
    option(
        "router-session-affinity-mode",
        choice(&["bounded", "strict", "hard", "soft", "off"]),
        "bounded: a session also leaves its worker when that is much busier than another and its cache is cheap to \
         build again. strict, and Dynamo's hard and soft: a bound worker is used while it can serve. off: sessions \
         are not bound. See docs/affinity.md.",
    )
    .env(&["DYN_ROUTER_SESSION_AFFINITY_MODE"])
    .default("bounded"),
    option(
        "router-session-affinity-load-ratio",
        number(1.0, f64::MAX),
        "In mode bounded, how many times as busy as the best other worker a session's own must be before it leaves.",
    )
    .default("2"),
    option(
        "router-session-affinity-rebuild-factor",
        number(0.0, f64::MAX),
        "In mode bounded, the gain of leaving is at least this many times the cached prompt that has to be computed \
         again.",
    )
    .default("6"),
    option(
        "router-session-affinity-hot-tokens",
        integer(0, u32::MAX as u64),
        "In mode bounded, the gain of leaving is at least this many tokens more than that.",
    )
    .default("16384"),
    option(
        "router-session-affinity-promise-weight",
        number(0.0, f64::MAX),
        "How much the tokens that a rank's sessions will bring again count against it when a session starts. 0: \
         nothing.",
    )
    .default("2"),
    option(
        "router-session-affinity-promise-cap-tokens",
        integer(0, u32::MAX as u64),
        "The most that they count, tokens. A prefix of its own longer than this brings a session back to its cache.",
    )
    .default("16384"),
    option(
        "router-session-affinity-decode-ttl-secs",
        seconds(0.0, YEAR_SECONDS),
        "Lifetime for decode and aggregated workers, where it differs; 0 or off: no affinity there.",
    ),
    option(
        "router-session-affinity-prefill-ttl-secs",
        seconds(0.0, YEAR_SECONDS),
        "Lifetime for prefill workers, where it differs; 0 or off: no affinity there.",
    ),
    option(
        "router-session-affinity-capacity",
        integer(1, 1 << 26),
        "Bindings per table. When it is full, the binding that was idle longest makes room.",
    )
    .default("65536"),
    option(
        "router-session-affinity-file",
        Kind::Path,
        "File in which bindings outlive a restart; written whole, read in the background. Unset: they do not, unless \
         other frontends know them.",
    ),
    option(
        "router-session-affinity-file-interval-secs",
        seconds(1.0, 86_400.0),
        "Time between two writes of that file; it is written at the end too.",
    )
    .default("30"),
];
