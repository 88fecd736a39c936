//! Differences between what clients send and what templates read.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::{BrokenArguments, Message, invalid, parse_json};
use crate::capabilities::{Capabilities, ReasoningKey};
use crate::engine::dump_json;
use crate::error::RenderError;

/// Null and missing content become an empty string; parts become one string where the template reads no parts.
pub(super) fn content(
    message: &mut Message,
    index: usize,
    capabilities: &Capabilities,
) -> Result<(), RenderError> {
    let content = message.get("content");
    let path = || format!("messages[{index}].content");
    match content.map(Value::kind) {
        Some(ValueKind::String) => {}
        None if message.role() != "assistant" => {}
        None | Some(ValueKind::None) => message.set("content", Value::from("")),
        Some(ValueKind::Seq) if capabilities.content_parts && content.and_then(Value::len) != Some(0) => {}
        Some(ValueKind::Seq) => {
            let text = joined_text(content.unwrap_or(&Value::UNDEFINED), &path())?;
            message.set("content", Value::from(text));
        }
        Some(_) => return Err(invalid(&path(), "must be a string, null or an array of parts")),
    }
    Ok(())
}

/// The texts of the parts, one per line.
fn joined_text(parts: &Value, path: &str) -> Result<String, RenderError> {
    let mut joined = String::new();
    let parts = parts.try_iter().map_err(|e| invalid(path, &e.to_string()))?;
    for (index, part) in parts.enumerate() {
        let text = match part.as_str() {
            Some(_) => part.clone(),
            None => part.get_attr("text").unwrap_or_default(),
        };
        let Some(text) = text.as_str() else {
            let kind = part.get_attr("type").unwrap_or_default();
            let reason = format!("parts of type {kind:?} cannot be rendered by this model's chat template");
            return Err(invalid(&format!("{path}[{index}]"), &reason));
        };
        if index > 0 {
            joined.push('\n');
        }
        joined.push_str(text);
    }
    Ok(joined)
}

/// Arguments of earlier tool calls: text or object, as the template reads them.
pub(super) fn tool_calls(
    message: &mut Message,
    index: usize,
    capabilities: &Capabilities,
    broken: BrokenArguments,
) -> Result<(), RenderError> {
    let Some(calls) = message.get("tool_calls").filter(|calls| calls.kind() == ValueKind::Seq) else {
        return Ok(());
    };
    let mut shaped = Vec::with_capacity(calls.len().unwrap_or_default());
    for (number, call) in calls.try_iter().map_err(|e| invalid("tool_calls", &e.to_string()))?.enumerate() {
        let function = call.get_attr("function").unwrap_or_default();
        let given = function.get_attr("arguments").unwrap_or_default();
        let path = || format!("messages[{index}].tool_calls[{number}].function.arguments");
        shaped.push(
            match arguments(&given, capabilities, broken).map_err(|reason| invalid(&path(), &reason))? {
                Some(arguments) => {
                    with_member(&call, "function", with_member(&function, "arguments", arguments))
                }
                None => call,
            },
        );
    }
    message.set("tool_calls", Value::from(shaped));
    Ok(())
}

/// The arguments to render; `None` when those given can stay.
fn arguments(
    given: &Value,
    capabilities: &Capabilities,
    broken: BrokenArguments,
) -> Result<Option<Value>, String> {
    if capabilities.arguments_text {
        let as_text = given.kind() == ValueKind::Map && !capabilities.arguments_object;
        return Ok(as_text.then(|| dump_json(given).ok().map(Value::from)).flatten());
    }
    let Some(text) = given.as_str() else { return Ok(None) };
    if text.trim().is_empty() {
        return Ok(Some(Value::from_pairs(Vec::<(Value, Value)>::new())));
    }
    match (parse_json(text), broken) {
        (Ok(parsed), _) if parsed.kind() == ValueKind::Map => Ok(Some(parsed)),
        (_, BrokenArguments::Wrap) => Ok(Some(Value::from_pairs([("arguments", text)]))),
        (Ok(_), BrokenArguments::Refuse) => Err("must be a JSON object".to_owned()),
        (Err(e), BrokenArguments::Refuse) => Err(format!("must be JSON text: {e}")),
    }
}

/// The same object with one member replaced, at its place.
fn with_member(object: &Value, name: &str, value: Value) -> Value {
    let keys = object.try_iter().into_iter().flatten();
    let pairs = keys.map(|key| {
        let value = if key.as_str() == Some(name) {
            value.clone()
        } else {
            object.get_item(&key).unwrap_or_default()
        };
        (key, value)
    });
    Value::from_pairs(pairs.collect::<Vec<_>>())
}

/// Reasoning of earlier turns under the name the template reads, when only the other one is given.
pub(super) fn reasoning(message: &mut Message, capabilities: &Capabilities) {
    let (wanted, other) = match capabilities.reasoning {
        Some(ReasoningKey::ReasoningContent) => ("reasoning_content", "reasoning"),
        Some(ReasoningKey::Reasoning) => ("reasoning", "reasoning_content"),
        None => return,
    };
    let given = |name: &str| message.get(name).filter(|text| text.kind() == ValueKind::String);
    if given(wanted).is_none()
        && let Some(text) = given(other)
    {
        let text = text.clone();
        message.set(wanted, text);
    }
}

/// System messages after the first turn, and users in a row, where the template refuses them.
pub(super) fn roles(mut messages: Vec<Message>, capabilities: &Capabilities) -> Vec<Message> {
    if capabilities.refuses_late_system {
        let leading = messages.iter().take_while(|message| message.role() == "system").count();
        let extra: Vec<Message> = messages.drain(leading.min(1)..leading).collect();
        for message in &extra {
            append(&mut messages[0], message);
        }
        for message in messages.iter_mut().skip(1) {
            if message.role() == "system" {
                // In place, not moved to the front: the prefix of the prompt must stay as it was.
                message.set("role", Value::from("user"));
            }
        }
    }
    if !capabilities.refuses_user_runs {
        return messages;
    }
    let mut merged: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages {
        match merged.last_mut() {
            Some(last) if last.role() == "user" && message.role() == "user" => append(last, &message),
            _ => merged.push(message),
        }
    }
    merged
}

/// Appends the content of a message to another one: texts with a blank line between, parts after parts.
fn append(target: &mut Message, message: &Message) {
    let text = |message: &Message| message.get("content").and_then(Value::as_str).map(str::to_owned);
    let joined = match (text(target), text(message)) {
        (Some(head), Some(tail)) if head.is_empty() || tail.is_empty() => Value::from(head + &tail),
        (Some(head), Some(tail)) => Value::from([head.as_str(), "\n\n", tail.as_str()].concat()),
        _ => {
            let parts = |message: &Message| match message.get("content") {
                Some(content) if content.kind() == ValueKind::Seq => {
                    content.try_iter().into_iter().flatten().collect()
                }
                Some(content) => {
                    vec![Value::from_pairs([("type", Value::from("text")), ("text", content.clone())])]
                }
                None => Vec::new(),
            };
            Value::from([parts(target), parts(message)].concat())
        }
    };
    target.set("content", joined);
}
