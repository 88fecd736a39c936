//! Bounds of the frontend's own queues and waits. Dynamo's frontend has none of them.

use crate::spec::{OptionSpec, integer, option, seconds};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option("max-inflight", integer(0, 1 << 24), "Requests in progress at most; 0: no limit.").default("0"),
    option(
        "model-wait-secs",
        seconds(0.0, 3600.0),
        "How long a request waits for its model while files are being loaded or workers looked for at the start; then, \
         or at once with 0, it is answered with 503.",
    )
    .default("10")
    .dynamo_default("0"),
    option("held-requests", integer(0, 1 << 20), "Requests that may wait so; more are answered with 503.")
        .default("1024"),
    option(
        "prepare-threads",
        integer(1, 1024),
        "Threads that render, tokenize and hash prompts; unset: one less than the number of cores, at least one.",
    ),
    option(
        "prepare-queue",
        integer(1, 1 << 20),
        "Requests that may wait for such a thread; more are answered as overload.",
    )
    .default("4096"),
    option(
        "http-idle-timeout-secs",
        seconds(0.0, 86_400.0),
        "Time a connection may take to send the head of its next request, idle time included; 0: no limit. Agents think for minutes.",
    )
    .default("3600")
    .dynamo_default("no limit"),
    option(
        "http-body-stall-timeout-secs",
        seconds(0.0, 3600.0),
        "Longest pause between two pieces of a request body; 0: no limit.",
    )
    .default("60")
    .dynamo_default("no limit"),
];
