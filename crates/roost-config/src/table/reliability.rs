//! Retries, moves of running requests, and the deadlines of a request. docs/reliability.md argues the defaults.

use crate::spec::{Kind, OptionSpec, integer, option, seconds};

/// A day: longer waits are no limits.
const DAY_SECONDS: f64 = 86_400.0;

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "dispatch-attempts",
        integer(1, 64),
        "Workers a request is tried on before its first token.",
    )
    .default("3")
    .dynamo_default("1"),
    option(
        "migration-limit",
        integer(0, u32::MAX as u64),
        "How often a request that has begun to answer may move to another worker when its own is lost.",
    )
    .env(&["DYN_MIGRATION_LIMIT"])
    .default("0"),
    option(
        "migration-max-seq-len",
        integer(1, u32::MAX as u64),
        "Prompt and answer so far, in tokens, beyond which a request does not move; unset: no limit.",
    )
    .env(&["DYN_MIGRATION_MAX_SEQ_LEN"]),
    option(
        "first-token-timeout-secs",
        seconds(0.0, DAY_SECONDS),
        "Time from the call of a worker to the first token, the wait in its queue and prefill included; 0: no limit.",
    )
    .default("7200")
    .dynamo_default("none, it waits for ever"),
    option(
        "kv-transfer-timeout-secs",
        seconds(0.0, DAY_SECONDS),
        "Time from the end of the prefill leg to the first token of the decode leg; 0: no limit.",
    )
    .default("300")
    .dynamo_default("none, it waits for ever"),
    option(
        "decode-without-prefill",
        Kind::Switch,
        "While there is no prefill worker, give whole requests to decode workers that ask for one. Off: answer 503.",
    )
    .default("false")
    .dynamo_default("true"),
];
