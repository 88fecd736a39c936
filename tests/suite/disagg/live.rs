//! Prefill and decode workers of an unmodified Dynamo: 1.6.1, and the older releases that are understood.

use std::collections::HashSet;

use anyhow::{Context, Result};
use roost_tests::{Cluster, Options, Peer, Peers, Request, worker_of};
use roost_worker::Role;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{decode_of, prefill_of};

const MODEL: &str = "wire-model";

async fn ours(folder: &TempDir) -> Result<Cluster> {
    let mut options = Options::split(0, 0);
    options.store = Some(folder.path().join("store"));
    options.config.models.cache_dir = folder.path().join("cards");
    options.start().await
}

fn chat(cluster: &Cluster, content: &str, extra: Value) -> Request {
    let mut body =
        json!({"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": content}]});
    for (key, value) in extra.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body["nvext"]["extra_fields"] = json!(["worker_id"]);
    cluster.post("/v1/chat/completions", &body)
}

async fn ready(cluster: &Cluster, role: Role, count: usize, peers: &[&Peer]) -> Result<()> {
    let outputs = || peers.iter().map(|peer| peer.output()).collect::<Vec<_>>().join("\n");
    cluster.wait_for_role(MODEL, role, count).await.with_context(outputs)
}

#[tokio::test]
async fn dynamo_mockers_prefill_and_decode() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    Box::pin(mockers(&peers)).await
}

#[tokio::test]
async fn dynamo_mockers_of_older_releases_prefill_and_decode() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    for peers in peers.older() {
        Box::pin(mockers(&peers)).await.with_context(|| format!("{peers:?}"))?;
    }
    Ok(())
}

async fn mockers(peers: &Peers) -> Result<()> {
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let cluster = ours(&folder).await?;
    let blocks = ["--num-gpu-blocks-override", "4096", "--disaggregation-mode"];
    let port = roost_tests::port::free()?.port().to_string();
    let mut prefill =
        peers.mocker(&store, &[&blocks[..], &["prefill", "--bootstrap-ports", &port]].concat())?;
    let decodes = [
        peers.mocker(&store, &[&blocks[..], &["decode"]].concat())?,
        peers.mocker(&store, &[&blocks[..], &["decode"]].concat())?,
    ];
    let all = [&prefill, &decodes[0], &decodes[1]];
    ready(&cluster, Role::Prefill, 1, &all).await?;
    ready(&cluster, Role::Decode, 2, &all).await?;

    let reply = chat(&cluster, "hello", json!({})).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json()?;
    assert_eq!(answer["usage"]["completion_tokens"], 8, "{answer}");
    assert_ne!(prefill_of(&answer).0, worker_of(&answer));
    let stream = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = chat(&cluster, "hello", stream).send().await?.events();
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    assert_eq!(events[events.len() - 2]["usage"]["completion_tokens"], 8, "{events:?}");
    let mut homes = HashSet::new();
    for session in 0..6 {
        let id = format!("s{session}");
        let mut home = None;
        for turn in 0..3 {
            let reply = chat(&cluster, &format!("{session} {turn}"), json!({})).session(&id).send().await?;
            let at = worker_of(&reply.json()?);
            assert_eq!(*home.get_or_insert(at), at);
        }
        homes.extend(home);
    }
    assert_eq!(homes.len(), 2, "six sessions over two decode workers");
    cluster.until_idle().await?;

    // A client that leaves, and then the loss of the only prefill worker.
    let endless = json!({"stream": true, "max_tokens": 4000, "ignore_eos": true});
    let mut leaving = chat(&cluster, "leave", endless).stream().await?;
    assert!(leaving.next().await?.is_some());
    drop(leaving);
    cluster.until_idle().await?;
    prefill.kill()?;
    let reply = chat(&cluster, "after the crash", json!({})).send().await?;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.text().contains("prefill"), "{}", reply.text());
    cluster.until_idle().await
}

#[tokio::test]
async fn workers_on_the_official_bindings_prefill_and_decode() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    bindings(&peers).await
}

#[tokio::test]
async fn workers_on_the_bindings_of_older_releases_prefill_and_decode() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    for peers in peers.older() {
        bindings(&peers).await.with_context(|| format!("{peers:?}"))?;
    }
    Ok(())
}

async fn bindings(peers: &Peers) -> Result<()> {
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let cluster = ours(&folder).await?;
    let prefill = peers.bindings_worker(&store, &["--role", "prefill", "--kv-events", "--dp-size", "2"])?;
    let decode =
        peers.bindings_worker(&store, &["--role", "decode", "--dp-size", "2", "--reply-ids", "9707,1879"])?;
    ready(&cluster, Role::Prefill, 1, &[&prefill, &decode]).await?;
    ready(&cluster, Role::Decode, 1, &[&prefill, &decode]).await?;
    let mut ranks = HashSet::new();
    for session in 0..4 {
        let id = format!("s{session}");
        let mut home = None;
        for turn in 0..3 {
            let reply = chat(&cluster, &format!("{session} {turn}"), json!({})).session(&id).send().await?;
            assert_eq!(reply.status, 200, "{}\n{}", reply.text(), prefill.output());
            let answer = reply.json()?;
            let at = (prefill_of(&answer), decode_of(&answer));
            assert_eq!(*home.get_or_insert(at), at, "a session keeps both of its places");
        }
        let ((_, prefill), (_, decode)) = home.context("there were turns")?;
        ranks.extend([("prefill", prefill), ("decode", decode)]);
    }
    assert_eq!(ranks.len(), 4, "both ranks of both workers are in use: {ranks:?}");
    let annotated =
        |fault: &str| chat(&cluster, fault, json!({"stream": true, "nvext": {"annotations": [fault]}}));
    // Whichever leg fails, the request does, and nothing is left.
    for fault in ["wire:raise_first", "wire:invalid_first"] {
        let reply = annotated(fault).send().await?;
        assert!(matches!(reply.status, 400 | 500), "{fault}: {}", reply.text());
        cluster.until_idle().await?;
    }
    Ok(())
}

#[tokio::test]
async fn dynamo_mockers_compute_prompts_on_the_decode_worker() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let mut options = Options::split(0, 0);
    options.store = Some(store.clone());
    options.config.models.cache_dir = folder.path().join("cards");
    options.config.route.local_prefill = Some(roost_frontend::LocalPrefill::default());
    options.config.route.router.decode_overlap = true;
    let cluster = options.start().await?;
    let blocks = ["--num-gpu-blocks-override", "4096", "--disaggregation-mode"];
    let prefill = peers.mocker(&store, &[&blocks[..], &["prefill"]].concat())?;
    let decode = peers.mocker(&store, &[&blocks[..], &["decode"]].concat())?;
    ready(&cluster, Role::Prefill, 1, &[&prefill, &decode]).await?;
    ready(&cluster, Role::Decode, 1, &[&prefill, &decode]).await?;
    let long = "a conversation of which the decode worker has everything but the last words ".repeat(40);
    let mut places = Vec::new();
    for turn in 0..4 {
        let reply = chat(&cluster, &format!("{long} {turn}"), json!({})).session("s").send().await?;
        assert_eq!(reply.status, 200, "{}\n{}\n{}", reply.text(), prefill.output(), decode.output());
        let answer = reply.json()?;
        assert_eq!(answer["usage"]["completion_tokens"], 8, "{answer}");
        places.push((prefill_of(&answer).0, worker_of(&answer)));
    }
    let [(prefill, decode), rest @ ..] = &places[..] else { unreachable!("four turns") };
    assert_ne!(prefill, decode, "the first turn is new to everybody");
    assert!(rest.iter().all(|at| *at == (*decode, *decode)), "{places:?}");
    assert_eq!(cluster.metric_sum("roost_local_prefills_total", "").await?, 3.0);
    cluster.until_idle().await
}
