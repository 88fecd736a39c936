//! End to end in one process: memory discovery, real event sockets, and workers' journals behind a fake request plane.

mod cases;
mod storm;
mod world;

use roost_kv::WorkerId;

use super::*;
use crate::discovery::Discovery as _;
use roost_zmtp::EventSockets;
use world::{Hub, Worker, World, removed, stored};

#[tokio::test]
async fn what_is_there_at_the_start_comes_before_synced() {
    let hub = Hub::default();
    let worker = Worker::join(&hub, 1).await;
    let mut world = World::start_on(hub.clone(), ClusterConfig::default());
    let Update::Joined(info) = world.next().await else { panic!("not joined") };
    assert_eq!((info.worker, info.ranks.clone()), (WorkerId(1), 0..1));
    assert_eq!(info.endpoint, world::endpoint("generate"));
    assert_eq!(info.target, worker.records.generate.target().unwrap());
    assert_eq!(info.mdcsum, info.card.mdcsum());
    assert_eq!(world.next().await, Update::Synced);
    assert!(world.handle.synced());
    assert_eq!(world.handle.workers()[..], [info]);
    let endpoints: Vec<_> =
        world.handle.instances().iter().map(|instance| instance.endpoint.clone()).collect();
    assert_eq!(endpoints.len(), 2, "side endpoints are listed too: {endpoints:?}");
    assert!(endpoints[1].starts_with("worker_kv_query_source_"));
}

#[tokio::test]
async fn a_worker_joins_when_card_and_endpoint_are_there_and_its_events_follow() {
    let mut world = World::start();
    assert_eq!(world.next().await, Update::Synced);
    let worker = Worker::new(&world.hub, 1).await;
    worker.record(stored(None, &[10, 11]));

    // The card first, which is the unusual order.
    let records = &worker.records;
    let put = async |key, json: Vec<u8>| world.hub.store.put(key, json.into()).await.unwrap();
    put(records.card.key(), records.card.encode()).await;
    put(records.sources[0].key(), records.sources[0].encode()).await;
    put(records.channels[0].key(), records.channels[0].encode()).await;
    put(records.generate.key(), records.generate.encode()).await;

    let Update::Joined(info) = world.next().await else { panic!("not joined") };
    let rank = worker.rank();
    assert_eq!(world.next().await, Update::KvReset { rank, epoch: info.epoch });
    world.expect_blocks(rank, &[10, 11]).await; // the state at first contact
    worker.publish(stored(Some(11), &[12]));
    world.expect_blocks(rank, &[12]).await;
    assert_eq!(world.hub.journals.queries(), [(rank, None)]);
}

#[tokio::test]
async fn a_gap_is_filled_by_one_query() {
    let (mut world, worker) = World::with_worker().await;
    let rank = worker.rank();
    worker.publish(stored(None, &[1]));
    world.expect_blocks(rank, &[1]).await;
    for block in 2..=6 {
        worker.record(stored(None, &[block]));
    }
    worker.publish(stored(None, &[7]));
    world.expect_blocks(rank, &[2, 3, 4, 5, 6, 7]).await;
    worker.publish(stored(None, &[8]));
    world.expect_blocks(rank, &[8]).await;
    assert_eq!(world.hub.journals.queries(), [(rank, None), (rank, Some(2))]);
    let stats = world.handle.stats();
    assert_eq!((stats.kv_gaps, stats.recoveries, stats.kv_events), (1, 2, 8));
}

#[tokio::test]
async fn a_gap_beyond_the_history_replaces_the_state() {
    let (mut world, worker) = World::with_worker().await;
    let rank = worker.rank();
    worker.publish(stored(None, &[1]));
    world.expect_blocks(rank, &[1]).await;
    for _ in 2..=1100 {
        worker.record(removed(&[1]));
    }
    worker.publish(stored(None, &[5]));
    assert!(matches!(world.next().await, Update::KvReset { .. }));
    world.expect_blocks(rank, &[5]).await;
}

#[tokio::test]
async fn nothing_comes_after_left() {
    let (mut world, worker) = World::with_worker().await;
    let epoch = world.handle.workers()[0].epoch;
    worker.publish(stored(None, &[1]));
    world.expect_blocks(worker.rank(), &[1]).await;
    // Some of these are still on their way when the worker goes.
    for block in 2..200 {
        worker.publish(stored(None, &[block]));
    }
    worker.leave().await;
    let mut update = world.next().await;
    while matches!(update, Update::Kv { .. }) {
        update = world.next().await;
    }
    let endpoint = world::endpoint("generate");
    assert_eq!(update, Update::Left { worker: WorkerId(1), epoch, endpoint });
    for block in 200..300 {
        worker.publish(stored(None, &[block]));
    }
    // A restart under the same address is another process: its numbers start again.
    let again = Worker::join(&world.hub, 2).await;
    let Update::Joined(info) = world.next().await else { panic!("not joined") };
    assert!(info.epoch > epoch);
    assert!(matches!(world.next().await, Update::KvReset { rank, .. } if rank == again.rank()));
    again.publish(stored(None, &[1]));
    world.expect_blocks(again.rank(), &[1]).await;
    assert!(world.handle.workers().iter().all(|info| info.worker == WorkerId(2)));
}

#[tokio::test]
async fn two_sources_for_one_rank_are_none() {
    let (mut world, worker) = World::with_worker().await;
    worker.publish(stored(None, &[1]));
    world.expect_blocks(worker.rank(), &[1]).await;

    let mut second = worker.records.sources[0].clone();
    second.publisher_id += 1;
    second.metadata.publisher_id += 1;
    world.hub.store.put(second.key(), second.encode().into()).await.unwrap();
    assert!(matches!(world.next().await, Update::KvReset { .. }), "what was indexed is dropped");
    assert_eq!(world.handle.stats().ambiguous_ranks, 1);
    worker.publish(stored(None, &[2]));

    world.hub.store.delete(second.key()).await.unwrap();
    assert!(matches!(world.next().await, Update::KvReset { .. }));
    world.expect_blocks(worker.rank(), &[1, 2]).await; // the whole state again
    world.until(|stats| stats.ambiguous_ranks == 0).await;
}

#[tokio::test]
async fn a_dead_publisher_does_not_stall_others() {
    let mut world = World::start();
    assert_eq!(world.next().await, Update::Synced);
    let dead = Worker::new(&world.hub, 1).await;
    dead.publisher.close().await;
    dead.register().await;
    assert!(matches!(world.next().await, Update::Joined(_)));
    let live = Worker::join(&world.hub, 2).await;
    assert!(matches!(world.next().await, Update::Joined(_)));
    assert!(matches!(world.next().await, Update::KvReset { .. }));
    live.publish(stored(None, &[1]));
    world.expect_blocks(live.rank(), &[1]).await;
    let stats = world.handle.stats();
    // Loads are followed as well; nobody listens on the dead worker's two sockets but its KV events' one.
    assert_eq!(stats.subscriptions - stats.connected, 1);
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_the_break_is_filled() {
    let (mut world, worker) = World::with_worker().await;
    let rank = worker.rank();
    worker.publish(stored(None, &[1]));
    world.expect_blocks(rank, &[1]).await;
    let port = worker.cut().await;
    worker.record(stored(None, &[2]));
    let back = worker.publish_again(port).await;
    world.expect_blocks(rank, &[2]).await; // missed while away, and nothing newer to show the gap
    back.publish(&worker.message(stored(None, &[3])));
    world.expect_blocks(rank, &[3]).await;
    assert_eq!(world.hub.journals.queries(), [(rank, None), (rank, Some(2))]);
}

#[tokio::test]
async fn loads_are_passed_on_for_known_workers() {
    let (mut world, worker) = World::with_worker().await;
    let rank = worker.rank();
    let epoch = world.handle.workers()[0].epoch;
    let load = crate::events::Load {
        worker_id: 1,
        dp_rank: 0,
        active_decode_blocks: Some(3),
        active_prefill_tokens: None,
        kv_used_blocks: Some(9),
    };
    world.until(|stats| stats.connected == 2).await;
    worker.loads.publish_load(&crate::events::Load { worker_id: 99, ..load });
    worker.loads.publish_load(&crate::events::Load { dp_rank: 5, ..load });
    worker.loads.publish_load(&load);
    let expected = Update::Load {
        rank,
        epoch,
        active_decode_blocks: Some(3),
        active_prefill_tokens: None,
        kv_used_blocks: Some(9),
    };
    assert_eq!(world.next().await, expected);
    assert_eq!(world.handle.stats().late_messages, 2);
}

#[tokio::test]
async fn what_other_frontends_share_is_passed_on_and_our_own_words_are_not() {
    use crate::events::{
        BindingEvent, Publisher, PublisherConfig, SequenceBegun, SequenceEvent, SequenceStep,
    };
    use crate::record::Topic;

    let hub = Hub::default();
    let worker = Worker::join(&hub, 1).await;
    let publisher = async |topic, id: u64| {
        let bind = "127.0.0.1:0".parse().unwrap();
        let endpoint = world::endpoint("generate");
        let sockets = EventSockets::default();
        let config =
            PublisherConfig { endpoint, topic, bind, advertise_host: None, publisher_id: Some(id), sockets };
        let publisher = Publisher::bind(config).await.unwrap();
        let record = publisher.channel_record();
        hub.store.put(record.key(), record.encode().into()).await.unwrap();
        publisher
    };
    let ours = publisher(Topic::SessionAffinity, 77).await;
    let theirs = publisher(Topic::SessionAffinity, 78).await;
    let requests = publisher(Topic::ActiveSequences, 78).await;
    let config = ClusterConfig {
        sequences: true,
        bindings: true,
        own_publisher: Some(77),
        ..ClusterConfig::default()
    };
    let mut world = World::start_on(hub.clone(), config);
    assert!(matches!(world.next().await, Update::Joined(_)));
    assert_eq!(world.next().await, Update::Synced);
    // The worker's events and loads, and the other frontend's two channels.
    world.until(|stats| (stats.subscriptions, stats.connected) == (4, 4)).await;
    assert_eq!((ours.stats().subscribers, theirs.stats().subscribers), (0, 1));
    assert!(matches!(world.next().await, Update::KvReset { .. }));

    let scope = world::endpoint("generate");
    // A worker that is not known here (yet) is no reason to hold it back.
    let event = BindingEvent {
        session_id: "s".into(),
        worker: WorkerId(999),
        dp_rank: None,
        sequence: 5,
        writer_id: 78,
    };
    theirs.publish_binding(&event);
    assert_eq!(world.next().await, Update::Binding { scope: scope.clone(), event });

    let step = |step, n: u64| SequenceEvent {
        request_id: format!("r{n}"),
        rank: worker.rank(),
        step,
        origin: 78,
        lora_name: None,
    };
    let mut events: Vec<_> =
        (0..300).map(|n| step(SequenceStep::Begun(SequenceBegun::default()), n)).collect();
    events.push(step(SequenceStep::Ended, 0));
    requests.publish_sequences(&events);
    let mut got = Vec::new();
    while got.len() < events.len() {
        let Update::Sequences { scope: of, events, .. } = world.next().await else { panic!("not a step") };
        assert_eq!(of, scope);
        assert!(events.len() <= 256);
        got.extend(events);
    }
    assert_eq!(got, events);
    hub.store.delete(requests.channel_record().key()).await.unwrap();
    assert_eq!(world.next().await, Update::SequencesEnded { scope, publisher: 78 });
}

#[tokio::test]
async fn events_can_be_switched_off_and_namespaces_chosen() {
    let hub = Hub::default();
    let worker = Worker::join(&hub, 1).await;
    let config = ClusterConfig { kv_events: false, ..ClusterConfig::default() };
    let mut world = World::start_on(hub.clone(), config);
    assert!(matches!(world.next().await, Update::Joined(_)));
    assert_eq!(world.next().await, Update::Synced);
    assert_eq!(world.handle.stats().subscriptions, 1, "loads only");

    let namespaces = NamespaceFilter::Prefix("other".into());
    let mut elsewhere = World::start_on(hub, ClusterConfig { namespaces, ..ClusterConfig::default() });
    assert_eq!(elsewhere.next().await, Update::Synced);
    assert!(elsewhere.handle.instances().is_empty());
    drop(worker);
}

#[tokio::test]
async fn the_cluster_ends_when_it_is_told_to_and_when_nobody_listens() {
    let (world, _worker) = World::with_worker().await;
    world.cancel.cancel();
    world.handle.stopped().await;

    let (mut world, worker) = World::with_worker().await;
    world.updates.close();
    worker.publish(stored(None, &[1]));
    world.handle.stopped().await;
}

#[test]
fn namespace_filters() {
    let exact = NamespaceFilter::Exact("dynamo".into());
    let prefix = NamespaceFilter::Prefix("dynamo".into());
    for (name, by_exact, by_prefix) in
        [("dynamo", true, true), ("dynamo-2", false, true), ("dyn", false, false)]
    {
        assert_eq!((exact.admits(name), prefix.admits(name)), (by_exact, by_prefix), "{name}");
        assert!(NamespaceFilter::All.admits(name));
    }
}
