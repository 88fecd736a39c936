//! Events whose fragments are joined: engines, parsers and frontends cut the same text in different places.

use serde_json::{Value, json};

/// Joins neighbouring fragments of the same text, gives the role and the end of a choice events of their own, and leaves
/// out what numbers events.
pub(super) fn fold(events: &[Value]) -> Value {
    let mut folded: Vec<Value> = Vec::new();
    for event in events.iter().flat_map(parts) {
        match folded.last_mut().and_then(|last| Some((fragment(last)?, last))) {
            Some((key, last)) if fragment(&event).as_ref() == Some(&key) => {
                let more = event.pointer(&key.pointer).and_then(Value::as_str).unwrap_or_default();
                let usage = event["data"]["usage"].clone();
                if let Some(text) = last.pointer_mut(&key.pointer) {
                    *text = [text.as_str().unwrap_or_default(), more].concat().into();
                }
                if !usage.is_null() {
                    last["data"]["usage"] = usage;
                }
            }
            _ => folded.push(event),
        }
    }
    folded.into()
}

/// A fragment of a text: where it stands in the event, and which text it belongs to.
#[derive(PartialEq)]
struct Fragment {
    pointer: String,
    of: Value,
}

fn fragment(event: &Value) -> Option<Fragment> {
    let data = &event["data"];
    let at = |pointer: &str, of: Value| Some(Fragment { pointer: pointer.to_owned(), of });
    if let Some(kind) = data["type"].as_str() {
        return match data["delta"]["type"].as_str() {
            Some("text_delta") => at("/data/delta/text", data["index"].clone()),
            Some("thinking_delta") => at("/data/delta/thinking", data["index"].clone()),
            Some("input_json_delta") => at("/data/delta/partial_json", data["index"].clone()),
            Some(_) => None,
            None if data["delta"].is_string() => at("/data/delta", json!([kind, data["item_id"]])),
            None => None,
        };
    }
    let choice = &data["choices"][0];
    let of = |text: Value| json!([choice["index"], text]);
    let delta = choice["delta"].as_object();
    if choice["finish_reason"].is_string() || !choice["logprobs"].is_null() || !data["nvext"].is_null() {
        None
    } else if let Some(call) = choice["delta"]["tool_calls"].get(0) {
        at("/data/choices/0/delta/tool_calls/0/function/arguments", of(call["index"].clone()))
    } else if delta.is_some_and(|delta| delta.len() == 1) {
        let member = delta?.keys().next()?;
        (member != "role")
            .then(|| Fragment { pointer: format!("/data/choices/0/delta/{member}"), of: of(json!(member)) })
    } else {
        None
    }
}

/// The parts that one event may be made of. A call's name and the first of its arguments are two.
fn parts(event: &Value) -> Vec<Value> {
    let mut rest = event.clone();
    if let Some(data) = rest["data"].as_object_mut() {
        data.remove("sequence_number");
    }
    let choices = rest["data"]["choices"].as_array().map_or(0, Vec::len);
    if choices != 1 || !rest["data"]["choices"][0]["delta"].is_object() {
        return vec![rest];
    }
    let mut parts = Vec::new();
    let choice = &mut rest["data"]["choices"][0];
    let finish = choice["finish_reason"].take();
    let delta = choice["delta"].as_object_mut().expect("checked above");
    let role = delta.remove("role");
    let calls = delta.contains_key("tool_calls");
    if calls && delta.get("content").is_some_and(|text| text == "") {
        delta.remove("content");
    }
    let is_empty = delta.is_empty();
    let with_delta = |delta: Value| {
        let mut part = rest.clone();
        part["data"]["choices"][0]["delta"] = delta;
        part
    };
    if let Some(role) = role {
        parts.push(with_delta(json!({"role": role})));
    }
    let call = &rest["data"]["choices"][0]["delta"]["tool_calls"][0];
    if call["id"].is_string() {
        let mut head = call.clone();
        let arguments = head["function"]["arguments"].take();
        head["function"]["arguments"] = "".into();
        parts.push(json!({"call": head}));
        if arguments.as_str().is_some_and(|text| !text.is_empty()) {
            let more = json!({"index": head["index"], "function": {"arguments": arguments}});
            parts.push(with_delta(json!({"tool_calls": [more]})));
        }
    } else if !is_empty {
        parts.push(rest.clone());
    }
    if finish.is_string() {
        let mut last = with_delta(json!({}));
        last["data"]["choices"][0]["finish_reason"] = finish;
        if !is_empty {
            last["data"]["choices"][0]["logprobs"] = Value::Null;
        }
        parts.push(last);
    }
    parts
}
