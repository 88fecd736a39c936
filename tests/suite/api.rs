//! The public surface: answers, errors and status routes.

use std::time::Duration;

use anyhow::Result;
use roost_tests::{MODEL, Options, Request, worker_of};
use serde_json::{Value, json};

#[tokio::test]
async fn unary_and_streamed_answers_are_equal() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let unary = cluster.chat("@@plainlt@@").send().await?;
    assert_eq!(unary.status, 200, "{}", unary.text());
    let unary = unary.json()?;
    let text = unary["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(text, r#"A JSON example: {"name": "x", "arguments": {}} and a lone < sign"#);
    assert_eq!(unary["choices"][0]["finish_reason"], "stop");
    assert_eq!(unary["object"], "chat.completion");

    let body =
        json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "@@plainlt@@"}]});
    let reply = cluster.post("/v1/chat/completions", &body).send().await?;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let events = reply.events();
    assert_eq!(events.last(), Some(&json!("[DONE]")));
    let joined: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(joined, text);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[events.len() - 2]["choices"][0]["finish_reason"], "stop");
    Ok(())
}

#[tokio::test]
async fn completions_take_text_and_ids() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let text =
        cluster.post("/v1/completions", &json!({"model": MODEL, "prompt": "@@hello@@"})).send().await?;
    let text = text.json()?;
    assert_eq!((&text["choices"][0]["text"], &text["object"]), (&json!("hello"), &json!("text_completion")));
    assert_eq!(text["usage"]["prompt_tokens"], 9);
    let ids: Vec<u32> = "@@hello@@".bytes().map(u32::from).collect();
    let by_ids =
        cluster.post("/v1/completions", &json!({"model": MODEL, "prompt": ids})).send().await?.json()?;
    assert_eq!(by_ids["choices"][0]["text"], "hello");
    let unknown =
        cluster.post("/v1/completions", &json!({"model": MODEL, "prompt": [1, 999_999]})).send().await?;
    assert_eq!(unknown.status, 400, "{}", unknown.text());
    Ok(())
}

/// What the worker gets is what the client asked for.
#[tokio::test]
async fn the_engine_sees_limits_session_and_rank() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let body = json!({
        "model": MODEL, "messages": [{"role": "user", "content": "@@hello@@"}], "max_completion_tokens": 105,
        "ignore_eos": true, "temperature": 1, "top_p": 0.9, "stop": ["zzz"], "stop_token_ids": [7],
    });
    let reply = cluster
        .post("/v1/chat/completions", &body)
        .session("child")
        .header("x-dynamo-parent-session-id", "root")
        .header("x-dynamo-session-final", "true")
        .send()
        .await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = &cluster.workers[0].journal().requests()[0].request;
    assert_eq!(seen.model, MODEL);
    assert_eq!(seen.stop_conditions.max_tokens, Some(105));
    assert_eq!(seen.stop_conditions.ignore_eos, Some(true));
    assert_eq!(seen.stop_conditions.stop_token_ids.as_deref(), Some([7].as_slice()));
    assert!(seen.eos_token_ids.is_empty() && seen.stop_conditions.stop_token_ids_hidden.is_none());
    assert_eq!((seen.sampling_options.temperature, seen.sampling_options.top_p), (Some(1.0), Some(0.9)));
    let agent = seen.agent_context.as_ref().unwrap();
    assert_eq!((agent.session_id.as_str(), agent.parent_session_id.as_deref()), ("child", Some("root")));
    assert_eq!(agent.session_final, Some(true));
    assert_eq!(seen.routing.as_ref().unwrap().dp_rank, Some(0));
    assert!(seen.mdc_sum.is_some());
    Ok(())
}

#[tokio::test]
async fn errors_have_status_and_both_shapes() -> Result<()> {
    let mut options = Options::new(1);
    options.config.http.body_limit = 4096;
    let cluster = options.start().await?;
    let good = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]});
    let unknown = json!({"model": "nope", "messages": [{"role": "user", "content": "hi"}]});
    let cases: Vec<(&str, u16, Request)> = vec![
        ("bad JSON", 400, cluster.post("/v1/chat/completions", &good).raw_body("{\"model\":")),
        ("unknown model", 404, cluster.post("/v1/chat/completions", &unknown)),
        ("no messages", 400, cluster.post("/v1/chat/completions", &json!({"model": MODEL}))),
        (
            "content type",
            415,
            Request::get(cluster.address, "/v1/chat/completions").method("POST").raw_body(good.to_string()),
        ),
        ("too large", 413, cluster.post("/v1/chat/completions", &good).raw_body("x".repeat(5000))),
        (
            "unknown worker",
            400,
            cluster.post("/v1/chat/completions", &good).header("x-dynamo-worker-instance-id", "12"),
        ),
        ("unknown route", 404, cluster.get("/nope")),
        ("invalid request by the worker", 400, cluster.chat("@@refuse@@")),
    ];
    for (what, status, request) in cases {
        let reply = request.send().await?;
        let body = reply.json()?;
        assert_eq!(reply.status, status, "{what}: {body}");
        assert_eq!(body["code"], status, "{what}");
        assert_eq!(body["message"], body["error"]["message"], "{what}");
        assert!(body["message"].as_str().is_some_and(|text| !text.is_empty()), "{what}");
    }
    assert_eq!(cluster.get("/v1/chat/completions").send().await?.status, 405);
    Ok(())
}

/// An engine failure before the first token has a status; its text stays inside.
#[tokio::test]
async fn an_engine_error_is_a_status_also_for_streams() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    for stream in [false, true] {
        let body = json!({"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": "@@raise0@@"}]});
        let reply = cluster.post("/v1/chat/completions", &body).send().await?;
        assert_eq!(reply.status, 500, "{}", reply.text());
        assert!(!reply.text().contains("boom"), "{}", reply.text());
    }
    // An engine that refuses one request is not avoided afterwards.
    assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn status_routes() -> Result<()> {
    let cluster = Options::new(2).start().await?;
    let health = cluster.get("/health").send().await?;
    let body = health.json()?;
    assert_eq!((health.status, &body["status"]), (200, &json!("healthy")));
    let generate =
        body["instances"].as_array().unwrap().iter().filter(|i| i["endpoint"] == "generate").count();
    assert_eq!(generate, 2, "{body}");
    assert_eq!(body["endpoints"], json!(["dyn://dynamo.backend.generate"]));
    let models = cluster.get("/v1/models").send().await?.json()?;
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!(MODEL)));
    assert_eq!(cluster.get("/v1/models/tiny").send().await?.json()?["owned_by"], "nvidia");
    assert_eq!(cluster.get("/v1/models/nope").send().await?.status, 404);
    assert_eq!(cluster.get("/v1/models/tiny/ready").send().await?.json()?["ready"], true);
    let anthropic =
        cluster.get("/v1/models").header("anthropic-version", "2023-06-01").send().await?.json()?;
    assert_eq!((&anthropic["has_more"], &anthropic["first_id"]), (&json!(false), &json!(MODEL)));
    assert_eq!(cluster.get("/live").send().await?.json()?["status"], "live");
    Ok(())
}

#[tokio::test]
async fn busy_thresholds_are_read_and_set() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let set =
        json!({"model": MODEL, "active_decode_blocks_threshold": 0.5, "active_prefill_tokens_threshold": 10});
    let reply = cluster.post("/busy_threshold", &set).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let list = cluster.get("/busy_threshold").send().await?.json()?;
    assert_eq!(list["thresholds"][0]["active_decode_blocks_threshold"], 0.5);
    assert_eq!(list["thresholds"][0]["active_prefill_tokens_threshold"], 10);
    let wrong = json!({"model": MODEL, "active_decode_blocks_threshold": 1.5});
    assert_eq!(cluster.post("/busy_threshold", &wrong).send().await?.status, 400);
    assert_eq!(cluster.post("/busy_threshold", &json!({"model": "nope"})).send().await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn metrics_count_and_gauges_return_to_zero() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    for _ in 0..3 {
        assert_eq!(cluster.chat("@@hello@@").send().await?.status, 200);
    }
    assert_eq!(cluster.chat("@@raise0@@").send().await?.status, 500);
    let model = format!("model=\"{MODEL}\"");
    assert_eq!(cluster.metric_sum("dynamo_frontend_requests_total", "status=\"success\"").await?, 3.0);
    assert_eq!(cluster.metric_sum("dynamo_frontend_requests_total", "error_type=\"internal\"").await?, 1.0);
    assert_eq!(cluster.metric_sum("dynamo_frontend_output_tokens_total", &model).await?, 15.0);
    assert_eq!(cluster.metric_sum("dynamo_frontend_time_to_first_token_seconds_count", &model).await?, 3.0);
    for gauge in ["active_requests", "inflight_requests", "queued_requests"] {
        let value = cluster.metric(&format!("dynamo_frontend_{gauge}{{{model}}}")).await?;
        assert_eq!(value, Some(0.0), "{gauge}");
    }
    assert_eq!(cluster.get("/metrics").method("HEAD").send_head().await?, 200);
    Ok(())
}

#[tokio::test]
async fn request_ids_are_echoed_and_unknown_members_ignored() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let body = json!({"model": MODEL, "rid": "x", "messages": [{"role": "user", "content": "@@hello@@"}]});
    let reply = cluster.post("/v1/chat/completions", &body).header("x-request-id", "r-1").send().await?;
    assert_eq!((reply.status, reply.header("x-request-id")), (200, Some("r-1")));
    assert_eq!(cluster.metric("roost_ignored_fields_total").await?, Some(1.0));
    Ok(())
}

/// Running answers end; new requests are refused; the process then stops.
#[tokio::test]
async fn a_drain_lets_answers_end() -> Result<()> {
    let mut cluster = Options::new(1).with(|c| c.http.drain = Duration::from_secs(30)).start().await?;
    let body = json!({"model": MODEL, "stream": true, "messages": [{"role": "user", "content": "@@drip@@"}]});
    let mut events = cluster.post("/v1/chat/completions", &body).stream().await?;
    assert!(events.next().await?.is_some());
    let ended = tokio::spawn(async move {
        let mut last = Value::Null;
        while let Some(event) = events.next().await? {
            last = event;
        }
        anyhow::Ok(last)
    });
    assert!(cluster.stop_frontend().await?, "the drain must wait for the answer");
    assert_eq!(ended.await??, json!("[DONE]"));
    Ok(())
}

/// One request's worker is the one that `nvext` names.
#[tokio::test]
async fn worker_id_names_the_worker_that_answered() -> Result<()> {
    let cluster = Options::new(2).start().await?;
    for turn in 0..4 {
        let answer = cluster.chat(&format!("@@hello@@ {turn}")).send().await?.json()?;
        let index = cluster.index_of(worker_of(&answer));
        let journal = cluster.workers[index].journal();
        assert!(
            journal.requests().iter().any(|r| r
                .text
                .as_deref()
                .unwrap_or_default()
                .contains(&format!("@@ {turn}")))
        );
    }
    Ok(())
}
