//! Threads, descriptors and other matters of the process.

use crate::spec::{Kind, OptionSpec, integer, option};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "runtime-num-worker-threads",
        integer(1, 1024),
        "Threads of the network runtime; unset: the number of cores.",
    )
    .env(&["DYN_RUNTIME_NUM_WORKER_THREADS"]),
    option(
        "runtime-max-blocking-threads",
        integer(1, 65_536),
        "Upper bound of the runtime's threads for blocking calls; unset: the runtime's own.",
    )
    .env(&["DYN_RUNTIME_MAX_BLOCKING_THREADS"]),
    option(
        "frontend-fd-limit-target",
        integer(0, 1 << 30),
        "The soft limit of open files is raised to this, or to the hard limit; 0: it is left alone.",
    )
    .env(&["DYN_FRONTEND_FD_LIMIT_TARGET"])
    .default("8192"),
    option("frontend-jemalloc", Kind::Switch, "Dynamo's choice of memory allocator.")
        .env(&["DYN_FRONTEND_JEMALLOC"])
        .default("false")
        .no_effect("the allocator is chosen when roost is built"),
    option("dyn-debug-perf", Kind::Switch, "Dynamo's timing output.")
        .env(&["DYN_DEBUG_PERF"])
        .default("false")
        .no_effect("the time of every stage is in the metrics"),
];
