//! A worker that fails costs at most its own request, and before the first token not even that.

use std::time::Duration;

use anyhow::Result;
use roost_tests::{Cluster, Options, worker_of};
use roost_worker::Fault;

#[tokio::test]
async fn before_the_first_token_another_worker_takes_over() -> Result<()> {
    let mut options = Options::new(2);
    options.client.ack_timeout = Duration::from_millis(300);
    options.client.call_home_timeout = Duration::from_millis(300);
    options.client.prologue_timeout = Duration::from_millis(300);
    for fault in [
        Fault::Overloaded,
        Fault::Unavailable("gone".into()),
        Fault::NoAck,
        Fault::NoCallHome,
        Fault::NoPrologue,
        Fault::CloseAfter(0),
    ] {
        let cluster = options.clone().start().await?;
        let first = cluster.chat("@@hello@@").session("s").send().await?.json()?;
        let home = cluster.index_of(worker_of(&first));
        cluster.workers[home].faults().next(fault.clone());
        let answer = cluster.chat("@@hello@@ again").session("s").send().await?;
        assert_eq!(answer.status, 200, "{fault:?}: {}", answer.text());
        assert_eq!(cluster.index_of(worker_of(&answer.json()?)), 1 - home, "{fault:?}");
        assert!(cluster.metric_sum("roost_affinity_rebinds_total", "").await? >= 1.0, "{fault:?}");
        assert_eq!(retries(&cluster).await?, (1.0, 1.0), "{fault:?}");
        let routed = "dynamo_frontend_stage_duration_seconds_count{stage=\"route\"}";
        assert_eq!(cluster.metric(routed).await?, Some(3.0), "one choice, and two for the second request");
        // A pin leaves nothing else to try.
        cluster.workers[1 - home].faults().next(fault.clone());
        let id = cluster.workers[1 - home].id().to_string();
        let refused = cluster.chat("@@hello@@").header("x-dynamo-worker-instance-id", &id).send().await?;
        assert!(refused.status >= 500, "{fault:?} {}", refused.text());
    }
    Ok(())
}

#[tokio::test]
async fn with_no_worker_left_the_status_says_why() -> Result<()> {
    let mut options = Options::new(1);
    options.client.ack_timeout = Duration::from_millis(300);
    for (fault, status) in [
        (Fault::Overloaded, 529),
        (Fault::Unavailable("gone".into()), 503),
        (Fault::NoAck, 504),
        (Fault::CloseAfter(0), 503),
    ] {
        let cluster = options.clone().start().await?;
        cluster.workers[0].faults().next(fault.clone());
        let answer = cluster.chat("@@hello@@").send().await?;
        assert_eq!(answer.status, status, "{fault:?}: {}", answer.text());
        assert_eq!(retries(&cluster).await?, (0.0, 0.0), "{fault:?}: there was no other worker to try");
    }
    Ok(())
}

/// Retries before the first token, and those of them that are known to have ended well.
async fn retries(cluster: &Cluster) -> Result<(f64, f64)> {
    let counted = cluster.metric_sum("dynamo_frontend_model_migration_total", "new_request").await?;
    let timed =
        cluster.metric_sum("dynamo_frontend_model_migration_duration_seconds_count", "success").await?;
    Ok((counted, timed))
}

#[tokio::test]
async fn after_the_first_token_the_break_shows() -> Result<()> {
    let cluster = Options::new(2).start().await?;
    for worker in &cluster.workers {
        worker.faults().next(Fault::CloseAfter(2));
    }
    let body = serde_json::json!({"model": roost_tests::MODEL, "stream": true,
        "messages": [{"role": "user", "content": "@@drip@@"}]});
    let events = cluster.post("/v1/chat/completions", &body).send().await?.events();
    assert_eq!(events.last(), Some(&serde_json::json!("[DONE]")));
    assert_eq!(events[events.len() - 2]["error"]["code"], 503, "{events:?}");
    assert!(events.iter().all(|event| event["choices"][0]["finish_reason"].as_str().is_none()));
    Ok(())
}

#[tokio::test]
async fn no_worker_left_is_not_found_or_unavailable() -> Result<()> {
    let mut cluster = Options::new(1).start().await?;
    cluster.workers.remove(0).shutdown().await;
    cluster
        .until("the model is gone", async || Ok(cluster.chat("@@hello@@").send().await?.status == 404))
        .await?;
    let ready = cluster.metric_sum("dynamo_frontend_model_ready", "").await?;
    assert_eq!(ready, 0.0);
    assert_eq!(cluster.get("/health").send().await?.status, 200, "the process itself is well");
    assert_eq!(cluster.get("/v1/models").send().await?.json()?["data"], serde_json::json!([]));
    Ok(())
}
