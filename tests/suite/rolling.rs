//! A rolling update: workers with another card come, those with the old one go, and nobody notices.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use roost_tests::{Cluster, MODEL, Options, Request, copy_folder, fixture, worker_of};
use roost_worker::{ModelFiles, Role};
use serde_json::json;
use tempfile::TempDir;

async fn home(cluster: &Cluster, session: &str) -> Result<u64> {
    let reply = cluster.chat("@@hello@@").session(session).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(worker_of(&reply.json()?))
}

/// The model's files with one changed in a way that means nothing.
fn newer(folder: &TempDir) -> Result<ModelFiles> {
    copy_folder(&fixture("cases/fixtures/models/tiny-chatml"), folder.path())?;
    let config = folder.path().join("tokenizer_config.json");
    std::fs::write(&config, format!("{}\n", std::fs::read_to_string(&config)?))?;
    Ok(ModelFiles::in_dir(folder.path()))
}

#[tokio::test]
async fn two_versions_of_a_card_serve_side_by_side() -> Result<()> {
    let mut cluster = Options::new(2).start().await?;
    let old: Vec<u64> = cluster.workers.iter().map(|worker| worker.id()).collect();
    let mut homes = Vec::new();
    for session in 0..6 {
        let id = format!("old {session}");
        homes.push((home(&cluster, &id).await?, id));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let clients = tokio::spawn(ask_until(cluster.address, Arc::clone(&stop)));

    // The same model with one file changed: another checksum, another worker set.
    let folder = TempDir::new()?;
    let newer = newer(&folder)?;
    for _ in 0..2 {
        cluster.add_worker_with(MODEL, newer.clone()).await?;
    }
    cluster.wait_for_workers(MODEL, 4).await?;
    let listed = cluster.get("/v1/models").send().await?.json()?;
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "one model: {listed}");

    // Whoever is at home stays; who is new goes to either version and stays there.
    for (at, session) in &homes {
        assert_eq!(home(&cluster, session).await?, *at, "{session}");
    }
    let mut of_new = 0;
    for session in 0..40 {
        let id = format!("new {session}");
        let at = home(&cluster, &id).await?;
        assert_eq!(home(&cluster, &id).await?, at, "{id}");
        of_new += usize::from(!old.contains(&at));
    }
    assert!((8..=32).contains(&of_new), "about half of 40: {of_new}");
    // A pinned request finds its worker in whichever version it is.
    for worker in &cluster.workers {
        let pinned = cluster.chat("@@hello@@").header("x-worker-instance-id", &worker.id().to_string());
        assert_eq!(worker_of(&pinned.send().await?.json()?), worker.id());
    }
    let placed = cluster.metric_sum("roost_router_placed_total", "").await?;
    let again = cluster.metric_sum("roost_router_placed_total", "").await?;
    assert!(again - placed < 50.0, "two pools in one series count once: {placed}, {again}");

    // The old version goes, worker by worker.
    for _ in 0..2 {
        let worker = cluster.workers.remove(0);
        assert!(worker.drain(Duration::from_millis(200), Duration::from_secs(60)).await);
    }
    cluster.wait_for_workers(MODEL, 2).await?;
    for (_, session) in &homes {
        assert!(!old.contains(&home(&cluster, session).await?), "{session}");
    }
    stop.store(true, Ordering::Relaxed);
    assert!(clients.await?? > 10, "requests were on their way all the time");
    Ok(())
}

/// Asks without a session until told to stop; returns how often.
async fn ask_until(address: SocketAddr, stop: Arc<AtomicBool>) -> Result<usize> {
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}]});
    let mut asked = 0;
    while !stop.load(Ordering::Relaxed) {
        let reply = Request::post(address, "/v1/chat/completions", &body).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        asked += 1;
    }
    Ok(asked)
}

/// The workers of both legs of an answer.
async fn legs(cluster: &Cluster) -> Result<(u64, u64)> {
    let reply = cluster.chat("@@hello@@").send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json()?;
    let prefill = answer["nvext"]["worker_id"]["prefill_worker_id"].as_u64();
    Ok((prefill.context("worker_id was asked for")?, worker_of(&answer)))
}

#[tokio::test]
async fn prefill_and_decode_workers_of_one_version_work_together() -> Result<()> {
    let mut cluster = Options::split(1, 1).start().await?;
    let files = cluster.files()?;
    let old = [cluster.workers[0].id(), cluster.workers[1].id()];
    let folder = TempDir::new()?;
    let newer = newer(&folder)?;
    // New decode workers alone are not given prompts of the old prefill workers, which have partners of their own.
    let new_decode = cluster.start_worker(Role::Decode, MODEL, newer.clone(), |_| {}).await?.id();
    for _ in 0..20 {
        assert_eq!(legs(&cluster).await?, (old[0], old[1]));
    }
    let new_prefill = cluster.start_worker(Role::Prefill, MODEL, newer, |_| {}).await?.id();
    cluster.wait_for_role(MODEL, Role::Prefill, 2).await?;
    let mut seen = HashSet::new();
    for _ in 0..40 {
        seen.insert(legs(&cluster).await?);
    }
    assert_eq!(
        seen,
        HashSet::from([(old[0], old[1]), (new_prefill, new_decode)]),
        "versions keep to themselves"
    );

    // The old decode workers go, then their prefill workers; what is left serves alone.
    assert!(cluster.workers.remove(1).drain(Duration::from_millis(200), Duration::from_secs(60)).await);
    cluster.wait_for_role(MODEL, Role::Decode, 1).await?;
    for _ in 0..5 {
        assert_eq!(legs(&cluster).await?, (new_prefill, new_decode));
    }
    // The only ones left work together, of whatever version.
    let at = cluster.index_of(new_prefill);
    cluster.workers.remove(at).shutdown().await;
    cluster
        .until("old prefill, new decode", async || {
            Ok(cluster.chat("@@hello@@").send().await?.status == 200
                && legs(&cluster).await? == (old[0], new_decode))
        })
        .await?;
    // And when prefill workers of the own version are back, these are used.
    let back = cluster.start_worker(Role::Prefill, MODEL, files, |_| {}).await?.id();
    cluster.wait_for_role(MODEL, Role::Prefill, 2).await?;
    assert!([old[0], back].contains(&legs(&cluster).await?.0));
    cluster.until_idle().await
}
