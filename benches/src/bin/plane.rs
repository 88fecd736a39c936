//! What the worker plane costs: calls and streamed items per second, and processor time of each end.
//!
//! `cargo run --release -p roost-benches --bin plane -- [calls] [items per answer] [streams at once]`
//!
//! Both ends run in this process, each on one thread of its own, over loopback.

use std::io::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use futures_core::Stream;
use roost_wire::message::{DynamoError, EngineOutput, EngineRequest, PromptTokens, TokenIdFormat};
use roost_wire::{
    BoxFuture, Call, Client, ClientConfig, Codec, Handler, Item, ItemStream, ListenerConfig, RequestContext,
    ResponseListener, Target, WorkerConfig, WorkerListener,
};
use tokio_util::sync::CancellationToken;

const PATH: &str = "1/bench/backend/generate";

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).map(|n| n.parse::<usize>());
    let calls = arguments.next().transpose()?.unwrap_or(20_000);
    let items = arguments.next().transpose()?.unwrap_or(200);
    let streams = arguments.next().transpose()?.unwrap_or(64);
    let mut out = std::io::stdout().lock();
    writeln!(out, "case, per second, client us each, worker us each")?;
    for (name, calls, items, together) in [
        ("calls of one item", calls, 1, true),
        ("items, each in its own write", calls / items.max(1) + streams, items, false),
        ("items, as many as are ready in one write", calls / items.max(1) + streams, items, true),
    ] {
        let run = run(calls, items, streams, together)?;
        let units = if items == 1 { calls } else { calls * items } as f64;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / units;
        let rate = units / run.wall.as_secs_f64();
        writeln!(out, "{name}, {rate:.0}, {:.2}, {:.2}", each(run.client), each(run.worker))?;
    }
    let ids: Vec<u32> = (0..100_000).map(|n| n * 7919 % 150_000).collect();
    let request = |ids: &[u32]| EngineRequest { token_ids: PromptTokens::from(ids), ..Default::default() };
    let all = median(101, || request(&ids).encode(Codec::Msgpack, TokenIdFormat::Array).map(drop))?;
    let packed = request(&ids);
    let _packed = packed.token_ids.pack();
    let copied = median(101, || packed.encode(Codec::Msgpack, TokenIdFormat::Array).map(drop))?;
    writeln!(
        out,
        "request of 100000 tokens: encoded {all:.0} us, with tokens encoded before {copied:.0} us"
    )?;
    Ok(())
}

struct Run {
    wall: Duration,
    client: Duration,
    worker: Duration,
}

fn run(calls: usize, items: usize, streams: usize, together: bool) -> anyhow::Result<Run> {
    let shutdown = CancellationToken::new();
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let until = shutdown.clone();
    let worker = std::thread::spawn(move || serve(items, together, &until, &tell));
    let address = told.recv().context("the worker has ended")?;
    let before = processor_time()?;
    let begun = Instant::now();
    runtime()?.block_on(ask(address, calls, items, streams))?;
    let wall = begun.elapsed();
    let client = processor_time()? - before;
    shutdown.cancel();
    let worker = worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))??;
    Ok(Run { wall, client, worker })
}

fn serve(
    items: usize,
    together: bool,
    shutdown: &CancellationToken,
    tell: &std::sync::mpsc::SyncSender<SocketAddr>,
) -> anyhow::Result<Duration> {
    runtime()?.block_on(async {
        let listener = WorkerListener::bind(WorkerConfig::default(), shutdown.clone())?;
        listener.register(PATH, Arc::new(Repeat { items, together }));
        tell.send(listener.address())?;
        listener.closed().await;
        anyhow::Ok(())
    })?;
    processor_time()
}

async fn ask(address: SocketAddr, calls: usize, items: usize, streams: usize) -> anyhow::Result<()> {
    let responses = ResponseListener::bind(ListenerConfig::default())?;
    let client = Arc::new(Client::new(ClientConfig::default(), responses));
    let target = Target { address, path: PATH.into(), codec: Codec::Msgpack };
    let body = EngineRequest::default().encode(Codec::Msgpack, TokenIdFormat::Array)?;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..streams {
        let (client, target, body) = (Arc::clone(&client), target.clone(), body.clone());
        let share = calls / streams + usize::from(task < calls % streams);
        tasks.spawn(async move {
            for _ in 0..share {
                let mut stream = client.call(&target, Call::new("bench", body.clone())).await?;
                let mut seen = 0;
                while let Some(item) = stream.next().await {
                    item?;
                    seen += 1;
                }
                anyhow::ensure!(seen == items, "{seen} items");
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Answers every request with the same items.
#[derive(Debug)]
struct Repeat {
    items: usize,
    together: bool,
}

impl Handler for Repeat {
    fn handle(&self, _: RequestContext, _: Bytes) -> BoxFuture<'static, Result<ItemStream, DynamoError>> {
        let stream: ItemStream =
            Box::pin(Repeated { left: self.items, together: self.together, pauses: !self.together });
        Box::pin(std::future::ready(Ok(stream)))
    }
}

struct Repeated {
    left: usize,
    together: bool,
    pauses: bool,
}

impl Stream for Repeated {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Poller<'_>) -> Poll<Option<Item>> {
        if self.pauses {
            self.pauses = false;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.pauses = !self.together;
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        Poll::Ready(Some(EngineOutput { token_ids: [1279].into(), ..Default::default() }.into()))
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

/// Median time in microseconds.
fn median<E: std::error::Error + Send + Sync + 'static>(
    runs: usize,
    work: impl Fn() -> Result<(), E>,
) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let begun = Instant::now();
        work()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[runs / 2])
}
