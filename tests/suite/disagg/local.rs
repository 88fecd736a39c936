//! Conditional disaggregation: prompts that the decode worker computes itself.

use anyhow::Result;
use roost_frontend::LocalPrefill;
use roost_router::LocalPrefillPolicy;
use roost_tests::{Cluster, Options, worker_of};
use roost_wire::message::EngineRequest;
use serde_json::json;

use super::prefill_of;

const ANNOTATION: &str = "x-bypass-remote-prefill";

fn options(rule: LocalPrefill) -> Options {
    let mut options = Options::split(1, 2);
    options.local_prefill = true;
    options.config.route.local_prefill = Some(rule);
    options.config.route.router.decode_overlap = true;
    options
}

/// The requests that prefill and decode workers have got, in this order.
fn legs(cluster: &Cluster) -> (Vec<EngineRequest>, Vec<EngineRequest>) {
    let of = |range: std::ops::Range<usize>| {
        let workers = cluster.workers[range].iter();
        workers.flat_map(|worker| worker.journal().requests()).map(|record| record.request.clone()).collect()
    };
    (of(0..1), of(1..3))
}

/// Waits until the decode workers' events have told what they hold.
async fn until_known(cluster: &Cluster, blocks: f64) -> Result<()> {
    cluster
        .until("the decode workers' caches are known", async || {
            Ok(cluster.metric_sum("roost_index_blocks", "decode").await? >= blocks)
        })
        .await
}

#[tokio::test]
async fn a_prompt_that_the_decode_worker_has_is_computed_there() -> Result<()> {
    let cluster = options(LocalPrefill::default()).start().await?;
    let long = "what was said before, and it was a lot of it. ".repeat(20);
    let first = cluster.chat(&format!("{long} @@hello@@")).session("s").send().await?;
    assert_eq!(first.status, 200, "{}", first.text());
    let home = worker_of(&first.json()?);
    let (prefills, decodes) = legs(&cluster);
    assert_eq!((prefills.len(), decodes.len()), (1, 1), "nobody has any of it");
    let told = decodes[0].router_config_override.as_ref().expect("it is told how it was chosen");
    assert_eq!((told.overlap_score_credit, told.track_prefill_tokens), (None, Some(false)));
    until_known(&cluster, 50.0).await?;

    for (turn, stream) in [(1, false), (2, true)] {
        let body = json!({"model": roost_tests::MODEL, "stream": stream, "nvext": {"annotations": ["mine"]},
            "messages": [{"role": "user", "content": format!("{long} @@hello@@ {turn}")}]});
        let reply = cluster.chat_body(&body).session("s").send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.text().contains("hello"));
        if !stream {
            let answer = reply.json()?;
            assert_eq!((worker_of(&answer), prefill_of(&answer).0), (home, home));
        }
        let (prefills, decodes) = legs(&cluster);
        assert_eq!((prefills.len(), decodes.len()), (1, 1 + turn));
        let last = &decodes[turn];
        assert_eq!(last.annotations, ["mine", ANNOTATION]);
        assert!(last.bootstrap_info.is_none() && last.router_config_override.is_none());
        assert_eq!(last.stop_conditions.max_tokens, None);
    }
    assert_eq!(cluster.metric_sum("roost_local_prefills_total", "").await?, 2.0);
    // Of another prompt it has nothing, and whoever says otherwise is not listened to.
    let body = json!({"model": roost_tests::MODEL, "nvext": {"annotations": [ANNOTATION]},
        "messages": [{"role": "user", "content": "something else, as long as to fill a block or two @@hello@@"}]});
    assert_eq!(cluster.chat_body(&body).session("t").send().await?.status, 200);
    let (prefills, decodes) = legs(&cluster);
    assert_eq!((prefills.len(), decodes.len()), (2, 4));
    assert!(prefills[1].annotations.is_empty());
    cluster.until_idle().await
}

#[tokio::test]
async fn engines_that_take_no_prompts_get_their_prefill_worker() -> Result<()> {
    let mut options = options(LocalPrefill::default());
    options.local_prefill = false;
    let cluster = options.start().await?;
    let long = "what was said before, and it was a lot of it. ".repeat(20);
    for _ in 0..2 {
        let reply = cluster.chat(&format!("{long} @@hello@@")).session("s").send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        until_known(&cluster, 50.0).await?;
    }
    let (prefills, decodes) = legs(&cluster);
    assert_eq!(prefills.len(), 2, "the second prompt was refused by the decode worker");
    assert!(decodes.iter().any(|request| request.annotations == [ANNOTATION]));
    assert_eq!(cluster.metric_sum("roost_local_prefills_total", "").await?, 0.0);
    cluster.until_idle().await
}

#[tokio::test]
async fn a_busy_prefill_worker_is_relieved() -> Result<()> {
    let rule = LocalPrefill {
        policy: LocalPrefillPolicy::PrefillLoad,
        prefill_busy: Some(0.0),
        ..LocalPrefill::default()
    };
    let mut options = options(rule);
    let slow = json!([{"role": "prefill", "sleep_s": 60}, {"text": "late"}, {"finish": "stop"}]);
    options.scripts.insert("long prefill", serde_json::from_value(slow)?);
    let cluster = options.start().await?;
    assert_eq!(cluster.chat("@@hello@@ nobody waits").send().await?.status, 200);
    assert_eq!(legs(&cluster).0.len(), 1);
    let request = cluster.chat("@@long prefill@@");
    let waiting = tokio::spawn(async move { request.send().await });
    cluster.until("it is being computed", async || Ok(legs(&cluster).0.len() == 2)).await?;
    let reply = cluster.chat("@@hello@@ somebody does").send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let (prefills, decodes) = legs(&cluster);
    assert_eq!(prefills.len(), 2);
    assert_eq!(decodes.iter().filter(|request| request.annotations == [ANNOTATION]).count(), 1);
    waiting.abort();
    cluster.until_idle().await
}

#[tokio::test]
async fn a_busy_decode_worker_is_left_alone() -> Result<()> {
    let rule = LocalPrefill { decode_busy: Some(0.0), ..LocalPrefill::default() };
    let cluster = options(rule).start().await?;
    let long = "what was said before, and it was a lot of it. ".repeat(20);
    for _ in 0..2 {
        assert_eq!(cluster.chat(&format!("{long} @@hello@@")).session("s").send().await?.status, 200);
        until_known(&cluster, 50.0).await?;
    }
    assert_eq!(legs(&cluster).0.len(), 2);
    cluster.until_idle().await
}
