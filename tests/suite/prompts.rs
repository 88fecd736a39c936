//! The prompts that a live Dynamo frontend and ours make of the recorded requests, id by id: both ask the same worker.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use roost_tests::{Cluster, Options, Peers, Request, fixture};
use roost_worker::ModelFiles;
use serde_json::Value;
use tempfile::TempDir;

const PEER_MODEL: &str = "wire-model";

/// The ids of the prompts of one request, in an order of their own.
type Prompts = Vec<Vec<u32>>;

/// What the worker got of one request; `None` when it was refused.
async fn prompts(
    cluster: &Cluster,
    address: SocketAddr,
    path: &str,
    body: &Value,
) -> Result<Option<Prompts>> {
    let journal = cluster.workers[0].journal();
    let before = journal.requests().len();
    let reply = Request::post(address, path, body).header("anthropic-version", "2023-06-01").send().await?;
    if reply.status != 200 {
        return Ok(None);
    }
    let mut seen: Prompts =
        journal.requests()[before..].iter().map(|seen| seen.request.token_ids.to_vec()).collect();
    seen.sort();
    Ok(Some(seen))
}

#[tokio::test]
async fn prompts_of_all_apis_equal_the_peers() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let mut options = Options::new(0);
    options.store = Some(store.clone());
    options.config.models.cache_dir = folder.path().join("cards");
    let mut cluster = options.start().await?;
    cluster.add_worker_with(PEER_MODEL, ModelFiles::in_dir(peers.model())).await?;
    cluster.wait_for_workers(PEER_MODEL, 1).await?;
    let (frontend, peer) = peers.frontend(&store, &["--router-mode", "kv", "--enable-anthropic-api"])?;
    let listed = async || {
        let reply = Request::get(peer, "/v1/models").send().await;
        Ok(reply.is_ok_and(|reply| reply.text().contains(PEER_MODEL)))
    };
    cluster.until("the peer lists our model", listed).await.with_context(|| frontend.output())?;
    let recorded: Value = serde_json::from_str(&std::fs::read_to_string(fixture("http/wire_parsers.json"))?)?;
    let (mut compared, mut different) = (Vec::new(), Vec::new());
    for case in recorded["cases"].as_array().context("cases")? {
        let request = &case["request"];
        let path = request["path"].as_str().context("path")?;
        let mut body = request["body"].clone();
        if case["response"]["status"] != 200 || case["engine_saw"].is_null() || !body.is_object() {
            continue;
        }
        body["model"] = PEER_MODEL.into();
        // The answer matters to nobody here.
        for limit in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
            if body.get(limit).is_some() {
                body[limit] = 4.into();
            }
        }
        let theirs = prompts(&cluster, peer, path, &body).await?;
        let ours = prompts(&cluster, cluster.address, path, &body).await?;
        let (Some(theirs), Some(ours)) = (theirs, ours) else { continue };
        let name = format!("{path} {}", case["name"]);
        if theirs != ours {
            different.push(format!("{name}: {theirs:?} -> {ours:?}"));
        }
        compared.push(name);
    }
    assert!(different.is_empty(), "{different:#?}");
    let of = |path: &str| compared.iter().filter(|name| name.starts_with(path)).count();
    let counts = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"].map(of);
    assert!(compared.len() > 60, "{counts:?}");
    assert!(counts.iter().all(|count| *count >= 3), "{counts:?} of each API were compared");
    Ok(())
}
