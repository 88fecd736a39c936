//! The offline replay of a trace.

use crate::spec::{Kind, OptionSpec, integer, milliseconds, number, option, seconds};

/// The longest time, a year.
const YEAR_SECONDS: f64 = 31_536_000.0;

pub(crate) static TRACE: &[OptionSpec] = &[
    option(
        "trace",
        Kind::Texts,
        "Files of one trace, also without the flag: Dynamo's request trace with replay hashes, Mooncake's JSONL or \
         Weka's JSON, plain.",
    ),
    option(
        "generate",
        Kind::Text,
        "A trace of agent sessions instead: `sessions=200,seed=1` and, if wanted, block, applications, subagents, \
         forks, think, turns, context.",
    ),
    option("mooncake-block-size", integer(1, 1 << 20), "Tokens per block of a Mooncake trace.").default("512"),
    option(
        "lanes",
        integer(0, 1 << 20),
        "Sessions at the same time, where the trace has no times of its own; the next begins when one ends, and the \
         replay ends when the last has begun. 0: all.",
    )
    .default("0"),
    option(
        "ramp-secs",
        seconds(0.0, YEAR_SECONDS),
        "They begin spread over this time. What is sent within it is not measured.",
    )
    .default("300"),
    option("longest-pause-secs", seconds(0.0, YEAR_SECONDS), "The longest pause between two turns.")
        .default("300"),
    option("time-scale", number(0.0, 1e6), "Factor on pauses and recorded times.").default("1"),
];

pub(crate) static COMPARE: &[OptionSpec] = &[
    option(
        "with",
        Kind::Texts,
        "A set of options of `roost serve` under a name, `strict: --router-session-affinity-mode strict`; once for \
         each. Unset: the common ones alone.",
    ),
    option("common", Kind::Text, "Options that all sets begin with.")
        .default("--router-mode kv --router-session-affinity-ttl-secs 14400"),
    option("json", Kind::Switch, "Print JSON instead of a table.").default("false"),
    option("seed", integer(0, u64::MAX), "Seed of tie-breaks and draws.").default("1"),
];

pub(crate) static FLEET: &[OptionSpec] = &[
    option("workers", integer(1, 100_000), "Workers.").default("16"),
    option("ranks", integer(1, 1024), "Data-parallel ranks of each.").default("1"),
    option("cache-tokens", integer(1, u64::MAX), "KV cache of a rank, tokens.").default("2000000"),
    option("prefill-speed", number(1.0, f64::MAX), "Prompt tokens that a rank computes a second.")
        .default("16000"),
    option(
        "decode-step-ms",
        milliseconds(0.0, 60_000.0),
        "Time from token to token with one running request.",
    )
    .default("8"),
    option(
        "decode-step-each-ms",
        milliseconds(0.0, 60_000.0),
        "What each further running request adds to it.",
    )
    .default("0.25"),
    option("max-batched-tokens", integer(1, u64::MAX), "Prompt tokens that a rank computes at once.")
        .default("16384"),
];
