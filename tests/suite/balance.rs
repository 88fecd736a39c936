//! Load: C-KV-05 (short prompts and ties) and C-KV-09 (long contexts weigh more than many requests).

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, worker_of};
use serde_json::json;

fn short(n: u64) -> String {
    let letters = (0..20 - "@@hello@@".len() as u64)
        .map(|i| char::from(b'a' + ((n * 31 + i * 17 + n * i * 3) % 26) as u8));
    letters.chain("@@hello@@".chars()).collect()
}

async fn complete(cluster: &Cluster, prompt: &str) -> Result<usize> {
    let body = json!({"model": MODEL, "prompt": prompt, "nvext": {"extra_fields": ["worker_id"]}});
    let answer = cluster.post("/v1/completions", &body).send().await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    Ok(cluster.index_of(worker_of(&answer.json()?)))
}

#[tokio::test]
async fn c_kv_05_short_prompts_spread() -> Result<()> {
    let mut options = Options::new(3);
    options.block_size = 64;
    let cluster = options.start().await?;
    let mut counts = [0; 3];
    for n in 0..60 {
        counts[complete(&cluster, &short(n)).await?] += 1;
    }
    assert!(counts.iter().all(|n| *n <= 34), "one after the other: {counts:?}");

    let mut at_once = tokio::task::JoinSet::new();
    for n in 100..160 {
        let prompt = short(n).replace("hello", "slow3");
        let body = json!({"model": MODEL, "prompt": prompt, "nvext": {"extra_fields": ["worker_id"]}});
        let request = cluster.post("/v1/completions", &body);
        at_once.spawn(async move { request.send().await?.json() });
    }
    let mut counts = [0; 3];
    while let Some(answer) = at_once.join_next().await {
        counts[cluster.index_of(worker_of(&answer??))] += 1;
    }
    assert!(counts.iter().all(|n| (17..=23).contains(n)), "all at once: {counts:?}");
    Ok(())
}

#[tokio::test]
async fn c_kv_09_pending_prefill_tokens_outweigh_request_counts() -> Result<()> {
    let cluster = Options::new(2).start().await?;
    let pinned = |prompt: String, worker: usize| {
        let body = json!({"model": MODEL, "prompt": prompt});
        cluster
            .post("/v1/completions", &body)
            .header("x-dynamo-worker-instance-id", &cluster.workers[worker].id().to_string())
    };
    let mut running = tokio::task::JoinSet::new();
    let long = format!("{} @@slow10@@", "long ".repeat(40_000));
    let request = pinned(long, 0);
    running.spawn(async move { request.send().await.map(|r| r.status) });
    for n in 0..4 {
        let request = pinned(format!("{n} {} @@slow10@@", "short ".repeat(15)), 1);
        running.spawn(async move { request.send().await.map(|r| r.status) });
    }
    cluster
        .until("all five run", async || {
            let counts: Vec<usize> = cluster.workers.iter().map(|w| w.journal().requests().len()).collect();
            Ok(counts == [1, 4])
        })
        .await?;
    let cold = complete(&cluster, &format!("{} @@hello@@", "cold prompt ".repeat(333))).await?;
    assert_eq!(cold, 1, "to the worker with four small requests, not to the one with a long prefill");
    Ok(())
}
