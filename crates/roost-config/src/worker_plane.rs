//! How a process of workers is reached by frontends: the part that all its commands share.

use std::net::IpAddr;

use crate::{
    serve::{self, DiscoveryBackend, NatsOptions, PlaneTls},
    values::Values,
};

/// Where workers listen, register and publish.
#[derive(Debug, Clone)]
pub struct WorkerPlane {
    /// Namespace the workers register in.
    pub namespace: String,
    /// Component they register as. `None`: follows the role.
    pub component: Option<String>,
    /// Publish over this connection to NATS. `None`: on sockets.
    pub nats: Option<NatsOptions>,
    /// Host at which frontends reach those sockets. `None`: [`WorkerPlane::host`].
    pub event_host: Option<String>,
    /// Address of every listener of the workers.
    pub host: IpAddr,
    /// Port of the first worker's request listener, the next worker takes the next one; 0 takes free ones.
    pub port: u16,
    /// Codec that frontends are told to use.
    pub json_codec: bool,
    /// Requests a worker answers at once.
    pub max_active: usize,
    /// Requests that wait beyond those.
    pub max_queued: usize,
    /// Largest request frame, in bytes.
    pub max_message_bytes: usize,
    /// TLS to frontends.
    pub tls: PlaneTls,
    /// Port of the first worker's file server; 0 takes free ones. `None`: the card names local paths.
    pub system_port: Option<u16>,
    /// Where the workers register.
    pub discovery: DiscoveryBackend,
}

impl WorkerPlane {
    pub(crate) fn of(values: &Values) -> Self {
        let usual = (values.size("tcp-worker-pool-size"), values.size("tcp-work-queue-size"));
        let short_queue = values.size("engine-request-queue-limit");
        let (max_active, max_queued) =
            values.optional_size("engine-request-limit").map_or(usual, |limit| (limit, short_queue));
        WorkerPlane {
            namespace: values.required_text("namespace"),
            component: values.text("component"),
            nats: serve::nats(values),
            event_host: values.text("event-plane-host"),
            host: values.ip("host"),
            port: values.port("port"),
            json_codec: values.choice("request-plane-codec") == "json",
            max_active,
            max_queued,
            max_message_bytes: values.size("tcp-max-message-size"),
            tls: serve::plane_tls(values),
            system_port: values.optional_port("system-port"),
            discovery: serve::discovery(values),
        }
    }
}
