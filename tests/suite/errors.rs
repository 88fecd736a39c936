//! What clients are told when something is wrong: C-API-02, C-API-03, C-STR-03, C-STR-06 in part.

use anyhow::Result;
use roost_frontend::ErrorShape;
use roost_tests::{Cluster, MODEL, Options, Reply, Request, fixture};
use serde_json::{Value, json};

/// Sends the requests of a case's file, in order.
async fn replay(cluster: &Cluster, id: &str) -> Result<Vec<Reply>> {
    let case: Value = serde_json::from_slice(&std::fs::read(fixture(&format!("cases/{id}.json")))?)?;
    let mut replies = Vec::new();
    for step in case["input"].as_array().into_iter().flatten() {
        let http = &step["http"];
        let Some(path) = http["path"].as_str() else { continue };
        let request = if http["method"] == "GET" {
            Request::get(cluster.address, path)
        } else if let Some(raw) = http["raw_body"].as_str() {
            let request = match http["headers"]["content-type"].as_str() {
                Some(kind) => Request::get(cluster.address, path).method("POST").header("content-type", kind),
                None => cluster.post(path, &Value::Null),
            };
            request.raw_body(raw)
        } else {
            cluster.post(path, &http["body"])
        };
        replies.push(request.send().await?);
    }
    Ok(replies)
}

#[tokio::test]
async fn c_api_02_error_bodies() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let expected = [
        (400, "invalid_request_error", json!("max_tokens"), Value::Null),
        (400, "invalid_request_error", Value::Null, Value::Null),
        (404, "not_found_error", json!("model"), json!("model_not_found")),
        (400, "invalid_request_error", json!("messages"), Value::Null),
        (400, "invalid_request_error", json!("temperature"), Value::Null),
        (415, "invalid_request_error", Value::Null, Value::Null),
        (405, "invalid_request_error", Value::Null, Value::Null),
        (404, "not_found_error", Value::Null, Value::Null),
    ];
    let replies = replay(&cluster, "C-API-02").await?;
    assert_eq!(replies.len(), expected.len());
    for (reply, (status, kind, param, code)) in replies.iter().zip(expected) {
        let body = reply.json()?;
        let error = &body["error"];
        assert_eq!(reply.header("content-type"), Some("application/json"), "{body}");
        assert_eq!((reply.status, error["type"].as_str()), (status, Some(kind)), "{body}");
        assert_eq!((&error["param"], &error["code"]), (&param, &code), "{body}");
        // Both shapes in one body.
        assert_eq!((&body["code"], &body["message"]), (&json!(status), &error["message"]), "{body}");
        let text = error["message"].as_str().unwrap_or_default();
        for internal in
            ["u32", "u64", "f64", "i32", "usize", "struct", "enum", "serde", "untagged", "Option", "::"]
        {
            assert!(!text.contains(internal), "{text}");
        }
    }
    assert_eq!(replies[6].header("allow"), Some("POST"));
    Ok(())
}

#[tokio::test]
async fn the_shape_of_errors_is_an_option() -> Result<()> {
    for (shape, flat, nested) in
        [(ErrorShape::Both, true, true), (ErrorShape::Dynamo, true, false), (ErrorShape::OpenAi, false, true)]
    {
        let cluster = Options::new(0).with(|c| c.http.error_shape = shape).start().await?;
        for request in [cluster.get("/nope"), cluster.get("/v1/chat/completions"), cluster.chat("x")] {
            let body = request.send().await?.json()?;
            assert_eq!((body["message"].is_string(), body["error"].is_object()), (flat, nested), "{body}");
        }
    }
    Ok(())
}

/// C-API-03: what does not fit is refused before a worker is asked, also for a stream.
#[tokio::test]
async fn c_api_03_context_and_limits() -> Result<()> {
    let mut options = Options::new(1);
    options.context_length = 8192;
    let cluster = options.start().await?;
    let long = "x".repeat(9000);
    for stream in [false, true] {
        let body = json!({"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": long}]});
        let reply = cluster.post("/v1/chat/completions", &body).send().await?;
        let error = reply.json()?["error"].clone();
        assert_eq!((reply.status, &error["code"]), (400, &json!("context_length_exceeded")), "{error}");
        let text = error["message"].as_str().unwrap_or_default();
        assert!(text.contains("maximum context length is 8192") && text.contains("90"), "{text}");
    }
    let mut body = json!({"model": MODEL, "max_tokens": 500,
        "messages": [{"role": "user", "content": format!("@@hello@@{}", "x".repeat(8000))}]});
    assert_eq!(cluster.post("/v1/chat/completions", &body).send().await?.status, 200);
    let seen = |at: usize| cluster.workers[0].journal().requests()[at].request.clone();
    let capped = seen(0);
    let room = 8192 - capped.token_ids.len() as u32;
    assert!(room < 500 && capped.stop_conditions.max_tokens == Some(room), "capped to what is left");
    body["messages"][0]["content"] = json!("@@hello@@");
    body["max_tokens"] = Value::Null;
    assert_eq!(cluster.post("/v1/chat/completions", &body).send().await?.status, 200);
    assert_eq!(seen(1).stop_conditions.max_tokens, None, "no limit of our own");
    for reply in replay(&cluster, "C-API-03").await? {
        assert_eq!((reply.status, &reply.json()?["error"]["param"]), (400, &json!("max_tokens")));
    }
    assert_eq!(cluster.workers[0].journal().requests().len(), 2, "nothing else reached the worker");
    Ok(())
}

/// C-STR-03: a failure in the middle is a failure, in the stream and as a status, and says nothing of the inside.
#[tokio::test]
async fn c_str_03_a_failure_in_the_middle() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let replies = replay(&cluster, "C-STR-03").await?;
    let [die, unary, finish] = &replies[..] else { panic!("three requests") };
    for stream in [die, finish] {
        let events = stream.events();
        assert_eq!((stream.status, events.last()), (200, Some(&json!("[DONE]"))), "{events:?}");
        let text: String =
            events.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect();
        assert!(text.starts_with("partial"), "the tokens so far: {text}");
        let errors: Vec<&Value> = events.iter().filter(|event| event["error"].is_object()).collect();
        let [event] = errors[..] else { panic!("one error: {events:?}") };
        assert_eq!(event["error"]["type"], "internal_server_error");
        let id = event["error"]["request_id"].as_str().unwrap_or_default();
        assert_eq!(stream.header("x-request-id"), Some(id), "{event}");
        assert!(events.iter().all(|event| event["choices"][0]["finish_reason"].as_str().is_none()));
        assert!(!stream.text().contains("secret") && !stream.text().contains("exploded"));
    }
    assert_eq!(unary.status, 500);
    assert!(unary.json()?["error"]["message"].is_string() && !unary.text().contains("secret"));
    let failed = cluster.metric_sum("dynamo_frontend_requests_total", "status=\"error\"").await?;
    assert_eq!(failed, 3.0);

    // A worker that dies after some tokens looks no different.
    let body = json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "@@drip@@"}]});
    cluster.workers[0].faults().next(roost_worker::Fault::CloseAfter(5));
    let cut = cluster.post("/v1/chat/completions", &body).send().await?;
    let events = cut.events();
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    assert!(events[events.len() - 2]["error"]["message"].is_string(), "{events:?}");
    assert!(events.iter().all(|event| event["choices"][0]["finish_reason"].as_str().is_none()));
    Ok(())
}

/// C-STR-06: before the first token every failure has its own status, with a body whose length is right.
#[tokio::test]
async fn c_str_06_statuses_before_the_first_token() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let replies = replay(&cluster, "C-STR-06").await?;
    let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [500, 500, 404, 400]);
    for reply in &replies {
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(reply.header("content-length"), Some(reply.body.len().to_string().as_str()));
        assert!(reply.json()?["error"]["message"].is_string() && !reply.text().contains("boom"));
    }
    Ok(())
}
