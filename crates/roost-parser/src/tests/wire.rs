//! The exchanges recorded from a live frontend with the parsers hermes and qwen3.

use serde_json::{Value, json};

use super::support::{Folded, fixture, parse, spec};
use crate::{ToolChoice, ToolContext, Tools, guided_schema};

/// Exchanges whose result is not the peer's:
///
/// - `tool_two_stream`: the line break between two blocks is no content.
/// - `tool_with_reasoning`: nor is the one between reasoning and a block.
/// - `tool_truncated`, `tool_bad_args`: what is no call is content; the peer drops it.
const DIFFERENT: &[&str] = &["tool_two_stream", "tool_with_reasoning", "tool_truncated", "tool_bad_args"];

fn case(name: &str) -> Value {
    let fixture = fixture("http/wire_parsers.json");
    fixture["cases"].as_array().unwrap().iter().find(|case| case["name"] == json!(name)).unwrap().clone()
}

/// The text the scripted engine was told to write.
fn output(request: &Value) -> Option<String> {
    let prompt = request["messages"][0]["content"].as_str()?;
    let script: Value = serde_json::from_str(prompt.strip_prefix("@@")?.strip_suffix("@@")?).ok()?;
    script["out"].as_str().map(str::to_owned)
}

fn request_context(request: &Value) -> ToolContext {
    let tools = &request["tools"];
    let tools = if tools.is_null() { Tools::default() } else { Tools::parse(&tools.to_string()).unwrap() };
    ToolContext {
        tools: tools.into(),
        tool_choice: choice(&request["tool_choice"]),
        ..ToolContext::default()
    }
}

fn choice(value: &Value) -> ToolChoice {
    match value.as_str() {
        Some("none") => ToolChoice::None,
        Some("required") => ToolChoice::Required,
        _ => {
            value["function"]["name"].as_str().map_or(ToolChoice::Auto, |name| ToolChoice::Named(name.into()))
        }
    }
}

/// The peer's answer, folded.
fn answer(response: &Value) -> Folded {
    let mut folded = Folded::default();
    let mut take = |message: &Value| {
        folded.reasoning.push_str(message["reasoning_content"].as_str().unwrap_or(""));
        folded.content.push_str(message["content"].as_str().unwrap_or(""));
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            if let Some(name) = call["function"]["name"].as_str() {
                folded.calls.push((name.to_owned(), String::new(), true));
                folded.ids.push(None);
            }
            folded.calls.last_mut().unwrap().1.push_str(call["function"]["arguments"].as_str().unwrap());
        }
    };
    match response["events"].as_array() {
        Some(events) => events.iter().for_each(|event| take(&event["data"]["choices"][0]["delta"])),
        None => take(&response["body"]["choices"][0]["message"]),
    }
    folded
}

#[test]
fn answers_are_the_peers() {
    let fixture = fixture("http/wire_parsers.json");
    let spec = spec("hermes", "qwen3");
    let mut compared = 0;
    for case in fixture["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let request = &case["request"]["body"];
        let about_parsing =
            name.starts_with("tool_") || name.starts_with("reasoning_") || name == "agentx_request";
        if !about_parsing || case["response"]["status"] != json!(200) {
            continue;
        }
        let text = output(request).unwrap();
        let folded = parse(&spec, &request_context(request), &text);
        let same = folded == answer(&case["response"]);
        assert_eq!(same, !DIFFERENT.contains(&name), "{name}: {folded:?}");
        compared += 1;
    }
    assert_eq!(compared, 15);
}

#[test]
fn what_differs_is_content_that_the_peer_drops_or_adds() {
    let spec = spec("hermes", "qwen3");
    let run = |name: &str| {
        let request = &case(name)["request"]["body"];
        let text = output(request).unwrap();
        (parse(&spec, &request_context(request), &text), text)
    };
    for name in ["tool_truncated", "tool_bad_args"] {
        let (folded, text) = run(name);
        assert_eq!(folded, Folded { content: text, ..Folded::default() });
    }
    for name in ["tool_two_stream", "tool_with_reasoning"] {
        let (folded, _) = run(name);
        let theirs = answer(&case(name)["response"]);
        assert_eq!(theirs.content, "\n");
        assert_eq!(folded, Folded { content: String::new(), ..theirs });
    }
}

#[test]
fn schemas_of_constrained_decoding_are_the_peers() {
    let mut compared = 0;
    for name in ["tool_required", "tool_named_stream", "tool_unary", "tool_choice_none"] {
        let case = case(name);
        let context = request_context(&case["request"]["body"]);
        let schema = guided_schema(&context.tools, &context.tool_choice);
        let theirs = &case["engine_saw"]["sampling_options"]["guided_decoding"]["json"];
        match schema {
            // Compared as text: the order of members matters to a prefix of the engine's cache.
            Some(schema) => {
                assert_eq!(serde_json::from_str::<Value>(&schema).unwrap().to_string(), theirs.to_string())
            }
            None => assert!(theirs.is_null()),
        }
        compared += 1;
    }
    assert_eq!(compared, 4);
}

#[test]
fn arguments_of_a_named_call_come_as_they_are_written() {
    let case = case("tool_named_stream");
    let context = request_context(&case["request"]["body"]);
    let mut parser = spec("hermes", "qwen3").start(&context);
    let mut fragments = Vec::new();
    for piece in ["{\"", "city", "\":", " \"", "Paris", "\"}"] {
        let mut out = Vec::new();
        parser.push(piece, &mut out);
        let call = out.iter().find_map(|delta| match delta {
            crate::Delta::ToolArguments { fragment, .. } => Some(fragment.clone()),
            _ => None,
        });
        fragments.extend(call);
    }
    let events = case["response"]["events"].as_array().unwrap();
    let theirs: Vec<&str> = events
        .iter()
        .filter_map(|event| {
            event["data"]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str()
        })
        .collect();
    assert_eq!(fragments, theirs);
}
