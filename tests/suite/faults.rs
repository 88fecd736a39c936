//! A worker that fails costs at most its own request, and before the first token not even that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, worker_of};
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
        let again = (status != 504).then_some("1");
        assert_eq!(answer.header("retry-after"), again, "{fault:?}");
        assert_eq!(retries(&cluster).await?, (0.0, 0.0), "{fault:?}: there was no other worker to try");
    }
    Ok(())
}

/// C-OVL-01: the mark has a clock of its own; no event of the worker is needed to lift it.
#[tokio::test]
async fn c_ovl_01_workers_that_were_full_once_are_used_again() -> Result<()> {
    let cluster = Options::new(2).start().await?;
    let number = AtomicUsize::new(0);
    // No block in common with another request: nothing but load decides.
    let served = async || {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let answer = cluster.chat(&format!("{number} @@hello@@")).send().await?;
        assert_eq!(answer.status, 200, "request {number}: {}", answer.text());
        anyhow::Ok(())
    };
    for worker in &cluster.workers {
        let before = retries(&cluster).await?.0;
        worker.faults().next(Fault::Overloaded);
        cluster
            .until("it has refused one, which the other has served", async || {
                served().await?;
                Ok(retries(&cluster).await?.0 > before)
            })
            .await?;
        let before = worker.journal().requests().len();
        cluster
            .until("it is used again", async || {
                served().await?;
                Ok(worker.journal().requests().len() > before + 2)
            })
            .await?;
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

/// C-TCP-01 with churn: one worker after the other dies and another takes its place. Every request has an end, and an
/// answer that had not begun is given by another worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_tcp_01_workers_that_come_and_die_leave_no_request_behind() -> Result<()> {
    let mut cluster = Options::new(3).start().await?;
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let (address, stop) = (cluster.address, Arc::clone(&stop));
            tokio::spawn(async move {
                let mut asked = 0;
                while !stop.load(Ordering::Relaxed) {
                    let body = serde_json::json!({"model": MODEL,
                        "messages": [{"role": "user", "content": format!("@@hello@@ {client} {asked}")}]});
                    let reply =
                        roost_tests::Request::post(address, "/v1/chat/completions", &body).send().await?;
                    anyhow::ensure!(reply.status == 200, "{}: {}", reply.status, reply.text());
                    asked += 1;
                }
                anyhow::Ok(asked)
            })
        })
        .collect();
    for _ in 0..6 {
        let asked = cluster.workers[0].journal().requests().len() + 5;
        cluster
            .until("it is in use", async || Ok(cluster.workers[0].journal().requests().len() > asked))
            .await?;
        cluster.workers[0].kill().await;
        cluster.workers.remove(0);
        cluster.add_worker(MODEL).await?;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await?? > 0);
    }
    cluster.until_idle().await
}
