//! Against sockets of our own that speak as an engine's do, with batches out of captures.

use std::sync::{Arc, Mutex};

use roost_kv::KvEventData;
use roost_zmtp::{EventSockets, PubSocket, encode_message};
use tokio_util::sync::CancellationToken;

use super::*;

mod router;

use router::Router;

const SOON: Duration = Duration::from_secs(20);

/// An engine's publisher and its replay, of one process.
struct Engine {
    live: PubSocket,
    history: Arc<Mutex<Vec<(u64, Bytes)>>>,
    next: u64,
}

impl Engine {
    async fn start(history: Arc<Mutex<Vec<(u64, Bytes)>>>) -> Self {
        let live =
            PubSocket::bind(&EventSockets::default(), "127.0.0.1:0".parse().unwrap(), "kv").await.unwrap();
        Engine { live, history, next: 0 }
    }

    /// A batch that stores one block, named by its number. `lost`: subscribers never see it.
    fn store(&mut self, name: u64, lost: bool) {
        let tokens: Vec<u64> = (0..4).map(|at| name * 4 + at).collect();
        let event = serde_json::json!({
            "type": "BlockStored", "block_hashes": [name], "parent_block_hash": null, "token_ids": tokens,
            "block_size": 4, "lora_id": null,
        });
        let payload = Bytes::from(rmp_serde::to_vec(&(name as f64, [event], 0)).unwrap());
        self.history.lock().unwrap().push((self.next, payload.clone()));
        if !lost {
            self.live.publish(&encode_message(&[b"kv", &self.next.to_be_bytes(), &payload]));
        }
        self.next += 1;
    }
}

/// The next change: the names of stored blocks, or none for "everything is gone".
async fn next(follower: &mut Follower) -> Vec<u64> {
    let change = timeout(SOON, follower.next()).await.expect("a change").expect("not given up");
    match change.data {
        KvEventData::Stored { blocks, .. } => blocks.iter().map(|block| block.engine.0).collect(),
        KvEventData::Cleared => Vec::new(),
        KvEventData::Removed { .. } => panic!("nothing was removed"),
    }
}

fn follower(engine: &Engine, replay: Option<&Router>) -> Follower {
    Follower::new(KvSource {
        sockets: EventSockets::default(),
        endpoint: format!("tcp://{}", engine.live.address()),
        replay: replay.map(|router| format!("tcp://{}", router.address)),
        topic: "kv".into(),
        cut: 4.into(),
        gone: CancellationToken::new(),
    })
}

#[tokio::test]
async fn what_was_there_what_comes_and_what_was_missed() {
    for with_topic in [true, false] {
        let history = Arc::default();
        let mut engine = Engine::start(Arc::clone(&history)).await;
        let router = Router::start(history, with_topic).await;
        engine.store(1, false);
        engine.store(2, false);
        let mut follower = follower(&engine, Some(&router));
        assert_eq!(next(&mut follower).await, [1], "stored before anybody listened");
        assert_eq!(next(&mut follower).await, [2]);
        engine.store(3, false);
        assert_eq!(next(&mut follower).await, [3]);
        engine.store(4, true);
        engine.store(5, true);
        engine.store(6, false);
        for name in 4..=6 {
            assert_eq!(next(&mut follower).await, [name], "out of the replay, each once");
        }
        assert_eq!(router.asked(), [0, 2], "the last that is known, and what follows");
        engine.store(7, false);
        assert_eq!(next(&mut follower).await, [7]);
    }
}

#[tokio::test]
async fn without_a_replay_a_gap_empties_the_rank() {
    let mut engine = Engine::start(Arc::default()).await;
    engine.store(1, false);
    let mut follower = follower(&engine, None);
    let first = tokio::spawn(async move { (next(&mut follower).await, follower) });
    while engine.live.stats().peers == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // It is in force once a message has come; those before it are lost to everybody.
    while !first.is_finished() {
        engine.store(2, false);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (seen, mut follower) = first.await.unwrap();
    assert_eq!(seen, [2]);
    engine.store(3, true);
    engine.store(4, false);
    let mut names = Vec::new();
    while names.last() != Some(&vec![4]) {
        names.push(next(&mut follower).await);
    }
    assert!(names.contains(&Vec::new()), "the rank was emptied: {names:?}");
}

#[tokio::test]
async fn a_restarted_engine_counts_from_the_beginning() {
    let history = Arc::default();
    let mut engine = Engine::start(Arc::clone(&history)).await;
    let router = Router::start(Arc::clone(&history), true).await;
    for name in 1..=3 {
        engine.store(name, false);
    }
    let mut follower = follower(&engine, Some(&router));
    for name in 1..=3 {
        assert_eq!(next(&mut follower).await, [name]);
    }
    // The same address, another process: its history is empty, its count begins anew.
    let address = engine.live.address();
    engine.live.close().await;
    drop(engine);
    history.lock().unwrap().clear();
    let sockets = EventSockets::default();
    let live = loop {
        match PubSocket::bind(&sockets, address, "kv").await {
            Ok(live) => break live,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let mut engine = Engine { live, history, next: 0 };
    for name in 11..=14 {
        engine.store(name, false);
    }
    assert_eq!(next(&mut follower).await, [0u64; 0], "what the old one held is gone");
    for name in 11..=14 {
        assert_eq!(next(&mut follower).await, [name]);
    }
}

#[tokio::test]
async fn giving_a_server_up_ends_its_stream() {
    let engine = Engine::start(Arc::default()).await;
    let mut follower = follower(&engine, None);
    follower.source.gone.cancel();
    assert!(timeout(SOON, follower.next()).await.unwrap().is_none());
}
