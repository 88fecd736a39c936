//! The books balance, whatever ends a request: C-MET-03.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use roost_tests::{Cluster, MODEL, Options, Request};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

/// Requests of every kind, half of them streamed.
const EACH: usize = 100;
/// So many of them at a time.
const AT_ONCE: usize = 20;

/// How clients saw their requests end, by the value of label `error_type`; empty for whole answers.
#[derive(Debug, Default, PartialEq)]
struct Tally(BTreeMap<String, usize>);

impl Tally {
    fn add(&mut self, error_type: &str, count: usize) {
        *self.0.entry(error_type.into()).or_default() += count;
    }

    /// Adds the ends of one kind of request, all of which must be of these types.
    fn add_all(&mut self, kind: &str, ends: Vec<String>, allowed: &[&str]) {
        assert_eq!(ends.len(), EACH, "{kind}");
        for end in ends {
            assert!(allowed.contains(&end.as_str()), "{kind} ended with `{end}`");
            self.add(&end, 1);
        }
    }

    /// The same by the metrics. Every combination of status and type that cannot be is an error.
    async fn told(cluster: &Cluster) -> Result<Self> {
        let mut tally = Tally::default();
        for line in cluster.get("/metrics").send().await?.text().lines() {
            let Some(labels) = line.strip_prefix("dynamo_frontend_requests_total{") else { continue };
            let (labels, value) = labels.rsplit_once("} ").context("labels and a value")?;
            let label = |name: &str| {
                let (_, rest) = labels.split_once(&format!("{name}=\""))?;
                rest.split('"').next()
            };
            let error_type = label("error_type").context("error_type")?;
            let status = if error_type.is_empty() { "success" } else { "error" };
            ensure!(label("status") == Some(status), "{line}");
            match value.parse::<f64>()? as usize {
                0 => {}
                count => tally.add(error_type, count),
            }
        }
        Ok(tally)
    }
}

/// A request whose answer follows a script: every other one streamed, half of each to either route.
fn ask(cluster: &Cluster, at: usize, model: &str, script: &str) -> Request {
    let stream = at.is_multiple_of(2);
    if at % 4 < 2 {
        let messages = json!([{"role": "user", "content": script}]);
        cluster.post("/v1/chat/completions", &json!({"model": model, "stream": stream, "messages": messages}))
    } else {
        cluster.post("/v1/completions", &json!({"model": model, "stream": stream, "prompt": script}))
    }
}

/// How a client sees a request end.
async fn end_of(request: Request) -> Result<String> {
    let reply = request.send().await?;
    let mut status = u64::from(reply.status);
    if reply.header("content-type") == Some("text/event-stream") {
        let events = reply.events();
        if let Some(error) = events.iter().find_map(|event| event.get("error")) {
            status = error["code"].as_u64().context("errors in a stream have a code")?;
        }
    }
    let error_type = match status {
        200 => "",
        400 => "validation",
        404 => "not_found",
        500 => "internal",
        503 => "unavailable",
        504 => "response_timeout",
        other => anyhow::bail!("status {other}: {}", reply.text()),
    };
    Ok(error_type.into())
}

/// Sends the requests of one kind and returns how they ended.
async fn ends(requests: impl Iterator<Item = Request>) -> Result<Vec<String>> {
    let (mut running, mut ends) = (JoinSet::new(), Vec::new());
    for request in requests {
        if running.len() == AT_ONCE {
            ends.extend(running.join_next().await.transpose()?.transpose()?);
        }
        running.spawn(end_of(request));
    }
    while let Some(end) = running.join_next().await {
        ends.push(end??);
    }
    Ok(ends)
}

/// Requests that have reached engines.
fn arrived(cluster: &Cluster) -> usize {
    cluster.workers.iter().map(|worker| worker.journal().requests().len()).sum()
}

/// Starts requests and waits until every one of them is with a worker.
async fn begun(
    cluster: &Cluster,
    requests: impl Iterator<Item = Request>,
) -> Result<Vec<JoinHandle<Result<String>>>> {
    let before = arrived(cluster);
    let running: Vec<_> = requests.map(|request| tokio::spawn(end_of(request))).collect();
    let all = before + running.len();
    cluster.until("all are with workers", async || Ok(arrived(cluster) == all)).await?;
    Ok(running)
}

/// Clients that go away before the first token, and in the middle of an answer.
async fn leave(cluster: &Cluster) -> Result<usize> {
    let mut left = 0;
    // Nobody has a token yet; then, of those who want it whole, nobody has the head.
    for (script, step) in [("@@silent@@", 1), ("@@endless@@", 2)] {
        for batch in (0..EACH).step_by(AT_ONCE) {
            let batch = (batch..batch + AT_ONCE).map(|at| ask(cluster, 1 + at * step, MODEL, script));
            let running = begun(cluster, batch).await?;
            left += running.len();
            for task in running {
                task.abort();
                assert!(
                    task.await.is_err_and(|error| error.is_cancelled()),
                    "{script}: nothing ends by itself"
                );
            }
        }
    }
    for at in 0..EACH {
        let mut events = ask(cluster, 2 * at, MODEL, "@@endless@@").stream().await?;
        assert!(events.next().await?.is_some_and(|event| event.get("error").is_none()));
        left += 1;
    }
    Ok(left)
}

/// Series of a gauge that are not what they are at rest, with their values.
async fn unrest(cluster: &Cluster) -> Result<Vec<String>> {
    const AT_REST: &[&str] = &[
        "dynamo_frontend_active_requests",
        "dynamo_frontend_inflight_requests",
        "dynamo_frontend_queued_requests",
        "dynamo_frontend_router_queue_pending_cached_tokens",
        "dynamo_frontend_router_queue_pending_isl_tokens",
        "dynamo_frontend_router_queue_pending_requests",
        "dynamo_frontend_stage_requests",
        "dynamo_frontend_worker_active_decode_blocks",
        "dynamo_frontend_worker_active_prefill_tokens",
        "dynamo_request_plane_inflight_requests",
        "roost_prepare_waiting",
        "roost_router_remote_requests",
        "roost_worker_active_requests",
    ];
    let page = cluster.get("/metrics").send().await?.text();
    let series = || page.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| line.split(['{', ' ']).next().map(str::to_owned);
    let seen: Vec<_> = series().filter_map(name).collect();
    for family in AT_REST {
        assert!(seen.iter().any(|name| name == family), "{family} has no series");
    }
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
    let resting = |line: &str| name(line).is_some_and(|name| AT_REST.contains(&name.as_str()));
    // The difference of two clocks may be anything.
    let signed = |line: &str| line.starts_with("roost_kv_event_lag_milliseconds");
    let odd = |line: &&str| match value(line) {
        Some(value) => (resting(line) && value != 0.0) || (value < 0.0 && !signed(line)),
        None => true,
    };
    Ok(series().filter(odd).map(str::to_owned).collect())
}

#[tokio::test]
async fn c_met_03_gauges_return_to_zero_and_every_end_is_counted() -> Result<()> {
    let mut options = Options::new(2);
    for (name, steps) in [
        ("fails", json!([{"raise": "out of memory"}])),
        ("breaks", json!([{"text": "some"}, {"raise": "out of memory"}])),
        ("silent", json!([{"sleep_s": 3600.0}, {"finish": "stop"}])),
        ("endless", json!([{"text": "some"}, {"sleep_s": 3600.0}, {"finish": "stop"}])),
    ] {
        options.scripts.insert(name, serde_json::from_value(steps)?);
    }
    let cluster = options.start().await?;
    let mut seen = Tally::default();

    let good = ends((0..EACH).map(|at| ask(&cluster, at, MODEL, "@@hello@@"))).await?;
    seen.add_all("success", good, &[""]);
    let unreadable = |at| ask(&cluster, at, MODEL, "").raw_body("{\"model\": ");
    let invalid = |at| {
        let body = json!({"model": MODEL, "stream": at % 4 < 2, "temperature": 9,
            "messages": [{"role": "user", "content": "x"}]});
        cluster.post("/v1/chat/completions", &body)
    };
    let wrong = (0..EACH).map(|at| if at % 2 == 0 { unreadable(at) } else { invalid(at) });
    seen.add_all("validation error", ends(wrong).await?, &["validation"]);
    let unknown = ends((0..EACH).map(|at| ask(&cluster, at, "nobody", "@@hello@@"))).await?;
    seen.add_all("unknown model", unknown, &["not_found"]);

    let left = leave(&cluster).await?;
    assert_eq!(left, 3 * EACH);
    seen.add("cancelled", left);

    for (kind, script) in
        [("error before the first token", "@@fails@@"), ("error in mid-stream", "@@breaks@@")]
    {
        let failed = ends((0..EACH).map(|at| ask(&cluster, at, MODEL, script))).await?;
        seen.add_all(kind, failed, &["internal", "unavailable"]);
    }

    // Pinned, so that there is no other worker to go on with.
    let killed = &cluster.workers[1];
    let id = killed.id().to_string();
    let pinned = |at| {
        let script = if at % 8 < 4 { "@@silent@@" } else { "@@endless@@" };
        ask(&cluster, at, MODEL, script).header("x-dynamo-worker-instance-id", &id)
    };
    let running = begun(&cluster, (0..EACH).map(pinned)).await?;
    killed.kill().await;
    let mut broken = Vec::new();
    for task in running {
        broken.push(task.await??);
    }
    seen.add_all("worker killed", broken, &["internal", "unavailable"]);

    cluster.until_idle().await?;
    let zero = cluster.until("gauges are at rest", async || Ok(unrest(&cluster).await?.is_empty())).await;
    assert!(zero.is_ok(), "{:?}", unrest(&cluster).await?);
    assert_eq!(Tally::told(&cluster).await?, seen);
    let gone = cluster.metric_sum("dynamo_frontend_disconnected_clients", "").await?;
    let cancelled = cluster.metric_sum("dynamo_frontend_model_cancellation_total", "").await?;
    assert_eq!((gone, cancelled), (left as f64, left as f64), "disconnects are counted as such");
    let failures = cluster.metric_sum("dynamo_frontend_failures_total", "").await?;
    let errors: usize =
        seen.0.iter().filter(|(end, _)| !["", "cancelled"].contains(&end.as_str())).map(|(_, n)| n).sum();
    assert_eq!(failures, errors as f64, "and are no failures of the server");
    Ok(())
}
