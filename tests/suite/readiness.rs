//! C-DSC-01: a model is listed only when it can be served, and one broken card costs nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, copy_folder, fixture};
use roost_worker::ModelFiles;
use serde_json::json;
use tempfile::TempDir;

/// Readiness of the test model.
const READY: &str = "/v1/models/tiny/ready";
const MODELS: [&str; 3] = ["one", "two", "three"];

async fn listed(cluster: &Cluster) -> Result<Vec<String>> {
    let list = cluster.get("/v1/models").send().await?.json()?;
    Ok(list["data"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|m| Some(m["id"].as_str()?.to_owned()))
        .collect())
}

#[tokio::test]
async fn c_dsc_01_listed_means_servable() -> Result<()> {
    let mut cluster = Options::new(0).start().await?;
    let health = cluster.get("/health").send().await?;
    assert_eq!(
        (health.status, &health.json()?["status"]),
        (503, &json!("not_ready")),
        "nothing to serve yet"
    );

    // From the first listing on, every request is answered 200: polled from the start, while workers come.
    let stop = Arc::new(AtomicBool::new(false));
    let poller = tokio::spawn(poll(cluster.address, Arc::clone(&stop)));
    let broken = TempDir::new()?;
    copy_folder(&fixture("cases/fixtures/models/tiny-chatml"), broken.path())?;
    let files = ModelFiles::in_dir(broken.path());
    for (n, model) in MODELS.iter().cycle().take(6).enumerate() {
        cluster.add_worker(model).await?;
        if n == 0 {
            // Its card names a tokenizer that is gone by the time it is read.
            let tokenizer = files.tokenizer.clone();
            cluster.add_worker_with("broken", files.clone()).await?;
            std::fs::remove_file(tokenizer)?;
        }
    }
    for model in MODELS {
        cluster.wait_for_workers(model, 2).await?;
    }
    stop.store(true, Ordering::Relaxed);
    let served = poller.await??;
    assert!(served >= 3, "the poller has seen each model");
    assert_eq!(cluster.get("/health").send().await?.status, 200);
    let broken = cluster.post("/v1/chat/completions", &chat("broken")).send().await?;
    assert!([404, 503, 200].contains(&broken.status), "{}", broken.text());

    for restart in 0..20 {
        assert!(cluster.stop_frontend().await?);
        cluster.start_frontend().await?;
        // It listens, it is not ready: whoever comes now waits for the model.
        let model = MODELS[restart % 3];
        let reply = cluster.post("/v1/chat/completions", &chat(model)).send().await?;
        assert_eq!(reply.status, 200, "restart {restart}, at once: {}", reply.text());
        cluster
            .until("all models are back", async || {
                let listed = listed(&cluster).await?;
                Ok(MODELS.iter().all(|model| listed.iter().any(|l| l == model)))
            })
            .await?;
        for model in MODELS {
            let reply = cluster.post("/v1/chat/completions", &chat(model)).send().await?;
            assert_eq!(reply.status, 200, "restart {restart}: {}", reply.text());
        }
    }
    Ok(())
}

fn chat(model: &str) -> serde_json::Value {
    json!({"model": model, "messages": [{"role": "user", "content": "@@hello@@"}]})
}

/// Asks for every listed model; returns how many answers there were.
async fn poll(address: std::net::SocketAddr, stop: Arc<AtomicBool>) -> Result<usize> {
    let mut served = 0;
    loop {
        let last = stop.load(Ordering::Relaxed);
        let list = roost_tests::Request::get(address, "/v1/models").send().await?.json()?;
        let health = roost_tests::Request::get(address, "/health").send().await?.status;
        for model in list["data"].as_array().into_iter().flatten() {
            assert_eq!(health, 200, "a model is listed, so the process is ready");
            let id = model["id"].as_str().unwrap_or_default();
            let reply = roost_tests::Request::post(address, "/v1/chat/completions", &chat(id)).send().await?;
            assert_eq!(reply.status, 200, "{id} was listed: {}", reply.text());
            served += 1;
        }
        if last {
            return Ok(served);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_held(cluster: &Cluster, count: f64) -> Result<()> {
    cluster
        .until("requests wait for their model", async || {
            Ok(cluster.metric_sum("roost_held_requests", "").await? == count)
        })
        .await
}

/// Until the frontend has read the worker's card: before, it knows of no such model.
async fn until_one_of_two(cluster: &Cluster) -> Result<()> {
    cluster
        .until("the model waits for its second worker", async || {
            Ok(cluster.get(READY).send().await?.text().contains("initial number"))
        })
        .await
}

#[tokio::test]
async fn requests_wait_for_a_model_that_will_be_ready_soon() -> Result<()> {
    let mut options = Options::new(0).with(|config| {
        config.http.held_requests = 3;
        config.http.model_wait = Duration::from_secs(60);
    });
    options.config.route.min_initial_workers = 2;
    let mut cluster = options.start().await?;
    cluster.add_worker(MODEL).await?;
    until_one_of_two(&cluster).await?;
    // Small and large, streamed and not: read where it came in, or on another thread.
    let long = "word ".repeat(10_000);
    let mut waiting = Vec::new();
    for (stream, text) in [(false, ""), (true, ""), (false, &*long)] {
        let content = format!("{text}@@hello@@");
        let body =
            json!({"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": content}]});
        let request = cluster.post("/v1/chat/completions", &body);
        waiting.push(tokio::spawn(async move { request.send().await }));
    }
    until_held(&cluster, 3.0).await?;
    let refused = cluster.chat("@@hello@@").send().await?;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    // A client that leaves makes room.
    waiting.remove(0).abort();
    until_held(&cluster, 2.0).await?;
    cluster.add_worker(MODEL).await?;
    for reply in waiting {
        let reply = reply.await??;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.text().contains("hello"));
    }
    until_held(&cluster, 0.0).await?;
    cluster.until_idle().await
}

#[tokio::test]
async fn requests_wait_for_a_model_only_so_long() -> Result<()> {
    let mut options = Options::new(0).with(|config| config.http.model_wait = Duration::from_millis(200));
    options.config.route.min_initial_workers = 2;
    let mut cluster = options.start().await?;
    cluster.add_worker(MODEL).await?;
    until_one_of_two(&cluster).await?;
    let refused = cluster.chat("@@hello@@").send().await?;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    assert!(refused.text().contains("initial number"), "{}", refused.text());
    let unknown = cluster.post("/v1/chat/completions", &chat("nobody")).send().await?;
    assert_eq!(unknown.status, 404, "workers are known: {}", unknown.text());
    Ok(())
}
