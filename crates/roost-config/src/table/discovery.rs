//! Where workers are found.

use crate::spec::{Kind, OptionSpec, choice, integer, milliseconds, option, seconds};

const BACKEND: OptionSpec = option(
    "discovery-backend",
    choice(&["etcd", "kubernetes", "file", "mem"]),
    "Where workers register: in etcd, in Kubernetes, in a folder on a shared file system, or in this process alone.",
)
.env(&["DYN_DISCOVERY_BACKEND"])
.default("etcd");

const FILE_KV: OptionSpec = option("file-kv", Kind::Path, "Folder of the file backend.")
    .env(&["DYN_FILE_KV"])
    .default("$TMPDIR/dynamo_store_kv");

const ETCD_ENDPOINTS: OptionSpec = option(
    "etcd-endpoints",
    Kind::Text,
    "Addresses of etcd's members, separated by commas: `http://host:port` or `https://host:port`.",
)
.env(&["ETCD_ENDPOINTS"])
.default("http://localhost:2379");

const ETCD_LEASE_TTL: OptionSpec = option(
    "etcd-lease-ttl",
    seconds(1.0, 86_400.0),
    "Records of a process that has died disappear from etcd after this time. etcd grants no less than about 2 s.",
)
.env(&["ETCD_LEASE_TTL"])
.default("30");

const ETCD_STARTUP_CONNECT_TIMEOUT: OptionSpec = option(
    "etcd-startup-connect-timeout-seconds",
    seconds(0.0, 86_400.0),
    "The process ends when it cannot reach etcd within this time after its start. Later it waits for ever.",
)
.env(&["ETCD_STARTUP_CONNECT_TIMEOUT_SECONDS"])
.default("120");

const ETCD_KEEPALIVE_INTERVAL: OptionSpec = option(
    "etcd-keepalive-interval-seconds",
    seconds(0.0, 86_400.0),
    "Pause between two pings to etcd; 0 sends none. etcd closes connections that ping more often than every 5 s.",
)
.env(&["ETCD_KEEPALIVE_INTERVAL_SECONDS"])
.default("15");

const ETCD_KEEPALIVE_TIMEOUT: OptionSpec = option(
    "etcd-keepalive-timeout-seconds",
    seconds(0.001, 86_400.0),
    "A connection to etcd that leaves a ping unanswered for this long is given up.",
)
.env(&["ETCD_KEEPALIVE_TIMEOUT_SECONDS"])
.default("10");

const ETCD_AUTH_USERNAME: OptionSpec =
    option("etcd-auth-username", Kind::Text, "User name towards etcd.").env(&["ETCD_AUTH_USERNAME"]);

const ETCD_AUTH_PASSWORD: OptionSpec = option(
    "etcd-auth-password",
    Kind::Text,
    "Password towards etcd; better given as a variable than as a flag.",
)
.env(&["ETCD_AUTH_PASSWORD"])
.secret();

const ETCD_AUTH_CA: OptionSpec = option(
    "etcd-auth-ca",
    Kind::Text,
    "Certificates that etcd's is checked against: a file, or PEM itself. Unset: those that this system trusts.",
)
.env(&["ETCD_AUTH_CA"]);

const ETCD_AUTH_CLIENT_CERT: OptionSpec = option(
    "etcd-auth-client-cert",
    Kind::Text,
    "Certificate shown to an etcd that asks for one: a file, or PEM itself.",
)
.env(&["ETCD_AUTH_CLIENT_CERT"]);

const ETCD_AUTH_CLIENT_KEY: OptionSpec =
    option("etcd-auth-client-key", Kind::Text, "The certificate's key: a file, or PEM itself.")
        .env(&["ETCD_AUTH_CLIENT_KEY"])
        .secret();

const KUBE_SERVICE_HOST: OptionSpec = option(
    "kube-service-host",
    Kind::Text,
    "Host of the Kubernetes API server. The cluster sets it in every pod.",
)
.env(&["KUBERNETES_SERVICE_HOST"]);

const KUBE_SERVICE_PORT: OptionSpec =
    option("kube-service-port", integer(1, 65_535), "Port of the Kubernetes API server.")
        .env(&["KUBERNETES_SERVICE_PORT"])
        .default("443");

const KUBE_API_SERVER: OptionSpec = option(
    "kube-api-server",
    Kind::Text,
    "URL of the Kubernetes API server instead of host and port, such as that of a `kubectl proxy`.",
);

const KUBE_TOKEN_FILE: OptionSpec = option(
    "kube-token-file",
    Kind::Path,
    "Token of the service account, read for every request. A server at an http URL gets none.",
)
.default("/var/run/secrets/kubernetes.io/serviceaccount/token");

const KUBE_CA_FILE: OptionSpec =
    option("kube-ca-file", Kind::Path, "Certificates to trust in the Kubernetes API server.")
        .default("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt");

const KUBE_NAMESPACE: OptionSpec = option(
    "kube-namespace",
    Kind::Text,
    "Kubernetes namespace of workers and frontends; unset: `pod_namespace` of the pod's folder, then `default`.",
)
.env(&["POD_NAMESPACE"]);

const KUBE_DISCOVERY_MODE: OptionSpec = option(
    "kube-discovery-mode",
    choice(&["pod", "container"]),
    "What registers in Kubernetes: pods, or single containers of pods. All participants must agree.",
)
.env(&["DYN_KUBE_DISCOVERY_MODE"])
.default("pod");

const KUBE_POD_NAME: OptionSpec = option(
    "kube-pod-name",
    Kind::Text,
    "This process's pod; needed to register. A file `pod_name` in the pod's folder wins.",
)
.env(&["POD_NAME"]);

const KUBE_POD_UID: OptionSpec =
    option("kube-pod-uid", Kind::Text, "Its unique id. A file `pod_uid` in the pod's folder wins.")
        .env(&["POD_UID"]);

const KUBE_CONTAINER_NAME: OptionSpec = option(
    "kube-container-name",
    Kind::Text,
    "This process's container; needed to register with `--kube-discovery-mode container`.",
)
.env(&["CONTAINER_NAME"]);

const KUBE_PODINFO_DIR: OptionSpec = option(
    "kube-podinfo-dir",
    Kind::Path,
    "The pod's folder: files `pod_name`, `pod_uid` and `pod_namespace` of a downward API volume.",
)
.default("/etc/podinfo");

const KUBE_STARTUP_TIMEOUT: OptionSpec = option(
    "kube-startup-timeout-secs",
    seconds(0.0, 86_400.0),
    "The process ends when it cannot read the Kubernetes API within this time after its start. Later it waits for ever.",
)
.default("120");

/// Of those who register as well as of those who look.
pub(crate) static STORE: &[OptionSpec] = &[
    BACKEND,
    FILE_KV,
    ETCD_ENDPOINTS,
    ETCD_LEASE_TTL,
    ETCD_STARTUP_CONNECT_TIMEOUT,
    ETCD_KEEPALIVE_INTERVAL,
    ETCD_KEEPALIVE_TIMEOUT,
    ETCD_AUTH_USERNAME,
    ETCD_AUTH_PASSWORD,
    ETCD_AUTH_CA,
    ETCD_AUTH_CLIENT_CERT,
    ETCD_AUTH_CLIENT_KEY,
    KUBE_SERVICE_HOST,
    KUBE_SERVICE_PORT,
    KUBE_API_SERVER,
    KUBE_TOKEN_FILE,
    KUBE_CA_FILE,
    KUBE_NAMESPACE,
    KUBE_DISCOVERY_MODE,
    KUBE_POD_NAME,
    KUBE_POD_UID,
    KUBE_CONTAINER_NAME,
    KUBE_PODINFO_DIR,
    KUBE_STARTUP_TIMEOUT,
];

pub(crate) static OPTIONS: &[OptionSpec] = &[
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
    BACKEND,
    FILE_KV,
    ETCD_ENDPOINTS,
    ETCD_LEASE_TTL,
    ETCD_STARTUP_CONNECT_TIMEOUT,
    ETCD_KEEPALIVE_INTERVAL,
    ETCD_KEEPALIVE_TIMEOUT,
    ETCD_AUTH_USERNAME,
    ETCD_AUTH_PASSWORD,
    ETCD_AUTH_CA,
    ETCD_AUTH_CLIENT_CERT,
    ETCD_AUTH_CLIENT_KEY,
    KUBE_SERVICE_HOST,
    KUBE_SERVICE_PORT,
    KUBE_API_SERVER,
    KUBE_TOKEN_FILE,
    KUBE_CA_FILE,
    KUBE_NAMESPACE,
    KUBE_DISCOVERY_MODE,
    KUBE_POD_NAME,
    KUBE_POD_UID,
    KUBE_CONTAINER_NAME,
    KUBE_PODINFO_DIR,
    KUBE_STARTUP_TIMEOUT,
];
