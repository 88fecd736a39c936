//! TLS between frontends and workers.

use crate::spec::{Kind, OptionSpec, option, seconds};

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "tcp-tls-cert-path",
        Kind::Path,
        "Certificate of our listener, PEM; with the key it turns TLS on for connections that come in.",
    )
    .env(&["DYN_TCP_TLS_CERT_PATH"]),
    option("tcp-tls-key-path", Kind::Path, "Private key of our listener, PEM.")
        .env(&["DYN_TCP_TLS_KEY_PATH"]),
    option(
        "tcp-tls-ca-cert-path",
        Kind::Path,
        "CA that the other side is checked against, PEM; turns TLS on for connections that go out.",
    )
    .env(&["DYN_TCP_TLS_CA_CERT_PATH"]),
    option(
        "tcp-tls-insecure",
        Kind::Switch,
        "TLS for connections that go out, with whoever answers. For trials only.",
    )
    .env(&["DYN_TCP_TLS_INSECURE"])
    .default("false"),
    option(
        "tcp-tls-server-name",
        Kind::Text,
        "Name that the other side's certificate must be for; unset: its IP address.",
    )
    .env(&["DYN_TCP_TLS_SERVER_NAME"]),
    option("tcp-tls-client-cert-path", Kind::Path, "Certificate to show when connecting, PEM: mutual TLS.")
        .env(&["DYN_TCP_TLS_CLIENT_CERT_PATH"]),
    option("tcp-tls-client-key-path", Kind::Path, "Private key to that, PEM.")
        .env(&["DYN_TCP_TLS_CLIENT_KEY_PATH"]),
    option(
        "tcp-tls-client-ca-cert-path",
        Kind::Path,
        "CA that whoever connects must be certified by, PEM: mutual TLS.",
    )
    .env(&["DYN_TCP_TLS_CLIENT_CA_CERT_PATH"]),
    option("tcp-tls-handshake-timeout-secs", seconds(0.001, 3600.0), "Time for a TLS handshake.")
        .env(&["DYN_TCP_TLS_HANDSHAKE_TIMEOUT_SECS"])
        .default("3"),
];
