//! The question to a running frontend.

use crate::spec::{Kind, OptionSpec, integer, option};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "id",
        Kind::Text,
        "Id of an answer (`chatcmpl-…`) or of a session; also without the flag. Unset: the latest decisions.",
    ),
    option("url", Kind::Text, "Where the frontend serves, over plain HTTP; `unix:/path` for a socket.")
        .default("http://127.0.0.1:8000"),
    option("limit", integer(1, 64), "Decisions to show.").default("8"),
];
