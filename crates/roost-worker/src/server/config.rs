//! How a worker serves its engine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use roost_cluster::record::Codec;
use roost_cluster::{Discovery, NatsClient};
use tokio_util::sync::CancellationToken;

use super::Faults;
use crate::{Journal, TextCodec};

/// Settings of a [`WorkerServer`](crate::WorkerServer). `WorkerConfig::new` gives Dynamo's defaults, on loopback.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Where the worker registers.
    pub discovery: Arc<dyn Discovery>,
    /// Namespace.
    pub namespace: String,
    /// Component; by default that of the engine's role.
    pub component: Option<String>,
    /// Name of the endpoint that takes model requests.
    pub endpoint: String,
    /// The request listener: address, limits of running and queued requests, timeouts.
    pub listen: roost_wire::WorkerConfig,
    /// Codec that frontends are asked to use. Requests are answered in their own.
    pub codec: Codec,
    /// Worker id; by default what discovery prescribes, else a random one.
    pub instance_id: Option<u64>,
    /// Publishing of KV events and load; `None` publishes neither.
    pub events: Option<EventsConfig>,
    /// Whether frontends can ask for the KV state of a rank.
    pub local_indexer: bool,
    /// Serve the model's files over HTTP and register their URLs; `None` registers local paths.
    pub system: Option<SystemConfig>,
    /// `cuda` or `cpu`.
    pub device_type: String,
    /// Where requests, cancellations and ends are noted.
    pub journal: Arc<Journal>,
    /// Decodes prompts for the journal.
    pub codec_for_journal: Option<TextCodec>,
    /// Faults on order.
    pub faults: Faults,
    /// Cancelled when the engine's process is gone: the worker then dies abruptly.
    pub crash: CancellationToken,
}

/// Where event publishers listen.
#[derive(Debug, Clone)]
pub struct EventsConfig {
    /// Address to bind; every publisher takes a free port.
    pub bind: IpAddr,
    /// Host that subscribers connect to; by default `bind`, or the request listener's address when that
    /// is a wildcard.
    pub advertise_host: Option<String>,
    /// Publish over NATS instead.
    pub nats: Option<NatsClient>,
}

/// Where the model's files are served.
#[derive(Debug, Clone)]
pub struct SystemConfig {
    /// Address to bind; port 0 takes a free one.
    pub bind: SocketAddr,
    /// Host in the registered URLs; by default as for events.
    pub advertise_host: Option<String>,
}

impl WorkerConfig {
    /// Namespace `dynamo`, endpoint `generate`, MessagePack, events on loopback, local file paths.
    pub fn new(discovery: Arc<dyn Discovery>) -> Self {
        Self {
            discovery,
            namespace: "dynamo".to_owned(),
            component: None,
            endpoint: "generate".to_owned(),
            listen: roost_wire::WorkerConfig::default(),
            codec: Codec::Msgpack,
            instance_id: None,
            events: Some(EventsConfig {
                bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
                advertise_host: None,
                nats: None,
            }),
            local_indexer: true,
            system: None,
            device_type: "cuda".to_owned(),
            journal: Arc::default(),
            codec_for_journal: None,
            faults: Faults::default(),
            crash: CancellationToken::new(),
        }
    }
}
