//! The replay of sessions against live endpoints.

use crate::spec::{Kind, OptionSpec, integer, number, option, seconds};

/// The longest run, a week.
const LONGEST_SECONDS: f64 = 604_800.0;

pub(crate) static TARGETS: &[OptionSpec] = &[
    option(
        "url",
        Kind::Texts,
        "An OpenAI endpoint, `[NAME=]http://HOST:PORT[#PID]`, also without the flag; once for each. They are measured in \
         turn and the others are set in relation to the last. With the process id of a server on this machine its \
         processor time and memory are measured, too.",
    ),
    option("model", Kind::Text, "Name of the model; unset: the first that an endpoint lists."),
];

pub(crate) static TRACE: &[OptionSpec] = &[
    option(
        "trace",
        Kind::Texts,
        "Files of one trace: Dynamo's request trace with replay hashes, Mooncake's JSONL or Weka's JSON, plain.",
    ),
    option(
        "generate",
        Kind::Text,
        "Without a trace, sessions like those of coding agents: sessions, seed, block, applications, subagents, forks, \
         think, turns, context.",
    )
    .default("sessions=2000,seed=1"),
    option("mooncake-block-size", integer(1, 1 << 20), "Tokens per block of a Mooncake trace.").default("512"),
];

pub(crate) static LOAD: &[OptionSpec] = &[
    option(
        "lanes",
        integer(1, 1 << 20),
        "Sessions at the same time, sub-agents not counted; the next begins when one ends.",
    )
    .default("16"),
    option(
        "ramp-secs",
        seconds(0.0, LONGEST_SECONDS),
        "They begin spread over this time, which is not measured.",
    )
    .default("5"),
    option("duration-secs", seconds(0.1, LONGEST_SECONDS), "Time that is measured in each round.")
        .default("20"),
    option("rounds", integer(1, 1000), "Rounds against each endpoint.").default("3"),
    option("longest-pause-secs", seconds(0.0, LONGEST_SECONDS), "The longest pause between two turns.")
        .default("0"),
    option("time-scale", number(0.0, 1e6), "Factor on pauses and recorded times.").default("1"),
    option("longest-answer", integer(1, 1 << 24), "The longest answer asked for, tokens.").default("4096"),
    option("patience-secs", seconds(0.1, LONGEST_SECONDS), "How long a request may take.").default("600"),
    option("threads", integer(1, 1024), "Threads of the client.").default("1"),
    option("seed", integer(0, u64::MAX), "Seed of the text.").default("1"),
    option(
        "report",
        Kind::Path,
        "File for an HTML page with charts: TTFT, ITL, cached share over time, answers of each worker.",
    ),
    option("json", Kind::Switch, "Print JSON instead of a table.").default("false"),
];
