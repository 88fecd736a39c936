//! Both directions against an unmodified Dynamo 1.6.1: file discovery, TCP plane, ZMQ events.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use roost_tests::{Cluster, Options, Peer, Peers, Request, worker_of};
use roost_worker::ModelFiles;
use serde_json::{Value, json};
use tempfile::TempDir;

const MODEL: &str = "wire-model";

/// A frontend of ours on a file store that peers share.
async fn ours(folder: &TempDir) -> Result<Cluster> {
    let mut options = Options::new(0);
    // Slow enough that an answer of thousands of tokens can be left.
    options.timing.itl = Duration::from_millis(2);
    options.timing.speed = 1.0;
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
    let mut fields = json!({"extra_fields": ["worker_id"]});
    if let Some(annotations) = body["nvext"].get("annotations") {
        fields["annotations"] = annotations.clone();
    }
    body["nvext"] = fields;
    cluster.post("/v1/chat/completions", &body)
}

async fn ready(cluster: &Cluster, workers: usize, peers: &[&Peer]) -> Result<()> {
    let outputs = || peers.iter().map(|peer| peer.output()).collect::<Vec<_>>().join("\n");
    cluster.wait_for_workers(MODEL, workers).await.with_context(outputs)
}

async fn home(cluster: &Cluster, session: &str, content: &str) -> Result<(u64, u64)> {
    let reply = chat(cluster, content, json!({})).session(session).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json()?;
    Ok((worker_of(&answer), answer["nvext"]["worker_id"]["decode_dp_rank"].as_u64().unwrap_or_default()))
}

#[tokio::test]
async fn our_frontend_serves_two_dynamo_mockers() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let cluster = ours(&folder).await?;
    let blocks = ["--num-gpu-blocks-override", "4096"];
    let mut first = peers.mocker(&store, &blocks)?;
    let second = peers.mocker(&store, &blocks)?;
    ready(&cluster, 2, &[&first, &second]).await?;

    // Unary, streamed, usage, end mark.
    let unary = chat(&cluster, "hello", json!({})).send().await?.json()?;
    assert_eq!(unary["usage"]["completion_tokens"], 8, "{unary}");
    assert_eq!(unary["choices"][0]["finish_reason"], "length");
    let stream = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = chat(&cluster, "hello", stream).send().await?.events();
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    assert_eq!(events[events.len() - 2]["usage"]["completion_tokens"], 8, "{events:?}");

    // The mockers' own KV events: a long prompt leads back to the worker that has it, without a session.
    let long = "every word of this sentence is cached somewhere by now. ".repeat(60);
    let there = worker_of(&chat(&cluster, &long, json!({})).send().await?.json()?);
    cluster
        .until("the index holds the prompt", async || {
            Ok(cluster.metric_sum("roost_index_blocks", "").await? > 30.0)
        })
        .await?;
    for n in 0..4 {
        let answer = chat(&cluster, &format!("{long} {n}"), json!({})).send().await?.json()?;
        assert_eq!(worker_of(&answer), there, "overlap decides");
    }

    // Sessions: pinned, and spread.
    let mut homes = Vec::new();
    for session in 0..6 {
        let id = format!("s{session}");
        let at = home(&cluster, &id, &format!("session {session} begins")).await?;
        for turn in 0..3 {
            assert_eq!(home(&cluster, &id, &format!("session {session} turn {turn}")).await?, at);
        }
        homes.push((id, at.0));
    }
    assert!(homes.iter().any(|(_, w)| *w != homes[0].1), "six sessions over two workers: {homes:?}");

    // A client that leaves: the mocker's request ends long before its 4,000 tokens would.
    let endless = json!({"stream": true, "max_tokens": 4000, "ignore_eos": true});
    let mut leaving = chat(&cluster, "leave", endless).stream().await?;
    assert!(leaving.next().await?.is_some());
    drop(leaving);
    cluster
        .until("nothing runs", async || {
            Ok(cluster.metric(&format!("dynamo_frontend_active_requests{{model=\"{MODEL}\"}}")).await?
                == Some(0.0))
        })
        .await?;

    // kill -9: its sessions come home elsewhere at once, long before its records expire.
    first.kill()?;
    for (session, _) in &homes {
        let reply = chat(&cluster, "after the crash", json!({})).session(session).send().await?;
        assert_eq!(reply.status, 200, "{session}: {}", reply.text());
    }
    assert!(cluster.metric_sum("roost_affinity_rebinds_total", "").await? >= 1.0);
    cluster.wait_for_workers(MODEL, 1).await
}

#[tokio::test]
async fn our_frontend_serves_a_worker_on_the_official_bindings() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let cluster = ours(&folder).await?;
    let worker =
        peers.bindings_worker(&store, &["--kv-events", "--dp-size", "2", "--reply-ids", "9707,1879"])?;
    ready(&cluster, 1, &[&worker]).await?;
    // Its card names files by URL: they were fetched, checked against their checksums and kept.
    assert_eq!(std::fs::read_dir(folder.path().join("cards/blobs"))?.count(), 4);

    let unary = chat(&cluster, "hello there", json!({})).send().await?.json()?;
    assert_eq!(unary["usage"]["completion_tokens"], 8, "{unary}");
    // Data-parallel ranks stick too.
    let mut ranks = Vec::new();
    for session in 0..4 {
        let id = format!("s{session}");
        let at = home(&cluster, &id, &format!("{session} begins")).await?;
        assert_eq!(home(&cluster, &id, "goes on").await?, at);
        ranks.push(at.1);
    }
    ranks.sort_unstable();
    ranks.dedup();
    assert_eq!(ranks, [0, 1]);
    let long = "long enough for some blocks of sixteen tokens. ".repeat(20);
    assert_eq!(chat(&cluster, &long, json!({})).send().await?.status, 200);
    cluster
        .until("its KV events arrive", async || Ok(cluster.metric_sum("roost_index_blocks", "").await? > 0.0))
        .await?;

    // Faults on demand, each with its status; the worker is not blamed for what it says itself.
    let annotated = |fault: &str, stream: bool| {
        chat(&cluster, fault, json!({"stream": stream, "nvext": {"annotations": [fault]}}))
    };
    for (fault, status) in [("wire:invalid_first", 400), ("wire:raise_first", 500), ("wire:no_finish", 500)] {
        let reply = annotated(fault, false).send().await?;
        assert_eq!(reply.status, status, "{fault}: {}", reply.text());
    }
    for (fault, code) in [("wire:raise_mid", 500), ("wire:http_mid", 503), ("wire:error_reason", 500)] {
        let events = annotated(fault, true).send().await?.events();
        assert_eq!(events.last(), Some(&json!("[DONE]")), "{fault}");
        assert_eq!(events[events.len() - 2]["error"]["code"], code, "{fault}: {events:?}");
    }

    // A client that leaves is heard of by the engine.
    let mut hanging = annotated("wire:hang", true).stream().await?;
    assert!(hanging.next().await?.is_some());
    drop(hanging);
    cluster.until("the worker is stopped", async || Ok(worker.output().contains("STOPPED"))).await
}

#[tokio::test]
async fn our_worker_serves_an_unmodified_dynamo_frontend() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let mut cluster = ours(&folder).await?;
    let files = ModelFiles::in_dir(peers.model());
    for _ in 0..2 {
        cluster.add_worker_with(MODEL, files.clone()).await?;
    }
    let arguments = ["--router-mode", "kv", "--router-session-affinity-ttl-secs", "3600"];
    let (frontend, address) = peers.frontend(&store, &arguments)?;
    let listed = async || {
        let reply = Request::get(address, "/v1/models").send().await;
        Ok(reply.is_ok_and(|reply| reply.text().contains(MODEL)))
    };
    let came = cluster.until("the peer lists our model", listed).await;
    assert!(came.is_ok(), "{}", frontend.output());

    let ask = |content: &str, stream: bool| {
        let body = json!({"model": MODEL, "max_tokens": 8, "ignore_eos": true, "stream": stream,
            "messages": [{"role": "user", "content": content}], "nvext": {"extra_fields": ["worker_id"]}});
        Request::post(address, "/v1/chat/completions", &body)
    };
    let unary = ask("hello", false).send().await?;
    assert_eq!(unary.status, 200, "{}\n{}", unary.text(), frontend.output());
    assert_eq!(unary.json()?["usage"]["completion_tokens"], 8, "{}", unary.text());
    let events = ask("hello", true).send().await?.events();
    assert_eq!(events.last(), Some(&json!("[DONE]")));

    let long = "a long prompt that our simulated cache will remember. ".repeat(60);
    let first = ask(&long, false).session("s").send().await?.json()?;
    for _ in 0..3 {
        let again = ask(&long, false).session("s").send().await?.json()?;
        assert_eq!(worker_of(&again), worker_of(&first), "the peer's affinity sticks to our worker");
        assert!(
            again["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().is_some_and(|n| n > 400),
            "{again}"
        );
    }
    // Our KV events, and our answers to its recovery queries, reach its index: without a session it finds the cache.
    let applied = async || {
        let page = Request::get(address, "/metrics").send().await?.text();
        let line = page.lines().find(|line| {
            line.starts_with("dynamo_component_kv_cache_events_applied{")
                && line.contains("status=\"ok\"")
                && line.contains("stored")
        });
        Ok(line.is_some_and(|line| !line.ends_with(" 0")))
    };
    cluster.until("the peer applies our KV events", applied).await?;
    let found = ask(&format!("{long} and more"), false).send().await?.json()?;
    assert_eq!(worker_of(&found), worker_of(&first));

    same_metrics(&cluster, address).await?;

    // The peer's client leaves: our engine hears of it.
    let mut leaving = Request::post(
        address,
        "/v1/chat/completions",
        &json!({"model": MODEL, "stream": true, "max_tokens": 10_000, "ignore_eos": true,
            "messages": [{"role": "user", "content": "leave"}]}),
    )
    .stream()
    .await?;
    assert!(leaving.next().await?.is_some());
    drop(leaving);
    let heard =
        async || Ok(cluster.workers.iter().any(|worker| !worker.journal().cancellations().is_empty()));
    cluster.until("our worker hears of it", heard).await?;
    tokio::time::timeout(Duration::from_secs(60), cluster.stop_frontend()).await??;
    Ok(())
}

/// The families of a metrics page: type, and names of labels.
fn families(page: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut families = BTreeMap::new();
    let mut name = "";
    for line in page.lines() {
        if let Some((family, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            name = family;
            families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let (_, of_family): &mut (String, BTreeSet<String>) =
                families.get_mut(name).expect("series follow their family");
            let labels = labels.split_once('}').map_or(labels, |(labels, _)| labels);
            let names = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name);
            of_family.extend(names.filter(|label| *label != "le").map(str::to_owned));
        }
    }
    families
}

/// What the file of the peer's families says is what this peer shows, and what both of us show is the same.
async fn same_metrics(cluster: &Cluster, peer: SocketAddr) -> Result<()> {
    let own = chat(cluster, "hello", json!({})).send().await?;
    assert_eq!(own.status, 200, "{}", own.text());
    let theirs = families(&Request::get(peer, "/metrics").send().await?.text());
    let file: Value = serde_json::from_str(include_str!("../fixtures/http/metrics.json"))?;
    let file = file["metrics"].as_array().context("families")?;
    let unknown: Vec<&String> =
        theirs.keys().filter(|name| !file.iter().any(|family| family["name"] == **name)).collect();
    assert!(unknown.is_empty(), "families of the peer that the file does not know: {unknown:?}");
    let ours = families(&cluster.get("/metrics").send().await?.text());
    let mut compared = 0;
    for (name, family) in &ours {
        let Some(other) = theirs.get(name) else { continue };
        assert_eq!(family, other, "{name}");
        compared += 1;
    }
    assert!(compared > 60, "only {compared} families are on both pages");
    Ok(())
}
