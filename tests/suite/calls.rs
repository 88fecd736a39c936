//! Reasoning and tool calls end to end: C-TOOL-01, C-TOOL-02, C-TOOL-03, C-REA-01; context length: C-API-03.

use anyhow::Result;
use roost_tests::{Cluster, MODEL, Options};
use serde_json::{Value, json};

/// An answer with its pieces joined, however it came.
#[derive(Debug, Default, PartialEq)]
struct Joined {
    content: String,
    reasoning: String,
    calls: Vec<(String, Value)>,
    finish: String,
}

fn tools(names: &[&str]) -> Value {
    let parameters =
        json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
    names
        .iter()
        .map(|name| json!({"type": "function", "function": {"name": name, "parameters": parameters}}))
        .collect()
}

async fn ask(cluster: &Cluster, script: &str, extra: &Value, stream: bool) -> Result<Joined> {
    let mut body =
        json!({"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": script}]});
    for (key, value) in extra.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let reply = cluster.post("/v1/chat/completions", &body).send().await?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Ok(if stream { join(&reply.events()) } else { whole(&reply.json()?) })
}

fn whole(answer: &Value) -> Joined {
    let choice = &answer["choices"][0];
    let message = &choice["message"];
    let text = |member: &str| message[member].as_str().unwrap_or_default().to_owned();
    let calls = message["tool_calls"].as_array().into_iter().flatten();
    Joined {
        content: text("content"),
        reasoning: text("reasoning_content"),
        calls: calls.map(|call| parsed(&call["function"]["name"], &call["function"]["arguments"])).collect(),
        finish: choice["finish_reason"].as_str().unwrap_or_default().to_owned(),
    }
}

fn parsed(name: &Value, arguments: &Value) -> (String, Value) {
    let name = name.as_str().unwrap_or_default();
    assert!(!name.is_empty());
    (
        name.to_owned(),
        serde_json::from_str(arguments.as_str().unwrap_or_default()).expect("arguments are JSON"),
    )
}

fn join(events: &[Value]) -> Joined {
    let mut joined = Joined::default();
    let mut calls: Vec<(String, String)> = Vec::new();
    for event in events {
        let choice = &event["choices"][0];
        let delta = &choice["delta"];
        joined.content += delta["content"].as_str().unwrap_or_default();
        joined.reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().expect("each call delta has its index") as usize;
            if let Some(name) = call["function"]["name"].as_str() {
                assert_eq!(index, calls.len(), "id and name once, in the first delta of a call");
                assert!(call["id"].as_str().is_some_and(|id| !id.is_empty()) && call["type"] == "function");
                calls.push((name.to_owned(), String::new()));
            }
            calls[index].1 += call["function"]["arguments"].as_str().unwrap_or_default();
        }
        if let Some(finish) = choice["finish_reason"].as_str() {
            joined.finish = finish.to_owned();
        }
    }
    joined.calls = calls.iter().map(|(name, arguments)| parsed(&json!(name), &json!(arguments))).collect();
    joined
}

fn call(name: &str, arguments: Value) -> (String, Value) {
    (name.to_owned(), arguments)
}

#[tokio::test]
async fn c_tool_01_streamed_and_unary_calls_are_equal() -> Result<()> {
    let paris = json!({"city": "Paris"});
    let cases = [
        (
            "kimi_k2",
            "@@kimi@@",
            "Let me check. ",
            vec![call("get_weather", paris.clone()), call("get_time", json!({"tz": "CET"}))],
        ),
        (
            "deepseek_v3_2",
            "@@dsml@@",
            "",
            vec![call("search", json!({})), call("get_weather", json!({"city": "42", "days": 7}))],
        ),
        (
            "hermes",
            "@@hermes2@@",
            "",
            vec![call("get_weather", paris), call("get_weather", json!({"city": "Rome"}))],
        ),
    ];
    for (parser, script, content, calls) in cases {
        let mut options = Options::new(1);
        options.parsers.0 = Some(parser);
        let cluster = options.start().await?;
        let extra = json!({"tools": tools(&["get_weather", "get_time", "search"])});
        let expected =
            Joined { content: content.into(), reasoning: String::new(), calls, finish: "tool_calls".into() };
        assert_eq!(ask(&cluster, script, &extra, false).await?, expected, "{parser}");
        assert_eq!(ask(&cluster, script, &extra, true).await?, expected, "{parser}");
    }
    Ok(())
}

#[tokio::test]
async fn c_tool_02_values_take_the_types_of_the_schema() -> Result<()> {
    let mut options = Options::new(1);
    options.parsers.0 = Some("qwen3_coder");
    let cluster = options.start().await?;
    let properties = json!({"seconds": {"type": "integer"}, "loud": {"type": "boolean"}, "label": {"type": "string"},
        "when": {"type": "integer"}, "tags": {"type": "array"}});
    let with = json!({"tools": [{"type": "function", "function": {"name": "set_timer",
        "parameters": {"type": "object", "properties": properties}}}]});
    let expected =
        json!({"seconds": 30, "loud": true, "label": "007", "when": "2026-01-15", "tags": ["a", "b"]});
    for stream in [false, true] {
        let answer = ask(&cluster, "@@qwen@@", &with, stream).await?;
        assert_eq!(answer.calls, [call("set_timer", expected.clone())]);
        assert_eq!(answer.finish, "tool_calls");
    }
    let without = json!({"tools": [{"type": "function", "function": {"name": "set_timer"}}]});
    assert_eq!(ask(&cluster, "@@qwen@@", &without, true).await?.calls.len(), 1, "no schema is no error");
    Ok(())
}

#[tokio::test]
async fn c_tool_03_calls_only_where_they_are_allowed() -> Result<()> {
    let mut options = Options::new(1);
    options.parsers.0 = Some("hermes");
    let cluster = options.start().await?;
    let tools = tools(&["get_weather"]);
    let one =
        ask(&cluster, "@@hermes2@@", &json!({"tools": tools, "parallel_tool_calls": false}), true).await?;
    assert_eq!((one.calls.len(), one.content.as_str(), one.finish.as_str()), (1, "", "tool_calls"));
    for extra in [json!({"tools": tools, "tool_choice": "none"}), json!({})] {
        let text = ask(&cluster, "@@hermes2@@", &extra, true).await?;
        assert!(text.calls.is_empty() && text.content.matches("<tool_call>").count() == 2, "{text:?}");
        assert_eq!(text.finish, "stop");
    }
    let plain = ask(&cluster, "@@plainlt@@", &json!({"tools": tools}), true).await?;
    assert_eq!(plain.content, r#"A JSON example: {"name": "x", "arguments": {}} and a lone < sign"#);
    Ok(())
}

#[tokio::test]
async fn c_rea_01_the_prompt_decides_where_reasoning_begins() -> Result<()> {
    let mut options = Options::new(1);
    options.model = "tiny-think";
    options.parsers = (Some("hermes"), Some("qwen3"));
    let cluster = options.start().await?;
    let off = json!({"enable_thinking": false});
    let calls = ask(
        &cluster,
        "@@hermes2@@",
        &json!({"tools": tools(&["get_weather"]), "chat_template_kwargs": off}),
        true,
    )
    .await?;
    assert_eq!((calls.calls.len(), calls.reasoning.as_str(), calls.finish.as_str()), (2, "", "tool_calls"));
    let hello = ask(&cluster, "@@hello@@", &json!({"chat_template_kwargs": off}), false).await?;
    assert_eq!((hello.content.as_str(), hello.reasoning.as_str()), ("hello", ""));
    for stream in [true, false] {
        let cut = ask(&cluster, "@@thinktrunc@@", &json!({}), stream).await?;
        assert_eq!(cut.reasoning, "let me think about it step by");
        assert_eq!((cut.content.as_str(), cut.finish.as_str()), ("", "length"));
    }
    let whole = ask(&cluster, "@@thinkok@@", &json!({}), true).await?;
    assert_eq!(whole.reasoning, "step one\nstep two");
    assert!(whole.content.ends_with("Final answer."), "{whole:?}");
    Ok(())
}

/// A required call is constrained decoding for the engine, and its JSON is a call for the client.
#[tokio::test]
async fn a_required_call_is_guided_and_read_without_a_parser() -> Result<()> {
    let mut options = Options::new(1);
    let said = json!([{"text": "[{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}]", "per": 3}, {"finish": "stop"}]);
    options.scripts.insert("required", serde_json::from_value(said)?);
    let cluster = options.start().await?;
    let extra = json!({"tools": tools(&["get_weather"]), "tool_choice": "required"});
    for stream in [false, true] {
        let answer = ask(&cluster, "@@required@@", &extra, stream).await?;
        assert_eq!(answer.calls, [call("get_weather", json!({"city": "Paris"}))]);
        assert_eq!((answer.content.as_str(), answer.finish.as_str()), ("", "tool_calls"));
    }
    let seen = &cluster.workers[0].journal().requests()[0].request;
    let schema = seen.sampling_options.guided_decoding.as_ref().and_then(|g| g.json.clone()).unwrap();
    assert_eq!((&schema["type"], &schema["minItems"]), (&json!("array"), &json!(1)));
    assert_eq!(schema["items"]["anyOf"][0]["properties"]["name"]["enum"], json!(["get_weather"]));
    let unknown = json!({"model": MODEL, "messages": [{"role": "user", "content": "x"}], "tools": tools(&["a"]),
        "tool_choice": {"type": "function", "function": {"name": "b"}}});
    assert_eq!(cluster.post("/v1/chat/completions", &unknown).send().await?.status, 400);
    Ok(())
}

#[tokio::test]
async fn c_api_03_the_context_is_checked_before_a_worker_is_asked() -> Result<()> {
    let mut options = Options::new(1);
    options.context_length = 8192;
    let cluster = options.start().await?;
    for stream in [false, true] {
        let body = json!({"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": "x".repeat(9000)}]});
        let reply = cluster.post("/v1/chat/completions", &body).send().await?;
        let error = reply.json()?;
        assert_eq!(
            (reply.status, &error["error"]["code"]),
            (400, &json!("context_length_exceeded")),
            "{error}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("maximum context length is 8192") && message.contains("90"), "{message}");
    }
    assert!(cluster.workers[0].journal().requests().is_empty());
    // What does not fit is capped to what does.
    let long = format!("{}@@hello@@", "x".repeat(8000));
    let body = json!({"model": MODEL, "max_tokens": 500, "messages": [{"role": "user", "content": long}]});
    assert_eq!(cluster.post("/v1/chat/completions", &body).send().await?.status, 200);
    let seen = cluster.workers[0].journal().requests()[0].request.clone();
    assert_eq!(seen.stop_conditions.max_tokens, Some(8192 - seen.token_ids.len() as u32));
    for wrong in [json!(0), json!(-5), json!(1_000_000_000_000u64)] {
        let body = json!({"model": MODEL, "max_tokens": wrong, "messages": [{"role": "user", "content": "@@hello@@"}]});
        let reply = cluster.post("/v1/chat/completions", &body).send().await?;
        assert_eq!((reply.status, &reply.json()?["error"]["param"]), (400, &json!("max_tokens")), "{wrong}");
    }
    Ok(())
}

/// A structural tag goes to the engine's grammar library as it came, in both of its forms; anything else is refused.
#[tokio::test]
async fn structural_tags_go_to_the_engine_as_they_are() -> Result<()> {
    let cluster = Options::new(1).start().await?;
    let tag = json!({"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": {"z": 1, "a": 2}}, "end": "</f>"});
    let older = json!([{"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}]);
    for format in [
        json!({"type": "structural_tag", "format": tag}),
        json!({"type": "structural_tag", "structures": older, "triggers": ["<f"]}),
    ] {
        for path in ["/v1/chat/completions", "/v1/completions"] {
            let body = json!({"model": MODEL, "prompt": "@@hello@@", "response_format": format,
                "messages": [{"role": "user", "content": "@@hello@@"}]});
            let reply = cluster.post(path, &body).send().await?;
            assert_eq!(reply.status, 200, "{}", reply.text());
            let requests = cluster.workers[0].journal().requests();
            let seen =
                requests.last().expect("it got there").request.sampling_options.guided_decoding.clone();
            assert_eq!(seen.expect("it is constrained").structural_tag, Some(format.clone()));
        }
    }
    for (format, extra) in [
        (json!({"type": "structural_tag"}), json!({})),
        (json!({"type": "structural_tag", "structures": []}), json!({})),
        (json!({"type": "structural_tags", "format": {}}), json!({})),
        (json!({"type": "structural_tag", "format": {}}), json!({"guided_regex": "a"})),
    ] {
        let mut body = json!({"model": MODEL, "response_format": format, "messages": [{"role": "user", "content": "x"}]});
        for (key, value) in extra.as_object().into_iter().flatten() {
            body[key] = value.clone();
        }
        let reply = cluster.post("/v1/chat/completions", &body).send().await?;
        assert_eq!(reply.status, 400, "{}", reply.text());
    }
    Ok(())
}
