//! More requests than workers can take: refused early, cheaply, and for as long as it lasts (C-OVL-02).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use roost_router::BusyThresholds;
use roost_tests::{Cluster, MODEL, Options, Reply};
use roost_worker::{Journal, JournalEntry};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Prompt of the storm: so many characters are so many tokens.
const PROMPT: usize = 50_000;
/// Requests that a worker may have to prefill at once, and requests that may wait.
const CAPACITY: usize = 4;
const QUEUE: usize = 8;

/// Two workers that are full with four prompts each, and room for eight to wait.
fn options() -> Options {
    let mut options = Options::new(2);
    // The card says 8192 tokens at once: full beyond three and a half prompts.
    options.config.route.router.queue.threshold = Some(3.5 * PROMPT as f64 / 8192.0);
    options.config.route.router.queue.capacity = QUEUE;
    options.config.http.overload_status = 503;
    options
}

fn prompt(number: usize) -> Value {
    let content = format!("{number} @@slow3@@ {}", "z".repeat(PROMPT));
    json!({"model": MODEL, "stream": number.is_multiple_of(2), "messages": [{"role": "user", "content": content}]})
}

fn send(cluster: &Cluster, number: usize) -> impl Future<Output = Result<Timed>> + Send + 'static {
    let request = cluster.post("/v1/chat/completions", &prompt(number));
    async move {
        let started = Instant::now();
        let reply = request.send().await?;
        Ok((reply, started.elapsed()))
    }
}

type Timed = (Reply, Duration);

/// How long requests took, by what came of them.
#[derive(Default)]
struct Outcomes {
    served: Vec<Duration>,
    refused: Vec<Duration>,
}

impl Outcomes {
    async fn of(mut running: JoinSet<Result<Timed>>) -> Result<Self> {
        let mut outcomes = Outcomes::default();
        while let Some(timed) = running.join_next().await {
            let (reply, took) = timed??;
            match reply.status {
                200 => {
                    assert!(reply.text().contains("late"), "{}", reply.text());
                    outcomes.served.push(took);
                }
                503 => {
                    assert_eq!(reply.header("retry-after"), Some("1"));
                    assert_eq!(reply.json()?["error"]["code"], "queue_full", "{}", reply.text());
                    outcomes.refused.push(took);
                }
                other => panic!("{other}: {}", reply.text()),
            }
        }
        outcomes.served.sort();
        outcomes.refused.sort();
        Ok(outcomes)
    }

    fn counts(&self) -> (usize, usize) {
        (self.served.len(), self.refused.len())
    }

    #[expect(clippy::print_stdout, reason = "for docs/reliability.md")]
    fn print(&self, what: &str) {
        for (how, times) in [("served", &self.served), ("refused", &self.refused)] {
            let at = |share: usize| times.get((times.len() * share / 100).min(times.len().max(1) - 1));
            println!(
                "{what}: {} {how}, p50 {:?}, p99 {:?}, max {:?}",
                times.len(),
                at(50),
                at(99),
                times.last()
            );
        }
    }
}

/// The most requests that a worker has had to prefill at the same time.
fn most_at_once(journal: &Journal) -> usize {
    let (mut running, mut most) = (BTreeMap::new(), 0);
    for entry in journal.entries() {
        match entry {
            JournalEntry::Request(request) => _ = running.insert(request.id.clone(), ()),
            JournalEntry::Began(begin) => _ = running.remove(&begin.id),
            JournalEntry::Finished(end) => _ = running.remove(&end.id),
            JournalEntry::Cancelled(_) => {}
        }
        most = most.max(running.len());
    }
    most
}

/// 200 requests at once, and then 50 a second for so many seconds.
async fn storm(seconds: usize) -> Result<()> {
    let cluster = options().start().await?;
    let mut storm = JoinSet::new();
    (0..200).for_each(|number| _ = storm.spawn(send(&cluster, number)));
    let at_once = Outcomes::of(storm).await?;
    at_once.print("at once");
    let (mut served, mut refused) = at_once.counts();
    assert!(served >= 2 * CAPACITY + QUEUE && refused > 0, "{served} served, {refused} refused");
    // And a steady load of more than they can take.
    let mut steady = JoinSet::new();
    let end = 200 + seconds * 50;
    for number in 200..end {
        steady.spawn(send(&cluster, number));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let steady = Outcomes::of(steady).await?;
    steady.print("steady");
    let more = steady.counts();
    assert!(more.1 > 0, "{} were served, {} refused", more.0, more.1);
    (served, refused) = (served + more.0, refused + more.1);
    assert_eq!(served + refused, end);
    for worker in &cluster.workers {
        let most = most_at_once(worker.journal());
        assert_eq!(most, CAPACITY, "a full worker gets nothing, and both are used");
    }
    // Tokens are what a request costs here. Between its tokenization and its place another may be tokenized in vain.
    let tokens = cluster.metric_sum("roost_prompt_cache_tokens_total", "session").await?;
    let prompts = tokens / PROMPT as f64;
    assert!(
        prompts < (served + served / 4 + 4) as f64,
        "{prompts} prompts were tokenized for {served} answers"
    );
    let counted =
        cluster.metric_sum("dynamo_frontend_router_queue_backpressure_total", "request_limit").await?;
    assert_eq!(counted, refused as f64);
    // What is over is over.
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    cluster.until_idle().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_ovl_02_a_storm_is_refused_before_any_work_is_done_for_it() -> Result<()> {
    storm(4).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the case's own 20 s; prints times"]
async fn c_ovl_02_a_long_storm() -> Result<()> {
    storm(20).await
}

#[tokio::test]
async fn busy_workers_refuse_before_the_body_is_looked_at() -> Result<()> {
    let mut options = options();
    options.config.route.router.queue.threshold = None;
    options.config.route.router.busy =
        BusyThresholds { active_prefill_tokens: Some(0), ..BusyThresholds::default() };
    let cluster = options.start().await?;
    let mut running = JoinSet::new();
    for number in [0, 1] {
        running.spawn(send(&cluster, number));
        cluster
            .until("it is placed", async || {
                Ok(cluster.workers.iter().map(|worker| worker.journal().requests().len()).sum::<usize>()
                    == number + 1)
            })
            .await?;
    }
    // Nobody needs to know what it says to know that it cannot be served.
    let refused = cluster.post("/v1/chat/completions", &json!({})).raw_body("{no json").send().await?;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    assert_eq!(refused.json()?["error"]["code"], "workers_overloaded", "{}", refused.text());
    // A body of some size is taken off the line, and the connection serves the next request.
    let large = cluster.post("/v1/chat/completions", &prompt(3)).send().await?;
    assert_eq!(large.status, 503, "{}", large.text());
    assert_eq!(cluster.metric_sum("roost_router_rejected_total", "overloaded").await?, 2.0);
    assert_eq!(Outcomes::of(running).await?.counts(), (2, 0));
    let wrong = cluster.post("/v1/chat/completions", &json!({})).raw_body("{no json").send().await?;
    assert_eq!(wrong.status, 400, "with room the body matters: {}", wrong.text());
    cluster.until_idle().await
}
