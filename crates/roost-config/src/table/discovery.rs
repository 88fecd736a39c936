//! Where workers are found.

use crate::spec::{Kind, OptionSpec, milliseconds, option};

const UNAVAILABLE: &str = "is not available in this build";

pub(crate) const BACKEND: OptionSpec = option(
    "discovery-backend",
    Kind::Choice {
        accepted: &["file", "mem"],
        unavailable: &[("etcd", UNAVAILABLE), ("kubernetes", UNAVAILABLE)],
    },
    "Where workers register: a folder on a shared file system, or this process alone.",
)
.env(&["DYN_DISCOVERY_BACKEND"])
.default("file")
.dynamo_default("etcd");

pub(crate) const FILE_KV: OptionSpec = option("file-kv", Kind::Path, "Folder of the file backend.")
    .env(&["DYN_FILE_KV"])
    .default("$TMPDIR/dynamo_store_kv");

pub(crate) static OPTIONS: &[OptionSpec] = &[
    BACKEND,
    FILE_KV,
    option("namespace", Kind::Text, "Use workers of this namespace only; unset: of all.")
        .env(&["DYN_NAMESPACE"]),
    option(
        "namespace-prefix",
        Kind::Text,
        "Use workers of namespaces that begin with this. Wins over --namespace.",
    )
    .env(&["DYN_NAMESPACE_PREFIX"]),
    option(
        "discovery-poll-interval-ms",
        milliseconds(50.0, 60_000.0),
        "How often the folder is read; also bounds how late a vanished worker is noticed.",
    )
    .default("1000"),
    option(
        "card-cache-dir",
        Kind::Path,
        "Folder for model files that workers offer by URL; unset: a folder below the system's temporary one.",
    ),
    option("etcd-endpoints", Kind::Text, "Addresses of etcd.")
        .env(&["ETCD_ENDPOINTS"])
        .no_effect("it belongs to the etcd backend, which is not available in this build"),
];
