//! Anthropic's Messages API end to end.

#![allow(clippy::unwrap_used, reason = "a wrong answer fails the test that reads it")]

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options, Reply};
use serde_json::{Value, json};

async fn cluster(parsers: (Option<&'static str>, Option<&'static str>)) -> Result<Cluster> {
    let mut options = Options::new(1);
    options.parsers = parsers;
    options.start().await
}

fn request(content: &str, more: Value) -> Value {
    let mut body =
        json!({"model": MODEL, "max_tokens": 500, "messages": [{"role": "user", "content": content}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn post(cluster: &Cluster, body: &Value) -> Result<Reply> {
    cluster.post("/v1/messages", body).header("anthropic-version", "2023-06-01").send().await
}

/// A message put together from its events as Anthropic documents it; the order of events is checked on the way.
fn fold(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    assert_eq!(events[0]["type"], "message_start");
    let mut open: Option<(Value, String)> = None;
    for event in &events[1..events.len() - 1] {
        match event["type"].as_str().unwrap() {
            "ping" => {}
            "content_block_start" => {
                assert!(open.is_none(), "{event}");
                assert_eq!(event["index"], message["content"].as_array().unwrap().len());
                open = Some((event["content_block"].clone(), String::new()));
            }
            "content_block_delta" => {
                let (block, input) = open.as_mut().unwrap();
                let delta = &event["delta"];
                let kind = delta["type"].as_str().unwrap();
                match kind {
                    "input_json_delta" => input.push_str(delta["partial_json"].as_str().unwrap()),
                    "text_delta" | "thinking_delta" | "signature_delta" => {
                        let member = kind.trim_end_matches("_delta");
                        let text =
                            [block[member].as_str().unwrap(), delta[member].as_str().unwrap()].concat();
                        block[member] = text.into();
                    }
                    _ => panic!("{event}"),
                }
            }
            "content_block_stop" => {
                let (mut block, input) = open.take().unwrap();
                if !input.is_empty() {
                    block["input"] = serde_json::from_str(&input).unwrap();
                }
                message["content"].as_array_mut().unwrap().push(block);
            }
            "message_delta" => {
                assert!(open.is_none());
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["stop_sequence"] = event["delta"]["stop_sequence"].clone();
                message["usage"] = event["usage"].clone();
            }
            _ => panic!("{event}"),
        }
    }
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    message
}

/// Ids that are made anew, replaced; the second of two equal prompts is partly in the worker's cache.
fn without_ids(mut message: Value) -> Value {
    let usage = message["usage"].as_object_mut().unwrap();
    let cached = usage.remove("cache_read_input_tokens").map_or(0, |cached| cached.as_u64().unwrap());
    usage["input_tokens"] = (usage["input_tokens"].as_u64().unwrap() + cached).into();
    let id = message["id"].as_str().unwrap();
    assert!(id.len() == 36 && id.starts_with("msg_"), "{id}");
    message["id"] = "msg".into();
    for block in message["content"].as_array_mut().unwrap() {
        if block["type"] == "tool_use" {
            let id = block["id"].as_str().unwrap();
            assert!(id.len() == 38 && id.starts_with("toolu_"), "{id}");
            block["id"] = "toolu".into();
        }
    }
    message
}

fn tools() -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!([{"name": "get_weather", "description": "w", "input_schema": schema}])
}

#[tokio::test]
async fn streamed_and_unary_messages_are_equal() -> Result<()> {
    let plain = cluster((None, None)).await?;
    let calls = cluster((Some("hermes"), None)).await?;
    let thinks = cluster((None, Some("deepseek_r1"))).await?;
    let text = json!([{"type": "text", "text": "hello"}]);
    let uses = json!([
        {"type": "tool_use", "id": "toolu", "name": "get_weather", "input": {"city": "Paris"}},
        {"type": "tool_use", "id": "toolu", "name": "get_weather", "input": {"city": "Rome"}}]);
    let reasoned = json!([
        {"type": "thinking", "thinking": "step one\nstep two", "signature": "erased"},
        {"type": "text", "text": "\n\nFinal answer."}]);
    let cut =
        json!([{"type": "thinking", "thinking": "let me think about it step by", "signature": "erased"}]);
    let before = json!([{"type": "text", "text": "hel"}]);
    let cases = [
        (&plain, "@@hello@@", json!({}), text, "end_turn", Value::Null),
        (&plain, "@@hello@@", json!({"stop_sequences": ["lo"]}), before, "stop_sequence", json!("lo")),
        (&calls, "@@hermes2@@", json!({"tools": tools()}), uses, "tool_use", Value::Null),
        (&thinks, "@@thinkok@@", json!({}), reasoned, "end_turn", Value::Null),
        (&thinks, "@@thinktrunc@@", json!({}), cut, "max_tokens", Value::Null),
    ];
    for (cluster, script, more, content, reason, sequence) in cases {
        let mut body = request(script, more);
        let unary = post(cluster, &body).await?;
        assert_eq!(unary.status, 200, "{}", unary.text());
        let unary = without_ids(unary.json()?);
        assert_eq!(
            (&unary["content"], &unary["stop_reason"], &unary["stop_sequence"]),
            (&content, &json!(reason), &sequence),
            "{script}"
        );
        assert_eq!(
            (&unary["type"], &unary["role"], &unary["model"]),
            (&json!("message"), &json!("assistant"), &json!(MODEL))
        );
        body["stream"] = true.into();
        let streamed = post(cluster, &body).await?;
        assert_eq!(streamed.header("content-type"), Some("text/event-stream"));
        assert!(!streamed.text().contains("[DONE]"), "the end mark is OpenAI's");
        assert_eq!(without_ids(fold(&streamed.events())), unary, "{script}");
    }
    Ok(())
}

/// `input_tokens` leaves out what a cache served.
#[tokio::test]
async fn usage_tells_cached_tokens_apart() -> Result<()> {
    let cluster = cluster((None, None)).await?;
    let usage = post(&cluster, &request("@@cached@@", json!({}))).await?.json()?["usage"].clone();
    let prompt = cluster.workers[0].journal().requests()[0].request.token_ids.len();
    assert_eq!(
        usage,
        json!({"input_tokens": prompt - 16, "output_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 16})
    );
    Ok(())
}

/// The counted tokens are those that the worker gets for the same request.
#[tokio::test]
async fn tokens_are_counted_as_they_are_sent() -> Result<()> {
    let cluster = cluster((Some("hermes"), Some("qwen3"))).await?;
    let history = json!([
        {"role": "user", "content": [{"type": "text", "text": "@@hello@@ héllo"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "why", "signature": "x"},
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "18 °C"}]}]);
    let more =
        json!({"messages": history, "system": [{"type": "text", "text": "be brief"}], "tools": tools()});
    let body = request("", more);
    let counted = cluster.post("/v1/messages/count_tokens", &body).send().await?;
    assert_eq!(counted.status, 200, "{}", counted.text());
    assert_eq!(post(&cluster, &body).await?.status, 200);
    let seen = cluster.workers[0].journal().requests()[0].clone();
    assert_eq!(counted.json()?, json!({"input_tokens": seen.request.token_ids.len()}));
    let text = seen.text.clone().unwrap();
    for part in ["be brief", "@@hello@@ héllo", "get_weather", "18 °C"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let mut bare = body.clone();
    bare.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(cluster.post("/v1/messages/count_tokens", &bare).send().await?.status, 200);
    assert_eq!(post(&cluster, &bare).await?.status, 400);
    Ok(())
}

/// A session's next turn is made from the one before, whatever moved among its cache marks.
#[tokio::test]
async fn the_next_turn_is_made_from_the_one_before() -> Result<()> {
    let cluster = cluster((Some("hermes"), None)).await?;
    let mark = json!({"type": "ephemeral"});
    let filler = "word ".repeat(400);
    let first = json!([{"role": "user", "content": [{"type": "text", "text": format!("@@hello@@ {filler}"), "cache_control": mark}]}]);
    let second = json!([
        {"role": "user", "content": [{"type": "text", "text": format!("@@hello@@ {filler}")}]},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}]},
        {"role": "user", "content": [{"type": "text", "text": "go on @@hello@@", "cache_control": mark}]}]);
    for messages in [first, second] {
        let body = request("", json!({"messages": messages, "system": "s"}));
        let reply =
            cluster.post("/v1/messages", &body).header("x-claude-code-session-id", "c1").send().await?;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let reused = cluster.metric_sum("roost_prompt_cache_reused_tokens_total", "cache=\"session\"").await?;
    assert!(reused >= 2000.0, "{reused} tokens of the second prompt were known");
    assert_eq!(
        cluster.metric_sum("dynamo_frontend_requests_total", "endpoint=\"anthropic_messages\"").await?,
        2.0
    );
    Ok(())
}

#[tokio::test]
async fn errors_come_in_anthropics_envelope() -> Result<()> {
    let mut options = Options::new(1);
    options.config.http.body_limit = 4096;
    let cluster = options.start().await?;
    let good = request("@@hello@@", json!({}));
    let unknown = request("x", json!({"model": "nope"}));
    let image = json!([{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}]}]);
    let cases = [
        ("bad JSON", 400, "invalid_request_error", cluster.post("/v1/messages", &good).raw_body("{")),
        (
            "no limit",
            400,
            "invalid_request_error",
            cluster.post("/v1/messages", &request("x", json!({"max_tokens": null}))),
        ),
        (
            "image",
            400,
            "invalid_request_error",
            cluster.post("/v1/messages", &request("", json!({"messages": image}))),
        ),
        ("unknown model", 404, "not_found_error", cluster.post("/v1/messages", &unknown)),
        ("unknown model", 404, "not_found_error", cluster.post("/v1/messages/count_tokens", &unknown)),
        (
            "too large",
            413,
            "request_too_large",
            cluster.post("/v1/messages", &good).raw_body("x".repeat(5000)),
        ),
        ("no route", 404, "not_found_error", cluster.post("/v1/messages/zzz", &good)),
        ("wrong method", 405, "invalid_request_error", cluster.get("/v1/messages")),
        ("engine failure", 500, "api_error", cluster.post("/v1/messages", &request("@@raise0@@", json!({})))),
        (
            "engine failure",
            500,
            "api_error",
            cluster.post("/v1/messages", &request("@@raise0@@", json!({"stream": true}))),
        ),
    ];
    for (what, status, kind, request) in cases {
        let reply = request.send().await?;
        let body = reply.json()?;
        assert_eq!((reply.status, &body["error"]["type"]), (status, &json!(kind)), "{what}: {body}");
        assert_eq!(body["type"], "error", "{what}");
        assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{what}");
    }
    // After the first event there is no status any more.
    let body = request("@@die@@", json!({"stream": true}));
    let events = post(&cluster, &body).await?.events();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["error"]["type"]), (&json!("error"), &json!("api_error")), "{last}");
    assert!(!last.to_string().contains("secret"), "{last}");
    Ok(())
}

/// A worker that is slow to begin: signs of life are events of the protocol.
#[tokio::test]
async fn pings_keep_a_stream_open() -> Result<()> {
    let options = Options::new(1).with(|c| c.http.keep_alive = Some(std::time::Duration::from_millis(200)));
    let cluster = options.start().await?;
    let events = post(&cluster, &request("@@slow3@@", json!({"stream": true}))).await?.events();
    let pings = events.iter().filter(|event| event["type"] == "ping").count();
    assert!(pings >= 2, "{pings} pings in {events:?}");
    assert_eq!(fold(&events)["content"], json!([{"type": "text", "text": "late"}]));
    Ok(())
}

#[tokio::test]
async fn the_api_can_be_moved_and_switched_off() -> Result<()> {
    let off = Options::new(1).with(|c| c.http.messages_api = false).start().await?;
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let reply = off.post(path, &request("@@hello@@", json!({}))).send().await?;
        assert_eq!((reply.status, &reply.json()?["code"]), (404, &json!(404)), "{path}");
    }
    let moved = Options::new(1)
        .with(|c| {
            c.http.paths.messages = "/claude".into();
            c.http.paths.chat = "/chat".into();
        })
        .start()
        .await?;
    let body = request("@@hello@@", json!({}));
    assert_eq!(moved.post("/claude", &body).send().await?.status, 200);
    assert_eq!(moved.post("/claude/count_tokens", &body).send().await?.status, 200);
    assert_eq!(moved.post("/chat", &body).send().await?.status, 200);
    assert_eq!(moved.post("/v1/messages", &body).send().await?.status, 404);
    let document = moved.get("/openapi.json").send().await?.json()?;
    assert!(document["paths"]["/claude/count_tokens"]["post"].is_object(), "{}", document["paths"]);
    assert!(document["paths"]["/v1/messages"].is_null());
    Ok(())
}
