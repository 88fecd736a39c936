//! C-KV-04 and C-KV-06: block sizes and rank numbers are the workers' own.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use roost_tests::{Cluster, MODEL, Options, worker_of};
use roost_worker::Role;
use serde_json::{Value, json};

const MISMATCHED: &str = "roost_kv_block_size_mismatched_workers";

/// Sends one long prompt twice, without a session, to a worker with blocks of `size` tokens; returns the prompt's tokens, the tokens of a block and the blocks of the prompt
/// that the second decision found on the worker.
async fn twice(cluster: &Cluster, size: u32) -> Result<(u64, u64, u64)> {
    let prompt = "every word of this sentence is cached somewhere by now. ".repeat(80);
    let answer = cluster.chat(&prompt).send().await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let last = async || -> Result<Value> {
        let recent = cluster.get("/debug/routing").send().await?.json()?;
        recent["decisions"].get(0).cloned().context("a decision")
    };
    let number = |value: &Value| value.as_u64().context("a number");
    let tokens = number(&last().await?["isl_tokens"])?;
    // The last block of an EAGLE worker may wait for the token behind it.
    let held = (tokens - 1) / u64::from(size);
    cluster
        .until("its events have come", async || {
            Ok(cluster.metric_sum("roost_index_blocks", "").await? >= held as f64)
        })
        .await?;
    assert_eq!(cluster.chat(&prompt).send().await?.status, 200);
    let second = last().await?;
    Ok((
        tokens,
        number(&second["block_size"])?,
        number(&second["candidates"][0]["overlap_blocks"]["device"])?,
    ))
}

#[tokio::test]
async fn c_kv_04_the_page_size_of_the_worker_is_adopted() -> Result<()> {
    for block_size in [1, 64, 768] {
        let cluster = Options { block_size, ..Options::new(1) }.start().await?;
        let (tokens, used, overlap) = twice(&cluster, block_size).await?;
        assert!(tokens > 768, "{tokens}");
        assert_eq!(used, u64::from(block_size));
        assert_eq!(overlap, tokens / u64::from(block_size), "{tokens} tokens in blocks of {block_size}");
        assert_eq!(cluster.metric_sum(MISMATCHED, "").await?, 0.0);
    }
    Ok(())
}

#[tokio::test]
async fn c_kv_04_another_size_by_option_is_flagged() -> Result<()> {
    for (block_size, flagged) in [(1, 1.0), (768, 1.0), (64, 0.0)] {
        let mut options = Options { block_size, ..Options::new(1) };
        options.config.route.block_size = Some(64);
        let cluster = options.start().await?;
        let (tokens, used, overlap) = twice(&cluster, block_size).await?;
        assert_eq!(used, 64);
        assert_eq!(overlap, if flagged == 0.0 { tokens / 64 } else { 0 });
        let gauge = cluster.metric(&format!("{MISMATCHED}{{model=\"{MODEL}\"}}")).await?;
        assert_eq!(gauge, Some(flagged), "{block_size}");
    }
    // Workers without events have nothing that could fail to match.
    let mut options = Options { block_size: 1, kv_events: false, ..Options::new(1) };
    options.config.route.block_size = Some(64);
    let cluster = options.start().await?;
    assert_eq!(cluster.metric_sum(MISMATCHED, "").await?, 0.0);
    Ok(())
}

#[tokio::test]
async fn prompts_for_eagle_workers_are_cut_as_these_do() -> Result<()> {
    for block_size in [1, 16, 64] {
        let mut cluster = Options { block_size, ..Options::new(0) }.start().await?;
        let files = cluster.files()?;
        cluster.start_worker(Role::Aggregated, MODEL, files, |engine| engine.eagle = true).await?;
        cluster.wait_for_workers(MODEL, 1).await?;
        let (tokens, used, overlap) = twice(&cluster, block_size).await?;
        assert_eq!(used, u64::from(block_size));
        assert_eq!(
            overlap,
            (tokens - 1) / u64::from(block_size),
            "{tokens} tokens in blocks of {block_size}"
        );
        assert_eq!(cluster.metric_sum(MISMATCHED, "").await?, 0.0);
    }
    Ok(())
}

#[tokio::test]
async fn workers_that_hash_otherwise_than_the_first_are_counted() -> Result<()> {
    let mut cluster = Options::new(1).start().await?;
    let files = cluster.files()?;
    cluster.start_worker(Role::Aggregated, MODEL, files, |engine| engine.eagle = true).await?;
    cluster.wait_for_workers(MODEL, 2).await?;
    cluster
        .until("the second is counted", async || Ok(cluster.metric_sum(MISMATCHED, "").await? == 1.0))
        .await
}

/// Two instances of one model: ranks 0 to 7 and 8 to 15.
async fn halves() -> Result<Cluster> {
    let mut cluster = Options { dp_size: 8, ..Options::new(0) }.start().await?;
    for start in [0, 8] {
        let files = cluster.files()?;
        cluster.start_worker(Role::Aggregated, MODEL, files, |engine| engine.dp_start_rank = start).await?;
    }
    cluster.wait_for_workers(MODEL, 2).await?;
    Ok(cluster)
}

/// The ranks that arrived at each worker.
fn arrived(cluster: &Cluster) -> Vec<BTreeMap<u32, usize>> {
    let of = |worker: &roost_worker::RunningWorker| {
        let mut ranks = BTreeMap::new();
        for record in worker.journal().requests() {
            let rank = record.request.routing.as_ref().and_then(|routing| routing.dp_rank);
            *ranks.entry(rank.expect("every request names its rank")).or_default() += 1;
        }
        ranks
    };
    cluster.workers.iter().map(of).collect()
}

#[tokio::test]
async fn c_kv_06_ranks_belong_to_their_instance() -> Result<()> {
    let cluster = halves().await?;
    for n in 0..200 {
        let mut words: Vec<String> =
            (0..40).map(|word| format!("{}", (n * 7919 + word * 104_729) % 9973)).collect();
        words.push("@@hello@@".to_owned());
        let reply = cluster.chat(&words.join(" ")).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let [a, b] = &arrived(&cluster)[..] else { panic!("two workers") };
    assert_eq!(a.keys().copied().collect::<BTreeSet<u32>>(), (0..8).collect());
    assert_eq!(b.keys().copied().collect::<BTreeSet<u32>>(), (8..16).collect());

    for (asked, owner) in [(12, 1), (3, 0)] {
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}]});
        let reply = cluster.chat_body(&body).header("x-dynamo-dp-rank", &asked.to_string()).send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json()?;
        assert_eq!(worker_of(&answer), cluster.workers[owner].id(), "rank {asked}");
        assert_eq!(answer["nvext"]["worker_id"]["decode_dp_rank"], asked);
    }
    let before: usize = arrived(&cluster).iter().flat_map(|ranks| ranks.values()).sum();
    let reply = cluster.chat("@@hello@@").header("x-dynamo-dp-rank", "16").send().await?;
    assert_eq!(reply.status, 400, "{}", reply.text());
    assert!(reply.text().contains("16"), "{}", reply.text());
    let after: usize = arrived(&cluster).iter().flat_map(|ranks| ranks.values()).sum();
    assert_eq!(after, before, "nothing was sent for a rank that nobody has");
    Ok(())
}

#[tokio::test]
async fn c_kv_06_events_and_decisions_number_ranks_alike() -> Result<()> {
    let cluster = halves().await?;
    let prompt = "every word of this sentence is cached somewhere by now. ".repeat(40);
    let pinned = cluster.chat(&prompt).header("x-dynamo-dp-rank", "13").send().await?;
    assert_eq!(pinned.status, 200, "{}", pinned.text());
    cluster
        .until(
            "its events have come",
            async || Ok(cluster.metric_sum("roost_index_blocks", "").await? > 20.0),
        )
        .await?;
    let answer =
        cluster.chat_body(&json!({"model": MODEL, "messages": [{"role": "user", "content": prompt}]}));
    let answer = answer.send().await?.json()?;
    assert_eq!(worker_of(&answer), cluster.workers[1].id());
    assert_eq!(answer["nvext"]["worker_id"]["decode_dp_rank"], 13);
    Ok(())
}
