//! What the event plane costs: KV events per second and processor time of each, from the socket to the prefix index.
//!
//! `cargo run --release -p roost-benches --bin events -- [events] [URL of a NATS server]`
//!
//! A publisher and a frontend's view run in this process, each on one thread of its own, over loopback. What is counted
//! as the reader's is everything it does: reading, ZMTP or NATS, decoding, ordering, and the index.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use roost_cluster::events::{KvAnswer, Publisher, PublisherConfig};
use roost_cluster::record::{
    CardRecord, EventScope, EventSourceMetadata, EventSourceRecord, ModelCard, SourceWorker, Topic,
    TransportAddress, instance_path,
};
use roost_cluster::{
    Cluster, ClusterConfig, Codec, EndpointId, EventSockets, InstanceRecord, MemoryDiscovery, NatsAuth,
    NatsClient, NatsConfig, RecoveryError, RecoverySource, Registration, Target, Update, WorkerRecords,
};
use roost_kv::{BlockHash, EngineHash, Index, KvEvent, KvEventData, StoredBlock, Tier, WorkerId, WorkerRank};
use tokio_util::sync::CancellationToken;

/// Sessions that grow in turn.
const CHAINS: usize = 512;
/// Blocks of a session, after which another begins.
const LONGEST: usize = 1024;
/// Events that may be under way: few enough that no queue overflows.
const AHEAD: u64 = 20_000;
const RANK: WorkerRank = WorkerRank { worker: WorkerId(1), dp_rank: 0 };

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let events: u64 = arguments.next().map_or(Ok(400_000), |text| text.parse())?;
    let nats = arguments.next();
    let mut out = std::io::stdout().lock();
    writeln!(out, "case, events per second, blocks per second, us of the reader per event")?;
    for way in [None, nats.as_deref()].into_iter().take(if nats.is_some() { 2 } else { 1 }) {
        for (blocks, together) in [(1, 1), (1, 32), (64, 1)] {
            let events = events / if blocks == 1 { 1 } else { 16 };
            let (wall, reader) = run(events, blocks, together, way)?;
            let rate = events as f64 / wall.as_secs_f64();
            let each = reader.as_secs_f64() * 1e6 / events as f64;
            let name = if way.is_some() { "NATS" } else { "ZMQ" };
            writeln!(
                out,
                "{name} blocks {blocks} events in a message {together}, {rate:.0}, {:.0}, {each:.2}",
                rate * blocks as f64
            )?;
        }
    }
    Ok(())
}

fn endpoint(name: &str) -> EndpointId {
    EndpointId::new("bench", "backend", name)
}

fn nats(url: &str, until: &CancellationToken) -> anyhow::Result<NatsClient> {
    Ok(NatsClient::start(NatsConfig::new(url, NatsAuth::None, None)?, until.clone()))
}

/// Wall time from the first event to the last, and the reader's processor time.
fn run(
    events: u64,
    blocks: usize,
    together: usize,
    url: Option<&str>,
) -> anyhow::Result<(Duration, Duration)> {
    let store = MemoryDiscovery::new();
    let applied = Arc::new(AtomicU64::new(0));
    let until = CancellationToken::new();
    let publishing = {
        let (store, applied, until) = (store.participant(), applied.clone(), until.clone());
        let url = url.map(str::to_owned);
        std::thread::spawn(move || {
            runtime()?.block_on(async {
                let client = url.map(|url| nats(&url, &until)).transpose()?;
                let publisher = match client {
                    Some(client) => Publisher::on_nats(client, endpoint("generate"), Topic::KvEvents, None),
                    None => Publisher::bind(on_a_socket()).await?,
                };
                let registration = Registration::register(store, &records(&publisher)).await?;
                publish(&publisher, events, blocks, together, &applied, &until).await;
                anyhow::Ok(registration.shutdown().await?)
            })
        })
    };
    let read = runtime()?.block_on(async {
        let client = url.map(|url| nats(url, &until)).transpose()?;
        let config = ClusterConfig { nats: client, ..ClusterConfig::default() };
        let (_handle, mut updates) =
            Cluster::start(config, store.clone(), Arc::new(Nothing), until.child_token());
        let index = Index::new();
        let (mut begun, mut before) = (Instant::now(), processor_time()?);
        while applied.load(Ordering::Relaxed) < events {
            match updates.recv().await.context("the updates end")? {
                Update::KvReset { rank, .. } => {
                    let _forgotten = index.remove_rank(rank);
                }
                Update::Kv { events, .. } => {
                    if applied.load(Ordering::Relaxed) == 0 {
                        (begun, before) = (Instant::now(), processor_time()?);
                    }
                    for event in &events {
                        anyhow::ensure!(index.apply(event).skipped == 0, "an event came out of order");
                    }
                    applied.fetch_add(events.len() as u64, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        anyhow::Ok((begun.elapsed(), processor_time()? - before))
    })?;
    until.cancel();
    publishing.join().map_err(|_| anyhow::anyhow!("the publisher panicked"))??;
    Ok(read)
}

fn on_a_socket() -> PublisherConfig {
    PublisherConfig {
        endpoint: endpoint("generate"),
        topic: Topic::KvEvents,
        bind: SocketAddr::from(([127, 0, 0, 1], 0)),
        advertise_host: None,
        publisher_id: None,
        sockets: EventSockets::default(),
    }
}

async fn publish(
    publisher: &Publisher,
    events: u64,
    blocks: usize,
    together: usize,
    applied: &AtomicU64,
    until: &CancellationToken,
) {
    let mut chains: Vec<(Option<EngineHash>, usize)> = vec![(None, 0); CHAINS];
    let mut random = fastrand::Rng::with_seed(7);
    let mut batch = Vec::with_capacity(together);
    // The reader subscribes as soon as it sees the records; what came before it would be asked for.
    tokio::time::sleep(Duration::from_millis(500)).await;
    for event_id in 1..=events {
        let chain = &mut chains[random.usize(..CHAINS)];
        if chain.1 >= LONGEST {
            *chain = (None, 0);
        }
        let stored: Vec<StoredBlock> = (0..blocks)
            .map(|_| StoredBlock { engine: EngineHash(random.u64(..)), local: BlockHash(random.u64(..)) })
            .collect();
        let data = KvEventData::Stored { parent: chain.0, blocks: stored.clone() };
        *chain = (stored.last().map(|block| block.engine), chain.1 + blocks);
        batch.push(KvEvent { event_id, rank: RANK, tier: Tier::Device, data });
        if batch.len() == together || event_id == events {
            publisher.publish_kv_events(&batch);
            batch.clear();
            while event_id.saturating_sub(applied.load(Ordering::Relaxed)) > AHEAD && !until.is_cancelled() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if event_id % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
    until.cancelled().await;
}

fn records(publisher: &Publisher) -> WorkerRecords {
    let id = RANK.worker.0;
    let instance = |name: &str| InstanceRecord {
        transport: TransportAddress::Tcp(format!("127.0.0.1:9/{}", instance_path(&endpoint(name), id))),
        namespace: "bench".to_owned(),
        component: "backend".to_owned(),
        endpoint: name.to_owned(),
        instance_id: id,
        device_type: None,
        request_plane_codec: Some(Codec::Msgpack),
    };
    let publisher_id = publisher.publisher_id();
    let mut card =
        ModelCard { display_name: "bench".into(), kv_cache_block_size: Some(64), ..ModelCard::default() };
    card.runtime_config.kv_event_publishing_enabled = true;
    WorkerRecords {
        side_endpoints: Vec::new(),
        channels: vec![publisher.channel_record()],
        sources: vec![EventSourceRecord {
            scope: EventScope::Endpoint { endpoint: endpoint("generate") },
            topic: Topic::KvEvents.as_str().into(),
            publisher_id,
            metadata: EventSourceMetadata {
                kv_state_endpoint: endpoint("generate"),
                worker: SourceWorker { worker_id: id, dp_rank: RANK.dp_rank },
                publisher_id,
                recovery_target: Some(instance("query")),
            },
        }],
        generate: instance("generate"),
        card: CardRecord {
            namespace: "bench".to_owned(),
            component: "backend".to_owned(),
            endpoint: "generate".to_owned(),
            instance_id: id,
            card,
        },
    }
}

/// Answers the first query, before any event; a later one means that events were lost.
#[derive(Debug)]
struct Nothing;

impl RecoverySource for Nothing {
    fn query(
        &self,
        target: Target,
        _: Bytes,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Bytes, RecoveryError>> + Send>> {
        let nothing = KvAnswer::TreeDump { events: Vec::new(), last_event_id: 0 };
        Box::pin(std::future::ready(Ok(nothing.encode(target.codec).into())))
    }
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Processor time of the calling thread.
fn processor_time() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_whitespace().next().context("no processor time")?.parse()?;
    Ok(Duration::from_nanos(nanos))
}
