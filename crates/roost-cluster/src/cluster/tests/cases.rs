//! Faults that users reported, by the number of the case, seen from the index that the updates feed.

use std::sync::atomic::Ordering;

use roost_kv::hash::sequence_hashes;
use roost_kv::{BlockHash, Index, KvEvent, Tier, WorkerRank};
use tokio::time::timeout;

use super::world::{Hub, Worker, World, removed, stored};
use super::*;

/// What a frontend keeps: an index, fed from the updates alone.
struct Frontend {
    world: World,
    index: Index,
}

impl Frontend {
    fn on(hub: &Hub, config: ClusterConfig) -> Self {
        Self { world: World::start_on(hub.clone(), config), index: Index::new() }
    }

    /// How many leading blocks of the prompt a rank is credited with.
    fn overlap(&self, rank: WorkerRank, prompt: &[u64]) -> u32 {
        let blocks: Vec<BlockHash> = prompt.iter().copied().map(BlockHash).collect();
        self.index.overlap(&sequence_hashes(&blocks)).get(rank).device
    }

    async fn step(&mut self) {
        match self.world.next().await {
            Update::KvReset { rank, .. } => {
                self.index.remove_rank(rank);
            }
            Update::Kv { events, .. } => events.iter().for_each(|event| {
                self.index.apply(event);
            }),
            Update::Left { worker, .. } => {
                self.index.remove_worker(worker);
            }
            _ => {}
        }
    }

    /// Takes updates until the credits are as wanted.
    async fn until(&mut self, rank: WorkerRank, prompt: &[u64], credit: u32) {
        let waited = timeout(Duration::from_secs(20), async {
            while self.overlap(rank, prompt) != credit {
                self.step().await;
            }
        });
        let in_time = waited.await.is_ok();
        let now = self.overlap(rank, prompt);
        assert!(in_time, "{now} instead of {credit}; {:?}", self.world.handle.stats());
    }
}

#[tokio::test]
async fn c_kv_01_blocks_belong_to_a_process() {
    let hub = Hub::default();
    let mut frontend = Frontend::on(&hub, ClusterConfig::default());
    let prompt: Vec<u64> = (1..=10).collect();
    let first = Worker::join(&hub, 1).await;
    let other = Worker::join(&hub, 2).await;
    first.publish(stored(None, &prompt));
    other.publish(stored(None, &prompt[..2]));
    frontend.until(first.rank(), &prompt, 10).await;
    frontend.until(other.rank(), &prompt, 2).await;

    first.leave().await;
    frontend.until(first.rank(), &prompt, 0).await;
    first.publish(stored(None, &[77])); // a late word of the dead

    // The same place, another process: numbers begin anew and the cache is empty.
    let again = Worker::join(&hub, 3).await;
    again.publish(stored(None, &prompt[..1]));
    frontend.until(again.rank(), &prompt, 1).await;
    assert_eq!(frontend.overlap(first.rank(), &prompt), 0);
    assert_eq!(frontend.overlap(first.rank(), &[77]), 0);
    assert_eq!(frontend.overlap(other.rank(), &prompt), 2);
}

#[tokio::test]
async fn c_kv_02_one_gap_one_recovery() {
    for variant in ["events", "dump"] {
        let hub = Hub::default();
        let mut frontend = Frontend::on(&hub, ClusterConfig::default());
        let worker = Worker::join(&hub, 1).await;
        let rank = worker.rank();
        worker.publish(stored(None, &[1]));
        worker.publish(stored(Some(1), &[2]));
        frontend.until(rank, &[1, 2], 2).await;
        if variant == "dump" {
            // More than the worker can repeat one by one.
            for n in 0..1100 {
                worker.record(removed(&[1000 + n]));
            }
        }
        for block in 3..=6 {
            worker.record(stored(Some(block - 1), &[block]));
        }
        worker.publish(stored(Some(6), &[7]));
        frontend.until(rank, &[1, 2, 3, 4, 5, 6, 7], 7).await;
        let eighth = worker.record(stored(Some(7), &[8]));
        let late = KvEvent { event_id: eighth.event_id - 2, data: removed(&[6]), ..eighth.clone() };
        worker.publisher.publish_kv_events(&[eighth.clone(), eighth, late]);
        worker.publish(stored(None, &[99])); // comes after all of it
        frontend.until(rank, &[99], 1).await;
        assert_eq!(frontend.overlap(rank, &[1, 2, 3, 4, 5, 6, 7, 8]), 8, "{variant}");
        assert_eq!(hub.journals.queries(), [(rank, None), (rank, Some(3))], "{variant}");
        let stats = frontend.world.handle.stats();
        assert_eq!((stats.kv_gaps, stats.ranks_forgotten), (1, 0), "{variant}");
        assert!(stats.kv_events_stale >= 2, "{variant}: the repeated and the late one");
    }
}

#[tokio::test]
async fn c_kv_02_a_worker_that_does_not_answer() {
    let hub = Hub::default();
    let rest = Duration::from_millis(20);
    let config = ClusterConfig { recovery_attempts: 2, recovery_rest: rest, ..ClusterConfig::default() };
    let mut frontend = Frontend::on(&hub, config);
    let worker = Worker::join(&hub, 1).await;
    let rank = worker.rank();
    worker.publish(stored(None, &[1, 2]));
    frontend.until(rank, &[1, 2], 2).await;

    hub.journals.broken.store(true, Ordering::SeqCst);
    worker.record(removed(&[2]));
    worker.publish(stored(None, &[7]));
    // The event after the gap counts, and what may be wrong by now does not.
    frontend.until(rank, &[7], 1).await;
    assert_eq!(frontend.overlap(rank, &[1, 2]), 0);
    worker.publish(stored(Some(7), &[8]));
    frontend.until(rank, &[7, 8], 2).await;
    frontend.world.until(|stats| stats.ranks_with_holes == 1 && stats.recoveries_failed >= 2).await;

    hub.journals.broken.store(false, Ordering::SeqCst);
    frontend.until(rank, &[1, 2], 1).await;
    frontend.until(rank, &[7, 8], 2).await;
    frontend.world.until(|stats| stats.ranks_with_holes == 0).await;
}

#[tokio::test]
async fn c_kv_03_unknown_removals_and_clears() {
    let hub = Hub::default();
    let mut frontend = Frontend::on(&hub, ClusterConfig::default());
    let (a, b) = (Worker::join(&hub, 1).await, Worker::join(&hub, 2).await);
    a.publish(stored(None, &[1, 2, 3]));
    b.publish(stored(None, &[1, 2]));
    frontend.until(a.rank(), &[1, 2, 3], 3).await;
    frontend.until(b.rank(), &[1, 2, 3], 2).await;
    a.publish(removed(&[9, 3, 2]));
    frontend.until(a.rank(), &[1, 2, 3], 1).await;
    assert_eq!(frontend.overlap(b.rank(), &[1, 2, 3]), 2);
    a.publish(roost_kv::KvEventData::Cleared);
    frontend.until(a.rank(), &[1, 2, 3], 0).await;
    assert_eq!(frontend.overlap(b.rank(), &[1, 2, 3]), 2);
    assert_eq!(frontend.index.rank_blocks(a.rank()), 0);
}

#[tokio::test]
async fn tiers_are_kept_apart() {
    let hub = Hub::default();
    let mut frontend = Frontend::on(&hub, ClusterConfig::default());
    let worker = Worker::join(&hub, 1).await;
    let publish = |tier, data| worker.publisher.publish_kv_events(&[worker.record_in(tier, data)]);
    publish(Tier::Device, stored(None, &[1, 2]));
    publish(Tier::Host, stored(None, &[1, 2]));
    publish(Tier::Device, removed(&[2]));
    publish(Tier::Device, stored(None, &[9]));
    frontend.until(worker.rank(), &[9], 1).await;
    let prompt = sequence_hashes(&[BlockHash(1), BlockHash(2)]);
    while frontend.index.overlap(&prompt).get(worker.rank()).total() != 2 {
        frontend.step().await;
    }
    let held = frontend.index.overlap(&prompt).get(worker.rank());
    assert_eq!((held.device, held.host), (1, 1), "evicted from the device, still on the host");
}

#[tokio::test]
async fn c_kv_08_a_worker_without_events_is_told_of() {
    let hub = Hub::default();
    let config =
        ClusterConfig { silence_before_warning: Duration::from_millis(100), ..ClusterConfig::default() };
    let mut world = World::start_on(hub.clone(), config);
    assert_eq!(world.next().await, Update::Synced);
    // Its port is blocked: nobody listens where its record says.
    let worker = Worker::new(&hub, 1).await;
    let port = worker.cut().await;
    worker.register().await;
    let Update::Joined(info) = world.next().await else { panic!("not joined") };
    let told = |silent| Update::KvSilent { worker: info.worker, epoch: info.epoch, silent };
    assert_eq!(world.next().await, told(true));
    assert_eq!(world.handle.stats().workers_without_events, 1);

    let back = worker.publish_again(port).await;
    let (mut updates, mut again) = (vec![world.next().await], Vec::new());
    updates.push(world.next().await);
    updates.retain(|update| match update {
        Update::KvSilent { .. } => {
            again.push(update.clone());
            false
        }
        _ => true,
    });
    assert_eq!(again, [told(false)]);
    assert!(matches!(updates[..], [Update::KvReset { .. }]), "{updates:?}");
    back.publish(&worker.message(stored(None, &[1])));
    world.expect_blocks(worker.rank(), &[1]).await;
    world.until(|stats| stats.workers_without_events == 0).await;
}
