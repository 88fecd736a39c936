//! Streams: C-STR-02 (usage), C-STR-04 (no finish reason), disconnects, keep-alive, stop strings, split characters.

use std::time::Duration;

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options};
use serde_json::{Value, json};

fn body(content: &str, extra: Value) -> Value {
    let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": content}]});
    for (key, value) in extra.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    body
}

async fn events(cluster: &Cluster, content: &str, extra: Value) -> Result<Vec<Value>> {
    let reply = cluster.post("/v1/chat/completions", &body(content, extra)).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(reply.events())
}

fn text(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect()
}

#[tokio::test]
async fn c_str_02_usage_only_when_asked_once_and_last() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    for off in [json!({"stream": true}), json!({"stream": true, "stream_options": {"include_usage": null}})] {
        let events = events(&cluster, "@@cached@@", off).await?;
        assert!(events.iter().all(|event| event.get("usage").is_none_or(Value::is_null)), "{events:?}");
    }
    let on = json!({"stream": true, "stream_options": {"include_usage": true}});
    let with = events(&cluster, "@@cached@@", on.clone()).await?;
    let usages: Vec<usize> = (0..with.len()).filter(|i| with[*i]["usage"].is_object()).collect();
    assert_eq!(usages, [with.len() - 2], "exactly one, right before the end mark: {with:?}");
    let usage = &with[with.len() - 2];
    assert_eq!(
        (&usage["choices"], &usage["usage"]["prompt_tokens_details"]["cached_tokens"]),
        (&json!([]), &json!(16))
    );
    assert_eq!(with[with.len() - 3]["choices"][0]["finish_reason"], "stop");

    let none = events(&cluster, "@@nousage@@", on).await?;
    let usage = &none[none.len() - 2]["usage"];
    assert_eq!(usage["completion_tokens"], 3, "computed here: {none:?}");
    assert!(usage["prompt_tokens"].as_u64().is_some_and(|n| n > 10));
    let unary = cluster.chat("@@nousage@@").send().await?.json()?;
    assert_eq!(unary["usage"]["completion_tokens"], 3);
    Ok(())
}

#[tokio::test]
async fn usage_may_be_forced() -> Result<()> {
    let cluster = Options::new(1).with(|c| c.http.force_usage = true).start().await?;
    let events = events(&cluster, "@@cached@@", json!({"stream": true})).await?;
    let usage = &events[events.len() - 2];
    assert_eq!(
        (&usage["choices"], &usage["usage"]["completion_tokens"]),
        (&json!([]), &json!(3)),
        "{events:?}"
    );
    Ok(())
}

#[tokio::test]
async fn c_str_04_a_cut_answer_never_looks_whole() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let unary = cluster.chat("@@noterm@@").send().await?;
    assert_eq!(unary.status, 500, "{}", unary.text());
    let on = json!({"stream": true, "stream_options": {"include_usage": true}});
    let cut = events(&cluster, "@@noterm@@", on).await?;
    assert_eq!(cut.last(), Some(&json!("[DONE]")));
    assert!(cut[cut.len() - 2]["error"]["message"].is_string(), "{cut:?}");
    assert!(text(&cut).starts_with("partial"));
    // With the limit reached the reason is known: the answer is as long as was asked for.
    let limit = "partial answer".len();
    let whole = cluster
        .post("/v1/chat/completions", &body("@@noterm@@", json!({"max_tokens": limit})))
        .send()
        .await?;
    let whole = whole.json()?;
    assert_eq!(whole["choices"][0]["finish_reason"], "length", "{whole}");
    assert_eq!(whole["usage"]["completion_tokens"], limit);
    Ok(())
}

#[tokio::test]
async fn an_error_after_the_head_is_an_event() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let events = events(&cluster, "@@die@@", json!({"stream": true})).await?;
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    let error = &events[events.len() - 2]["error"];
    assert_eq!(error["code"], 500, "{events:?}");
    assert!(!error["message"].as_str().unwrap().contains("secret"));
    assert!(events.iter().all(|e| e["choices"][0]["finish_reason"].as_str().is_none()));
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_worker_and_frees_the_books() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let mut stream =
        cluster.post("/v1/chat/completions", &body("@@drip@@", json!({"stream": true}))).stream().await?;
    assert!(stream.next().await?.is_some());
    drop(stream);
    cluster
        .until("the worker hears of it", async || {
            Ok(!cluster.workers[0].journal().cancellations().is_empty())
        })
        .await?;
    // Also before the first token: nothing has been answered yet, and the future itself is dropped.
    let request = cluster.chat("@@slow20@@");
    let waiting = tokio::spawn(async move { request.send().await });
    cluster
        .until("the worker has it", async || Ok(cluster.workers[0].journal().requests().len() == 2))
        .await?;
    waiting.abort();
    cluster
        .until("the worker hears of it", async || Ok(cluster.workers[0].journal().cancellations().len() == 2))
        .await?;
    let series = format!("dynamo_frontend_active_requests{{model=\"{MODEL}\"}}");
    cluster.until("the gauge is 0", async || Ok(cluster.metric(&series).await? == Some(0.0))).await?;
    let cancelled = cluster.metric_sum("dynamo_frontend_requests_total", "error_type=\"cancelled\"").await?;
    assert_eq!(cancelled, 2.0);
    Ok(())
}

#[tokio::test]
async fn a_silent_worker_is_bridged_by_comments() -> Result<()> {
    let options = Options::new(1).with(|c| c.http.keep_alive = Some(Duration::from_millis(100)));
    let cluster = options.start().await?;
    let reply =
        cluster.post("/v1/chat/completions", &body("@@slow3@@", json!({"stream": true}))).send().await?;
    assert_eq!(reply.status, 200);
    assert!(reply.text().starts_with(":\n\n"), "{}", reply.text());
    assert_eq!(text(&reply.events()), "late");
    Ok(())
}

#[tokio::test]
async fn a_worker_silent_beyond_the_limit_ends_the_answer() -> Result<()> {
    let options = Options::new(1).with(|c| c.http.worker_silence = Some(Duration::from_millis(300)));
    let cluster = options.start().await?;
    cluster.workers[0].faults().next(roost_worker::Fault::StallAfter(2));
    let events = events(&cluster, "@@drip@@", json!({"stream": true})).await?;
    assert_eq!(events[events.len() - 2]["error"]["code"], 504, "{events:?}");
    Ok(())
}

#[tokio::test]
async fn stop_strings_end_the_answer_and_the_worker() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let extra = json!({"stop": ["ta eta"], "stream": true});
    let stopped = events(&cluster, "@@stopsplit@@", extra).await?;
    assert_eq!(text(&stopped), " delta epsilon ze");
    assert_eq!(stopped[stopped.len() - 2]["choices"][0]["finish_reason"], "stop");
    let unary = cluster
        .post("/v1/chat/completions", &body("@@drip@@", json!({"stop": ["xxxx"]})))
        .send()
        .await?
        .json()?;
    assert_eq!(unary["choices"][0]["message"]["content"], Value::Null);
    cluster
        .until("the worker was stopped", async || {
            Ok(!cluster.workers[0].journal().cancellations().is_empty())
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn characters_split_over_tokens_arrive_whole() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let events = events(&cluster, "@@emoji@@", json!({"stream": true})).await?;
    assert_eq!(text(&events), "ok 😀 é你");
    assert!(!text(&events).contains('\u{fffd}'));
    Ok(())
}

#[tokio::test]
async fn end_of_sequence_tokens_are_never_shown() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    for script in ["@@eosin@@", "@@eosfinish@@"] {
        let answer = cluster.chat(script).send().await?.json()?;
        assert_eq!(answer["choices"][0]["message"]["content"], "answer", "{script}: {answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
    Ok(())
}
