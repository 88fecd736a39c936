//! Input items to the messages of a chat.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::names::Names;
use crate::ApiError;
use crate::conversation::{Arguments, Assistant, Call, Conversation, Escaped};

/// An item of any type; which members it has depends on the type.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<&'a RawValue>,
    name: Option<String>,
    namespace: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
}

/// A part of a text.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
}

/// Adds instructions and input. Texts of the system at the beginning are one message.
pub(super) fn convert(
    conversation: &mut Conversation,
    instructions: Option<&str>,
    input: &RawValue,
    names: &Names,
) -> Result<(), ApiError> {
    let mut opening: Vec<String> = instructions.map(str::to_owned).into_iter().collect();
    if let Some(text) = Escaped::of(input) {
        flush(conversation, &mut opening);
        conversation.text("user", &[text]);
        return Ok(());
    }
    let items: Vec<&RawValue> = serde_json::from_str(input.get())
        .map_err(|_| ApiError::invalid("input", "`input` must be a text or a list of items"))?;
    // What an assistant says comes as several items.
    let mut said: Option<Assistant<'_>> = None;
    for (at, raw) in items.into_iter().enumerate() {
        let path = format!("input[{at}]");
        let item: Item<'_> = serde_json::from_str(raw.get()).map_err(|e| {
            let text = e.to_string();
            let why = text.split(" at line ").next().unwrap_or_default();
            ApiError::invalid(path.clone(), format!("`{path}` must be an item: {why}"))
        })?;
        let kind = item.r#type.as_deref().unwrap_or("message");
        match kind {
            "message" if item.role.as_deref() == Some("assistant") => {
                said.get_or_insert_default().text.extend(texts(item.content, &path, "content")?);
            }
            "function_call" => {
                let name = item.name.ok_or_else(|| missing(&path, "name"))?;
                said.get_or_insert_default().calls.push(Call {
                    id: string(item.call_id, &path, "call_id")?,
                    name: names.encode(item.namespace.as_deref(), &name).to_owned(),
                    arguments: Arguments::Text(string(item.arguments, &path, "arguments")?),
                });
            }
            "reasoning" => {
                let content = texts(item.content, &path, "content")?;
                let shown = content.iter().any(|text| !text.is_empty());
                let text = if shown { content } else { texts(item.summary, &path, "summary")? };
                said.get_or_insert_default().reasoning.extend(text);
            }
            "message" => {
                end_turn(conversation, &mut opening, &mut said);
                let text = texts(item.content, &path, "content")?;
                message(conversation, &mut opening, item.role.as_deref(), &text, &path)?;
            }
            "function_call_output" => {
                end_turn(conversation, &mut opening, &mut said);
                flush(conversation, &mut opening);
                let id = string(item.call_id, &path, "call_id")?;
                let output = item.output.ok_or_else(|| missing(&path, "output"))?;
                conversation.tool(id, &texts(Some(output), &path, "output")?);
            }
            "item_reference" => {
                return Err(ApiError::not_implemented(
                    &path,
                    format!("`{path}`: responses are not stored here; send the item itself"),
                ));
            }
            // Traces of tools that run elsewhere: the model has nothing to do with them.
            _ => end_turn(conversation, &mut opening, &mut said),
        }
    }
    end_turn(conversation, &mut opening, &mut said);
    flush(conversation, &mut opening);
    if conversation.is_empty() {
        return Err(ApiError::invalid("input", "`input` has nothing that can be answered"));
    }
    Ok(())
}

fn message(
    conversation: &mut Conversation,
    opening: &mut Vec<String>,
    role: Option<&str>,
    text: &[Escaped<'_>],
    path: &str,
) -> Result<(), ApiError> {
    match role {
        Some("user") => {
            flush(conversation, opening);
            conversation.text("user", text);
        }
        Some("system" | "developer") if conversation.is_empty() => {
            opening.push(text.iter().map(Escaped::decode).collect());
        }
        Some("system" | "developer") => conversation.text("system", text),
        _ => {
            let path = format!("{path}.role");
            let text = format!("`{path}` must be user, assistant, system or developer");
            return Err(ApiError::invalid(path, text));
        }
    }
    Ok(())
}

/// Adds what the system said before anyone else.
fn flush(conversation: &mut Conversation, opening: &mut Vec<String>) {
    if !opening.is_empty() {
        conversation.plain("system", &opening.join("\n\n"));
        opening.clear();
    }
}

fn end_turn(conversation: &mut Conversation, opening: &mut Vec<String>, said: &mut Option<Assistant<'_>>) {
    if let Some(said) = said.take() {
        flush(conversation, opening);
        conversation.assistant(&said, "");
    }
}

/// Texts of a member that is a text or a list of parts; nothing when it is not there.
fn texts<'a>(raw: Option<&'a RawValue>, path: &str, member: &str) -> Result<Vec<Escaped<'a>>, ApiError> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    if let Some(text) = Escaped::of(raw) {
        return Ok(vec![text]);
    }
    let path = format!("{path}.{member}");
    let parts: Vec<Part<'_>> = serde_json::from_str(raw.get()).map_err(|_| {
        ApiError::invalid(path.clone(), format!("`{path}` must be a text or a list of parts with a `type`"))
    })?;
    let text = |(at, part): (usize, &Part<'a>)| {
        let path = format!("{path}[{at}]");
        match &*part.r#type {
            "input_text" | "output_text" | "text" | "reasoning_text" | "summary_text" => {
                string(part.text, &path, "text")
            }
            "refusal" => string(part.refusal, &path, "refusal"),
            kind => {
                let shown: String = kind.chars().take(64).collect();
                let text = match kind {
                    "input_image" => {
                        format!("`{path}`: images are not supported; this service takes text only")
                    }
                    "input_file" => format!("`{path}`: files are not supported; send their text instead"),
                    _ => format!("`{path}`: parts of type `{shown}` are not supported"),
                };
                Err(ApiError::invalid(path, text))
            }
        }
    };
    parts.iter().enumerate().map(text).collect()
}

fn string<'a>(value: Option<&'a RawValue>, path: &str, member: &str) -> Result<Escaped<'a>, ApiError> {
    let value = value.ok_or_else(|| missing(path, member))?;
    Escaped::of(value).ok_or_else(|| {
        let path = format!("{path}.{member}");
        ApiError::invalid(path.clone(), format!("`{path}` must be a string"))
    })
}

fn missing(path: &str, member: &str) -> ApiError {
    let path = format!("{path}.{member}");
    ApiError::invalid(path.clone(), format!("missing field `{path}`"))
}
