use bytes::Bytes;
use serde_json::value::RawValue;

use crate::fields::{Fields, interpret};
use crate::{ApiError, FieldPolicy, Flavor, Generation, Ignored, Raw};

/// Members that clients send and that change nothing here.
const NO_EFFECT: &[&str] = &[
    "user",
    "metadata",
    "store",
    "service_tier",
    "prediction",
    "modalities",
    "prompt_cache_key",
    "web_search_options",
    "mm_processor_kwargs",
    "prompt_cache_retention",
    "safety_identifier",
    "verbosity",
    "audio",
];

/// `POST /v1/chat/completions`, checked.
///
/// `messages`, `tools` and the template arguments are slices of the body, interpreted by the template.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    /// Served model name.
    pub model: String,
    /// JSON array of messages, verbatim.
    pub messages: Raw,
    /// JSON array of tools, verbatim; `None` when absent or switched off by `tool_choice: "none"`.
    pub tools: Option<Raw>,
    /// Whether and how tools are to be called.
    pub tool_choice: ToolChoice,
    /// `parallel_tool_calls`; the default is true.
    pub parallel_tool_calls: Option<bool>,
    /// How to generate and how to answer.
    pub generation: Generation,
    /// JSON object of template arguments.
    pub chat_template_kwargs: Option<Raw>,
    /// `reasoning_effort`, verbatim.
    pub reasoning_effort: Option<Raw>,
    /// `thinking`, verbatim.
    pub thinking: Option<Raw>,
    /// End the prompt with the opening of an assistant turn; the default is true.
    pub add_generation_prompt: Option<bool>,
    /// Leave the last message open.
    pub continue_final_message: Option<bool>,
    /// `response_format`, verbatim: some templates show it.
    pub response_format: Option<Raw>,
    /// The model is to reason if it can, unless `thinking` or the template arguments say otherwise.
    pub expects_reasoning: bool,
    /// Members that had no effect.
    pub ignored: Ignored,
}

/// Whether and how tools are to be called.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No calls.
    None,
    /// At least one call.
    Required,
    /// A call of this function.
    Named(String),
}

/// The part of a body that an earlier body had too: what is known to be valid there need not be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Familiar {
    /// Where the list of messages opens.
    pub messages: usize,
    /// The end of the last message that is known.
    pub end: usize,
}

impl ChatRequest {
    /// Splits and checks a request body.
    pub fn parse(body: &Bytes, policy: FieldPolicy) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let messages = fields.slice("messages").ok_or_else(|| fields.missing("messages"))?;
        Self::interpret(fields, messages, policy)
    }

    /// As [`parse`](Self::parse), for a body whose bytes up to `familiar.end` are those of a body that was parsed: the
    /// messages among them are skipped.
    pub fn parse_familiar(body: &Bytes, familiar: Familiar, policy: FieldPolicy) -> Result<Self, ApiError> {
        // Whatever is wrong is said of the body as it came.
        Self::without_familiar(body, familiar, policy).map_or_else(|| Self::parse(body, policy), Ok)
    }

    /// Parses the body with one short message in place of those that are known.
    fn without_familiar(body: &Bytes, familiar: Familiar, policy: FieldPolicy) -> Option<Self> {
        const STUB: &[u8] = b"[{}";
        let Familiar { messages: start, end } = familiar;
        // Only behind a closing bracket is it sure that a message ends, whatever follows.
        let known = body.get(start..end).filter(|known| known.starts_with(b"[") && known.ends_with(b"}"))?;
        let short = Bytes::from([&body[..start], STUB, &body[end..]].concat());
        let mut fields = Fields::of_body(&short).ok()?;
        let rest = fields.slice("messages")?;
        if rest.offset_in(&short)? != start {
            return None;
        }
        let messages =
            Raw::slice_of_bytes(body, start..start + known.len() + rest.as_bytes().len() - STUB.len());
        Self::interpret(fields, messages, policy).ok()
    }

    fn interpret(mut fields: Fields<'_>, messages: Raw, policy: FieldPolicy) -> Result<Self, ApiError> {
        let mut ignored = Ignored::default();
        check_messages(&messages)?;
        let model: String = fields.required("model")?;
        if model.is_empty() {
            return Err(ApiError::invalid("model", "Validation: `model` must not be empty"));
        }
        for legacy in ["functions", "function_call"] {
            if fields.raw(legacy).is_some() {
                return Err(ApiError::not_implemented(
                    legacy,
                    format!("`{legacy}` is not supported; use `tools`."),
                ));
            }
        }
        let (tools, tool_choice) = tools(&mut fields)?;
        let response_format = fields.peek("response_format");
        let generation = Generation::take(&mut fields, Flavor::Chat, policy, &mut ignored)?;
        let kwargs = match (fields.slice("chat_template_kwargs"), fields.slice("chat_template_args")) {
            (Some(_), Some(_)) => {
                return Err(ApiError::invalid(
                    "chat_template_kwargs",
                    "`chat_template_kwargs` and `chat_template_args` are the same member; send one",
                ));
            }
            (kwargs, args) => kwargs.or(args),
        };
        let request = ChatRequest {
            model,
            messages,
            tools,
            tool_choice,
            parallel_tool_calls: fields.get("parallel_tool_calls")?,
            generation,
            chat_template_kwargs: kwargs,
            reasoning_effort: fields.slice("reasoning_effort"),
            thinking: fields.slice("thinking"),
            add_generation_prompt: fields.get("add_generation_prompt")?,
            continue_final_message: fields.get("continue_final_message")?,
            response_format,
            expects_reasoning: false,
            ignored: Ignored::default(),
        };
        fields.accept(NO_EFFECT);
        fields.rest(policy, &mut ignored)?;
        Ok(ChatRequest { ignored, ..request })
    }
}

fn check_messages(messages: &Raw) -> Result<(), ApiError> {
    let text = messages.as_bytes();
    if !text.starts_with(b"[") {
        return Err(ApiError::invalid("messages", "`messages` must be a list"));
    }
    if text[1..].trim_ascii_start().starts_with(b"]") {
        return Err(ApiError::invalid("messages", "Validation: `messages` must not be empty"));
    }
    Ok(())
}

/// Tools that the prompt shows, and what is to be done with them.
fn tools(fields: &mut Fields<'_>) -> Result<(Option<Raw>, ToolChoice), ApiError> {
    let tools = fields.raw("tools");
    let choice = fields.raw("tool_choice").map(tool_choice).transpose()?.unwrap_or_default();
    if let Some(tools) = tools {
        let list: Vec<&RawValue> = serde_json::from_str(tools.get())
            .map_err(|_| ApiError::invalid("tools", "`tools` must be a list"))?;
        if list.is_empty() {
            return Err(ApiError::invalid("tools", "Validation: `tools` must not be empty; leave it out"));
        }
        if list.len() > 1536 {
            return Err(ApiError::invalid("tools", "Validation: `tools` has more than 1536 entries"));
        }
    }
    match choice {
        ToolChoice::Auto => {}
        ToolChoice::None => return Ok((None, choice)),
        ToolChoice::Required | ToolChoice::Named(_) if tools.is_none() => {
            return Err(ApiError::invalid("tool_choice", "Validation: this `tool_choice` needs `tools`"));
        }
        ToolChoice::Required | ToolChoice::Named(_) => {}
    }
    Ok((tools.map(|tools| Raw::slice_of(fields.body(), tools.get())), choice))
}

fn tool_choice(raw: &RawValue) -> Result<ToolChoice, ApiError> {
    #[derive(serde::Deserialize)]
    struct Named {
        function: Function,
    }
    #[derive(serde::Deserialize)]
    struct Function {
        name: String,
    }
    let wrong = || {
        let text = "`tool_choice` must be `none`, `auto`, `required` or `{\"type\":\"function\",\"function\":{\"name\":…}}`";
        ApiError::invalid("tool_choice", text)
    };
    if let Ok(named) = serde_json::from_str::<Named>(raw.get()) {
        return Ok(ToolChoice::Named(named.function.name));
    }
    match interpret::<String>("", "tool_choice", raw).map_err(|_| wrong())?.as_str() {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests;
