//! A frontend that goes down: C-SHD-01, and frontends replaced one by one behind a balancer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_frontend::BindingsFile;
use roost_tests::{MODEL, Nginx, Options, Request, worker_of};
use roost_worker::Finish;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::replicas::hear_each_other;

/// Sessions that talk while frontends are replaced.
const SESSIONS: usize = 200;

fn streamed(script: &str) -> Value {
    json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": script}]})
}

/// Workers that take their time, so that answers can be caught in the middle.
fn options() -> Options {
    let mut options = Options::new(1);
    let slow = json!([{"text_repeat": ["x", 40], "per": 1, "gap_s": 0.02}, {"finish": "stop"}]);
    options.scripts.insert("slow drip", serde_json::from_value(slow).expect("steps"));
    options
}

#[tokio::test]
async fn c_shd_01_accepted_requests_end_and_new_ones_are_told() -> Result<()> {
    let mut options = options();
    options.config.http.notice = Duration::from_millis(200);
    options.config.http.drain = Duration::from_secs(30);
    let mut cluster = options.start().await?;
    let mut running = Vec::new();
    for _ in 0..3 {
        let mut events = cluster.post("/v1/chat/completions", &streamed("@@slow drip@@")).stream().await?;
        assert!(events.next().await?.is_some());
        running.push(tokio::spawn(async move {
            let mut last = Value::Null;
            while let Some(event) = events.next().await? {
                last = event;
            }
            anyhow::Ok(last)
        }));
    }
    let mut idle = TcpStream::connect(cluster.address).await?;
    idle.write_all(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await?;
    let mut answer = [0; 16];
    idle.read_exact(&mut answer).await?;
    assert!(answer.starts_with(b"HTTP/1.1 200"), "its connection stays open");

    cluster.signal_frontend();
    cluster.until("not ready", async || Ok(cluster.get("/health").send().await?.status == 503)).await?;
    let live = cluster.get("/live").send().await?;
    assert_eq!((live.status, live.header("connection")), (200, Some("close")));
    let (notice, chat) = (cluster.chat("@@hello@@").send().await?, Instant::now());
    assert_eq!(notice.status, 200, "served while balancers learn of it: {}", notice.text());
    // The listener closes; what is open and idle is closed as well.
    let closed = async || Ok(TcpStream::connect(cluster.address).await.is_err());
    cluster.until("the door is closed", closed).await?;
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await?;
    assert!(chat.elapsed() < Duration::from_secs(20), "long before the end of the drain");
    for answer in running {
        assert_eq!(answer.await??, json!("[DONE]"));
    }
    assert!(cluster.stop_frontend().await?, "everything had its end");
    Ok(())
}

#[tokio::test]
async fn c_shd_01_what_outlasts_the_drain_is_cut_with_an_error() -> Result<()> {
    let mut options = options();
    options.config.http.drain = Duration::from_millis(300);
    let mut cluster = options.start().await?;
    let mut stream = cluster.post("/v1/chat/completions", &streamed("@@slow20@@ @@drip@@")).stream().await?;
    assert!(stream.next().await?.is_some());
    // Neither has begun to answer.
    let waiting = [json!(true), json!(false)].map(|stream| {
        let mut body = streamed("@@slow20@@");
        body["stream"] = stream;
        let request = cluster.post("/v1/chat/completions", &body);
        tokio::spawn(async move { request.send().await })
    });
    cluster
        .until("all have arrived", async || Ok(cluster.workers[0].journal().requests().len() == 3))
        .await?;
    assert!(!cluster.stop_frontend().await?, "something was cut");
    let mut events = Vec::new();
    while let Some(event) = stream.next().await? {
        events.push(event);
    }
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    assert_eq!(events[events.len() - 2]["error"]["code"], 503, "{events:?}");
    assert!(events.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    for reply in waiting {
        let reply = reply.await??;
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.text());
    }
    let dropped = async || {
        let ends = cluster.workers[0].journal().finished();
        Ok(ends.iter().filter(|end| end.how == Finish::Dropped).count() == 3)
    };
    cluster.until("the worker hears of all three", dropped).await
}

/// Turns of many sessions through nginx while both frontends are replaced, one after the other: none fails, and none
/// is served by another worker than the first of its session.
#[tokio::test]
async fn frontends_are_replaced_one_by_one_without_a_failed_request_or_a_moved_session() -> Result<()> {
    let folder = TempDir::new()?;
    let frontend = |workers: usize| {
        let mut options = options();
        options.workers = workers;
        options.replicas = true;
        options.config.route.bindings_file = Some(BindingsFile {
            path: folder.path().join(format!("bindings-{workers}")),
            interval: Duration::from_secs(3600),
            limit: 10_000,
        });
        options.store = Some(folder.path().join("store"));
        options.config.http.drain = Duration::from_secs(30);
        // Longer than a session's pause, as the default is: until then each answer closes its connection, and none is left
        // for nginx to use at the moment when idle ones are closed.
        options.config.http.notice = Duration::from_secs(1);
        options
    };
    let mut clusters = [frontend(2).start().await?, frontend(0).start().await?];
    clusters[1].wait_for_workers(MODEL, 2).await?;
    hear_each_other(&clusters[0], clusters[1].address, MODEL).await?;
    let Some(nginx) = Nginx::start(&clusters.each_ref().map(|cluster| cluster.address)).await? else {
        return Ok(());
    };
    let (stop, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|session| {
            let (stop, turns, address) = (Arc::clone(&stop), Arc::clone(&turns), nginx.address);
            tokio::spawn(async move {
                let mut home = None;
                for turn in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let stream = turn % 4 == 3;
                    let script = if stream { "@@slow drip@@" } else { "@@hello@@" };
                    let body = json!({"model": MODEL, "stream": stream, "nvext": {"extra_fields": ["worker_id"]},
                        "messages": [{"role": "user", "content": format!("{script} {session} {turn}")}]});
                    let request = Request::post(address, "/v1/chat/completions", &body);
                    let reply = request.session(&format!("s{session}")).send().await?;
                    ensure!(
                        reply.status == 200,
                        "session {session} turn {turn}: {} {}",
                        reply.status,
                        reply.text()
                    );
                    let worker = if stream {
                        let events = reply.events();
                        ensure!(events.last() == Some(&json!("[DONE]")), "turn {turn} was cut: {events:?}");
                        ensure!(events.iter().all(|event| event["error"].is_null()), "{events:?}");
                        let told = |event: &Value| event["nvext"]["worker_id"]["decode_worker_id"].as_u64();
                        events.iter().find_map(told).context("the worker is told")?
                    } else {
                        worker_of(&reply.json()?)
                    };
                    let home = *home.get_or_insert(worker);
                    ensure!(worker == home, "session {session} turn {turn}: moved from {home} to {worker}");
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                home.context("no turn")
            })
        })
        .collect();
    let failed = || sessions.iter().any(|session| session.is_finished());
    for replaced in 0..2 {
        // nginx passes over a frontend that has refused a connection for ten seconds: nobody replaces the other then.
        for cluster in &clusters {
            let served = async || cluster.metric_sum("dynamo_frontend_requests_total", "success").await;
            let before = served().await?;
            let more = async || Ok(failed() || served().await? > before + 20.0);
            cluster.until("both frontends are in use", more).await?;
        }
        assert!(clusters[replaced].stop_frontend().await?, "its answers came to their end");
        // Before the new one listens, which is before it is ready.
        let refused = format!(
            "refused) while connecting to upstream, client: 127.0.0.1, server: , request: \"POST \
            /v1/chat/completions HTTP/1.1\", upstream: \"http://{}/",
            clusters[replaced].address
        );
        let noticed = async || Ok(failed() || nginx.output().contains(&refused));
        clusters[replaced].until("nginx passes over it", noticed).await?;
        clusters[replaced].start_frontend().await?;
        clusters[replaced].wait_for_workers(MODEL, 2).await?;
    }
    let seen = turns.load(Ordering::Relaxed) + SESSIONS;
    let more = async || Ok(failed() || turns.load(Ordering::Relaxed) >= seen);
    clusters[0].until("as many turns as there are sessions", more).await?;
    stop.store(true, Ordering::Relaxed);
    let mut homes = BTreeSet::new();
    for session in sessions {
        homes.insert(session.await?.map_err(|error| error.context(nginx.output()))?);
    }
    assert_eq!(homes.len(), 2, "sessions of both workers: staying says something");
    for cluster in &clusters {
        cluster.until_idle().await?;
    }
    Ok(())
}
