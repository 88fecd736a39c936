//! Several frontends of one deployment: what one has bound or placed, the others know.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use roost_tests::{Cluster, MODEL, Options, Peers, Request, worker_of};
use serde_json::{Value, json};
use tempfile::TempDir;

fn shared(workers: usize, store: &Path) -> Options {
    Options { replicas: true, store: Some(store.to_owned()), ..Options::new(workers) }
}

fn chat(address: SocketAddr, model: &str, content: &str) -> Request {
    let body = json!({"model": model, "max_tokens": 8, "nvext": {"extra_fields": ["worker_id"]},
        "messages": [{"role": "user", "content": content}]});
    Request::post(address, "/v1/chat/completions", &body)
}

/// One turn of a session, and the worker that answered.
async fn turn(address: SocketAddr, model: &str, session: &str, content: &str) -> Result<u64> {
    let reply = chat(address, model, content).session(session).send().await?;
    assert_eq!(reply.status, 200, "{session}: {}", reply.text());
    Ok(worker_of(&reply.json()?))
}

/// Binds sessions through one frontend and says whether the other follows each of them.
async fn follows(to: SocketAddr, from: SocketAddr, model: &str, sessions: &[String]) -> Result<bool> {
    let mut all = true;
    for session in sessions {
        // No common block: only the binding can lead to the same worker.
        let home = turn(from, model, session, &format!("{session} begins here")).await?;
        all &= turn(to, model, session, &format!("and {session} goes on there")).await? == home;
    }
    Ok(all)
}

/// Waits until another frontend serves a model.
pub(crate) async fn serves(cluster: &Cluster, other: SocketAddr, model: &str) -> Result<()> {
    cluster
        .until("the other frontend serves", async || {
            let reply = chat(other, model, "hello").send().await;
            Ok(reply.is_ok_and(|reply| reply.status == 200))
        })
        .await
}

fn sessions(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{name}-{n}")).collect()
}

/// Waits until the frontends hear each other, and then wants every session followed in both directions.
pub(crate) async fn stand_side_by_side(cluster: &Cluster, other: SocketAddr, model: &str) -> Result<()> {
    hear_each_other(cluster, other, model).await?;
    let mut bound = Vec::new();
    for session in sessions("there", 10) {
        let home = turn(cluster.address, model, &session, &format!("{session} begins here")).await?;
        bound.push((session, home));
    }
    // The other one cannot be asked what it knows. Bindings come in order: once it follows several that were made after
    // these, it has heard of these.
    let round = AtomicUsize::new(0);
    let later = async || {
        let round = round.fetch_add(1, Ordering::Relaxed);
        follows(other, cluster.address, model, &sessions(&format!("later-{round}"), 6)).await
    };
    cluster.until("it has heard of what came later", later).await?;
    for (session, home) in bound {
        let next = turn(other, model, &session, &format!("and {session} goes on there")).await?;
        assert_eq!(next, home, "{session}");
    }
    for session in sessions("back", 10) {
        let before = imported(cluster).await?;
        let home = turn(other, model, &session, &format!("{session} begins there")).await?;
        cluster.until("the binding has come", async || Ok(imported(cluster).await? > before)).await?;
        let next = turn(cluster.address, model, &session, &format!("and {session} goes on here")).await?;
        assert_eq!(next, home, "{session}");
    }
    Ok(())
}

/// Bindings of other frontends that were taken over.
async fn imported(cluster: &Cluster) -> Result<f64> {
    cluster.metric_sum("roost_affinity_replica_bindings_total", "imported").await
}

/// Waits until two frontends follow each other's bindings.
pub(crate) async fn hear_each_other(cluster: &Cluster, other: SocketAddr, model: &str) -> Result<()> {
    let ours = cluster.address;
    for (from, to, way) in [(ours, other, "there"), (other, ours, "back")] {
        let round = AtomicUsize::new(0);
        cluster
            .until(&format!("they hear each other, {way}"), async || {
                let round = round.fetch_add(1, Ordering::Relaxed);
                follows(to, from, model, &sessions(&format!("probe-{way}-{round}"), 4)).await
            })
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn two_frontends_of_ours_follow_each_others_bindings() -> Result<()> {
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let first = shared(2, &store).start().await?;
    let second = shared(0, &store).start().await?;
    second.wait_for_workers(MODEL, 2).await?;
    hear_each_other(&first, second.address, MODEL).await?;
    for (from, to, way) in [(&first, &second, "there"), (&second, &first, "back")] {
        for session in sessions(way, 10) {
            let before = imported(to).await?;
            let home = turn(from.address, MODEL, &session, &format!("{session} begins here")).await?;
            // These engines answer within a millisecond, before their binding has come over.
            to.until("the binding has come", async || Ok(imported(to).await? > before)).await?;
            let next = turn(to.address, MODEL, &session, &format!("and {session} goes on there")).await?;
            assert_eq!(next, home, "{session}");
        }
    }
    let published = first.metric("roost_replica_events_total{result=\"published\"}").await?;
    assert!(published.is_some_and(|words| words >= 30.0), "{published:?}");
    assert_eq!(first.metric("roost_replica_events_total{result=\"dropped\"}").await?, Some(0.0));
    Ok(())
}

/// C-AFF-05: a balancer that knows nothing of sessions sends each turn to the other frontend.
#[tokio::test]
async fn c_aff_05_turns_that_alternate_between_frontends_stay_on_one_worker() -> Result<()> {
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let first = shared(4, &store).start().await?;
    let second = shared(0, &store).start().await?;
    second.wait_for_workers(MODEL, 4).await?;
    hear_each_other(&first, second.address, MODEL).await?;
    let names = sessions("alternating", 20);
    let before = imported(&second).await?;
    let mut homes: Vec<Vec<u64>> = vec![Vec::new(); names.len()];
    for round in 0..6 {
        let to = [&first, &second][round % 2];
        for (session, homes) in names.iter().zip(&mut homes) {
            homes.push(turn(to.address, MODEL, session, &format!("{session}, turn {round}")).await?);
        }
        if round == 0 {
            // These engines answer within a millisecond, before the last bindings have come over.
            second
                .until("the bindings have come", async || Ok(imported(&second).await? >= before + 20.0))
                .await?;
        }
    }
    let faithful = homes.iter().filter(|homes| homes.iter().all(|home| *home == homes[0])).count();
    assert!(faithful >= 18, "{faithful} of 20 sessions saw one worker only: {homes:?}");
    let used: std::collections::BTreeSet<u64> = homes.iter().flatten().copied().collect();
    assert_eq!(used.len(), 4, "and not all the same one");
    Ok(())
}

#[tokio::test]
async fn load_that_another_frontend_placed_counts() -> Result<()> {
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let mut options = shared(2, &store);
    options.timing.itl = Duration::from_millis(5);
    options.timing.speed = 1.0;
    let first = options.start().await?;
    let second = shared(0, &store).start().await?;
    second.wait_for_workers(MODEL, 2).await?;
    hear_each_other(&first, second.address, MODEL).await?;

    // A long answer through one keeps its worker busy; new work through the other goes elsewhere, every time.
    let long = "a prompt of many blocks that nobody has seen before. ".repeat(40);
    let endless = json!({"model": MODEL, "max_tokens": 100_000, "ignore_eos": true, "stream": true,
        "nvext": {"extra_fields": ["worker_id"]}, "messages": [{"role": "user", "content": long}]});
    let mut running = Request::post(first.address, "/v1/chat/completions", &endless).stream().await?;
    let mut busy = None;
    while busy.is_none() {
        let event: Value = running.next().await?.context("the stream goes on")?;
        busy = event["nvext"]["worker_id"]["decode_worker_id"].as_u64();
    }
    second
        .until("the load has arrived", async || {
            for n in 0..6 {
                let reply = chat(second.address, MODEL, &format!("{n} something short")).send().await?;
                if Some(worker_of(&reply.json()?)) == busy {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
}

#[tokio::test]
async fn a_dynamo_frontend_and_ours_follow_each_others_bindings() -> Result<()> {
    const WIRE_MODEL: &str = "wire-model";
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let mut options = shared(0, &store);
    options.config.models.cache_dir = folder.path().join("cards");
    let ours = options.start().await?;
    let arguments =
        ["--router-mode", "kv", "--router-session-affinity-ttl-secs", "3600", "--router-replica-sync"];
    let (frontend, theirs) = peers.frontend(&store, &arguments)?;
    let blocks = ["--num-gpu-blocks-override", "4096"];
    let (first, second) = (peers.mocker(&store, &blocks)?, peers.mocker(&store, &blocks)?);
    let outputs = || {
        let outputs = [&frontend, &first, &second].map(|peer| peer.output());
        outputs.join("\n")
    };
    ours.wait_for_workers(WIRE_MODEL, 2).await.with_context(outputs)?;
    serves(&ours, theirs, WIRE_MODEL).await.with_context(outputs)?;
    stand_side_by_side(&ours, theirs, WIRE_MODEL).await.with_context(outputs)?;
    let undecodable = ours.metric("roost_event_undecodable_messages_total").await?;
    assert_eq!(undecodable, Some(0.0), "{}", frontend.output());
    Ok(())
}
