//! A worker process on the plane: listener, registration, event publishing, drain.

mod config;
mod fault;
mod generate;
mod kv_source;
mod load;
mod metadata;
mod model_card;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use roost_cluster::events::{Publisher, PublisherConfig};
use roost_cluster::record::{
    CardRecord, EndpointId, EventScope, EventSourceMetadata, EventSourceRecord, InstanceRecord, SourceWorker,
    Topic, TransportAddress, instance_path,
};
use roost_cluster::{DiscoveryError, EventSockets, Registration, WorkerRecords};
use roost_kv::{KvEvent, WorkerId, WorkerRank};
use roost_wire::{WorkerListener, WorkerStats};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use config::{EventsConfig, SystemConfig, WorkerConfig};
pub use fault::{Fault, Faults};

use crate::{Engine, Journal, KvChange};
use generate::GenerateHandler;
use kv_source::{KvQueryHandler, KvSource};
use metadata::MetadataServer;
use model_card::Publishing;

/// A worker did not come up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket could not be bound.
    #[error("cannot listen for {what}: {source}")]
    Listen {
        /// What the socket is for.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A file of the model could not be read.
    #[error("cannot read model file {path}: {source}")]
    ModelFile {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The worker would announce an address that nobody can connect to.
    #[error("{what} listens on all interfaces: say which address to advertise")]
    NoAddress {
        /// What the address is for.
        what: &'static str,
    },
    /// Discovery refused a record.
    #[error("cannot register: {0}")]
    Register(#[from] DiscoveryError),
}

/// Puts engines on the plane.
#[derive(Debug)]
pub struct WorkerServer;

impl WorkerServer {
    /// Starts serving `engine` and registers it. Must be called on a runtime.
    ///
    /// When this returns, everything that the records promise is in service. Dropping the future before
    /// removes what was registered.
    ///
    /// # Errors
    /// A socket, a model file or a record could not be had.
    pub async fn start(engine: Arc<dyn Engine>, config: WorkerConfig) -> Result<RunningWorker, StartError> {
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let tasks = TaskTracker::new();
        let listener = WorkerListener::bind(config.listen.clone(), stop.clone())
            .map_err(|source| StartError::Listen { what: "requests", source })?;
        let address = listener.address();
        if address.ip().is_unspecified() {
            return Err(StartError::NoAddress { what: "requests" });
        }
        let id = config.instance_id.or_else(|| config.discovery.lease_id()).unwrap_or_else(random_id);
        let names = Names { config: &config, engine: engine.as_ref(), id, address };

        let faults = config.faults.clone();
        let journal = config.journal.clone();
        let generate = names.instance(&config.endpoint);
        let handler = GenerateHandler::new(&engine, id, &config);
        listener.register(instance_path(&names.endpoint(&config.endpoint), id), Arc::new(handler));

        let mut worker = Starting { names: &names, listener: &listener, stop: &stop, tasks: &tasks };
        let mut records = WorkerRecords {
            side_endpoints: Vec::new(),
            channels: Vec::new(),
            sources: Vec::new(),
            card: CardRecord {
                namespace: config.namespace.clone(),
                component: names.component().to_owned(),
                endpoint: config.endpoint.clone(),
                instance_id: id,
                card: worker.model_card().await?,
            },
            generate,
        };
        let mut sources = Vec::new();
        if let Some(events) = &config.events {
            sources = worker.publish_kv(events, &mut records).await?;
            worker.publish_load(events, &mut records).await?;
        }
        tasks.close();

        let registration = Registration::register(config.discovery.clone(), &records).await?;
        let registration = Arc::new(Mutex::new(Some(registration)));
        tasks.spawn(crash_on(config.crash.clone(), stop.clone(), registration.clone()));
        tracing::info!(worker = %format_args!("{id:x}"), %address, model = %records.card.card.display_name, "worker registered");
        Ok(RunningWorker {
            id,
            address,
            path: instance_path(&names.endpoint(&config.endpoint), id),
            engine,
            journal,
            faults,
            sources,
            listener,
            registration,
            crash: config.crash,
            stop: guard,
            tasks,
        })
    }
}

/// A worker in service. Dropping it deregisters it and closes its sockets at once.
#[derive(Debug)]
pub struct RunningWorker {
    id: u64,
    address: SocketAddr,
    path: String,
    engine: Arc<dyn Engine>,
    journal: Arc<Journal>,
    faults: Faults,
    sources: Vec<Arc<KvSource>>,
    listener: Arc<WorkerListener>,
    registration: Arc<Mutex<Option<Registration>>>,
    crash: CancellationToken,
    stop: DropGuard,
    tasks: TaskTracker,
}

impl RunningWorker {
    /// The worker's id: the instance id of all its records.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Address of the request listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Path of the endpoint that takes model requests, on that listener.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// What the worker was asked.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Faults to order.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Counters of the request listener.
    pub fn stats(&self) -> WorkerStats {
        self.listener.stats()
    }

    /// Publishes a change of a rank's cache as if the engine had reported it. False when the rank
    /// publishes no events.
    pub fn publish_change(&self, dp_rank: u32, change: KvChange) -> bool {
        let source = self.sources.iter().find(|source| source.dp_rank() == dp_rank);
        source.inspect(|source| source.apply(vec![change])).is_some()
    }

    /// Publishes an event as it is, whatever its number; queries do not know of it. False when its rank
    /// publishes no events.
    pub fn publish_event(&self, event: &KvEvent) -> bool {
        let source = self.sources.iter().find(|source| source.dp_rank() == event.rank.dp_rank);
        source.inspect(|source| source.publish_event(event)).is_some()
    }

    /// Waits until the worker has crashed: by [`RunningWorker::kill`] or by its engine. Cancel safe.
    pub async fn crashed(&self) {
        self.crash.cancelled().await;
    }

    /// Leaves in good order: removes the records, goes on accepting for `grace` (frontends need a moment
    /// to notice), then waits for open answers until `deadline` has passed since the call, and closes.
    ///
    /// Returns whether all answers came to their end.
    pub async fn drain(self, grace: Duration, deadline: Duration) -> bool {
        let started = tokio::time::Instant::now();
        self.deregister().await;
        tokio::time::sleep(grace.min(deadline)).await;
        let drained = tokio::time::timeout_at(started + deadline, self.listener.drain()).await.is_ok();
        self.close().await;
        drained
    }

    /// Removes the records and closes everything, open answers included.
    pub async fn shutdown(self) {
        self.deregister().await;
        self.close().await;
    }

    /// Dies as a crashed process does: sockets closed, records left behind until they expire.
    pub async fn kill(&self) {
        self.crash.cancel();
        self.tasks.wait().await;
        self.listener.closed().await;
    }

    async fn deregister(&self) {
        let registration = self.registration.lock().take();
        if let Some(registration) = registration
            && let Err(error) = registration.shutdown().await
        {
            tracing::warn!(worker = %format_args!("{:x}", self.id), %error, "worker could not be deregistered");
        }
    }

    async fn close(self) {
        drop(self.stop);
        self.tasks.wait().await;
        self.listener.closed().await;
    }
}

/// Ends the worker abruptly when its engine dies or somebody orders it; records stay.
async fn crash_on(
    crash: CancellationToken,
    stop: CancellationToken,
    registration: Arc<Mutex<Option<Registration>>>,
) {
    tokio::select! {
        () = crash.cancelled() => {
            if let Some(registration) = registration.lock().take() {
                registration.abandon();
            }
            stop.cancel();
        }
        () = stop.cancelled() => {}
    }
}

/// Spells the names and addresses of one worker.
struct Names<'a> {
    config: &'a WorkerConfig,
    engine: &'a dyn Engine,
    id: u64,
    address: SocketAddr,
}

impl Names<'_> {
    fn component(&self) -> &str {
        let default = self.engine.card().role.default_component();
        self.config.component.as_deref().unwrap_or(default)
    }

    fn endpoint(&self, name: &str) -> EndpointId {
        EndpointId::new(&self.config.namespace, self.component(), name)
    }

    fn instance(&self, endpoint: &str) -> InstanceRecord {
        let path = instance_path(&self.endpoint(endpoint), self.id);
        InstanceRecord {
            component: self.component().to_owned(),
            endpoint: endpoint.to_owned(),
            namespace: self.config.namespace.clone(),
            instance_id: self.id,
            transport: TransportAddress::Tcp(format!("{}/{path}", self.address)),
            device_type: Some(self.config.device_type.clone()),
            request_plane_codec: Some(self.config.codec),
        }
    }
}

/// The parts of a worker that come up one after the other.
struct Starting<'a> {
    names: &'a Names<'a>,
    listener: &'a WorkerListener,
    stop: &'a CancellationToken,
    tasks: &'a TaskTracker,
}

impl Starting<'_> {
    /// The card, with its files served over HTTP if so configured.
    async fn model_card(&mut self) -> Result<roost_cluster::record::ModelCard, StartError> {
        let card = self.names.engine.card();
        let mut files = model_card::read_files(&card.files).await?;
        if let Some(system) = &self.names.config.system {
            let prefix =
                metadata::prefix(&self.names.endpoint(&self.names.config.endpoint), &card.model_name);
            let server = MetadataServer::bind(system, self.names.address.ip())?;
            for file in &mut files {
                file.path = server.url(&prefix, &file.name);
            }
            self.tasks.spawn(server.serve(&prefix, &files, self.stop.clone()));
        }
        let publishing = Publishing {
            events: self.names.config.events.is_some(),
            queries: self.names.config.local_indexer,
        };
        Ok(model_card::model_card(card, &files, publishing))
    }

    /// One publisher, one source and one query endpoint per rank.
    async fn publish_kv(
        &mut self,
        events: &EventsConfig,
        records: &mut WorkerRecords,
    ) -> Result<Vec<Arc<KvSource>>, StartError> {
        let names = self.names;
        let mut sources = Vec::new();
        for dp_rank in names.engine.card().ranks() {
            let Some(changes) = names.engine.kv_changes(dp_rank) else { continue };
            let publisher = self.publisher(events, Topic::KvEvents).await?;
            let publisher_id = publisher.publisher_id();
            let rank = WorkerRank::new(WorkerId(names.id), dp_rank);
            let channel = publisher.channel_record();
            let source = Arc::new(KvSource::new(rank, publisher, names.config.faults.clone()));
            let recovery_target = names.config.local_indexer.then(|| {
                let query = format!("worker_kv_query_source_{publisher_id:x}");
                let path = instance_path(&names.endpoint(&query), names.id);
                self.listener.register(path, Arc::new(KvQueryHandler::new(source.clone())));
                let instance = names.instance(&query);
                records.side_endpoints.push(instance.clone());
                instance
            });
            records.sources.push(EventSourceRecord {
                scope: EventScope::Endpoint { endpoint: names.endpoint(&names.config.endpoint) },
                topic: Topic::KvEvents.as_str().to_owned(),
                publisher_id,
                metadata: EventSourceMetadata {
                    kv_state_endpoint: names.endpoint(&names.config.endpoint),
                    worker: SourceWorker { worker_id: names.id, dp_rank },
                    publisher_id,
                    recovery_target,
                },
            });
            records.channels.push(channel);
            self.tasks.spawn(kv_source::pump(source.clone(), changes, self.stop.clone()));
            sources.push(source);
        }
        Ok(sources)
    }

    async fn publish_load(
        &mut self,
        events: &EventsConfig,
        records: &mut WorkerRecords,
    ) -> Result<(), StartError> {
        let publisher = self.publisher(events, Topic::KvMetrics).await?;
        records.channels.push(publisher.channel_record());
        let load = self.names.engine.load();
        self.tasks.spawn(load::pump(self.names.id, publisher, load, self.stop.clone()));
        Ok(())
    }

    async fn publisher(&self, events: &EventsConfig, topic: Topic) -> Result<Publisher, StartError> {
        if let Some(nats) = &events.nats {
            let endpoint = self.names.endpoint(&self.names.config.endpoint);
            return Ok(Publisher::on_nats(nats.clone(), endpoint, topic, None));
        }
        let advertise_host = match &events.advertise_host {
            Some(host) => host.clone(),
            None if events.bind.is_unspecified() => url_host(self.names.address.ip()),
            None => url_host(events.bind),
        };
        let config = PublisherConfig {
            endpoint: self.names.endpoint(&self.names.config.endpoint),
            topic,
            bind: SocketAddr::new(events.bind, 0),
            advertise_host: Some(advertise_host),
            publisher_id: None,
            sockets: EventSockets::default(),
        };
        Publisher::bind(config)
            .await
            .map_err(|source| StartError::Listen { what: "event subscribers", source })
    }
}

/// An address as it is written in a URL.
fn url_host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn random_id() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}

#[cfg(test)]
mod tests;
