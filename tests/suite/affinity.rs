//! Sessions: they come home, they spread, they survive their worker. C-AFF-01 and C-AFF-02.

use anyhow::Result;
use roost_tests::{Cluster, Options, worker_of};
use serde_json::json;

async fn turn(cluster: &Cluster, session: &str, content: &str) -> Result<usize> {
    let answer = cluster.chat(content).session(session).send().await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    Ok(cluster.index_of(worker_of(&answer.json()?)))
}

#[tokio::test]
async fn a_session_comes_home_with_its_rank() -> Result<()> {
    let mut options = Options::new(2);
    options.dp_size = 2;
    let cluster = options.start().await?;
    let mut homes = Vec::new();
    for session in ["a", "b", "c", "d"] {
        for n in 0..3 {
            let answer =
                cluster.chat(&format!("@@hello@@ {session} {n}")).session(session).send().await?.json()?;
            let id = &answer["nvext"]["worker_id"];
            homes.push((session, id["decode_worker_id"].as_u64(), id["decode_dp_rank"].as_u64()));
        }
    }
    homes.dedup();
    assert_eq!(homes.len(), 4, "one home per session: {homes:?}");
    let mut ranks: Vec<_> = homes.iter().map(|(_, worker, rank)| (worker, rank)).collect();
    ranks.sort();
    ranks.dedup();
    assert_eq!(ranks.len(), 4, "four sessions over four ranks: {homes:?}");
    let hits = cluster.metric_sum("roost_affinity_turns_total", "outcome=\"hit\"").await?;
    assert_eq!(hits, 8.0);
    Ok(())
}

/// The engine's own events move the overlap: the second turn finds what the first one left.
#[tokio::test]
async fn kv_events_raise_the_overlap() -> Result<()> {
    let cluster = Options::new(2).start().await?;
    let long = "@@hello@@ ".to_owned() + &"the same words again and again. ".repeat(40);
    let first = cluster.chat(&long).send().await?.json()?;
    let home = worker_of(&first);
    cluster
        .until("the index holds the prompt", async || {
            Ok(cluster.metric_sum("roost_index_blocks", "").await? > 50.0)
        })
        .await?;
    // No session: only the cache can lead it there.
    let second = cluster.chat(&long).send().await?.json()?;
    assert_eq!(worker_of(&second), home);
    assert!(
        second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().is_some_and(|n| n > 1000),
        "{second}"
    );
    Ok(())
}

#[tokio::test]
async fn c_aff_01_a_crashed_worker_costs_its_sessions_one_retry() -> Result<()> {
    let cluster = Options::new(3).start().await?;
    let home = turn(&cluster, "s1", "@@hello@@ 0").await?;
    assert_eq!(turn(&cluster, "s1", "@@hello@@ 1").await?, home);
    // No deregistration: discovery goes on listing the worker.
    cluster.workers[home].kill().await;
    let mut answers = Vec::new();
    for n in 0..6 {
        let answer = cluster.chat(&format!("@@hello@@ after {n}")).session("s1").send().await?;
        answers.push((answer.status, answer.json()?));
        let other = cluster.chat(&format!("@@hello@@ sessionless {n}")).send().await?;
        assert_eq!(other.status, 200, "{}", other.text());
    }
    // The very first turn after the kill; memory discovery keeps the dead worker's records for ever, so nothing
    // but the retry can have saved it.
    assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
    let homes: Vec<usize> = answers.iter().map(|(_, answer)| cluster.index_of(worker_of(answer))).collect();
    assert!(homes.iter().all(|h| *h == homes[0] && *h != home), "it stays where it went: {homes:?}");
    assert!(cluster.metric_sum("roost_affinity_rebinds_total", "").await? >= 1.0, "the rebind is counted");
    let health = cluster.get("/health").send().await?.json()?;
    assert!(
        health.to_string().contains(&format!("{}", cluster.workers[home].id())),
        "it was still registered"
    );
    Ok(())
}

#[tokio::test]
async fn c_aff_02_sequential_sessions_spread() -> Result<()> {
    let cluster = Options::new(3).start().await?;
    let system = "You are an agent with many rules. ".repeat(19)[..640].to_owned();
    let mut homes = vec![Vec::new(); 3];
    for n in 0..30u64 {
        let letters: String =
            (0..20).map(|i| char::from(b'a' + ((n * 7 + i * 11 + n * i) % 26) as u8)).collect();
        let body = json!({"model": roost_tests::MODEL, "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": format!("{letters} @@hello@@")},
        ]});
        let answer = cluster.chat_body(&body).session(&format!("a{n}")).send().await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        homes[cluster.index_of(worker_of(&answer.json()?))].push(n);
    }
    let live: Vec<usize> = homes.iter().map(Vec::len).collect();
    assert!(live.iter().all(|n| *n <= 20), "{live:?}");
    assert!(live.iter().all(|n| (7..=13).contains(n)), "about 10/10/10: {live:?}");

    // All active together: every worker gets those that live there.
    let before: Vec<usize> = cluster.workers.iter().map(|w| w.journal().requests().len()).collect();
    let mut turns = tokio::task::JoinSet::new();
    for n in 0..30 {
        let request = cluster.chat(&format!("second turn {n} @@slow3@@")).session(&format!("a{n}"));
        turns.spawn(async move { request.send().await.map(|reply| reply.status) });
    }
    while let Some(status) = turns.join_next().await {
        assert_eq!(status??, 200);
    }
    let second: Vec<usize> = cluster
        .workers
        .iter()
        .zip(&before)
        .map(|(w, before)| w.journal().requests().len() - before)
        .collect();
    assert_eq!(second, live, "each worker got its own sessions");
    let lost = cluster.metric_sum("roost_router_spread_lost_tokens_total", "").await?;
    assert!(lost > 0.0, "what the spread cost is counted: {lost}");
    Ok(())
}

/// Turns of one session that arrive together agree on a worker.
#[tokio::test]
async fn parallel_first_turns_agree() -> Result<()> {
    let cluster = Options::new(3).start().await?;
    let mut turns = tokio::task::JoinSet::new();
    for n in 0..8 {
        let request = cluster.chat(&format!("@@hello@@ {n}")).session("together");
        turns.spawn(async move { request.send().await?.json() });
    }
    let mut homes = Vec::new();
    while let Some(answer) = turns.join_next().await {
        homes.push(worker_of(&answer??));
    }
    homes.dedup();
    assert_eq!(homes.len(), 1);
    Ok(())
}

fn journal_len(cluster: &Cluster) -> usize {
    cluster.workers.iter().map(|worker| worker.journal().requests().len()).sum()
}

#[tokio::test]
async fn c_aff_03_a_binding_outlives_its_idle_time_while_its_answer_runs() -> Result<()> {
    let options = Options::new(3).with(|config| {
        config.route.router.affinity.ttl = Some(std::time::Duration::from_secs(1));
    });
    let cluster = options.start().await?;
    let long = cluster.chat("@@slow3@@ first").session("s-long");
    let long = tokio::spawn(async move { long.send().await?.json() });
    cluster.until("the first turn runs", async || Ok(journal_len(&cluster) == 1)).await?;
    // Longer than the idle time, shorter than the answer: the point of the case, not a wait for anything.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    let second = turn(&cluster, "s-long", "@@hello@@ second").await?;
    assert!(!long.is_finished(), "the first turn was meant to outlast the second");
    assert_eq!(cluster.index_of(worker_of(&long.await??)), second);
    cluster
        .until("idle, it expires", async || {
            Ok(cluster.metric_sum("roost_affinity_ended_total", "reason=\"expired\"").await? == 1.0)
        })
        .await
}

#[tokio::test]
async fn c_aff_03_a_cancelled_first_turn_holds_nobody_up() -> Result<()> {
    let cluster = Options::new(3).start().await?;
    let mut body =
        json!({"model": roost_tests::MODEL, "messages": [{"role": "user", "content": "@@slow10@@"}]});
    body["stream"] = json!(true);
    let first = cluster.chat_body(&body).session("s-can");
    let first = tokio::spawn(async move { first.send().await });
    cluster.until("the first turn runs", async || Ok(journal_len(&cluster) == 1)).await?;
    let home = cluster.workers.iter().position(|worker| !worker.journal().requests().is_empty());
    // The second turn does not wait for the first one, which has not answered yet.
    assert_eq!(Some(turn(&cluster, "s-can", "@@hello@@").await?), home);
    first.abort();
    cluster
        .until("the worker is told", async || {
            Ok(cluster.workers.iter().any(|worker| !worker.journal().cancellations().is_empty()))
        })
        .await?;
    assert_eq!(Some(turn(&cluster, "s-can", "@@hello@@").await?), home);
    assert_eq!(cluster.metric_sum("roost_affinity_bindings", "").await?, 1.0);
    // A first turn that is cancelled alone leaves nothing.
    let alone = cluster.chat_body(&body).session("s-alone");
    let alone = tokio::spawn(async move { alone.send().await });
    cluster.until("it runs", async || Ok(journal_len(&cluster) == 4)).await?;
    alone.abort();
    cluster
        .until("one binding is left", async || {
            Ok(cluster.metric_sum("roost_affinity_bindings", "").await? == 1.0)
        })
        .await
}

#[tokio::test]
async fn c_aff_04_a_full_table_and_an_over_long_id_serve_all_the_same() -> Result<()> {
    let cluster = Options::new(2).with(|config| config.route.router.affinity.capacity = 100).start().await?;
    for n in 1..=101 {
        turn(&cluster, &format!("session {n}"), "@@hello@@").await?;
    }
    let ended = async |reason: &str| {
        cluster.metric_sum("roost_affinity_ended_total", &format!("reason=\"{reason}\"")).await
    };
    assert_eq!(ended("evicted").await?, 1.0);
    let outcome = async |outcome: &str| {
        cluster.metric_sum("roost_affinity_turns_total", &format!("outcome=\"{outcome}\"")).await
    };
    assert_eq!(outcome("new").await?, 101.0);
    turn(&cluster, "session 101", "@@hello@@").await?;
    assert_eq!(outcome("hit").await?, 1.0, "the newest is still bound");
    turn(&cluster, "session 1", "@@hello@@").await?;
    assert_eq!(outcome("new").await?, 102.0, "the oldest gave way");
    for bytes in [257, 8000] {
        let id = "x".repeat(bytes);
        let home = turn(&cluster, &id, "@@hello@@").await?;
        assert_eq!(turn(&cluster, &id, "@@hello@@ again").await?, home);
    }
    assert_eq!(outcome("hit").await?, 3.0, "over-long ids are bound too");
    assert_eq!(cluster.metric_sum("roost_affinity_bindings", "").await?, 100.0);
    Ok(())
}

#[tokio::test]
async fn a_session_that_ends_is_unbound_after_its_answer() -> Result<()> {
    let cluster = Options::new(2).start().await?;
    turn(&cluster, "s", "@@hello@@").await?;
    let last = cluster.chat("@@hello@@").session("s").header("x-dynamo-session-final", "true").send().await?;
    assert_eq!(last.status, 200);
    assert_eq!(cluster.metric_sum("roost_affinity_bindings", "").await?, 0.0);
    assert_eq!(cluster.metric_sum("roost_affinity_ended_total", "reason=\"closed\"").await?, 1.0);
    Ok(())
}

/// The first generation of recipes names sessions in the body.
#[tokio::test]
async fn session_control_binds_and_closes() -> Result<()> {
    let cluster = Options::new(3).start().await?;
    let send = async |action: &str, n: u32| -> Result<usize> {
        let body = json!({
            "model": roost_tests::MODEL,
            "messages": [{"role": "user", "content": format!("@@hello@@ {n}")}],
            "nvext": {"session_control": {"session_id": "s", "action": action, "timeout": 300}},
        });
        let answer = cluster.chat_body(&body).send().await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        Ok(cluster.index_of(worker_of(&answer.json()?)))
    };
    let home = send("open", 0).await?;
    for n in 1..4 {
        assert_eq!(send("bind", n).await?, home);
    }
    assert_eq!(send("close", 4).await?, home);
    assert_eq!(cluster.metric_sum("roost_affinity_turns_total", "outcome=\"hit\"").await?, 4.0);
    assert_eq!(cluster.metric_sum("roost_affinity_bindings", "").await?, 0.0);
    let bad = json!({"model": roost_tests::MODEL, "messages": [{"role": "user", "content": "x"}],
        "nvext": {"session_control": {"session_id": "s", "action": "park"}}});
    let refused = cluster.chat_body(&bad).send().await?;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("nvext.session_control"), "{}", refused.text());
    Ok(())
}

/// A restarted frontend knows where sessions live, and serves before it has read that.
#[tokio::test]
async fn bindings_outlive_a_restart_of_the_frontend() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = roost_frontend::BindingsFile {
        path: folder.path().join("bindings"),
        interval: std::time::Duration::from_secs(3600),
        limit: 1000,
    };
    let options = Options::new(4).with(|config| config.route.bindings_file = Some(file.clone()));
    let mut cluster = options.start().await?;
    let mut homes = Vec::new();
    for n in 0..12 {
        homes.push(turn(&cluster, &format!("s{n}"), &format!("@@hello@@ {n}")).await?);
    }
    assert!(cluster.stop_frontend().await?);
    assert!(file.path.exists(), "written at the end");
    cluster.start_frontend().await?;
    cluster.wait_for_workers(roost_tests::MODEL, 4).await?;
    cluster
        .until("the file is read", async || {
            Ok(cluster.metric_sum("roost_affinity_bindings", "").await? == 12.0)
        })
        .await?;
    for (n, home) in homes.iter().enumerate() {
        assert_eq!(turn(&cluster, &format!("s{n}"), &format!("@@hello@@ again {n}")).await?, *home, "s{n}");
    }
    assert_eq!(cluster.metric_sum("roost_affinity_turns_total", "outcome=\"hit\"").await?, 12.0);
    let imported = cluster.metric_sum("roost_affinity_replica_bindings_total", "result=\"imported\"").await?;
    assert!(imported >= 12.0, "{imported}");
    Ok(())
}
