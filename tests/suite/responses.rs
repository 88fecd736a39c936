//! OpenAI's Responses API end to end.

#![allow(clippy::unwrap_used, reason = "a wrong answer fails the test that reads it")]

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options};
use serde_json::{Value, json};

async fn cluster(parsers: (Option<&'static str>, Option<&'static str>)) -> Result<Cluster> {
    let mut options = Options::new(1);
    options.parsers = parsers;
    options.start().await
}

fn request(input: Value, more: Value) -> Value {
    let mut body = json!({"model": MODEL, "input": input});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Output items put together from the events, which are checked to be in order and numbered through.
fn fold(events: &[Value]) -> (Vec<Value>, Value) {
    let (done, events) = events.split_last().unwrap();
    assert_eq!(done, &json!("[DONE]"));
    let mut items: Vec<Value> = Vec::new();
    let mut texts: Vec<String> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        let index = event["output_index"].as_u64().unwrap_or(0) as usize;
        match (number, event["type"].as_str().unwrap()) {
            (0, "response.created") | (1, "response.in_progress") => {
                assert_eq!(event["response"]["status"], "in_progress");
            }
            (_, "response.output_item.added") => {
                assert_eq!((index, &event["item"]["status"]), (items.len(), &json!("in_progress")));
                items.push(Value::Null);
                texts.push(String::new());
            }
            (_, "response.content_part.added" | "response.content_part.done") => {
                assert_eq!(event["part"]["text"], *texts[index]);
            }
            (_, kind) if kind.ends_with(".delta") => texts[index].push_str(event["delta"].as_str().unwrap()),
            (_, "response.output_text.done" | "response.reasoning_text.done") => {
                assert_eq!(event["text"], *texts[index]);
            }
            (_, "response.function_call_arguments.done") => assert_eq!(event["arguments"], *texts[index]),
            (_, "response.output_item.done") => items[index] = event["item"].clone(),
            (number, "response.completed" | "response.incomplete" | "response.failed") => {
                assert_eq!(number, events.len() - 1);
            }
            _ => panic!("{event}"),
        }
    }
    (items, events.last().unwrap()["response"].clone())
}

/// What must be equal in two answers to the same request.
fn comparable(response: &Value) -> Value {
    let mut response = response.clone();
    for member in ["id", "created_at", "completed_at"] {
        response[member] = Value::Null;
    }
    // The second of two equal prompts is partly in the worker's cache.
    response["usage"]["input_tokens_details"]["cached_tokens"] = Value::Null;
    for item in response["output"].as_array_mut().unwrap() {
        let (id, prefix) = (
            item["id"].as_str().unwrap(),
            match item["type"].as_str().unwrap() {
                "message" => "msg_",
                "reasoning" => "rs_",
                _ => "fc_",
            },
        );
        assert!(id.starts_with(prefix) && id.len() == prefix.len() + 32, "{id}");
        item["id"] = Value::Null;
        if item["call_id"].is_string() {
            item["call_id"] = Value::Null;
        }
    }
    response
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!([{"type": "function", "name": "get_weather", "description": "w", "parameters": parameters}])
}

#[tokio::test]
async fn streamed_and_unary_responses_are_equal() -> Result<()> {
    let plain = cluster((None, None)).await?;
    let calls = cluster((Some("hermes"), None)).await?;
    let thinks = cluster((None, Some("deepseek_r1"))).await?;
    let summary = json!({"reasoning": {"summary": "auto"}});
    let cases = [
        (&plain, "@@hello@@", json!({}), vec![("message", "hello", "completed")], "completed"),
        (
            &calls,
            "@@hermes2@@",
            json!({"tools": tools()}),
            vec![
                ("function_call", r#"{"city": "Paris"}"#, "completed"),
                ("function_call", r#"{"city": "Rome"}"#, "completed"),
            ],
            "completed",
        ),
        (
            &thinks,
            "@@thinkok@@",
            summary.clone(),
            vec![
                ("reasoning", "step one\nstep two", "completed"),
                ("message", "\n\nFinal answer.", "completed"),
            ],
            "completed",
        ),
        (&thinks, "@@thinkok@@", json!({}), vec![("message", "\n\nFinal answer.", "completed")], "completed"),
        (
            &thinks,
            "@@thinktrunc@@",
            summary,
            vec![("reasoning", "let me think about it step by", "incomplete")],
            "incomplete",
        ),
    ];
    for (cluster, script, more, expected, status) in cases {
        let mut body = request(json!(script), more);
        let unary = cluster.post("/v1/responses", &body).send().await?;
        assert_eq!(unary.status, 200, "{}", unary.text());
        let unary = unary.json()?;
        let output = unary["output"].as_array().unwrap();
        let shown: Vec<_> = output
            .iter()
            .map(|item| {
                let text = item["arguments"].as_str().or(item["content"][0]["text"].as_str());
                (item["type"].as_str().unwrap(), text.unwrap(), item["status"].as_str().unwrap())
            })
            .collect();
        assert_eq!((shown, unary["status"].as_str()), (expected, Some(status)), "{script}");
        body["stream"] = true.into();
        let streamed = cluster.post("/v1/responses", &body).send().await?;
        let (items, last) = fold(&streamed.events());
        assert_eq!(last["output"], Value::from(items));
        assert_eq!(comparable(&last), comparable(&unary), "{script}");
    }
    Ok(())
}

/// Instructions, items of earlier answers and results of calls reach the model, and the counted tokens are those that
/// the worker gets.
#[tokio::test]
async fn a_conversation_of_items() -> Result<()> {
    let cluster = cluster((Some("hermes"), None)).await?;
    let input = json!([
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
        {"role": "user", "content": "@@hello@@ weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "must ask"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call-1", "name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"},
        {"type": "function_call_output", "call_id": "call-1", "output": "18 °C"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "It is mild.", "annotations": []}]},
        {"role": "user", "content": [{"type": "input_text", "text": "And"}, {"type": "input_text", "text": " now?"}]}]);
    let body = request(
        input,
        json!({"instructions": "You are a clerk.", "tools": tools(), "max_output_tokens": 77}),
    );
    let counted = cluster.post("/v1/responses/input_tokens", &body).send().await?.json()?;
    let reply = cluster.post("/v1/responses", &body).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let seen = cluster.workers[0].journal().requests()[0].clone();
    assert_eq!(
        counted,
        json!({"object": "response.input_tokens", "input_tokens": seen.request.token_ids.len()})
    );
    assert_eq!(seen.request.stop_conditions.max_tokens, Some(77));
    let text = seen.text.clone().unwrap();
    for part in
        ["You are a clerk.\n\nbe brief", "@@hello@@ weather?", "Oslo", "18 °C", "It is mild.", "And now?"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let shown = reply.json()?;
    assert_eq!(
        (&shown["instructions"], &shown["max_output_tokens"]),
        (&json!("You are a clerk."), &json!(77))
    );
    assert_eq!(
        (&shown["tools"][0]["name"], &shown["tools"][0]["strict"]),
        (&json!("get_weather"), &json!(true))
    );
    Ok(())
}

#[tokio::test]
async fn a_schema_for_the_text_constrains_the_engine() -> Result<()> {
    let cluster = cluster((None, None)).await?;
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let format = json!({"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": true}});
    let body = request(json!("@@hello@@"), json!({"text": format}));
    let reply = cluster.post("/v1/responses", &body).send().await?;
    assert_eq!((reply.status, &reply.json()?["text"]), (200, &format));
    let seen = cluster.workers[0].journal().requests()[0].clone();
    assert_eq!(seen.request.sampling_options.guided_decoding.clone().unwrap().json, Some(schema));
    Ok(())
}

/// Functions in a namespace, as agents send those of MCP servers.
#[tokio::test]
async fn functions_keep_their_namespace() -> Result<()> {
    let cluster = cluster((Some("hermes"), None)).await?;
    let inner = json!([{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]);
    let tools = json!([{"type": "namespace", "name": "mcp", "description": "d", "tools": inner}, {"type": "web_search"}]);
    let reply =
        cluster.post("/v1/responses", &request(json!("@@hermes2@@"), json!({"tools": tools}))).send().await?;
    let call = reply.json()?["output"][0].clone();
    assert_eq!((&call["name"], &call["namespace"]), (&json!("get_weather"), &json!("mcp")));
    assert_eq!(cluster.metric("roost_ignored_fields_total").await?, Some(1.0));
    Ok(())
}

#[tokio::test]
async fn what_would_have_to_be_stored_is_refused() -> Result<()> {
    let cluster = cluster((None, None)).await?;
    for (member, value) in [
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!({"id": "conv_1"})),
        ("prompt", json!({"id": "pmpt_1"})),
        ("background", json!(true)),
        ("max_tool_calls", json!(3)),
    ] {
        let mut body = request(json!("@@hello@@"), json!({}));
        body[member] = value;
        let reply = cluster.post("/v1/responses", &body).send().await?;
        let error = reply.json()?["error"].clone();
        assert_eq!((reply.status, &error["param"]), (501, &json!(member)), "{error}");
        body[member] = if member == "background" { json!(false) } else { Value::Null };
        assert_eq!(cluster.post("/v1/responses", &body).send().await?.status, 200, "{member}");
    }
    let reference = request(json!([{"type": "item_reference", "id": "msg_1"}]), json!({}));
    assert_eq!(cluster.post("/v1/responses", &reference).send().await?.status, 501);
    for (method, path) in [
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel"),
    ] {
        let reply = cluster.get(path).method(method).send().await?;
        let text = reply.text();
        assert!(reply.status == 404 && text.contains("not stored"), "{method} {path}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn errors_of_responses() -> Result<()> {
    let cluster = cluster((None, None)).await?;
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    for (body, status, param) in [
        (json!({"input": "x"}), 400, json!("model")),
        (json!({"model": MODEL}), 400, json!("input")),
        (request(json!("x"), json!({"model": "nope"})), 404, json!("model")),
        (request(json!([]), json!({})), 400, json!("input")),
        (
            request(user(json!([{"type": "input_image", "image_url": "http://x/y.png"}])), json!({})),
            400,
            json!("input[0].content[0]"),
        ),
        (request(json!([{"type": "function_call", "name": "f"}]), json!({})), 400, json!("input[0].call_id")),
        (request(json!("x"), json!({"tool_choice": "required"})), 400, json!("tool_choice")),
        (request(json!("x"), json!({"max_output_tokens": 0})), 400, json!("max_output_tokens")),
        (request(json!("x"), json!({"text": {"format": {"type": "xml"}}})), 400, json!("text.format.type")),
    ] {
        let reply = cluster.post("/v1/responses", &body).send().await?;
        let error = reply.json()?;
        assert_eq!((reply.status, &error["error"]["param"]), (status, &param), "{body}: {error}");
    }
    let body = request(json!("@@die@@"), json!({"stream": true}));
    let events = cluster.post("/v1/responses", &body).send().await?.events();
    let (items, last) = fold(&events);
    assert_eq!(
        (&last["status"], &last["error"]["code"]),
        (&json!("failed"), &json!("server_error")),
        "{last}"
    );
    assert_eq!((items.len(), &items[0]["status"]), (1, &json!("incomplete")));
    assert!(!last.to_string().contains("secret"), "{last}");
    Ok(())
}
