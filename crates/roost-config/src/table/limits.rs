//! Bounds of the frontend's own queues and waits. Dynamo's frontend has none of them.

use crate::spec::{OptionSpec, bytes, integer, mebibytes, option, seconds};

const NO_LIMIT: &str = "no limit";

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "max-inflight",
        integer(0, 1 << 24),
        "Requests in progress at most, more get 503; 0: no limit. Off by default: what workers can take is known to them, \
         and the router asks them (see the busy thresholds).",
    )
    .default("0"),
    option(
        "max-connections",
        integer(1, 1 << 24),
        "Open client connections at most. On a few more, probes are answered and anything else gets 503; the rest waits. \
         Each streamed answer takes two descriptors: see --frontend-fd-limit-target.",
    )
    .default("16384")
    .dynamo_default(NO_LIMIT),
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
        "http-header-timeout-secs",
        seconds(0.0, 3600.0),
        "Time for a whole request head, from its first byte (the first one: from the start of the connection); 0: no \
         limit. A head comes in one packet; what takes longer than any lossy line is no client.",
    )
    .default("30")
    .dynamo_default(NO_LIMIT),
    option(
        "http-idle-timeout-secs",
        seconds(0.0, 86_400.0),
        "Time a connection may stay open without a request; 0: no limit. Agents think for minutes, and a client must \
         not find its pooled connections closed: longer than any client keeps them.",
    )
    .default("3600")
    .dynamo_default(NO_LIMIT),
    option(
        "http-body-stall-timeout-secs",
        seconds(0.0, 3600.0),
        "Longest pause between two pieces of a request body, then 408; a body that trickles has this much time and one \
         second more for each KiB; 0: no limit.",
    )
    .default("60")
    .dynamo_default(NO_LIMIT),
    option(
        "http-write-stall-timeout-secs",
        seconds(0.0, 86_400.0),
        "Longest time in which a client takes nothing of its answer; then the worker is freed and the connection \
         closed; 0: no limit. Longer than a suspended or reconnecting client usually needs, for its KV cache is held.",
    )
    .default("120")
    .dynamo_default(NO_LIMIT),
    option(
        "http-body-memory-mb",
        mebibytes(0, 1 << 20),
        "Memory for all request bodies above 64 KiB that are being read or prepared, more get 503; 0: no limit. \
         Bodies are kept for milliseconds: this much is in use only when many clients send slowly.",
    )
    .default("2048")
    .dynamo_default(NO_LIMIT),
    option(
        "http-max-header-bytes",
        bytes(8 << 10, 16 << 20),
        "Largest request head, more is 431; also what may wait unsent for a client of HTTP/1. Room for large tokens and \
         trace headers.",
    )
    .default("65536")
    .dynamo_default("about 400 KiB"),
    option("http-max-headers", integer(8, 4096), "Most header lines of a request, more is 431.").default("100"),
];
