//! A rolling update: workers with another card come, those with the old one go, and nobody notices.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, Request, copy_folder, fixture, worker_of};
use roost_worker::ModelFiles;
use serde_json::json;
use tempfile::TempDir;

async fn home(cluster: &Cluster, session: &str) -> Result<u64> {
    let reply = cluster.chat("@@hello@@").session(session).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(worker_of(&reply.json()?))
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
    copy_folder(&fixture("cases/fixtures/models/tiny-chatml"), folder.path())?;
    let config = folder.path().join("tokenizer_config.json");
    std::fs::write(&config, format!("{}\n", std::fs::read_to_string(&config)?))?;
    for _ in 0..2 {
        cluster.add_worker_with(MODEL, ModelFiles::in_dir(folder.path())).await?;
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
