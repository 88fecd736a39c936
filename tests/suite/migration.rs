//! Answers that go on on another worker, and requests that are not worth another one.

use std::time::Duration;

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options};
use roost_worker::{Fault, Role, ScriptBook};
use serde_json::{Value, json};

fn body(script: &str) -> Value {
    json!({"model": MODEL, "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": script}]})
}

/// Asks a worker that says `begin` and hangs, starts another that says `rest`, and kills the first.
async fn moved(
    mut options: Options,
    begin: Value,
    rest: Value,
    body: &Value,
) -> Result<(Vec<Value>, Cluster)> {
    options.workers = 0;
    options.config.route.migration_limit = 1;
    let mut cluster = options.start().await?;
    let files = cluster.files()?;
    let book = |steps: Value| ScriptBook::from_json(&json!({"move": steps}).to_string());
    let mut steps = begin.as_array().cloned().unwrap_or_default();
    let said = steps.len() as u64;
    steps.push(json!({"sleep_s": 600}));
    let (begin, rest) = (book(Value::Array(steps))?, book(rest)?);
    cluster.start_worker(Role::Aggregated, MODEL, files.clone(), |engine| engine.scripts = begin).await?;
    cluster.wait_for_workers(MODEL, 1).await?;
    let request = cluster.post("/v1/chat/completions", body);
    let answer = tokio::spawn(async move { request.send().await });
    // Every token of the first worker has been taken: it is in the books, if not at the client.
    let series = format!("dynamo_frontend_output_tokens_total{{model=\"{MODEL}\"}}");
    cluster
        .until("the first worker has spoken", async || {
            Ok(cluster.metric(&series).await?.is_some_and(|tokens| tokens >= said as f64))
        })
        .await?;
    cluster.start_worker(Role::Aggregated, MODEL, files, |engine| engine.scripts = rest).await?;
    cluster.wait_for_workers(MODEL, 2).await?;
    cluster.workers[0].kill().await;
    let reply = answer.await??;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let events = reply.events();
    assert_eq!(events.last(), Some(&json!("[DONE]")), "{events:?}");
    cluster.until_idle().await?;
    Ok((events, cluster))
}

fn content(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
}

fn finish(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["choices"][0]["finish_reason"].as_str()).collect()
}

#[tokio::test]
async fn a_character_goes_on_where_it_was_cut() -> Result<()> {
    let begin = json!([{"ids": [111]}, {"ids": [240]}, {"ids": [159]}]);
    let rest = json!([{"ids": [152]}, {"ids": [128]}, {"text": "!"}, {"finish": "stop"}]);
    let mut body = body("@@move@@");
    body["max_tokens"] = json!(50);
    let (events, cluster) = Box::pin(moved(Options::new(0), begin, rest, &body)).await?;
    assert_eq!(content(&events), "o😀!");
    assert_eq!(finish(&events), ["stop"]);
    let asked = |worker: usize| cluster.workers[worker].journal().requests()[0].request.clone();
    let (first, second) = (asked(0), asked(1));
    assert_eq!(second.token_ids.to_vec(), [&first.token_ids[..], &[111, 240, 159]].concat());
    assert_eq!((first.stop_conditions.max_tokens, second.stop_conditions.max_tokens), (Some(50), Some(47)));
    let usage = &events[events.len() - 2]["usage"];
    assert_eq!(usage["prompt_tokens"], first.token_ids.len(), "{usage}");
    assert_eq!(usage["completion_tokens"], 6, "{usage}");
    for (family, count) in [
        ("dynamo_frontend_model_migration_total", "ongoing_request"),
        ("dynamo_frontend_model_migration_duration_seconds_count", "success"),
    ] {
        assert_eq!(cluster.metric_sum(family, count).await?, 1.0, "{family}");
    }
    Ok(())
}

#[tokio::test]
async fn a_tool_call_goes_on_where_it_was_cut() -> Result<()> {
    let mut options = Options::new(0);
    options.parsers.0 = Some("hermes");
    let begin = json!([{"text": "<tool_call>\n{\"name\": \"get_wea"}]);
    let rest =
        json!([{"text": "ther\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>"}, {"finish": "stop"}]);
    let mut body = body("@@move@@");
    body["tools"] = json!([{"type": "function", "function": {"name": "get_weather"}}]);
    let (events, _cluster) = Box::pin(moved(options, begin, rest, &body)).await?;
    let function = |member: &str| -> String {
        let calls = events.iter().map(|event| &event["choices"][0]["delta"]["tool_calls"][0]["function"]);
        calls.filter_map(|function| function[member].as_str()).collect()
    };
    assert_eq!(function("name"), "get_weather");
    assert_eq!(serde_json::from_str::<Value>(&function("arguments"))?, json!({"city": "Paris"}));
    assert_eq!(finish(&events), ["tool_calls"]);
    Ok(())
}

#[tokio::test]
async fn what_must_not_move_ends_with_an_error() -> Result<()> {
    let mut options = Options::new(3);
    options.config.route.migration_limit = 1;
    options.config.route.migration_max_tokens = Some(1000);
    let long = json!([{"text_repeat": ["x", 20], "per": 1}, {"finish": "stop"}]);
    options.scripts.insert("twenty", serde_json::from_value(long)?);
    let ongoing = async |cluster: &Cluster| {
        cluster.metric_sum("dynamo_frontend_model_migration_total", "ongoing_request").await
    };
    let guided =
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}});
    let too_long = "y".repeat(1200);
    for (what, extra, padding, moves) in [
        ("the limit", json!({}), "", 1.0),
        ("a grammar", guided, "", 0.0),
        ("the length", json!({}), too_long.as_str(), 0.0),
    ] {
        let cluster = options.clone().start().await?;
        for worker in &cluster.workers {
            worker.faults().always(Fault::CloseAfter(2));
        }
        let mut body = body(&format!("{padding}@@twenty@@"));
        for (key, value) in extra.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        let events = cluster.post("/v1/chat/completions", &body).send().await?.events();
        assert_eq!(events[events.len() - 2]["error"]["code"], 503, "{what}: {events:?}");
        assert!(finish(&events).is_empty(), "{what}");
        assert_eq!(ongoing(&cluster).await?, moves, "{what}");
        cluster.until_idle().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_kills_workers_is_stopped() -> Result<()> {
    let mut options = Options::new(4);
    options.scripts.insert("poison", serde_json::from_value(json!([{"exit": true}]))?);
    let cluster = options.start().await?;
    let reply = cluster.chat("@@poison@@").send().await?;
    assert_eq!(reply.status, 503, "{}", reply.text());
    let asked = cluster.workers.iter().filter(|worker| !worker.journal().requests().is_empty()).count();
    assert_eq!(asked, 2, "the second loss was one too many");
    assert_eq!(
        cluster.metric_sum("roost_worker_quarantined", "").await?,
        1.0,
        "and is the request's own fault"
    );
    for n in 0..8 {
        assert_eq!(cluster.chat(&format!("@@hello@@ {n}")).send().await?.status, 200);
    }
    cluster.until_idle().await
}

#[tokio::test]
async fn a_worker_that_never_begins_does_not_hold_its_request() -> Result<()> {
    for (workers, status) in [(2, 200), (1, 504)] {
        let mut options = Options::new(workers);
        options.config.route.first_token = Some(Duration::from_millis(300));
        let cluster = options.start().await?;
        let first = cluster.chat("@@hello@@").session("s").send().await?.json()?;
        let home = cluster.index_of(roost_tests::worker_of(&first));
        // It acknowledges, calls home, sends its prologue, and that is all.
        cluster.workers[home].faults().next(Fault::StallAfter(0));
        let reply = cluster.chat("@@hello@@ again").session("s").send().await?;
        assert_eq!(reply.status, status, "{}", reply.text());
        cluster.until_idle().await?;
    }
    Ok(())
}
