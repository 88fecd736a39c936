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
