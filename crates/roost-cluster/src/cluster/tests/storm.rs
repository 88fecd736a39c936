//! Event sockets and recovery queries on a network in memory whose accidents follow from a seed, under paused time.
//!
//! Whatever is refused, delayed, cut, reset or lost without a word: no update is out of place, and when the weather is
//! fine again the view is what the workers hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use roost_kv::{EngineHash, KvEvent, KvEventData, WorkerId, WorkerRank};
use roost_simulation::{Listener, Network, Stream, Weather};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::world::{Hub, Worker, removed, stored};
use super::*;
use crate::events::JournalBuffer;
use crate::record::{Codec, Target};
use roost_zmtp::EventSockets;

const SEEDS: u64 = 150;
const WORKERS: u64 = 3;
const STEPS: usize = 80;
/// Rounds of fine weather in which everything must have come together; a vanished peer is noticed after four.
const ROUNDS: usize = 60;
const ROUND: Duration = Duration::from_secs(30);

/// Recovery queries as a length and a body each way, one connection per query.
#[derive(Debug)]
struct Plane(Network);

impl RecoverySource for Plane {
    fn query(&self, target: Target, request: Bytes) -> BoxFuture<'static, Result<Bytes, RecoveryError>> {
        let network = self.0.clone();
        async move {
            let mut stream = network.connect(target.address).await?;
            say(&mut stream, &request).await?;
            hear(&mut stream).await
        }
        .map(|answer: std::io::Result<Bytes>| answer.map_err(|error| RecoveryError(error.to_string())))
        .boxed()
    }
}

async fn say(stream: &mut Stream, text: &[u8]) -> std::io::Result<()> {
    stream.write_u32(u32::try_from(text.len()).unwrap()).await?;
    stream.write_all(text).await
}

async fn hear(stream: &mut Stream) -> std::io::Result<Bytes> {
    let length = stream.read_u32().await?;
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text).await?;
    Ok(text.into())
}

async fn answer(listener: Listener, journal: Arc<Mutex<JournalBuffer>>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let journal = journal.clone();
        tokio::spawn(async move {
            let request = hear(&mut stream).await?;
            let answer = journal.lock().answer(Codec::Msgpack, &request);
            say(&mut stream, &answer).await
        });
    }
}

/// A worker whose cache changes as an engine's does: chains grow at their ends and are evicted from there.
struct Engine {
    worker: Worker,
    chains: Vec<Vec<u64>>,
    next: u64,
    _answers: AbortOnDropHandle<()>,
}

impl Engine {
    async fn join(hub: &Hub, network: &Network, id: u64, generation: u8) -> Self {
        // Where the query endpoint of this generation is; the journal of another one must not answer.
        let address = SocketAddr::from((Ipv4Addr::new(10, 0, generation, id as u8), 9));
        let mut worker = Worker::new(hub, id).await;
        worker.move_to(address);
        let listener = network.bind(address).unwrap();
        let answers = AbortOnDropHandle::new(tokio::spawn(answer(listener, worker.journal())));
        worker.register().await;
        Self { worker, chains: Vec::new(), next: id << 32 | u64::from(generation) << 24, _answers: answers }
    }

    /// Something happens, and is published unless `lost`.
    fn step(&mut self, random: &mut fastrand::Rng, lost: bool) {
        let chain = random.usize(..=self.chains.len().min(8));
        let data = match random.u32(..20) {
            0 => {
                self.chains.clear();
                KvEventData::Cleared
            }
            1..=5 if chain < self.chains.len() => {
                let keep = random.usize(..self.chains[chain].len());
                let mut gone = self.chains[chain].split_off(keep);
                gone.reverse();
                self.chains.retain(|chain| !chain.is_empty());
                removed(&gone)
            }
            _ => {
                let blocks: Vec<u64> = (0..random.u64(1..5)).map(|n| self.next + n).collect();
                self.next += 5;
                if chain == self.chains.len() {
                    self.chains.push(Vec::new());
                }
                let parent = self.chains[chain].last().copied();
                self.chains[chain].extend(&blocks);
                stored(parent, &blocks)
            }
        };
        let event = self.worker.record(data);
        if !lost {
            self.worker.publisher.publish_kv_events(&[event]);
        }
    }

    fn holds(&self) -> BTreeSet<EngineHash> {
        self.chains.iter().flatten().copied().map(EngineHash).collect()
    }
}

/// What a frontend makes of the updates: blocks that follow no known block cannot be placed, as in the index.
#[derive(Default)]
struct View {
    joined: BTreeMap<WorkerId, u64>,
    epochs: BTreeMap<WorkerId, u64>,
    held: BTreeMap<WorkerRank, BTreeSet<EngineHash>>,
}

impl View {
    fn take(&mut self, seed: u64, update: Update) {
        let here = |view: &Self, worker: WorkerId, epoch: u64| {
            assert_eq!(
                view.joined.get(&worker),
                Some(&epoch),
                "seed {seed}: an update of nobody who is here"
            );
        };
        match update {
            Update::Joined(info) => {
                let before = self.joined.insert(info.worker, info.epoch);
                assert_eq!(before, None, "seed {seed}: joined twice");
                let last = self.epochs.insert(info.worker, info.epoch);
                assert!(last < Some(info.epoch), "seed {seed}: an epoch comes back");
            }
            Update::Left { worker, epoch, .. } => {
                here(self, worker, epoch);
                self.joined.remove(&worker);
                self.held.retain(|rank, _| rank.worker != worker);
            }
            Update::KvReset { rank, epoch } => {
                here(self, rank.worker, epoch);
                self.held.remove(&rank);
            }
            Update::Kv { rank, epoch, events } => {
                here(self, rank.worker, epoch);
                let held = self.held.entry(rank).or_default();
                events.into_iter().for_each(|event| apply(held, event));
            }
            _ => {}
        }
    }

    fn holds(&self, rank: WorkerRank) -> BTreeSet<EngineHash> {
        self.held.get(&rank).cloned().unwrap_or_default()
    }
}

fn apply(held: &mut BTreeSet<EngineHash>, event: KvEvent) {
    match event.data {
        KvEventData::Stored { parent, blocks } => {
            if parent.is_none_or(|parent| held.contains(&parent)) {
                held.extend(blocks.iter().map(|block| block.engine));
            }
        }
        KvEventData::Removed { blocks } => held.retain(|block| !blocks.contains(block)),
        KvEventData::Cleared => held.clear(),
    }
}

async fn weather_the_storm(seed: u64, total: &Mutex<ClusterStats>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let network = Network::new(seed, Weather { lifetime: 1024, ..Weather::storm() });
    let hub = Hub { sockets: EventSockets::simulated(network.clone()), ..Hub::default() };
    let config = ClusterConfig {
        sockets: hub.sockets.clone(),
        recovery_attempts: 3,
        recovery_timeout: Duration::from_secs(5),
        recovery_rest: Duration::from_secs(5),
        ..ClusterConfig::default()
    };
    let plane = Arc::new(Plane(network.clone()));
    let (handle, mut updates) = Cluster::start(config, hub.store.clone(), plane, CancellationToken::new());
    let mut engines = Vec::new();
    for id in 1..=WORKERS {
        engines.push(Engine::join(&hub, &network, id, 0).await);
    }
    let mut view = View::default();
    let mut generation = 0;
    for _ in 0..STEPS {
        let chosen = random.usize(..engines.len());
        if random.u32(..40) == 0 {
            // It leaves, and comes back under its id with an empty cache and a counter that begins anew.
            generation += 1;
            engines[chosen].worker.leave().await;
            sleep(Duration::from_millis(random.u64(..3000))).await;
            engines[chosen] = Engine::join(&hub, &network, chosen as u64 + 1, generation).await;
        }
        let lost = random.u32(..12) == 0;
        engines[chosen].step(&mut random, lost);
        sleep(Duration::from_millis(random.u64(..400))).await;
        while let Ok(update) = updates.try_recv() {
            view.take(seed, update);
        }
    }
    network.set_weather(Weather::calm());
    let mut settled = 0;
    for _ in 0..ROUNDS {
        // What was made in the storm may still break when it is used.
        engines.iter_mut().for_each(|engine| engine.step(&mut random, false));
        sleep(ROUND).await;
        while let Ok(update) = updates.try_recv() {
            view.take(seed, update);
        }
        let same = engines.iter().all(|engine| view.holds(engine.worker.rank()) == engine.holds());
        settled = if same { settled + 1 } else { 0 };
    }
    assert!(
        settled > ROUNDS / 4,
        "seed {seed}: the view never becomes what the workers hold: {:?}",
        handle.stats()
    );
    assert_eq!(handle.stats().undecodable_messages, 0, "seed {seed}");
    let mut total = total.lock();
    let stats = handle.stats();
    total.kv_gaps += stats.kv_gaps;
    total.recoveries += stats.recoveries;
    total.recoveries_failed += stats.recoveries_failed;
    total.left += stats.left;
}

#[test]
fn the_view_is_right_again_after_every_storm() {
    let total = Mutex::new(ClusterStats::default());
    for seed in 0..SEEDS {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(weather_the_storm(seed, &total));
    }
    // The storm was one.
    let total = total.into_inner();
    assert!(total.kv_gaps > SEEDS && total.left > SEEDS / 2 && total.recoveries_failed > 5, "{total:?}");
    assert!(total.recoveries > SEEDS * WORKERS * 3, "{total:?}");
}
