//! The same adapter behind the worker plane: for our frontend, and for an unmodified Dynamo frontend.

use std::sync::Arc;

use anyhow::Result;
use roost_sglang::{EngineOptions, Server, ServerInfo, SglangEngine};
use roost_tests::{MODEL, Options, Peers, Request, Sglang, SglangOptions};
use serde_json::json;

async fn engine(server: &Sglang) -> Result<Arc<SglangEngine>> {
    let server = Server::new(server.url().parse()?, None)?;
    let info = ServerInfo::read(&server).await?;
    let files = roost_hosted::files(&info, None)?;
    Ok(Arc::new(SglangEngine::start(server, &info, EngineOptions::new(files))))
}

#[tokio::test]
async fn an_engine_behind_the_plane_answers_alike() -> Result<()> {
    let server = Sglang::start(SglangOptions::default()).await?;
    let mut cluster = Options::new(0).start().await?;
    cluster.add_engine(engine(&server).await?).await?;
    cluster.wait_for_workers(MODEL, 1).await?;
    let body = json!({"model": MODEL, "prompt": super::LONG, "max_tokens": 9, "temperature": 0});
    let reply = cluster.post("/v1/completions", &body).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json()?;
    let prompt = server.requests()[0]["input_ids"].as_array().unwrap().clone();
    assert_eq!(answer["choices"][0]["text"], super::text_of(&cluster, &prompt[..9]).await?);
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 16);

    // A refusal by the engine is a refusal by the worker.
    let captured = std::fs::read(roost_tests::fixture("sglang/agg.generate_toolong.http"))?;
    server.set(SglangOptions { captured: Some(captured), ..SglangOptions::default() });
    let reply = cluster.post("/v1/completions", &body).send().await?;
    assert_eq!(reply.status, 400, "{}", reply.text());
    cluster.until_idle().await
}

#[tokio::test]
async fn an_unmodified_dynamo_frontend_serves_an_engine_behind_the_plane() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let store = folder.path().join("store");
    let server = Sglang::start(SglangOptions::default()).await?;
    let mut cluster = Options { store: Some(store.clone()), ..Options::new(0) }.start().await?;
    cluster.add_engine(engine(&server).await?).await?;
    let (frontend, address) = peers.frontend(&store, &["--router-mode", "kv"])?;
    let listed = async || {
        let reply = Request::get(address, "/v1/models").send().await;
        Ok(reply.is_ok_and(|reply| reply.text().contains(MODEL)))
    };
    let came = cluster.until("the peer lists the model", listed).await;
    assert!(came.is_ok(), "{}", frontend.output());
    let body =
        json!({"model": MODEL, "prompt": super::LONG, "max_tokens": 9, "temperature": 0, "ignore_eos": true});
    let reply = Request::post(address, "/v1/completions", &body).send().await?;
    assert_eq!(reply.status, 200, "{}\n{}", reply.text(), frontend.output());
    let by_peer = reply.json()?;
    let by_us = cluster.post("/v1/completions", &body).send().await?.json()?;
    assert_eq!(by_peer["choices"][0]["text"], by_us["choices"][0]["text"]);
    assert_eq!(by_peer["usage"]["completion_tokens"], 9);
    let [one, other] = &server.requests()[..] else { panic!("one request of each") };
    assert_eq!(one["input_ids"], other["input_ids"]);
    assert_eq!(one["sampling_params"], other["sampling_params"]);
    Ok(())
}
