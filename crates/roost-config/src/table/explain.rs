//! The question to a running frontend.

use crate::spec::{Kind, OptionSpec, integer, option};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "id",
        Kind::Text,
        "Id of an answer (`chatcmpl-…`) or of a session; also without the flag. Unset: the latest decisions.",
    ),
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
    option("limit", integer(1, 64), "Decisions to show.").default("8"),
];
