//! Both ends on a network in memory whose accidents follow from a seed, under paused time.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use roost_simulation::{Network, Weather};
use tokio::{sync::mpsc, task::JoinSet, time};
use tokio_util::sync::CancellationToken;

use super::harness::*;
use crate::{
    Call, CallError, Client, ClientConfig, Codec, ListenerConfig, ResponseListener, Target, Transport,
    WorkerConfig, WorkerListener,
};

const SEEDS: u64 = 200;
const CALLS: u32 = 24;
const WORKERS: u32 = 2;
/// Longer than any deadline and than the time in which a vanished peer is noticed, one after the other.
const PATIENCE: Duration = Duration::from_secs(600);

/// What a call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Outcome {
    Complete,
    Broken,
    Left,
    NotBegun,
}

/// The client and workers of one seed.
struct World {
    network: Network,
    listener: Arc<ResponseListener>,
    client: Arc<Client>,
    workers: Vec<Arc<WorkerListener>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let network = Network::new(seed, Weather::storm());
        let transport = Transport::simulated(network.clone());
        let config = ListenerConfig { transport: transport.clone(), ..Default::default() };
        let listener = ResponseListener::bind(config).unwrap();
        let config = ClientConfig { transport: transport.clone(), channel_buffer: 4, ..Default::default() };
        let client = Arc::new(Client::new(config, Arc::clone(&listener)));
        let workers = (0..WORKERS).map(|worker| serve_numbered(&transport, worker)).collect();
        Self { network, listener, client, workers }
    }

    fn target(&self, call: u32) -> Target {
        target(self.workers[(call % WORKERS) as usize].address())
    }
}

/// A worker that answers call `n` with items `[n, 0], [n, 1] …`, as many as the body asks for.
fn serve_numbered(transport: &Transport, worker: u32) -> Arc<WorkerListener> {
    let config = WorkerConfig {
        transport: transport.clone(),
        bind: SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1 + worker as u8), 7000)),
        max_active: 6,
        max_queued: 8,
        ..Default::default()
    };
    serve_with(config, CancellationToken::new(), |_, body| {
        let (call, count): (u32, u32) = Codec::Msgpack.decode(&body).unwrap();
        let (feed, fed) = mpsc::channel(4);
        tokio::spawn(async move {
            for number in 0..count {
                time::sleep(Duration::from_millis(u64::from(call % 5) * 3)).await;
                if feed.send(output(&[call, number]).into()).await.is_err() {
                    return;
                }
            }
        });
        Ok(Feed::fed(fed))
    })
}

/// One call; checks everything that it is given.
async fn call(client: &Client, target: &Target, seed: u64, call: u32) -> Outcome {
    let count = call * 2;
    let body: Bytes = Codec::Msgpack.encode(&(call, count)).unwrap();
    time::sleep(Duration::from_millis(u64::from(call) * 7)).await;
    let id = format!("call-{call}");
    let mut stream = match client.call(target, Call::new(&id, body)).await {
        Ok(stream) => stream,
        Err(CallError::Rejected(error)) => panic!("seed {seed}: call {call} came garbled: {error}"),
        Err(_) => return Outcome::NotBegun,
    };
    let leaves_after = (call % 4 == 3).then_some(count / 2);
    for number in 0.. {
        if leaves_after == Some(number) {
            return Outcome::Left;
        }
        match stream.next().await {
            Some(Ok(item)) => {
                let ids = item.data.unwrap().token_ids;
                assert_eq!(*ids, [call, number], "seed {seed}: an item of another call, or out of order");
            }
            Some(Err(_)) => return Outcome::Broken,
            None => {
                assert_eq!(number, count, "seed {seed}: call {call} looks whole and is not");
                return Outcome::Complete;
            }
        }
    }
    unreachable!("numbers do not end")
}

async fn weather_the_storm(seed: u64, outcomes: &Mutex<HashMap<Outcome, u32>>) {
    let world = World::new(seed);
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let (client, target) = (Arc::clone(&world.client), world.target(number));
        calls.spawn(async move { call(&client, &target, seed, number).await });
    }
    let all = time::timeout(PATIENCE, async {
        while let Some(outcome) = calls.join_next().await {
            *outcomes.lock().entry(outcome.unwrap()).or_default() += 1;
        }
    });
    assert!(all.await.is_ok(), "seed {seed}: a call never ends");
    assert_eq!(world.listener.waiting(), 0, "seed {seed}: subjects are left behind");

    // Whatever is still in the pipes comes to its end, on both sides.
    let settled = time::timeout(PATIENCE, async {
        let open =
            || world.workers.iter().map(|worker| worker.stats()).any(|s| s.open_streams + s.open_queued > 0);
        while open() || world.client.unacknowledged() > 0 {
            time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(settled.await.is_ok(), "seed {seed}: streams, places or acks are left behind");

    // And when the weather is fine again, so is everything else.
    world.network.set_weather(Weather::calm());
    for number in 0..WORKERS {
        let mut last = Outcome::NotBegun;
        // A connection from before may have to fail first.
        for _ in 0..world.client.stats().connections + 2 {
            last = call(&world.client, &world.target(number), seed, 4 + number).await;
            if last == Outcome::Complete {
                break;
            }
        }
        assert_eq!(last, Outcome::Complete, "seed {seed}: worker {number} never recovers");
    }
    for worker in &world.workers {
        let drained = time::timeout(PATIENCE, worker.drain()).await;
        assert!(drained.is_ok(), "seed {seed}: a worker cannot be drained");
    }
}

#[test]
fn every_call_ends_and_nothing_is_mixed_up_or_left_behind() {
    let outcomes = Mutex::new(HashMap::new());
    for seed in 0..SEEDS {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(weather_the_storm(seed, &outcomes));
    }
    // The storm was one, and did not drown everything.
    let outcomes = outcomes.into_inner();
    for outcome in [Outcome::Complete, Outcome::Broken, Outcome::Left, Outcome::NotBegun] {
        let seen = outcomes.get(&outcome).copied().unwrap_or_default();
        assert!(seen > SEEDS as u32 / 2, "{outcome:?} hardly ever happened: {outcomes:?}");
    }
}
