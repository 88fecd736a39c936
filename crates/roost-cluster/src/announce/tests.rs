use std::time::Duration;

use roost_kv::{WorkerId, WorkerRank};
use tokio::time::timeout;

use super::*;
use crate::discovery::MemoryDiscovery;
use crate::events::{Envelope, SequenceStep};
use crate::record::{Bucket, EventChannelRecord, EventTransport};
use roost_zmtp::Connection;

const DEADLINE: Duration = Duration::from_secs(20);

fn scope() -> EndpointId {
    EndpointId::new("dynamo", "backend", "generate")
}

/// The channels that a store holds, once there are `count`.
async fn channels(store: &MemoryDiscovery, count: usize) -> Vec<EventChannelRecord> {
    let mut watch = store.watch();
    let there = watch.wait_for(|snapshot| snapshot.records.len() == count);
    let snapshot = timeout(DEADLINE, there).await.unwrap().unwrap();
    let channels = snapshot.records.iter().filter(|(key, _)| key.bucket == Bucket::EventChannels);
    channels.map(|(_, json)| EventChannelRecord::decode(json).unwrap()).collect()
}

async fn subscribe(channels: &[EventChannelRecord], topic: Topic) -> Connection {
    let channel = channels.iter().find(|channel| channel.topic == topic.as_str()).unwrap();
    let EventTransport::Zmq { endpoint } = &channel.transport else { panic!("{channel:?}") };
    Connection::subscribe(&EventSockets::default(), endpoint, topic.as_str()).await.unwrap()
}

#[tokio::test]
async fn what_is_told_is_published_where_records_say_until_the_end() {
    let (store, cancel) = (MemoryDiscovery::new(), CancellationToken::new());
    let config = AnnouncerConfig {
        publisher_id: 77,
        bind: "127.0.0.1".parse().unwrap(),
        advertise_host: None,
        nats: None,
    };
    let announcer = Announcer::start(config, store.clone(), cancel.clone());
    announcer.open(Topic::SessionAffinity, &scope());
    announcer.open(Topic::ActiveSequences, &scope());
    announcer.open(Topic::ActiveSequences, &scope());
    let channels = channels(&store, 2).await;
    assert!(channels.iter().all(|channel| channel.publisher_id == 77));
    let mut bindings = subscribe(&channels, Topic::SessionAffinity).await;
    let mut requests = subscribe(&channels, Topic::ActiveSequences).await;

    let binding = BindingEvent {
        session_id: "s".into(),
        worker: WorkerId(1),
        dp_rank: Some(2),
        sequence: 3,
        writer_id: 77,
    };
    let step = |n: u32| SequenceEvent {
        request_id: format!("r{n}"),
        rank: WorkerRank::new(WorkerId(1), 2),
        step: SequenceStep::Ended,
        origin: 77,
        lora_name: None,
    };
    for n in 0..5 {
        announcer.tell(&scope(), Announcement::Sequence(step(n)));
    }
    announcer.tell(&scope(), Announcement::Binding(binding.clone()));
    let message = timeout(DEADLINE, bindings.message()).await.unwrap().unwrap();
    let envelope = Envelope::from_frames(&message).unwrap();
    assert_eq!((envelope.publisher_id, envelope.sequence), (77, 0));
    assert_eq!(BindingEvent::decode(&envelope.payload).unwrap(), binding);
    let mut steps = Vec::new();
    while steps.len() < 5 {
        let message = timeout(DEADLINE, requests.message()).await.unwrap().unwrap();
        steps.extend(SequenceEvent::decode(&Envelope::from_frames(&message).unwrap().payload).unwrap());
    }
    assert_eq!(steps, (0..5).map(step).collect::<Vec<_>>());
    assert_eq!(announcer.stats(), AnnouncerStats { published: 6, dropped: 0 });

    cancel.cancel();
    timeout(DEADLINE, announcer.stopped()).await.unwrap();
    assert!(store.watch().borrow().records.is_empty(), "the records go with it");
    assert!(timeout(DEADLINE, bindings.message()).await.unwrap().is_err(), "and the sockets");
}

#[tokio::test]
async fn a_channel_that_cannot_be_had_costs_its_words_only() {
    let (store, cancel) = (MemoryDiscovery::new(), CancellationToken::new());
    // An address of nobody here.
    let config = AnnouncerConfig {
        publisher_id: 7,
        bind: "192.0.2.1".parse().unwrap(),
        advertise_host: None,
        nats: None,
    };
    let announcer = Announcer::start(config, store.clone(), cancel.clone());
    let binding = BindingEvent {
        session_id: "s".into(),
        worker: WorkerId(1),
        dp_rank: None,
        sequence: 3,
        writer_id: 7,
    };
    announcer.tell(&scope(), Announcement::Binding(binding));
    let waited = timeout(DEADLINE, async {
        while announcer.stats().dropped < 1 {
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect("the word was counted");
    assert!(store.watch().borrow().records.is_empty());
}
