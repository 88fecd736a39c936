//! Prefill and decode on different workers: where the legs go, what they carry, and that they end together.

mod live;
mod local;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, worker_of};
use roost_worker::{Fault, Finish, Role, RunningWorker};
use serde_json::{Value, json};

/// Long enough for a loaded machine, far shorter than any deadline of an engine.
const AT_ONCE: Duration = Duration::from_secs(5);

fn prefill_of(answer: &Value) -> (u64, u64) {
    let at = |member: &str| answer["nvext"]["worker_id"][member].as_u64().expect("worker_id was asked for");
    (at("prefill_worker_id"), at("prefill_dp_rank"))
}

fn decode_of(answer: &Value) -> (u64, u64) {
    let rank = answer["nvext"]["worker_id"]["decode_dp_rank"].as_u64();
    (worker_of(answer), rank.expect("worker_id was asked for"))
}

fn streamed(script: &str) -> Value {
    json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": script}]})
}

/// Waits until every answer that a worker began was dropped before its end, and that there was one.
async fn until_dropped(cluster: &Cluster, worker: &RunningWorker) -> Result<()> {
    cluster
        .until("the worker is told to stop", async || {
            let ends = worker.journal().finished();
            Ok(ends.iter().any(|end| end.how == Finish::Dropped))
        })
        .await
}

#[tokio::test]
async fn c_dis_04_both_legs_meet_in_a_room_of_their_own() -> Result<()> {
    let mut options = Options::split(2, 2);
    options.dp_size = 4;
    let cluster = options.start().await?;
    let (mut prefills, mut decodes) = (HashSet::new(), HashSet::new());
    for session in 0..12 {
        let id = format!("s{session}");
        let mut home = None;
        for turn in 0..3 {
            let body = json!({"model": MODEL, "messages": [{"role": "user", "content": format!("@@hello@@ {session} {turn}")}],
                "bootstrap_room": 1, "bootstrap_host": "192.0.2.1", "bootstrap_port": 9});
            let reply = cluster.chat_body(&body).session(&id).send().await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            let answer = reply.json()?;
            assert_eq!(answer["choices"][0]["message"]["content"], "hello");
            let at = (prefill_of(&answer), decode_of(&answer));
            assert_eq!(*home.get_or_insert(at), at, "a session keeps both of its places");
        }
        let (prefill, decode) = home.unwrap();
        prefills.insert(prefill);
        decodes.insert(decode);
    }
    assert!(
        prefills.len() > 4 && decodes.len() > 4,
        "spread over workers and ranks: {prefills:?} {decodes:?}"
    );

    let legs = |range: std::ops::Range<usize>| {
        let workers = cluster.workers[range].iter();
        workers.flat_map(|worker| worker.journal().requests()).collect::<Vec<_>>()
    };
    let (prefills, decodes) = (legs(0..2), legs(2..4));
    assert_eq!((prefills.len(), decodes.len()), (36, 36));
    let mut rooms = HashSet::new();
    for leg in &prefills {
        let routing = leg.request.routing.as_ref().unwrap();
        let bootstrap = leg.request.bootstrap_info.as_ref().unwrap();
        assert!(bootstrap.bootstrap_room <= i64::MAX as u64 && rooms.insert(bootstrap.bootstrap_room));
        let rank = u64::from(routing.dp_rank.unwrap());
        assert_eq!(bootstrap.bootstrap_room % 4, rank);
        let index = cluster.index_of(leg.worker_id);
        assert_eq!(
            (bootstrap.bootstrap_host.as_str(), usize::from(bootstrap.bootstrap_port)),
            ("127.0.0.1", 8998 + index)
        );
        assert_eq!(leg.request.stop_conditions.max_tokens, Some(1));
        let other = decodes.iter().find(|other| other.id == leg.id).expect("the legs share an id");
        assert_eq!(other.request.bootstrap_info, leg.request.bootstrap_info);
        assert_eq!(other.request.stop_conditions.max_tokens, None);
        let routing = other.request.routing.as_ref().unwrap();
        assert_eq!(
            (routing.prefill_worker_id, routing.prefill_dp_rank),
            (Some(leg.worker_id), Some(rank as u32))
        );
    }
    cluster.until_idle().await
}

#[tokio::test]
async fn overlap_chooses_the_prefill_worker() -> Result<()> {
    let cluster = Options::split(2, 1).start().await?;
    let long = "the same long beginning of many prompts. ".repeat(20);
    let first = prefill_of(&cluster.chat(&format!("{long}@@hello@@")).send().await?.json()?);
    cluster
        .until("the index holds the prompt", async || {
            Ok(cluster.metric_sum("roost_index_blocks", "prefill").await? > 30.0)
        })
        .await?;
    for n in 0..4 {
        let answer = cluster.chat(&format!("{long}@@hello@@ {n}")).send().await?.json()?;
        assert_eq!(prefill_of(&answer), first);
    }
    Ok(())
}

#[tokio::test]
async fn c_dis_01_a_failed_prefill_ends_the_decode_leg() -> Result<()> {
    let cluster = Options::split(1, 1).start().await?;
    for stream in [false, true] {
        let started = Instant::now();
        let mut body = streamed("@@prefill_fails@@");
        body["stream"] = json!(stream);
        let reply = cluster.post("/v1/chat/completions", &body).send().await?;
        assert!(started.elapsed() < AT_ONCE);
        assert_eq!(reply.status, 500, "{}", reply.text());
        let text = reply.json()?["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(text.contains("prefill") && !text.contains("exploded"), "{text}");
        until_dropped(&cluster, &cluster.workers[1]).await?;
        cluster.until_idle().await?;
    }
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn c_dis_02_a_decode_worker_that_cannot_be_reached_costs_nothing() -> Result<()> {
    let cluster = Options::split(1, 2).start().await?;
    // Its records stay: the frontend still counts on it.
    cluster.workers[1].kill().await;
    for n in 0..10 {
        let started = Instant::now();
        let answer = cluster.chat(&format!("@@hello@@ {n}")).send().await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(cluster.index_of(worker_of(&answer.json()?)), 2);
        assert!(started.elapsed() < AT_ONCE);
    }
    let prefill = &cluster.workers[0];
    cluster
        .until("no prefill leg is left open", async || {
            Ok(prefill.journal().finished().len() == prefill.journal().requests().len())
        })
        .await?;
    let stopped = prefill.journal().finished().iter().filter(|end| end.how == Finish::Dropped).count();
    assert!(stopped <= 1, "the dead worker is avoided after its first refusal: {stopped} legs were given up");
    cluster.until_idle().await
}

#[tokio::test]
async fn c_dis_03_a_client_that_leaves_stops_both_legs() -> Result<()> {
    for stream in [true, false] {
        let cluster = Options::split(1, 1).start().await?;
        let mut body = streamed("@@slow20@@");
        body["stream"] = json!(stream);
        let request = cluster.post("/v1/chat/completions", &body);
        let leaving = tokio::spawn(async move { request.send().await });
        cluster
            .until("both legs run", async || {
                Ok(cluster.workers.iter().all(|worker| worker.journal().requests().len() == 1))
            })
            .await?;
        leaving.abort();
        for worker in &cluster.workers {
            until_dropped(&cluster, worker).await?;
        }
        cluster.until_idle().await?;
        let started = Instant::now();
        assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
        assert!(started.elapsed() < AT_ONCE);
    }
    Ok(())
}

#[tokio::test]
async fn a_lost_prefill_worker_is_replaced_before_the_first_token() -> Result<()> {
    let mut options = Options::split(2, 1);
    let slow = json!([{"role": "prefill", "sleep_s": 0.5}, {"text": "hello"}, {"finish": "stop"}]);
    options.scripts.insert("slow prefill", serde_json::from_value(slow)?);
    let cluster = options.start().await?;
    let first = cluster.chat("@@hello@@").session("s").send().await?.json()?;
    let home = cluster.index_of(prefill_of(&first).0);
    // It says where decode will find the cache, and dies.
    cluster.workers[home].faults().next(Fault::CrashAfter(1));
    let answer = cluster.chat("@@slow prefill@@").session("s").send().await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(cluster.index_of(prefill_of(&answer.json()?).0), 1 - home);
    assert_eq!(
        cluster.workers[2].journal().requests().len(),
        3,
        "the decode leg was begun anew, in a new room"
    );
    until_dropped(&cluster, &cluster.workers[2]).await?;
    cluster.until_idle().await
}

#[tokio::test]
async fn a_decode_worker_that_never_begins_is_given_up() -> Result<()> {
    let mut options = Options::split(1, 2);
    options.config.route.kv_transfer = Some(Duration::from_millis(300));
    let cluster = options.start().await?;
    let first = cluster.chat("@@hello@@").session("s").send().await?.json()?;
    let home = cluster.index_of(worker_of(&first));
    // It takes its KV cache, so that the prefill leg ends well, and says nothing.
    cluster.workers[home].faults().next(Fault::StallAfter(0));
    let answer = cluster.chat("@@hello@@ again").session("s").send().await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(cluster.index_of(worker_of(&answer.json()?)), 3 - home);
    cluster.until_idle().await
}

#[tokio::test]
async fn workers_join_and_leave_on_either_side() -> Result<()> {
    let mut cluster = Options::split(0, 1).start().await?;
    let refused = async |cluster: &Cluster, status: u16| {
        cluster.until("refused", async || Ok(cluster.chat("@@hello@@").send().await?.status == status)).await
    };
    refused(&cluster, 503).await?;
    assert_eq!(cluster.get("/v1/models").send().await?.json()?["data"], json!([]));
    cluster.add_worker_as(Role::Prefill).await?;
    cluster.wait_for_role(MODEL, Role::Prefill, 1).await?;
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    cluster.add_worker_as(Role::Prefill).await?;
    cluster.wait_for_role(MODEL, Role::Prefill, 2).await?;
    cluster.workers.remove(1).shutdown().await;
    cluster.wait_for_role(MODEL, Role::Prefill, 1).await?;
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    cluster.workers.remove(1).shutdown().await;
    refused(&cluster, 503).await?;
    cluster.workers.remove(0).shutdown().await;
    refused(&cluster, 404).await?;
    // Prefill workers alone answer nothing.
    cluster.add_worker_as(Role::Prefill).await?;
    refused(&cluster, 503).await
}

#[tokio::test]
async fn without_prefill_workers_decode_workers_may_be_asked_for_everything() -> Result<()> {
    let mut options = Options::split(0, 1);
    options.config.route.decode_without_prefill = true;
    let cluster = options.start().await?;
    cluster.wait_for_role(MODEL, Role::Decode, 1).await?;
    // This engine, like SGLang's, refuses; others compute the prompt themselves.
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 500);
    let asked = cluster.workers[0].journal().requests();
    assert!(
        asked[0].request.bootstrap_info.is_none() && asked[0].request.stop_conditions.max_tokens.is_none()
    );
    Ok(())
}

#[tokio::test]
async fn gateways_of_one_engine_share_its_load_and_its_sessions() -> Result<()> {
    let mut options = Options::split(1, 0);
    options.dp_size = 16;
    let mut cluster = options.start().await?;
    let files = cluster.files()?;
    for _ in 0..8 {
        cluster
            .start_worker(Role::Decode, MODEL, files.clone(), |engine| {
                engine.runtime_data.insert("dynamo.sglang.gateway_engine".into(), json!("host0:25282"));
                engine.runtime_data.insert("dynamo.sglang.gateway_workers".into(), json!(8));
            })
            .await?;
    }
    cluster.wait_for_role(MODEL, Role::Decode, 8).await?;
    let mut ranks = HashSet::new();
    for _ in 0..16 {
        let answer = cluster.chat("@@hello@@").session("s").send().await?.json()?;
        ranks.insert(decode_of(&answer).1);
    }
    assert_eq!(ranks.len(), 1, "the session keeps its rank of the engine");
    for gateway in &cluster.workers[1..] {
        assert_eq!(gateway.journal().requests().len(), 2, "in turn through every gateway");
    }
    let page = cluster.get("/metrics").send().await?.text();
    let counted =
        page.lines().filter(|line| line.starts_with("roost_worker_busy{") && line.contains("decode"));
    assert_eq!(counted.count(), 16, "one engine of sixteen ranks");

    // A dead gateway is passed over; the engine and its sessions are not.
    cluster.workers[1].kill().await;
    for _ in 0..16 {
        let answer = cluster.chat("@@hello@@").session("s").send().await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(ranks.contains(&decode_of(&answer.json()?).1));
    }
    assert_eq!(cluster.metric_sum("roost_affinity_rebinds_total", "").await?, 0.0);
    cluster.until_idle().await
}
