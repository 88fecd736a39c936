//! The connection to NATS, of those who publish and of those who listen.

use crate::spec::{Kind, OptionSpec, option};

pub(super) const NATS_SERVER: OptionSpec =
    option("nats-server", Kind::Text, "NATS servers of the event plane: URLs, separated by commas.")
        .env(&["NATS_SERVER"])
        .default("nats://localhost:4222")
        .secret();

pub(super) const NATS_AUTH_USERNAME: OptionSpec =
    option("nats-auth-username", Kind::Text, "User towards NATS.").env(&["NATS_AUTH_USERNAME"]);

pub(super) const NATS_AUTH_PASSWORD: OptionSpec =
    option("nats-auth-password", Kind::Text, "Password towards NATS.").env(&["NATS_AUTH_PASSWORD"]).secret();

pub(super) const NATS_AUTH_TOKEN: OptionSpec =
    option("nats-auth-token", Kind::Text, "Token towards NATS, if there is no user.")
        .env(&["NATS_AUTH_TOKEN"])
        .secret();

pub(super) const NATS_AUTH_NKEY: OptionSpec =
    option("nats-auth-nkey", Kind::Text, "Seed of an NKey towards NATS, if there is no token.")
        .env(&["NATS_AUTH_NKEY"])
        .secret();

pub(super) const NATS_AUTH_CREDENTIALS_FILE: OptionSpec =
    option("nats-auth-credentials-file", Kind::Path, "Credentials towards NATS, if there is no NKey.")
        .env(&["NATS_AUTH_CREDENTIALS_FILE"]);

pub(super) const NATS_TLS_CA_CERT_PATH: OptionSpec = option(
    "nats-tls-ca-cert-path",
    Kind::Path,
    "Certificates to trust in NATS servers instead of the system's.",
)
.env(&["NATS_TLS_CA_CERT_PATH"]);

pub(super) const NATS_TLS_INSECURE: OptionSpec =
    option("nats-tls-insecure", Kind::Switch, "Trust any NATS server.")
        .env(&["NATS_TLS_INSECURE"])
        .default("false")
        .refused("a server that anybody can be is not trusted: give --nats-tls-ca-cert-path");

pub(super) const NATS_TLS_CLIENT_CERT_PATH: OptionSpec =
    option("nats-tls-client-cert-path", Kind::Path, "Own certificate towards NATS.")
        .env(&["NATS_TLS_CLIENT_CERT_PATH"]);

pub(super) const NATS_TLS_CLIENT_KEY_PATH: OptionSpec =
    option("nats-tls-client-key-path", Kind::Path, "Key of that certificate.")
        .env(&["NATS_TLS_CLIENT_KEY_PATH"]);
