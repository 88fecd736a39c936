//! Plain SGLang servers.

use crate::spec::{Kind, OptionSpec, integer, milliseconds, option};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "sglang",
        Kind::Words,
        "SGLang servers to route to, without Dynamo: `http://HOST:PORT`, several after one flag or in several flags. A \
         name with several addresses is a server for each. Everything else is asked of the servers.",
    )
    .aliases(&["worker-urls"]),
    option(
        "sglang-prefill",
        Kind::Words,
        "SGLang servers started as prefill workers: `URL`, or `URL PORT` or `URL,PORT` where the bootstrap server has \
         another port than the server says.",
    )
    .aliases(&["prefill"]),
    option("sglang-decode", Kind::Words, "SGLang servers started as decode workers.").aliases(&["decode"]),
    option(
        "sglang-file",
        Kind::Path,
        "File with SGLang servers, one a line (`URL`, `prefill URL [PORT]`, `decode URL`), read again when it changes.",
    ),
    option("sglang-api-key", Kind::Text, "Key that is sent to SGLang servers as bearer token.").secret(),
    option(
        "sglang-probe-interval-ms",
        milliseconds(100.0, 600_000.0),
        "Pause between two looks at a server's readiness, and between two tries to reach one that is away.",
    )
    .default("2000"),
    option(
        "sglang-resolve-interval-ms",
        milliseconds(100.0, 3_600_000.0),
        "Pause between two resolutions of the servers' names, and between two looks at the file.",
    )
    .default("10000"),
    option("pd-disaggregation", Kind::Switch, "Prefill and decode run on servers of their own.")
        .default("false")
        .no_effect("servers given as prefill and decode workers are used so"),
];

pub(crate) static ENGINE: &[OptionSpec] = &[
    option("engine", Kind::Text, "Address of the SGLang server: `http://HOST:PORT`."),
    option("engine-api-key", Kind::Text, "Key that is sent to it as bearer token.").secret(),
    option("model-name", Kind::Text, "Name under which the model is served; unset: the server's.")
        .env(&["DYN_MODEL_NAME"]),
    option(
        "model-path",
        Kind::Path,
        "Folder with tokenizer, chat template and configuration; unset: the server's own path, if it can be read here.",
    )
    .env(&["DYN_MODEL_PATH"]),
    option(
        "bootstrap-host",
        Kind::Text,
        "Host at which decode servers reach a prefill server's bootstrap server; unset: the host of --engine.",
    ),
    option("bootstrap-port", integer(1, 65_535), "Port of that bootstrap server; unset: as the server says."),
    option("kv-events", Kind::Switch, "Follow the server's KV events and publish them.").default("true"),
    option(
        "probe-interval-ms",
        milliseconds(100.0, 600_000.0),
        "Pause between two looks at the server's readiness. The worker registers when it is ready and leaves when it \
         is not.",
    )
    .default("2000"),
];
