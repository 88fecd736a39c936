//! The request trace: in the peer's schema, and good for a replay.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use roost_replay::{FleetConfig, Pace, Start, read, replay};
use roost_router::{Config, Mode};
use roost_telemetry::RecordFile;
use roost_tests::{Cluster, MODEL, Options, Peers, Request};
use roost_worker::{ModelFiles, ScriptBook};
use serde_json::{Value, json};
use tempfile::TempDir;

fn file(path: PathBuf) -> Box<RecordFile> {
    Box::new(RecordFile {
        path,
        roll_bytes: 1 << 30,
        roll_lines: None,
        keep: 8,
        capacity: 1024,
        flush: Duration::from_millis(20),
    })
}

fn chat(cluster: &Cluster, messages: &[Value], more: Value) -> Request {
    let mut body = json!({"model": MODEL, "max_tokens": 12, "messages": messages});
    for (key, value) in more.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    cluster.post("/v1/chat/completions", &body)
}

/// The records of a file.
fn records(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path)?;
    text.lines().map(|line| Ok(serde_json::from_str::<Value>(line)?["event"].take())).collect()
}

#[tokio::test]
async fn sessions_are_recorded_and_replayed() -> Result<()> {
    const SESSIONS: usize = 3;
    const TURNS: usize = 4;
    let folder = TempDir::new()?;
    let path = folder.path().join("trace.jsonl");
    let mut options = Options::new(2);
    options.trace = Some(file(path.clone()));
    let mut cluster = options.start().await?;
    let system = json!({"role": "system", "content": "a system prompt that all sessions share ".repeat(30)});
    let mut talks = vec![vec![system]; SESSIONS];
    for turn in 0..TURNS {
        for (number, talk) in talks.iter_mut().enumerate() {
            talk.push(
                json!({"role": "user", "content": format!("session {number} turn {turn} ").repeat(20)}),
            );
            let reply = chat(&cluster, talk, json!({}))
                .session(&format!("s{number}"))
                .header("x-request-id", &format!("r{number}-{turn}"))
                .send()
                .await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            talk.push(reply.json()?["choices"][0]["message"].clone());
        }
    }
    // Neither a refused request nor one with several answers is one of a replay.
    assert_eq!(chat(&cluster, &talks[0], json!({"model": "nobody"})).send().await?.status, 404);
    assert_eq!(chat(&cluster, &talks[0][..2], json!({"n": 2})).send().await?.status, 200);
    let page = cluster.get("/metrics").send().await?.text();
    let written = format!("roost_trace_records_total{{result=\"written\"}} {}", SESSIONS * TURNS);
    assert!(page.contains(&written), "{page}");
    assert!(page.contains("roost_trace_records_total{result=\"dropped\"} 0"));
    cluster.stop_frontend().await?;

    let records = records(&path)?;
    assert_eq!(records.len(), SESSIONS * TURNS);
    let workers: BTreeSet<u64> = cluster.workers.iter().map(|worker| worker.id()).collect();
    for (at, record) in records.iter().enumerate() {
        let (turn, session) = (at / SESSIONS, at % SESSIONS);
        assert_eq!(record["schema"], "dynamo.request.trace.v1");
        assert_eq!(record["agent_context"]["session_id"], format!("s{session}"));
        let request = &record["request"];
        assert_eq!(request["x_request_id"], format!("r{session}-{turn}"));
        assert_eq!(request["model"], MODEL);
        assert_eq!(request["finish_reason_metadata"]["finish_reason"], "length");
        assert_eq!(request["output_tokens"], 12);
        let decode = request["worker"]["decode_worker_id"].as_u64().context("a worker")?;
        assert!(workers.contains(&decode), "{record}");
        let replay = &request["replay"];
        let length = replay["input_length"].as_u64().context("a length")?;
        assert_eq!(request["input_tokens"], length);
        let hashes = replay["input_sequence_hashes"].as_array().context("hashes")?.len() as u64;
        assert_eq!((&replay["trace_block_size"], hashes), (&json!(16), length.div_ceil(16)));
        assert!(request["ttft_ms"].as_f64() <= request["total_time_ms"].as_f64(), "{record}");
    }

    let trace = read([std::fs::read_to_string(&path)?.as_str()], 512)?;
    assert_eq!((trace.sessions.len(), trace.requests()), (SESSIONS, SESSIONS * TURNS));
    for session in &trace.sessions {
        for turns in session.turns.windows(2) {
            assert_eq!(turns[1].kept, turns[0].prompt_tokens / 16, "a turn goes on from the one before");
            assert!(matches!(turns[1].start, Start::After(_)));
        }
    }
    let fleet = FleetConfig { workers: 2, ..FleetConfig::default() };
    let pace = Pace { ramp: Duration::ZERO, ..Pace::default() };
    let config = Config { mode: Mode::Kv, ..Config::default() };
    let outcome = replay(&trace, "recorded", config, &fleet, &pace, 1)?;
    assert_eq!(outcome.requests, (SESSIONS * TURNS) as u64);
    assert!(outcome.possible_tokens * 2 > outcome.prompt_tokens, "{outcome:?}");
    Ok(())
}

/// What a client left, or a worker broke, is told as well; a cut answer has no finish reason.
#[tokio::test]
async fn what_ends_badly_is_recorded_too() -> Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("trace.jsonl");
    let mut options = Options::new(1);
    options.trace = Some(file(path.clone()));
    let silent = json!({"silent": [{"sleep_s": 3600.0}, {"finish": "stop"}]});
    options.scripts = ScriptBook::from_json(&silent.to_string()).context("a script")?;
    let mut cluster = options.start().await?;
    let silent = [json!({"role": "user", "content": "@@silent@@"})];
    let asking = chat(&cluster, &silent, json!({"stream": true}));
    let asking = tokio::spawn(async move { asking.send().await });
    let arrived = async || Ok(cluster.workers[0].journal().requests().len() == 1);
    cluster.until("the worker has it", arrived).await?;
    asking.abort();
    cluster
        .until("it is recorded", async || Ok(std::fs::read_to_string(&path)?.lines().count() == 1))
        .await?;
    cluster.stop_frontend().await?;
    let records = records(&path)?;
    assert_eq!(records[0]["request"].get("finish_reason_metadata"), None);
    assert_eq!(records[0]["request"].get("ttft_ms"), None);
    assert_eq!(records[0]["request"]["output_tokens"], 0);
    assert_eq!(records[0].get("agent_context"), None, "no session");
    Ok(())
}

/// An unmodified frontend of the peer and ours, asked the same, write the same of it.
#[tokio::test]
async fn the_peer_records_the_same_of_a_prompt() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    const MODEL: &str = "wire-model";
    let folder = TempDir::new()?;
    let (store, own) = (folder.path().join("store"), folder.path().join("own.jsonl"));
    let theirs = folder.path().join("theirs.jsonl");
    let mut options = Options::new(0);
    options.store = Some(store.clone());
    options.config.models.cache_dir = folder.path().join("cards");
    options.trace = Some(file(own.clone()));
    let mut cluster = options.start().await?;
    cluster.add_worker_with(MODEL, ModelFiles::in_dir(peers.model())).await?;
    cluster.wait_for_workers(MODEL, 1).await?;
    let variables = [
        ("DYN_REQUEST_TRACE", "1"),
        ("DYN_REQUEST_TRACE_FILE_PATH", theirs.to_str().context("a path")?),
        ("DYN_REQUEST_TRACE_FILE_FORMAT", "jsonl"),
        ("DYN_REQUEST_TRACE_FILE_FLUSH_INTERVAL_MS", "20"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let (frontend, address) =
        peers.with_variables(variables.into()).frontend(&store, &["--router-mode", "kv"])?;
    let listed = async || {
        let reply = Request::get(address, "/v1/models").send().await;
        Ok(reply.is_ok_and(|reply| reply.text().contains(MODEL)))
    };
    let came = cluster.until("the peer lists our model", listed).await;
    assert!(came.is_ok(), "{}", frontend.output());
    let body = json!({"model": MODEL, "max_tokens": 8, "ignore_eos": true,
        "messages": [{"role": "user", "content": "what both of us make of this prompt ".repeat(20)}]});
    for at in [address, cluster.address] {
        let reply = Request::post(at, "/v1/chat/completions", &body)
            .session("s")
            .header("x-request-id", "asked")
            .send()
            .await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let both = async || {
        let lines = |path: &Path| std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
        Ok(lines(&own) == 1 && lines(&theirs) == 1)
    };
    let came = cluster.until("both have written", both).await;
    assert!(came.is_ok(), "{}", frontend.output());
    let (own, theirs) = (records(&own)?.remove(0), records(&theirs)?.remove(0));
    for pointer in [
        "/schema",
        "/event_type",
        "/event_source",
        "/agent_context/session_id",
        "/request/x_request_id",
        "/request/model",
        "/request/input_tokens",
        "/request/output_tokens",
        "/request/worker",
        "/request/replay",
        "/request/finish_reason_metadata/finish_reason",
    ] {
        assert_eq!(own.pointer(pointer), theirs.pointer(pointer), "{pointer}\nours {own}\ntheirs {theirs}");
    }
    let known = |record: &Value| -> BTreeSet<String> {
        record["request"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
    };
    let (ours, theirs) = (known(&own), known(&theirs));
    let missing: Vec<_> = theirs.difference(&ours).filter(|name| *name != "queue_depth").collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(ours.is_subset(&theirs), "{ours:?} {theirs:?}");
    cluster.stop_frontend().await?;
    Ok(())
}
