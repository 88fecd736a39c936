//! Messages and their blocks to the messages of a chat.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ApiError;
use crate::conversation::{Arguments, Assistant, Call, Conversation, Escaped};

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: &'a RawValue,
}

/// A block of any type; which members it has depends on the type.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_use_id: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// A message's text, or its blocks.
enum Content<'a> {
    Text(Escaped<'a>),
    Blocks(Vec<Block<'a>>),
}

/// Adds the messages; tells whether the last one is the beginning of the answer.
pub(super) fn convert(conversation: &mut Conversation, raw: &RawValue) -> Result<bool, ApiError> {
    let list: Vec<&RawValue> = serde_json::from_str(raw.get())
        .map_err(|_| ApiError::invalid("messages", "`messages` must be a list"))?;
    if list.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` must not be empty"));
    }
    let mut prefill = false;
    for (at, raw) in list.into_iter().enumerate() {
        let path = format!("messages[{at}]");
        let message: Message<'_> = serde_json::from_str(raw.get())
            .map_err(|e| unreadable(&path, &e, "must be an object with `role` and `content`"))?;
        let content_path = format!("{path}.content");
        let content = content(message.content, &content_path)?;
        prefill = false;
        match &*message.role {
            "user" => user(conversation, &content, &content_path)?,
            "assistant" => prefill = assistant(conversation, content, &content_path)?,
            "system" => system(conversation, &content),
            _ => {
                let path = format!("{path}.role");
                return Err(ApiError::invalid(
                    path.clone(),
                    format!("`{path}` must be user, assistant or system"),
                ));
            }
        }
    }
    if conversation.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` has nothing that can be answered"));
    }
    Ok(prefill)
}

fn content<'a>(raw: &'a RawValue, path: &str) -> Result<Content<'a>, ApiError> {
    if let Some(text) = Escaped::of(raw) {
        return Ok(Content::Text(text));
    }
    let blocks: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|_| {
        ApiError::invalid(path.to_owned(), format!("`{path}` must be a text or a list of content blocks"))
    })?;
    if blocks.is_empty() {
        return Err(ApiError::invalid(
            path.to_owned(),
            format!("`{path}` must have at least one content block"),
        ));
    }
    let block = |(at, raw): (usize, &'a RawValue)| {
        let path = format!("{path}[{at}]");
        serde_json::from_str(raw.get())
            .map_err(|e| unreadable(&path, &e, "must be a content block with a `type`"))
    };
    blocks.into_iter().enumerate().map(block).collect::<Result<_, _>>().map(Content::Blocks)
}

/// Texts become user messages, results of tools messages of their own, in order.
fn user(conversation: &mut Conversation, content: &Content<'_>, path: &str) -> Result<(), ApiError> {
    let blocks = match content {
        Content::Text(text) => {
            conversation.text("user", &[*text]);
            return Ok(());
        }
        Content::Blocks(blocks) => blocks,
    };
    let mut texts = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let path = format!("{path}[{at}]");
        match &*block.r#type {
            "text" => texts.push(string(block.text, &path, "text")?),
            "tool_result" => {
                if !texts.is_empty() {
                    conversation.text("user", &std::mem::take(&mut texts));
                }
                let id = string(block.tool_use_id, &path, "tool_use_id")?;
                conversation.tool(id, &result(block.content, &path)?);
            }
            // What an assistant said is no user's text.
            "tool_use" | "thinking" | "redacted_thinking" | "server_tool_use" | "web_search_tool_result" => {}
            other => return Err(unsupported(other, &path)),
        }
    }
    if !texts.is_empty() {
        conversation.text("user", &texts);
    }
    Ok(())
}

/// Text of a tool's result.
fn result<'a>(raw: Option<&'a RawValue>, path: &str) -> Result<Vec<Escaped<'a>>, ApiError> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    let path = format!("{path}.content");
    if let Some(text) = Escaped::of(raw) {
        return Ok(vec![text]);
    }
    let blocks: Vec<Block<'_>> = serde_json::from_str(raw.get())
        .map_err(|e| unreadable(&path, &e, "must be a text or a list of content blocks"))?;
    let text = |(at, block): (usize, &Block<'a>)| {
        let path = format!("{path}[{at}]");
        match &*block.r#type {
            "text" => string(block.text, &path, "text"),
            other => Err(unsupported(other, &path)),
        }
    };
    blocks.iter().enumerate().map(text).collect()
}

fn assistant(conversation: &mut Conversation, content: Content<'_>, path: &str) -> Result<bool, ApiError> {
    let mut said = Assistant::default();
    match content {
        Content::Text(text) => said.text.push(text),
        Content::Blocks(blocks) => {
            for (at, block) in blocks.into_iter().enumerate() {
                let path = format!("{path}[{at}]");
                match &*block.r#type {
                    "text" => said.text.push(string(block.text, &path, "text")?),
                    "thinking" => said.reasoning.push(string(block.thinking, &path, "thinking")?),
                    "tool_use" | "server_tool_use" => said.calls.push(Call {
                        id: string(block.id, &path, "id")?,
                        name: block.name.ok_or_else(|| missing(&path, "name"))?,
                        arguments: block.input.map_or(Arguments::Json(no_arguments()), Arguments::Json),
                    }),
                    // Nobody here can read them.
                    "redacted_thinking" | "web_search_tool_result" => {}
                    other => return Err(unsupported(other, &path)),
                }
            }
        }
    }
    said.text.retain(|text| !text.is_empty());
    let prefill = said.calls.is_empty() && !said.text.is_empty();
    conversation.assistant(&said, "\\n");
    Ok(prefill)
}

/// Agents send notes of the system between other messages.
fn system(conversation: &mut Conversation, content: &Content<'_>) {
    match content {
        Content::Text(text) => conversation.text("system", &[*text]),
        Content::Blocks(blocks) => {
            let texts = blocks
                .iter()
                .filter_map(|block| block.text.and_then(|text| serde_json::from_str(text.get()).ok()));
            conversation.plain("system", &texts.collect::<Vec<String>>().join("\n"));
        }
    }
}

fn no_arguments() -> &'static RawValue {
    serde_json::from_str("{}").expect("an empty object is JSON")
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

fn unreadable(path: &str, error: &serde_json::Error, expected: &str) -> ApiError {
    let text = error.to_string();
    let why = text.split(" at line ").next().unwrap_or_default();
    ApiError::invalid(path.to_owned(), format!("`{path}` {expected}: {why}"))
}

fn unsupported(kind: &str, path: &str) -> ApiError {
    let shown: String = kind.chars().take(64).collect();
    let text = match kind {
        "image" => format!("`{path}`: images are not supported; this service takes text only"),
        "document" => format!("`{path}`: documents are not supported; send their text instead"),
        _ => format!("`{path}`: content blocks of type `{shown}` are not supported"),
    };
    ApiError::invalid(path.to_owned(), text)
}
