//! A cluster of publishing workers without engines.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use parking_lot::Mutex;
use roost_kv::{BlockHash, EngineHash, KvEvent, KvEventData, StoredBlock, Tier, WorkerId, WorkerRank};
use tokio::time::timeout;

use super::*;
use crate::discovery::MemoryDiscovery;
use crate::events::{Envelope, JournalBuffer, KvQuery, Publisher, PublisherConfig, encode_kv_events};
use crate::record::{
    CardRecord, Codec, EndpointId, EventScope, EventSourceMetadata, EventSourceRecord, InstanceRecord,
    ModelCard, SourceWorker, Target, Topic, TransportAddress, instance_path,
};
use crate::registration::{Registration, WorkerRecords};
use roost_zmtp::{EventSockets, PubSocket};

/// Far above what any step takes; only a broken implementation waits that long.
const DEADLINE: Duration = Duration::from_secs(20);

pub(super) fn endpoint(name: &str) -> EndpointId {
    EndpointId::new("dynamo", "backend", name)
}

pub(super) fn stored(parent: Option<u64>, blocks: &[u64]) -> KvEventData {
    let blocks = blocks.iter().map(|&b| StoredBlock { engine: EngineHash(b), local: BlockHash(b) }).collect();
    KvEventData::Stored { parent: parent.map(EngineHash), blocks }
}

pub(super) fn removed(blocks: &[u64]) -> KvEventData {
    KvEventData::Removed { blocks: blocks.iter().copied().map(EngineHash).collect() }
}

/// What workers and frontends share.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    pub(super) store: Arc<MemoryDiscovery>,
    pub(super) journals: Arc<Journals>,
    /// What events travel on.
    pub(super) sockets: EventSockets,
}

impl Default for Hub {
    fn default() -> Self {
        Self { store: MemoryDiscovery::new(), journals: Arc::default(), sockets: EventSockets::default() }
    }
}

/// A request plane with nothing but recovery queries.
#[derive(Debug, Default)]
pub(super) struct Journals {
    by_path: Mutex<HashMap<String, Arc<Mutex<JournalBuffer>>>>,
    asked: Mutex<Vec<(WorkerRank, Option<u64>)>>,
    /// Every query fails.
    pub(super) broken: AtomicBool,
}

impl Journals {
    /// Who was asked, and from which event on.
    pub(super) fn queries(&self) -> Vec<(WorkerRank, Option<u64>)> {
        self.asked.lock().clone()
    }
}

impl RecoverySource for Journals {
    fn query(&self, target: Target, request: Bytes) -> BoxFuture<'static, Result<Bytes, RecoveryError>> {
        let query = KvQuery::decode(&request, target.codec).unwrap();
        let rank = WorkerRank::new(WorkerId(query.worker_id), query.dp_rank);
        self.asked.lock().push((rank, query.start_event_id));
        if self.broken.load(Ordering::SeqCst) {
            return ready(Err(RecoveryError("broken".into()))).boxed();
        }
        let journal = self.by_path.lock().get(&target.path).cloned();
        let answer = journal.map(|journal| Bytes::from(journal.lock().answer(target.codec, &request)));
        ready(answer.ok_or_else(|| RecoveryError("no such path".into()))).boxed()
    }
}

/// A frontend's cluster view.
#[derive(Debug)]
pub(super) struct World {
    pub(super) hub: Hub,
    pub(super) handle: ClusterHandle,
    pub(super) updates: mpsc::Receiver<Update>,
    pub(super) cancel: CancellationToken,
}

impl World {
    pub(super) fn start() -> Self {
        Self::start_on(Hub::default(), ClusterConfig::default())
    }

    pub(super) fn start_on(hub: Hub, config: ClusterConfig) -> Self {
        let cancel = CancellationToken::new();
        let (handle, updates) =
            Cluster::start(config, hub.store.clone(), hub.journals.clone(), cancel.clone());
        Self { hub, handle, updates, cancel }
    }

    /// A view with one joined worker whose state, still empty, has been taken.
    pub(super) async fn with_worker() -> (Self, Worker) {
        let mut world = Self::start();
        assert_eq!(world.next().await, Update::Synced);
        let worker = Worker::join(&world.hub, 1).await;
        assert!(matches!(world.next().await, Update::Joined(_)));
        assert!(matches!(world.next().await, Update::KvReset { .. }));
        (world, worker)
    }

    pub(super) async fn next(&mut self) -> Update {
        timeout(DEADLINE, self.updates.recv()).await.expect("an update in time").expect("the stream goes on")
    }

    /// Takes KV updates of a rank until as many blocks were stored as expected, and compares.
    pub(super) async fn expect_blocks(&mut self, of: WorkerRank, expected: &[u64]) {
        let mut blocks = Vec::new();
        while blocks.len() < expected.len() {
            let update = self.next().await;
            let Update::Kv { rank, events, .. } = update else { panic!("{update:?} after {blocks:?}") };
            assert_eq!(rank, of);
            for event in events {
                let KvEventData::Stored { blocks: stored, .. } = event.data else { continue };
                blocks.extend(stored.iter().map(|block| block.engine.0));
            }
        }
        assert_eq!(blocks, expected);
    }

    pub(super) async fn until(&self, holds: impl Fn(&ClusterStats) -> bool) {
        let polled = timeout(DEADLINE, async {
            while !holds(&self.handle.stats()) {
                tokio::task::yield_now().await;
            }
        });
        polled.await.unwrap_or_else(|_| panic!("never so: {:?}", self.handle.stats()));
    }
}

/// A worker that publishes what it is told to.
#[derive(Debug)]
pub(super) struct Worker {
    id: u64,
    store: Arc<MemoryDiscovery>,
    pub(super) records: WorkerRecords,
    pub(super) publisher: Publisher,
    pub(super) loads: Publisher,
    journal: Arc<Mutex<JournalBuffer>>,
    registration: Mutex<Option<Registration>>,
    sequence: AtomicU64,
}

impl Worker {
    /// A worker that is not registered yet.
    pub(super) async fn new(hub: &Hub, id: u64) -> Self {
        let bind = async |topic| {
            let (endpoint, bind) = (endpoint("generate"), "127.0.0.1:0".parse().unwrap());
            Publisher::bind(PublisherConfig {
                endpoint,
                topic,
                bind,
                advertise_host: None,
                publisher_id: None,
                sockets: hub.sockets.clone(),
            })
            .await
            .unwrap()
        };
        let (publisher, loads) = (bind(Topic::KvEvents).await, bind(Topic::KvMetrics).await);
        let instance = |endpoint: EndpointId| InstanceRecord {
            transport: TransportAddress::Tcp(format!("127.0.0.1:9/{}", instance_path(&endpoint, id))),
            namespace: endpoint.namespace,
            component: endpoint.component,
            endpoint: endpoint.name,
            instance_id: id,
            device_type: Some("cuda".into()),
            request_plane_codec: Some(Codec::Msgpack),
        };
        let publisher_id = publisher.publisher_id();
        let query = instance(endpoint(&format!("worker_kv_query_source_{publisher_id:x}")));
        let rank = WorkerRank::new(WorkerId(id), 0);
        let journal = Arc::new(Mutex::new(JournalBuffer::new(rank)));
        hub.journals.by_path.lock().insert(query.target().unwrap().path, journal.clone());
        let source = EventSourceRecord {
            scope: EventScope::Endpoint { endpoint: endpoint("generate") },
            topic: Topic::KvEvents.as_str().into(),
            publisher_id,
            metadata: EventSourceMetadata {
                kv_state_endpoint: endpoint("generate"),
                worker: SourceWorker { worker_id: id, dp_rank: 0 },
                publisher_id,
                recovery_target: Some(query.clone()),
            },
        };
        let mut card =
            ModelCard { display_name: "m".into(), kv_cache_block_size: Some(16), ..ModelCard::default() };
        card.runtime_config.kv_event_publishing_enabled = true;
        let at = endpoint("generate");
        let records = WorkerRecords {
            side_endpoints: vec![query],
            channels: vec![publisher.channel_record(), loads.channel_record()],
            sources: vec![source],
            generate: instance(at.clone()),
            card: CardRecord {
                namespace: at.namespace,
                component: at.component,
                endpoint: at.name,
                instance_id: id,
                card,
            },
        };
        let store = hub.store.participant();
        let registration = Mutex::default();
        Self { id, store, records, publisher, loads, journal, registration, sequence: AtomicU64::new(0) }
    }

    /// A registered worker.
    pub(super) async fn join(hub: &Hub, id: u64) -> Self {
        let worker = Self::new(hub, id).await;
        worker.register().await;
        worker
    }

    pub(super) async fn register(&self) {
        let registration = Registration::register(self.store.clone(), &self.records).await.unwrap();
        *self.registration.lock() = Some(registration);
    }

    pub(super) async fn leave(&self) {
        let registration = self.registration.lock().take();
        registration.expect("was registered").shutdown().await.unwrap();
    }

    pub(super) fn rank(&self) -> WorkerRank {
        WorkerRank::new(WorkerId(self.id), 0)
    }

    /// Something happens in the cache, and its message is lost.
    pub(super) fn record(&self, data: KvEventData) -> KvEvent {
        self.record_in(Tier::Device, data)
    }

    pub(super) fn record_in(&self, tier: Tier, data: KvEventData) -> KvEvent {
        let mut journal = self.journal.lock();
        let event = KvEvent { event_id: journal.newest() + 1, rank: self.rank(), tier, data };
        journal.record(&event);
        event
    }

    pub(super) fn publish(&self, data: KvEventData) {
        self.publisher.publish_kv_events(&[self.record(data)]);
    }

    /// Closes the publisher's socket and tells where it was.
    pub(super) async fn cut(&self) -> SocketAddr {
        let record = self.publisher.channel_record();
        let crate::record::EventTransport::Zmq { endpoint } = record.transport else { panic!("not zmq") };
        self.publisher.close().await;
        endpoint.strip_prefix("tcp://").unwrap().parse().unwrap()
    }

    /// Listens again where the publisher was.
    pub(super) async fn publish_again(&self, address: SocketAddr) -> PubSocket {
        PubSocket::bind(&EventSockets::default(), address, Topic::KvEvents.as_str()).await.unwrap()
    }

    /// Puts the query endpoint elsewhere; before it is registered.
    pub(super) fn move_to(&mut self, address: SocketAddr) {
        let moved = |record: &mut InstanceRecord| {
            let TransportAddress::Tcp(text) = &record.transport else { panic!("not tcp") };
            let (_, path) = text.split_once('/').unwrap();
            record.transport = TransportAddress::Tcp(format!("{address}/{path}"));
        };
        self.records.side_endpoints.iter_mut().for_each(moved);
        self.records
            .sources
            .iter_mut()
            .filter_map(|source| source.metadata.recovery_target.as_mut())
            .for_each(moved);
    }

    /// The memory from which its rank's queries are answered.
    pub(super) fn journal(&self) -> Arc<Mutex<JournalBuffer>> {
        self.journal.clone()
    }

    /// What the publisher would send for one more event.
    pub(super) fn message(&self, data: KvEventData) -> Bytes {
        let envelope = Envelope {
            publisher_id: self.publisher.publisher_id(),
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            published_at_ms: 0,
            topic: Topic::KvEvents.as_str().into(),
            payload: encode_kv_events(&[self.record(data)]).into(),
        };
        envelope.to_message()
    }
}
