use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use roost_cluster::{Cluster, ClusterConfig, ClusterHandle, RecoveryError, RecoverySource, Update, record};
use roost_kv::{BlockHash, EngineHash, KvEvent, KvEventData, StoredBlock, Tier, WorkerId, WorkerRank};
use roost_wire::{Call, Client, Codec, Target};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::harness::{Harness, request, within};
use crate::{Engine, KvChange};

/// Queries over the request plane, as a frontend makes them.
#[derive(Debug)]
struct Plane {
    client: Arc<Client>,
    queries: Arc<Mutex<u64>>,
}

impl RecoverySource for Plane {
    fn query(&self, target: record::Target, body: Bytes) -> BoxFuture<'static, Result<Bytes, RecoveryError>> {
        *self.queries.lock() += 1;
        let client = self.client.clone();
        async move {
            let target = Target { address: target.address, path: target.path.into(), codec: Codec::Msgpack };
            let items = client.query(&target, Call::new("query", body)).await;
            items
                .map_err(|error| RecoveryError(error.to_string()))?
                .pop()
                .ok_or(RecoveryError("nothing".into()))
        }
        .boxed()
    }
}

/// A frontend's view of the cluster, reduced to which rank holds what.
struct View {
    updates: mpsc::Receiver<Update>,
    held: BTreeMap<WorkerRank, HashSet<EngineHash>>,
    load: BTreeMap<WorkerRank, (Option<u64>, Option<u64>)>,
    queries: Arc<Mutex<u64>>,
    _handle: ClusterHandle,
    _cancel: tokio_util::sync::DropGuard,
}

impl View {
    fn of(harness: &Harness) -> Self {
        let queries = Arc::default();
        let plane = Plane { client: harness.client.clone(), queries: Arc::clone(&queries) };
        let cancel = CancellationToken::new();
        let (handle, updates) =
            Cluster::start(ClusterConfig::default(), harness.store.clone(), Arc::new(plane), cancel.clone());
        Self {
            updates,
            held: BTreeMap::new(),
            load: BTreeMap::new(),
            queries,
            _handle: handle,
            _cancel: cancel.drop_guard(),
        }
    }

    async fn until(&mut self, wanted: impl Fn(&Self) -> bool) {
        within(async {
            while !wanted(self) {
                let update = self.updates.recv().await.expect("the cluster goes on");
                self.apply(update);
            }
        })
        .await;
    }

    fn apply(&mut self, update: Update) {
        match update {
            Update::KvReset { rank, .. } => {
                self.held.remove(&rank);
            }
            Update::Kv { rank, events, .. } => events.into_iter().for_each(|event| self.event(rank, event)),
            Update::Load { rank, active_decode_blocks, kv_used_blocks, .. } => {
                self.load.insert(rank, (active_decode_blocks, kv_used_blocks));
            }
            _ => {}
        }
    }

    fn event(&mut self, rank: WorkerRank, event: KvEvent) {
        let held = self.held.entry(rank).or_default();
        match event.data {
            KvEventData::Stored { blocks, .. } => held.extend(blocks.iter().map(|block| block.engine)),
            KvEventData::Removed { blocks } => held.retain(|block| !blocks.contains(block)),
            KvEventData::Cleared => held.clear(),
        }
    }

    fn holds(&self, rank: WorkerRank) -> HashSet<EngineHash> {
        self.held.get(&rank).cloned().unwrap_or_default()
    }
}

fn rank(harness: &Harness, dp_rank: u32) -> WorkerRank {
    WorkerRank::new(WorkerId(harness.worker.id()), dp_rank)
}

/// What the query endpoint says a rank holds.
async fn dump(harness: &Harness, dp_rank: u32) -> HashSet<EngineHash> {
    use roost_cluster::events::{KvAnswer, KvQuery};

    let endpoints =
        harness.instances().into_iter().filter(|i| i.endpoint.starts_with("worker_kv_query_source_"));
    let answers = stream::iter(endpoints).filter_map(|instance| async move {
        let target = instance.target().unwrap();
        let codec = target.codec;
        let target = Target { address: target.address, path: target.path.into(), codec: Codec::Msgpack };
        let query = KvQuery::recovery(rank(harness, dp_rank), None).encode(codec);
        let item =
            within(harness.client.query(&target, Call::new("q", query.into()))).await.unwrap().pop().unwrap();
        match KvAnswer::decode(&item, codec).unwrap() {
            KvAnswer::TreeDump { events, .. } => Some(events),
            KvAnswer::Error(_) => None,
            other => panic!("{other:?}"),
        }
    });
    let stored = answers.collect::<Vec<_>>().await.into_iter().flatten().flat_map(|event| match event.data {
        KvEventData::Stored { blocks, .. } => blocks,
        other => panic!("{other:?}"),
    });
    stored.map(|block| block.engine).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_learns_what_each_rank_holds() {
    let harness = Harness::with(|settings| settings.engine.dp_size = 2).await;
    harness.ask("before", &on_rank("before anybody listens", 1)).await;
    let mut view = View::of(&harness);
    let (zero, one) = (rank(&harness, 0), rank(&harness, 1));
    view.until(|view| view.holds(one).len() == 5).await;
    for number in 0..20 {
        let wanted = on_rank(&format!("prompt number {number}"), number % 2);
        harness.ask(&format!("r{number}"), &wanted).await;
    }
    harness.load(|load| load.iter().all(|rank| rank.active_blocks == 0)).await;
    let used: Vec<u64> = harness.engine.load().borrow().iter().map(|rank| rank.used_blocks).collect();
    view.until(|view| {
        (view.holds(zero).len() as u64, view.holds(one).len() as u64) == (used[0], used[1])
            && view.load.get(&one) == Some(&(Some(0), Some(used[1])))
    })
    .await;
    assert_eq!(view.holds(zero), dump(&harness, 0).await);
    assert_eq!(view.holds(one), dump(&harness, 1).await);
    harness.engine.flush_cache();
    view.until(|view| view.holds(zero).is_empty() && view.holds(one).is_empty()).await;
}

fn on_rank(prompt: &str, dp_rank: u32) -> roost_wire::message::EngineRequest {
    let routing = roost_wire::message::Routing { dp_rank: Some(dp_rank), ..Default::default() };
    roost_wire::message::EngineRequest { routing: Some(routing), ..request(prompt, 2) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn withheld_events_are_recovered_by_a_query() {
    let harness = Harness::start().await;
    let mut view = View::of(&harness);
    let rank = rank(&harness, 0);
    harness.ask("a", &request("the first prompt", 1)).await;
    view.until(|view| view.holds(rank).len() == 4).await;
    let before = *view.queries.lock();
    harness.worker.faults().withhold_kv_events(1);
    harness.ask("b", &request("never published!", 1)).await;
    harness.ask("c", &request("published again!", 1)).await;
    view.until(|view| view.holds(rank).len() == 12).await;
    assert_eq!(*view.queries.lock(), before + 1, "one query for one gap");
    assert_eq!(view.holds(rank), dump(&harness, 0).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chosen_changes_and_events_can_be_published() {
    let harness = Harness::start().await;
    let mut view = View::of(&harness);
    let rank = rank(&harness, 0);
    let stored = |name: u64| {
        let block = StoredBlock { engine: EngineHash(name), local: BlockHash(name) };
        KvEventData::Stored { parent: None, blocks: vec![block] }
    };
    assert!(harness.worker.publish_change(0, KvChange::device(stored(77))));
    view.until(|view| view.holds(rank) == HashSet::from([EngineHash(77)])).await;
    let event = KvEvent { event_id: 2, rank, tier: Tier::Device, data: stored(78) };
    assert!(harness.worker.publish_event(&event));
    view.until(|view| view.holds(rank).len() == 2).await;
    assert!(!harness.worker.publish_change(5, KvChange::CLEARED), "no such rank");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_without_events_registers_none() {
    let harness = Harness::with(|settings| settings.engine.kv_events = false).await;
    assert!(harness.records(record::Bucket::EventSources).is_empty());
    assert_eq!(harness.records(record::Bucket::EventChannels).len(), 1, "load only");
    let config = harness.card().card.runtime_config;
    assert!(!config.kv_event_publishing_enabled && !config.enable_local_indexer);
    assert_eq!(harness.instances().len(), 1);
}
