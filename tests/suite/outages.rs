//! C-DSC-02 and its relatives on a folder: a store that is away, records that flap, workers that leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, Request};
use serde_json::json;
use tempfile::TempDir;

async fn chat(cluster: &Cluster, session: &str) -> Result<()> {
    let reply = cluster.chat("@@hello@@").session(session).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(())
}

#[tokio::test]
async fn sessions_do_not_notice_that_the_folder_is_away() -> Result<()> {
    let temp = TempDir::new()?;
    let (root, aside) = (temp.path().join("store"), temp.path().join("aside"));
    let mut options = Options::new(2);
    options.store = Some(root.clone());
    let cluster = options.start().await?;
    chat(&cluster, "old").await?;
    let away_for = async || cluster.metric_sum("roost_discovery_unreachable_seconds", "").await;

    // A file in the folder's place: nobody can read it, nor make it anew.
    std::fs::rename(&root, &aside)?;
    std::fs::write(&root, "")?;
    cluster.until("the gauge tells of it", async || Ok(away_for().await? > 0.0)).await?;
    let mut turn = 0;
    while away_for().await? < 2.0 {
        chat(&cluster, "old").await?;
        chat(&cluster, &format!("new {turn}")).await?;
        turn += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::remove_file(&root)?;
    std::fs::rename(&aside, &root)?;
    cluster.until("the folder is back", async || Ok(away_for().await? == 0.0)).await?;
    chat(&cluster, "old").await?;
    assert_eq!(cluster.metric_sum("roost_discovery_left_total", "").await?, 0.0, "nobody has left");

    // A worker that dies now is missed by no request, and leaves when its records are old.
    cluster.workers[1].kill().await;
    for turn in 0..8 {
        chat(&cluster, &format!("after the crash {turn}")).await?;
    }
    cluster.wait_for_workers(MODEL, 1).await
}

#[tokio::test]
async fn a_flapping_record_costs_no_request() -> Result<()> {
    let temp = TempDir::new()?;
    let root = temp.path().join("store");
    let mut options = Options::new(2);
    options.store = Some(root.clone());
    let cluster = options.start().await?;
    let name = format!("dynamo%2Fbackend%2Fgenerate%2F{:x}", cluster.workers[0].id());
    let card = root.join("v1/mdc").join(name);

    let stop = Arc::new(AtomicBool::new(false));
    let clients = tokio::spawn(ask_until(cluster.address, Arc::clone(&stop)));
    for flap in 1..=6 {
        std::fs::remove_file(&card)?;
        cluster
            .until("it has left and is back", async || {
                let left = cluster.metric_sum("roost_discovery_left_total", "").await?;
                let joined = cluster.metric_sum("roost_discovery_joined_total", "").await?;
                Ok(left >= f64::from(flap) && joined == left + 2.0 && card.exists())
            })
            .await?;
    }
    stop.store(true, Ordering::Relaxed);
    assert!(clients.await?? > 6, "requests were on their way");
    cluster.wait_for_workers(MODEL, 2).await
}

/// Asks in new sessions until told to stop; returns how often.
async fn ask_until(address: std::net::SocketAddr, stop: Arc<AtomicBool>) -> Result<usize> {
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}]});
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        let request = Request::post(address, "/v1/chat/completions", &body);
        let reply = request.session(&turn.to_string()).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        turn += 1;
    }
    Ok(turn)
}

#[tokio::test]
async fn an_answer_ends_well_though_its_worker_has_deregistered() -> Result<()> {
    let mut options = Options::new(1);
    options.timing.itl = Duration::from_millis(5);
    options.timing.speed = 1.0;
    let mut cluster = options.start().await?;
    let body = json!({"model": MODEL, "stream": true, "max_tokens": 200, "ignore_eos": true,
        "messages": [{"role": "user", "content": "a long answer, please"}]});
    let mut answer = cluster.post("/v1/chat/completions", &body).stream().await?;
    assert!(answer.next().await?.is_some());
    let worker = cluster.workers.remove(0);
    let leaving = tokio::spawn(worker.drain(Duration::ZERO, Duration::from_secs(60)));
    cluster
        .until("the model is gone", async || Ok(cluster.chat("@@hello@@").send().await?.status == 404))
        .await?;
    let mut finish = None;
    let mut last = None;
    while let Some(event) = answer.next().await? {
        if let Some(reason) = event["choices"][0]["finish_reason"].as_str() {
            finish = Some(reason.to_owned());
        }
        last = Some(event);
    }
    assert_eq!((finish.as_deref(), last), (Some("length"), Some(json!("[DONE]"))));
    assert!(leaving.await?, "all answers came to their end");
    Ok(())
}
