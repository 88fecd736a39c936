//! Requests that wait in the router for a worker with room.

use std::time::Duration;

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, worker_of};
use serde_json::json;

const PENDING: &str = "dynamo_frontend_router_queue_pending_requests";

/// Two workers that are full with one prompt of a thousand tokens each.
async fn cluster(limit: usize, max_wait: Duration) -> Result<Cluster> {
    let options = Options::new(2).with(|config| {
        config.route.router.queue.threshold = Some(0.1);
        config.route.router.queue.capacity = limit;
        config.route.router.queue.max_wait = max_wait;
    });
    options.start().await
}

fn prompt(n: usize, script: &str) -> serde_json::Value {
    let text = format!("{n} {} @@{script}@@", "many words ".repeat(1000));
    json!({"model": MODEL, "prompt": text, "nvext": {"extra_fields": ["worker_id"]}})
}

/// Fills both workers for three seconds.
async fn fill(cluster: &Cluster) -> Result<tokio::task::JoinSet<Result<u16>>> {
    let mut running = tokio::task::JoinSet::new();
    for n in 0..2 {
        let request = cluster.post("/v1/completions", &prompt(n, "slow3"));
        running.spawn(async move { Ok(request.send().await?.status) });
    }
    cluster
        .until("both workers have a prompt", async || {
            Ok(cluster.workers.iter().all(|worker| worker.journal().requests().len() == 1))
        })
        .await?;
    Ok(running)
}

async fn pending(cluster: &Cluster, count: f64) -> Result<()> {
    cluster.until("requests wait", async || Ok(cluster.metric_sum(PENDING, "").await? == count)).await
}

#[tokio::test]
async fn waiting_requests_are_served_bounded_and_given_up_with_their_client() -> Result<()> {
    let cluster = cluster(8, Duration::from_secs(60)).await?;
    let mut running = fill(&cluster).await?;
    let mut waiting = tokio::task::JoinSet::new();
    for n in 10..18 {
        let request = cluster.post("/v1/completions", &prompt(n, "hello"));
        waiting.spawn(async move { anyhow::Ok(request.send().await?.status) });
    }
    pending(&cluster, 8.0).await?;
    // C-OVL-02: beyond the limit refused at once, as overload.
    for n in 20..30 {
        let refused = cluster.post("/v1/completions", &prompt(n, "hello")).send().await?;
        assert_eq!((refused.status, refused.header("retry-after")), (529, Some("1")), "{}", refused.text());
    }
    let full = "dynamo_frontend_router_queue_backpressure_total";
    assert_eq!(cluster.metric_sum(full, "request_limit").await?, 10.0);
    // A client that leaves makes room for another.
    let request = cluster.post("/v1/completions", &prompt(31, "hello"));
    waiting.abort_all();
    let mut given_up = 0;
    while let Some(ended) = waiting.join_next().await {
        given_up += usize::from(ended.is_err());
    }
    assert_eq!(given_up, 8);
    pending(&cluster, 0.0).await?;
    let answer = request.send().await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    while let Some(status) = running.join_next().await {
        assert_eq!(status??, 200);
    }
    let seen: usize = cluster.workers.iter().map(|worker| worker.journal().requests().len()).sum();
    assert_eq!(seen, 3, "those refused or given up never reached a worker");
    Ok(())
}

#[tokio::test]
async fn a_request_that_waits_too_long_is_refused_with_429() -> Result<()> {
    let cluster = cluster(8, Duration::from_millis(200)).await?;
    let _running = fill(&cluster).await?;
    let refused = cluster.post("/v1/completions", &prompt(9, "hello")).send().await?;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.text());
    Ok(())
}

/// C-OVL-03: each choice is booked before the next, so an empty newcomer does not get everything.
#[tokio::test]
async fn c_ovl_03_a_worker_that_joins_is_not_flooded() -> Result<()> {
    let mut cluster = Options::new(3).start().await?;
    let mut running = tokio::task::JoinSet::new();
    for n in 0..30 {
        let request = cluster.post("/v1/completions", &prompt(n, "slow10"));
        running.spawn(async move { request.send().await.map(|reply| reply.status) });
    }
    cluster
        .until("thirty requests run", async || {
            let seen: usize = cluster.workers.iter().map(|worker| worker.journal().requests().len()).sum();
            Ok(seen == 30)
        })
        .await?;
    cluster.add_worker(MODEL).await?;
    cluster.wait_for_workers(MODEL, 4).await?;
    let mut newcomers = tokio::task::JoinSet::new();
    for n in 0..100 {
        let body = prompt(1000 + n, "hello");
        let request = cluster.post("/v1/completions", &body).session(&format!("new-{n}"));
        newcomers.spawn(async move { request.send().await?.json() });
    }
    let mut counts = [0; 4];
    while let Some(answer) = newcomers.join_next().await {
        counts[cluster.index_of(worker_of(&answer??))] += 1;
    }
    assert!((25..=60).contains(&counts[3]), "{counts:?}");
    Ok(())
}
