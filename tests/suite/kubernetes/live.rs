//! Live Dynamo peers that register and look at the scripted API server, beside ours.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use roost_tests::{KubeApi, MODEL, Options, Peers, Request};
use serde_json::json;
use tempfile::TempDir;

fn ask(address: SocketAddr, model: &str, content: &str) -> Request {
    let body = json!({"model": model, "max_tokens": 8, "ignore_eos": true,
        "messages": [{"role": "user", "content": content}]});
    Request::post(address, "/v1/chat/completions", &body)
}

#[tokio::test]
async fn our_frontend_serves_a_dynamo_mocker_in_kubernetes() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let (api, folder) = (KubeApi::start().await?, TempDir::new()?);
    api.slice("workers-x", &[("mocker-0", "uid-m", true)]);
    let mut options = Options::new(0);
    options.kubernetes = Some(api.config(None));
    options.config.models.cache_dir = folder.path().join("cards");
    let cluster = options.start().await?;
    let config = api.kubeconfig(folder.path().join("kubeconfig"))?;
    let peers = peers.in_kubernetes(&config, "mocker-0", "uid-m");
    let mocker = peers.mocker(&folder.path().join("store"), &["--num-gpu-blocks-override", "4096"])?;
    cluster.wait_for_workers("wire-model", 1).await.with_context(|| mocker.output())?;
    let answer = ask(cluster.address, "wire-model", &"a long prompt, ".repeat(40)).send().await?.json()?;
    assert_eq!(answer["usage"]["completion_tokens"], 8, "{answer}");
    // Its events are heard, so its sources and channels are understood.
    cluster
        .until("blocks of its", async || Ok(cluster.metric_sum("roost_index_blocks", "").await? > 5.0))
        .await
        .with_context(|| mocker.output())?;
    // Not ready any more: nobody is left who could answer.
    api.slice("workers-x", &[("mocker-0", "uid-m", false)]);
    cluster
        .until("it is left out", async || {
            Ok(ask(cluster.address, "wire-model", "x").send().await?.status == 404)
        })
        .await
}

#[tokio::test]
async fn our_worker_serves_a_dynamo_frontend_in_kubernetes() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let (api, folder) = (KubeApi::start().await?, TempDir::new()?);
    api.slice("workers-x", &[("worker-0", "uid-0", true)]);
    let mut options = Options::new(1);
    options.kubernetes = Some(api.config(None));
    let cluster = options.start().await?;
    let config = api.kubeconfig(folder.path().join("kubeconfig"))?;
    let peers = peers.in_kubernetes(&config, "frontend-0", "uid-f");
    let (frontend, address) = peers.frontend(&folder.path().join("store"), &["--router-mode", "kv"])?;
    let served = async || {
        let Ok(reply) = ask(address, MODEL, "hello").send().await else { return Ok(false) };
        Ok(reply.status == 200 && reply.json()?["usage"]["completion_tokens"] == 8)
    };
    cluster.until("the peer serves our worker", served).await.with_context(|| frontend.output())?;
    api.slice("workers-x", &[("worker-0", "uid-0", false)]);
    let gone = async || Ok(ask(address, MODEL, "hello").send().await?.status == 404);
    cluster.until("the peer leaves it out", gone).await.with_context(|| frontend.output())
}
