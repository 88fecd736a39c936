//! The worker plane end to end: older releases, TLS, every fault of the peers, and the limits of a frame.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use roost_tests::http::PATIENCE;
use roost_tests::{Cluster, MODEL, Options, Peer, Peers, Request, worker_of};
use roost_wire::{TlsFiles, Transport};
use roost_worker::ModelFiles;
use serde_json::{Value, json};
use tempfile::TempDir;

const PEER_MODEL: &str = "wire-model";
const LONG: &str = "every word of this sentence is cached somewhere by now. ";

/// A frontend of ours on a file store that peers share.
async fn ours(folder: &TempDir, change: impl FnOnce(&mut Options)) -> Result<Cluster> {
    let mut options = Options::new(0);
    // Slow enough that an answer of thousands of tokens can be left.
    options.timing.itl = Duration::from_millis(2);
    options.timing.speed = 1.0;
    options.store = Some(folder.path().join("store"));
    options.config.models.cache_dir = folder.path().join("cards");
    // A loaded machine must not look like a dead worker.
    (options.client.ack_timeout, options.client.connect_timeout) = (PATIENCE, PATIENCE);
    change(&mut options);
    options.start().await
}

async fn served(cluster: &Cluster, peers: &[&Peer]) -> Result<()> {
    let outputs = || peers.iter().map(|peer| peer.output()).collect::<Vec<_>>().join("\n");
    cluster.wait_for_workers(PEER_MODEL, peers.len()).await.with_context(outputs)
}

fn body(content: &str, extra: &Value) -> Value {
    let mut body = json!({"model": PEER_MODEL, "max_tokens": 8, "ignore_eos": true,
        "messages": [{"role": "user", "content": content}], "nvext": {"extra_fields": ["worker_id"]}});
    for (key, value) in extra.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body
}

fn chat(cluster: &Cluster, content: &str, extra: &Value) -> Request {
    cluster.post("/v1/chat/completions", &body(content, extra))
}

/// One unary and one streamed answer.
async fn answers(request: impl Fn(&Value) -> Request, peer: &Peer) -> Result<()> {
    let unary = request(&json!({})).send().await?;
    assert_eq!(unary.status, 200, "{}\n{}", unary.text(), peer.output());
    assert_eq!(unary.json()?["usage"]["completion_tokens"], 8, "{}", unary.text());
    let events = request(&json!({"stream": true})).send().await?.events();
    assert_eq!(events.last(), Some(&json!("[DONE]")), "{events:?}\n{}", peer.output());
    let finished = events.iter().filter(|e| e["choices"][0]["finish_reason"] == "length").count();
    assert_eq!(finished, 1, "{events:?}");
    Ok(())
}

#[tokio::test]
async fn our_frontend_serves_workers_of_older_releases() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    for peers in peers.older() {
        for bindings in [false, true] {
            let folder = TempDir::new()?;
            let store = folder.path().join("store");
            let cluster = ours(&folder, |_| {}).await?;
            let worker = match bindings {
                false => peers.mocker(&store, &["--num-gpu-blocks-override", "4096"])?,
                true => peers.bindings_worker(&store, &["--kv-events", "--reply-ids", "9707,1879"])?,
            };
            served(&cluster, &[&worker]).await?;
            answers(|extra| chat(&cluster, "hello", extra), &worker).await?;
            let long = LONG.repeat(60);
            assert_eq!(chat(&cluster, &long, &json!({})).session("s").send().await?.status, 200);
            cluster
                .until("its KV events arrive", async || {
                    Ok(cluster.metric_sum("roost_index_blocks", "").await? > 30.0)
                })
                .await
                .with_context(|| worker.output())?;
            // A client that leaves is heard of: the request is over long before its tokens are.
            let endless = json!({"stream": true, "max_tokens": 4000});
            let mut leaving = chat(&cluster, "leave", &endless).stream().await?;
            assert!(leaving.next().await?.is_some());
            drop(leaving);
            let active = format!("dynamo_frontend_active_requests{{model=\"{PEER_MODEL}\"}}");
            cluster.until("nothing runs", async || Ok(cluster.metric(&active).await? == Some(0.0))).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn our_worker_serves_frontends_of_older_releases() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    for peers in peers.older() {
        our_worker_behind(&peers, |_| {}).await?;
    }
    Ok(())
}

/// A worker of ours behind the peer's frontend: listed, answering, its KV events applied.
async fn our_worker_behind(peers: &Peers, change: impl FnOnce(&mut Options)) -> Result<()> {
    let folder = TempDir::new()?;
    let store = folder.path().join("store");
    let mut cluster = ours(&folder, change).await?;
    cluster.add_worker_with(PEER_MODEL, ModelFiles::in_dir(peers.model())).await?;
    let (frontend, address) = peers.frontend(&store, &["--router-mode", "kv"])?;
    let listed = async || {
        let reply = Request::get(address, "/v1/models").send().await;
        Ok(reply.is_ok_and(|reply| reply.text().contains(PEER_MODEL)))
    };
    cluster.until("the peer lists our model", listed).await.with_context(|| frontend.output())?;
    let ask =
        |content: &str, extra: &Value| Request::post(address, "/v1/chat/completions", &body(content, extra));
    // Older releases list a model for one API before they serve it for another.
    let served = async || Ok(ask("hello", &json!({})).send().await?.status != 404);
    cluster.until("the peer serves chats", served).await?;
    answers(|extra| ask("hello", extra), &frontend).await?;
    assert_eq!(ask(&LONG.repeat(60), &json!({})).send().await?.status, 200);
    let applied = async || {
        let page = Request::get(address, "/metrics").send().await?.text();
        let mut lines = page.lines();
        let line = lines.find(|line| {
            line.contains("kv_cache_events_applied{")
                && line.contains("status=\"ok\"")
                && line.contains("stored")
        });
        Ok(line.is_some_and(|line| !line.ends_with(" 0")))
    };
    cluster.until("the peer applies our KV events", applied).await.with_context(|| frontend.output())?;
    let mut leaving = ask("leave", &json!({"stream": true, "max_tokens": 10_000})).stream().await?;
    assert!(leaving.next().await?.is_some());
    drop(leaving);
    let heard = async || Ok(!cluster.workers[0].journal().cancellations().is_empty());
    cluster.until("our worker hears that the client left", heard).await
}

/// Certificates for both ends of mutual TLS on loopback.
fn certificates(folder: &Path) -> Result<TlsFiles> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let write = |name: &str, text: String| -> Result<Option<PathBuf>> {
        let path = folder.join(name);
        std::fs::write(&path, text)?;
        Ok(Some(path))
    };
    let ca = write("ca.pem", params.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(params, key);
    let certify = |name: &str| -> Result<(Option<PathBuf>, Option<PathBuf>)> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok((
            write(&format!("{name}.pem"), certificate.pem())?,
            write(&format!("{name}.key"), key.serialize_pem())?,
        ))
    };
    let (cert, key) = certify("listener")?;
    let (client_cert, client_key) = certify("dialer")?;
    let handshake_timeout = PATIENCE;
    let client_ca = ca.clone();
    Ok(TlsFiles {
        cert,
        key,
        client_ca,
        ca,
        client_cert,
        client_key,
        handshake_timeout,
        ..TlsFiles::default()
    })
}

/// The peer's variables for them.
fn variables(files: &TlsFiles) -> Vec<(String, String)> {
    let named = [
        ("CERT_PATH", &files.cert),
        ("KEY_PATH", &files.key),
        ("CA_CERT_PATH", &files.ca),
        ("CLIENT_CERT_PATH", &files.client_cert),
        ("CLIENT_KEY_PATH", &files.client_key),
        ("CLIENT_CA_CERT_PATH", &files.client_ca),
    ];
    let set = |(name, path): (&str, &Option<PathBuf>)| {
        Some((format!("DYN_TCP_TLS_{name}"), path.as_ref()?.display().to_string()))
    };
    named.into_iter().filter_map(set).collect()
}

#[tokio::test]
async fn mutual_tls_with_a_dynamo_worker() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let files = certificates(folder.path())?;
    let transport = Transport::tls(&files)?;
    let cluster = ours(&folder, |options| options.client.transport = transport).await?;
    let peers = peers.with_variables(variables(&files));
    let worker = peers.mocker(&folder.path().join("store"), &["--num-gpu-blocks-override", "4096"])?;
    served(&cluster, &[&worker]).await?;
    answers(|extra| chat(&cluster, "hello", extra), &worker).await
}

#[tokio::test]
async fn mutual_tls_with_a_dynamo_frontend() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let files = certificates(folder.path())?;
    let transport = Transport::tls(&files)?;
    let peers = peers.with_variables(variables(&files));
    our_worker_behind(&peers, |options| options.client.transport = transport).await
}

#[tokio::test]
async fn a_worker_that_demands_quic_is_refused_in_clear_words() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let cluster = ours(&folder, |_| {}).await?;
    let peers = peers.with_variables(vec![("DYN_RESPONSE_PLANE".into(), "quic".into())]);
    let worker = peers.mocker(&folder.path().join("store"), &["--num-gpu-blocks-override", "4096"])?;
    served(&cluster, &[&worker]).await?;
    let reply = chat(&cluster, "hello", &json!({})).send().await?;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(reply.text().contains("response plane"), "{}\n{}", reply.text(), worker.output());
    Ok(())
}

/// A frontend of ours with short deadlines that forgets at once that a worker failed.
async fn forgiving(folder: &TempDir) -> Result<Cluster> {
    ours(folder, |options| {
        options.client.ack_timeout = Duration::from_millis(400);
        options.client.call_home_timeout = Duration::from_millis(400);
        let quarantine = &mut options.config.route.router.quarantine;
        let moment = Duration::from_millis(1);
        (quarantine.first, quarantine.longest, quarantine.overloaded) = (moment, moment, moment);
    })
    .await
}

/// Asks for each fault and compares the status of the unary answer, and the code with which a stream ends.
async fn faults(cluster: &Cluster, worker: &Peer, table: &[(&str, u16, Option<u16>)]) -> Result<()> {
    for &(fault, status, code) in table {
        let extra = |stream: bool| json!({"stream": stream, "nvext": {"annotations": [fault]}});
        let reply = chat(cluster, fault, &extra(false)).send().await?;
        assert_eq!(reply.status, status, "{fault}: {}\n{}", reply.text(), worker.output());
        if status == 200 {
            assert_eq!(reply.json()?["choices"][0]["finish_reason"], "length", "{fault}");
        }
        // Long enough that a worker that was avoided for a moment is tried again.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let streamed = chat(cluster, fault, &extra(true)).send().await?;
        match code {
            // Broken off in the middle: the stream says so and ends.
            Some(code) => {
                let events = streamed.events();
                assert_eq!(events.last(), Some(&json!("[DONE]")), "{fault}: {events:?}");
                assert_eq!(events[events.len() - 2]["error"]["code"], code, "{fault}: {events:?}");
            }
            None => assert_eq!(streamed.status, status, "{fault}: {}", streamed.text()),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The worker serves on.
    let reply = chat(cluster, "and now", &json!({})).send().await?;
    assert_eq!(reply.status, 200, "{}\n{}", reply.text(), worker.output());
    Ok(())
}

#[tokio::test]
async fn every_fault_of_the_reference_worker_has_its_status() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let cluster = forgiving(&folder).await?;
    let worker = peers.reference_worker(&folder.path().join("store"), &[])?;
    served(&cluster, &[&worker]).await?;
    let table = [
        ("ref:prologue_error", 503, None),
        ("ref:prologue_invalid", 400, None),
        ("ref:prologue_unavailable", 503, None),
        ("ref:ack_overload", 529, None),
        ("ref:ack_unavailable", 503, None),
        ("ref:no_ack", 504, None),
        ("ref:no_callhome", 504, None),
        ("ref:mid_close", 503, Some(503)),
        ("ref:no_sentinel", 200, None),
        ("ref:no_final", 503, Some(503)),
        ("ref:two_final", 500, Some(500)),
        ("ref:batch", 200, None),
        ("ref:gap", 200, None),
        ("ref:removed", 200, None),
        ("ref:cleared", 200, None),
        ("ref:host", 200, None),
    ];
    faults(&cluster, &worker, &table).await
}

#[tokio::test]
async fn every_fault_of_the_bindings_worker_has_its_status() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let folder = TempDir::new()?;
    let cluster = forgiving(&folder).await?;
    let store = folder.path().join("store");
    let worker = peers.bindings_worker(&store, &["--reply-ids", "9707,1879"])?;
    served(&cluster, &[&worker]).await?;
    let table = [
        ("wire:raise_first", 500, None),
        ("wire:invalid_first", 400, None),
        ("wire:raise_mid", 500, Some(500)),
        ("wire:http_mid", 503, Some(503)),
        ("wire:error_reason", 500, Some(500)),
        ("wire:no_finish", 500, Some(500)),
    ];
    faults(&cluster, &worker, &table).await?;
    // The process dies: everybody who waits for it hears at once.
    let others = async {
        let mut hanging =
            chat(&cluster, "hang", &json!({"stream": true, "nvext": {"annotations": ["wire:hang"]}}))
                .stream()
                .await?;
        assert!(hanging.next().await?.is_some());
        let crash = json!({"nvext": {"annotations": ["wire:crash"]}});
        let reply = chat(&cluster, "crash", &crash).send().await?;
        assert_eq!(reply.status, 503, "{}", reply.text());
        let mut last = Value::Null;
        while let Some(event) = hanging.next().await? {
            if event != json!("[DONE]") {
                last = event;
            }
        }
        assert_eq!(last["error"]["code"], 503, "{last}");
        anyhow::Ok(())
    };
    others.await
}

#[tokio::test]
async fn c_tcp_02_a_request_over_the_frame_limit_is_refused_with_the_limit() -> Result<()> {
    let mut options = Options::new(2);
    options.client.max_message_bytes = 1 << 16;
    let cluster = options.start().await?;
    let mut running = cluster
        .post(
            "/v1/chat/completions",
            &json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "@@drip@@"}]}),
        )
        .stream()
        .await?;
    assert!(running.next().await?.is_some());
    let reply = cluster.chat(&"word ".repeat(40_000)).send().await?;
    assert_eq!(reply.status, 413, "{}", reply.text());
    let message = reply.json()?["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("65536") && message.contains("DYN_TCP_MAX_MESSAGE_SIZE"), "{message}");
    // Nobody was asked twice, nobody is blamed, and who runs runs on.
    let page = cluster.get("/metrics").send().await?.text();
    assert!(page.contains("dynamo_frontend_model_migration_total{"), "{page}");
    assert_eq!(cluster.metric_sum("dynamo_frontend_model_migration_total", "").await?, 0.0);
    let mut finished = false;
    while let Some(event) = running.next().await? {
        finished |= event["choices"][0]["finish_reason"].is_string();
    }
    assert!(finished);
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn c_tcp_01_a_worker_that_dies_after_its_ack_costs_no_answer() -> Result<()> {
    let cluster = Options::new(2).start().await?;
    let first = cluster.chat("@@hello@@").session("s").send().await?.json()?;
    let home = cluster.index_of(worker_of(&first));
    // Acknowledged, never called home, and then the process is gone: far below the deadline for calling home, which
    // is longer than the test has patience.
    cluster.workers[home].faults().next(roost_worker::Fault::NoCallHome);
    let before = cluster.workers[home].stats().requests;
    let again = cluster.chat("@@hello@@ again").session("s");
    let (answer, ()) = tokio::join!(again.send(), async {
        let silent = async || Ok(cluster.workers[home].stats().requests > before);
        cluster.until("the request is acknowledged", silent).await.expect("it comes");
        cluster.workers[home].kill().await;
    });
    let answer = answer?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(cluster.index_of(worker_of(&answer.json()?)), 1 - home);
    Ok(())
}
