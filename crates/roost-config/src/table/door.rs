//! Who may come in: TLS of the HTTP listener, API keys, browsers.

use crate::spec::{Kind, OptionSpec, option, seconds};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "tls-cert-path",
        Kind::Path,
        "Certificate chain of the HTTP listener, PEM; with the key it turns TLS on. Read again as it is renewed.",
    )
    .env(&["DYN_TLS_CERT_PATH"]),
    option("tls-key-path", Kind::Path, "Private key to that, PEM.").env(&["DYN_TLS_KEY_PATH"]),
    option(
        "tls-client-ca-cert-path",
        Kind::Path,
        "Authorities that clients must be certified by, PEM: mutual TLS. Probes need a certificate, too.",
    )
    .env(&["DYN_TLS_CLIENT_CA_CERT_PATH"]),
    option("tls-handshake-timeout-secs", seconds(0.001, 3600.0), "Time for a TLS handshake.").default("10"),
    option(
        "api-key",
        Kind::Text,
        "Key that clients must show (`Authorization: Bearer KEY` or `x-api-key: KEY`) on every route but /health, /live \
         and /metrics. Better set as a variable than as a flag, which others can see.",
    )
    .secret(),
    option(
        "api-key-file",
        Kind::Path,
        "File of such keys, one a line; lines that begin with # are skipped. Read again when it changes.",
    ),
    option(
        "admin-api-key",
        Kind::Text,
        "Key of /busy_threshold, /debug/routing and what /console shows. Without one the keys of clients open them, too.",
    )
    .secret(),
    option("admin-api-key-file", Kind::Path, "File of such keys."),
    option(
        "http-cors-origins",
        Kind::Text,
        "Origins whose web pages may call, such as `https://chat.example.com`, separated by commas; `*`: any. Unset: \
         browsers let no page read an answer.",
    ),
    option(
        "http-unix-socket",
        Kind::Path,
        "Listen on this socket in the file system as well, without TLS. One that nobody listens on is replaced.",
    ),
];
