//! Request, response and event plane.

use super::{NOT_AVAILABLE, nats};
use crate::spec::{Kind, OptionSpec, bytes, choice, integer, option, seconds};

const NATS: (&str, &str) = ("nats", "is not available in this build");

pub(crate) static OPTIONS: &[OptionSpec] = &[
    option(
        "request-plane",
        Kind::Choice { accepted: &["tcp"], unavailable: &[NATS] },
        "How requests reach workers.",
    )
    .env(&["DYN_REQUEST_PLANE"])
    .default("tcp"),
    option(
        "response-plane",
        Kind::Choice { accepted: &["tcp"], unavailable: &[("quic", "is not available in this build")] },
        "How answers come back. Must be the workers' choice, too.",
    )
    .env(&["DYN_RESPONSE_PLANE"])
    .default("tcp"),
    option(
        "tcp-response-stream-host",
        Kind::Text,
        "Address the workers call home to; unset: the one by which this host reaches the network.",
    )
    .env(&["DYN_TCP_RESPONSE_STREAM_HOST"]),
    option(
        "tcp-response-stream-port",
        integer(0, 65_535),
        "Port the workers call home to; 0 takes a free one.",
    )
    .env(&["DYN_TCP_RESPONSE_STREAM_PORT"])
    .default("0"),
    option("tcp-listen-backlog", integer(1, 65_535), "Backlog of that listener.")
        .env(&["DYN_TCP_LISTEN_BACKLOG"])
        .default("4096"),
    option("tcp-connect-timeout", seconds(0.001, 3600.0), "Time to connect to a worker.")
        .env(&["DYN_TCP_CONNECT_TIMEOUT"])
        .default("5"),
    option(
        "tcp-request-timeout",
        seconds(0.001, 86_400.0),
        "Time from a request to the worker's acknowledgement.",
    )
    .env(&["DYN_TCP_REQUEST_TIMEOUT"])
    .default("5"),
    option(
        "farewell-timeout-secs",
        seconds(0.0, 86_400.0),
        "Time that an acknowledged request still waits for a worker whose connection is lost, or that has left.",
    )
    .default("1")
    .dynamo_default("none, it waits for ever"),
    option(
        "call-home-timeout-secs",
        seconds(0.001, 86_400.0),
        "Time from the acknowledgement until the worker has opened the answer stream.",
    )
    .default("30")
    .dynamo_default("none, it waits for ever"),
    option(
        "prologue-timeout-secs",
        seconds(0.0, 86_400.0),
        "Time from then until the worker says whether it takes the request; 0: no limit.",
    )
    .default("60")
    .dynamo_default("none, it waits for ever"),
    option(
        "tcp-channel-buffer",
        integer(1, 1 << 20),
        "Unacknowledged requests per connection; more open another connection.",
    )
    .env(&["DYN_TCP_CHANNEL_BUFFER"])
    .default("1024"),
    option("tcp-pool-size", integer(1, 65_535), "Connections per worker address.")
        .env(&["DYN_TCP_POOL_SIZE"])
        .default("100"),
    option("tcp-global-connect-limit", integer(1, 65_535), "Connection attempts at the same time.")
        .env(&["DYN_TCP_GLOBAL_CONNECT_LIMIT"])
        .default("64"),
    option(
        "tcp-host-idle-ttl-secs",
        seconds(1.0, 31_536_000.0),
        "Connections of an address that is not used for this long are closed.",
    )
    .env(&["DYN_TCP_HOST_IDLE_TTL_SECS"])
    .default("300"),
    option("tcp-max-message-size", bytes(1 << 16, 1 << 32), "Largest frame.")
        .env(&["DYN_TCP_MAX_MESSAGE_SIZE"])
        .default("33554432"),
    option(
        "tcp-shrink-message-size",
        bytes(1 << 10, 1 << 32),
        "Buffers above this size are given back after use.",
    )
    .env(&["DYN_TCP_SHRINK_MESSAGE_SIZE"])
    .default("8388608")
    .no_effect("a frame's buffer is given back when the frame is written"),
    option(
        "token-ids-as-bytes",
        Kind::Switch,
        "Send token ids as one binary string instead of a list. Workers before 1.6 do not read that.",
    )
    .env(&["DYN_TOKEN_IDS_AS_BYTES"])
    .default("false"),
    option("tcp-latency-trace", Kind::Switch, "Log the times of every frame.")
        .env(&["DYN_TCP_LATENCY_TRACE"])
        .default("false")
        .refused(NOT_AVAILABLE),
];

const EVENT_PLANE_CODEC: OptionSpec = option(
    "event-plane-codec",
    Kind::Choice { accepted: &["msgpack"], unavailable: &[("json", "is not available in this build")] },
    "Encoding of events.",
)
.env(&["DYN_EVENT_PLANE_CODEC"])
.default("msgpack");

pub(crate) static EVENTS: &[OptionSpec] = &[
    option(
        "event-plane",
        Kind::Choice { accepted: &["zmq", "nats"], unavailable: &[] },
        "How this frontend tells others; `nats` also hears workers that publish there. Those on sockets are always heard.",
    )
    .env(&["DYN_EVENT_PLANE"])
    .default("zmq"),
    EVENT_PLANE_CODEC,
    nats::NATS_SERVER,
    nats::NATS_AUTH_USERNAME,
    nats::NATS_AUTH_PASSWORD,
    nats::NATS_AUTH_TOKEN,
    nats::NATS_AUTH_NKEY,
    nats::NATS_AUTH_CREDENTIALS_FILE,
    nats::NATS_TLS_CA_CERT_PATH,
    nats::NATS_TLS_INSECURE,
    nats::NATS_TLS_CLIENT_CERT_PATH,
    nats::NATS_TLS_CLIENT_KEY_PATH,
    option(
        "event-queue-capacity",
        integer(16, 1 << 24),
        "Changes of workers and batches of their events that may wait for index and router; when it is full, event sockets wait.",
    )
    .default("1024"),
    option("zmq-broker-url", Kind::Text, "Events by way of a broker.")
        .env(&["DYN_ZMQ_BROKER_URL"])
        .refused(NOT_AVAILABLE),
    option("zmq-broker-enabled", Kind::Switch, "Events by way of a broker.")
        .env(&["DYN_ZMQ_BROKER_ENABLED"])
        .default("false")
        .refused(NOT_AVAILABLE),
    option("router-replica-sync", Kind::Switch, "Tell other frontends what runs where, and count what they tell.")
        .env(&["DYN_ROUTER_REPLICA_SYNC"])
        .default("false"),
    option(
        "event-plane-host",
        Kind::Text,
        "Host at which other frontends reach this one's events. Unset: the address at which workers call home.",
    )
    .env(&["DYN_EVENT_PLANE_HOST"]),
    option("zmq-event-subscriber-channel-capacity", integer(1, u64::MAX), "Queue of Dynamo's subscriber.")
        .env(&["DYN_ZMQ_EVENT_SUBSCRIBER_CHANNEL_CAPACITY"])
        .default("100000")
        .no_effect("--event-queue-capacity bounds the queue"),
    option("router-zmq-endpoints-per-sub", integer(1, u64::MAX), "Publishers per socket in Dynamo.")
        .env(&["DYN_ROUTER_ZMQ_ENDPOINTS_PER_SUB"])
        .default("1")
        .no_effect("every publisher has its own connection"),
    option("zmq-io-threads", integer(1, u64::MAX), "Threads of Dynamo's ZMQ library.")
        .env(&["DYN_ZMQ_IO_THREADS"])
        .default("4")
        .no_effect("events are read by the network runtime"),
];

pub(crate) static WORKER_EVENTS: &[OptionSpec] = &[
    option(
        "event-plane",
        choice(&["zmq", "nats"]),
        "How the workers publish: on sockets of their own, or over NATS.",
    )
    .env(&["DYN_EVENT_PLANE"])
    .default("zmq"),
    EVENT_PLANE_CODEC,
    nats::NATS_SERVER,
    nats::NATS_AUTH_USERNAME,
    nats::NATS_AUTH_PASSWORD,
    nats::NATS_AUTH_TOKEN,
    nats::NATS_AUTH_NKEY,
    nats::NATS_AUTH_CREDENTIALS_FILE,
    nats::NATS_TLS_CA_CERT_PATH,
    nats::NATS_TLS_INSECURE,
    nats::NATS_TLS_CLIENT_CERT_PATH,
    nats::NATS_TLS_CLIENT_KEY_PATH,
    option(
        "event-plane-host",
        Kind::Text,
        "Host at which frontends reach the workers' sockets. Unset: the address of every listener.",
    )
    .env(&["DYN_EVENT_PLANE_HOST"]),
];
