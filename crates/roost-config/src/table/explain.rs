//! Questions to a running frontend.

use crate::spec::{Kind, OptionSpec, choice, integer, option, seconds};

/// Who is asked.
pub(crate) static FRONTEND: &[OptionSpec] = &[
    option("url", Kind::Text, "Where the frontend serves, `http` or `https`; `unix:/path` for a socket.")
        .default("http://127.0.0.1:8000"),
    option("api-key", Kind::Text, "Key to show, where the frontend asks for one.").secret(),
    option(
        "tls-ca-cert-path",
        Kind::Path,
        "Certificates, PEM, to trust instead of the system's, with `https`.",
    ),
    option("tls-client-cert-path", Kind::Path, "Own certificate, PEM, where the frontend asks for one."),
    option("tls-client-key-path", Kind::Path, "Private key to that, PEM."),
];

/// Options of `explain`.
pub(crate) static EXPLAIN: &[OptionSpec] = &[
    option(
        "id",
        Kind::Text,
        "Id of an answer (`chatcmpl-…`) or of a session; also without the flag. Unset: the latest decisions.",
    ),
    option("limit", integer(1, 64), "Decisions to show.").default("8"),
];

/// Options of `top`.
pub(crate) static TOP: &[OptionSpec] = &[
    option("once", Kind::Switch, "Show it once and exit; so it is where the output is no terminal.")
        .default("false"),
    option("interval", seconds(0.2, 3600.0), "Time between two looks.").default("2"),
    option(
        "sort",
        choice(&["requests", "kv", "sessions", "hits"]),
        "What ranks are ordered by, the largest first.",
    )
    .default("requests"),
    option("filter", Kind::Text, "Part of the names of workers and sessions to show. Unset: all."),
    option("limit", integer(1, 1000), "Ranks and sessions to show, each.").default("20"),
];
