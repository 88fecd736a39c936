use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::content;
use crate::conversation::{Conversation, raw_list, write_function};
use crate::fields::{Fields, interpret};
use crate::sampling::check_stops;
use crate::{ApiError, ChatRequest, FieldPolicy, Flavor, Generation, Ignored, Raw, ToolChoice};

/// Members that clients send and that change nothing here.
const NO_EFFECT: &[&str] =
    &["metadata", "service_tier", "container", "cache_control", "context_management", "betas", "mcp_servers"];
/// First words of the line that Claude Code puts before its system prompt. It changes with every request.
const PREAMBLE: &str = "x-anthropic-billing-header:";
/// Most tools of one request.
const TOOL_LIMIT: usize = 1536;

/// How requests of the Messages API are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagesOptions {
    /// Unknown members.
    pub policy: FieldPolicy,
    /// Leave the billing line out of the system prompt: it would make every prompt a new one.
    pub strip_preamble: bool,
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An answer: `max_tokens` is required.
    Answer,
    /// The number of prompt tokens.
    Count,
}

impl ChatRequest {
    /// Reads a body of `POST /v1/messages` or `POST /v1/messages/count_tokens` as a chat request. Its messages and
    /// tools are new JSON, not slices of the body.
    ///
    /// # Errors
    /// 400 that names the member at fault.
    pub fn of_messages(body: &Bytes, purpose: Purpose, options: MessagesOptions) -> Result<Self, ApiError> {
        let mut fields = Fields::of_body(body)?;
        let mut ignored = Ignored::default();
        let model: String = fields.required("model")?;
        if model.is_empty() {
            return Err(ApiError::invalid("model", "`model` must not be empty"));
        }
        let messages = fields.raw("messages").ok_or_else(|| fields.missing("messages"))?;
        let mut conversation = Conversation::new(body.len() + body.len() / 8);
        if let Some(system) = fields.raw("system") {
            system_prompt(&mut conversation, system, options.strip_preamble)?;
        }
        let prefill = content::convert(&mut conversation, messages)?;
        let (tools, tool_choice, parallel) = tools(&mut fields)?;
        let stops: Vec<String> = fields.get("stop_sequences")?.unwrap_or_default();
        check_stops("stop_sequences", &stops)?;
        let thinking = thinking(&mut fields)?;
        let format = output_format(&mut fields)?;
        let mut generation = Generation::take(&mut fields, Flavor::Chat, options.policy, &mut ignored)?;
        if purpose == Purpose::Answer && generation.limits.max_tokens.is_none() {
            return Err(fields.missing("max_tokens"));
        }
        generation.stop.strings.extend(stops);
        generation.sampling.n = None;
        generation.output.logprobs = None;
        generation.sampling.top_k = generation.sampling.top_k.filter(|k| *k != 0);
        if let Some((schema, _)) = &format {
            generation.sampling.guided.json = Some(schema.clone());
        }
        let request = ChatRequest {
            model,
            messages: conversation.finish(),
            tools: tools.filter(|_| tool_choice != ToolChoice::None),
            tool_choice,
            parallel_tool_calls: parallel,
            generation,
            chat_template_kwargs: fields.slice("chat_template_kwargs"),
            reasoning_effort: None,
            thinking,
            add_generation_prompt: prefill.then_some(false),
            continue_final_message: prefill.then_some(true),
            response_format: format.map(|(_, format)| format),
            expects_reasoning: true,
            ignored: Ignored::default(),
        };
        fields.accept(NO_EFFECT);
        fields.rest(options.policy, &mut ignored)?;
        Ok(ChatRequest { ignored, ..request })
    }
}

/// The system prompt: a text, or blocks that are joined by line ends.
fn system_prompt(
    conversation: &mut Conversation,
    system: &RawValue,
    strip_preamble: bool,
) -> Result<(), ApiError> {
    #[derive(Deserialize)]
    struct Block<'a> {
        #[serde(borrow)]
        text: Cow<'a, str>,
    }
    let wrong = || ApiError::invalid("system", "`system` must be a text or a list of text blocks");
    let text: String = if system.get().starts_with('"') {
        interpret("", "system", system)?
    } else {
        let blocks: Vec<Block<'_>> = serde_json::from_str(system.get()).map_err(|_| wrong())?;
        blocks.iter().map(|block| &*block.text).collect::<Vec<_>>().join("\n")
    };
    let kept = text.trim_start();
    let stripped = strip_preamble && kept.starts_with(PREAMBLE);
    let shown = match kept.split_once('\n') {
        Some((_, rest)) if stripped => rest,
        None if stripped => "",
        _ => &text,
    };
    if !shown.is_empty() || !stripped {
        conversation.plain("system", shown);
    }
    Ok(())
}

/// Tools, choice, and whether calls may be parallel.
fn tools(fields: &mut Fields<'_>) -> Result<(Option<Raw>, ToolChoice, Option<bool>), ApiError> {
    #[derive(Deserialize)]
    struct Choice<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        name: Option<String>,
        disable_parallel_tool_use: Option<bool>,
    }
    let tools = fields.raw("tools").map(client_tools).transpose()?.flatten();
    let Some(raw) = fields.raw("tool_choice") else { return Ok((tools, ToolChoice::Auto, None)) };
    let wrong = |text: &str| ApiError::invalid("tool_choice", text);
    let choice: Choice<'_> = serde_json::from_str(raw.get())
        .map_err(|_| wrong("`tool_choice` must be an object with a `type`"))?;
    let parallel = choice.disable_parallel_tool_use.map(|disabled| !disabled);
    let choice = match (&*choice.r#type, choice.name) {
        ("auto", _) => ToolChoice::Auto,
        ("none", _) => ToolChoice::None,
        ("any", _) => ToolChoice::Required,
        ("tool", Some(name)) => ToolChoice::Named(name),
        ("tool", None) => return Err(wrong("`tool_choice.name` is missing")),
        _ => return Err(wrong("`tool_choice.type` must be auto, any, tool or none")),
    };
    if tools.is_none() && matches!(choice, ToolChoice::Required | ToolChoice::Named(_)) {
        return Err(wrong("this `tool_choice` needs `tools`"));
    }
    Ok((tools, choice, parallel))
}

/// The tools that the client itself runs, in the chat API's form; there are no others here.
fn client_tools(raw: &RawValue) -> Result<Option<Raw>, ApiError> {
    #[derive(Deserialize)]
    struct Tool<'a> {
        name: String,
        #[serde(borrow)]
        r#type: Option<Cow<'a, str>>,
        #[serde(borrow)]
        description: Option<&'a RawValue>,
        #[serde(borrow)]
        input_schema: Option<&'a RawValue>,
        #[serde(borrow)]
        strict: Option<&'a RawValue>,
    }
    let list: Vec<&RawValue> =
        serde_json::from_str(raw.get()).map_err(|_| ApiError::invalid("tools", "`tools` must be a list"))?;
    if list.len() > TOOL_LIMIT {
        return Err(ApiError::invalid("tools", format!("`tools` has more than {TOOL_LIMIT} entries")));
    }
    let mut items = Vec::with_capacity(list.len());
    for (at, raw) in list.into_iter().enumerate() {
        let path = format!("tools[{at}]");
        let tool: Tool<'_> = serde_json::from_str(raw.get())
            .map_err(|_| ApiError::invalid(path.clone(), format!("`{path}` must be a tool with a `name`")))?;
        if let Some(kind) = tool.r#type.as_deref().filter(|kind| *kind != "custom") {
            let shown: String = kind.chars().take(64).collect();
            return Err(ApiError::invalid(
                format!("{path}.type"),
                format!(
                    "`{path}`: tools of type `{shown}` run on Anthropic's servers and are not available here"
                ),
            ));
        }
        let Some(schema) = tool.input_schema else {
            let path = format!("{path}.input_schema");
            return Err(ApiError::invalid(path.clone(), format!("missing field `{path}`")));
        };
        let mut out = BytesMut::new();
        write_function(&mut out, &tool.name, [tool.description, Some(schema), tool.strict]);
        items.push(out.freeze());
    }
    Ok((!items.is_empty()).then(|| raw_list(&items)))
}

/// What is asked for in so many words; `adaptive` is what happens anyway. The budget is the model's own affair.
fn thinking(fields: &mut Fields<'_>) -> Result<Option<Raw>, ApiError> {
    #[derive(Deserialize)]
    struct Thinking<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
    }
    let Some(raw) = fields.raw("thinking") else { return Ok(None) };
    let wrong = "`thinking.type` must be enabled, disabled or adaptive";
    let thinking: Thinking<'_> =
        serde_json::from_str(raw.get()).map_err(|_| ApiError::invalid("thinking", wrong))?;
    match &*thinking.r#type {
        "enabled" => Ok(Some(Raw::whole(Bytes::from_static(br#"{"type":"enabled"}"#)))),
        "disabled" => Ok(Some(Raw::whole(Bytes::from_static(br#"{"type":"disabled"}"#)))),
        "adaptive" => Ok(None),
        _ => Err(ApiError::invalid("thinking.type", wrong)),
    }
}

/// The schema of a structured answer, bare and as the chat API wraps it.
fn output_format(fields: &mut Fields<'_>) -> Result<Option<(Raw, Raw)>, ApiError> {
    #[derive(Deserialize)]
    struct Config<'a> {
        #[serde(borrow)]
        format: Option<Format<'a>>,
    }
    #[derive(Deserialize)]
    struct Format<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(borrow)]
        schema: Option<&'a RawValue>,
    }
    let wrong =
        |error| ApiError::invalid("output_config", format!("Failed to read `output_config`: {error}"));
    let config = match fields.raw("output_config") {
        Some(raw) => serde_json::from_str::<Config<'_>>(raw.get()).map_err(wrong)?.format,
        None => None,
    };
    // Its name while it was new.
    let format = match (config, fields.raw("output_format")) {
        (None, Some(raw)) => Some(serde_json::from_str::<Format<'_>>(raw.get()).map_err(wrong)?),
        (config, _) => config,
    };
    let Some(format) = format else { return Ok(None) };
    let path = "output_config.format";
    if format.r#type != "json_schema" {
        return Err(ApiError::invalid(path, format!("`{path}.type` must be json_schema")));
    }
    let schema = format
        .schema
        .filter(|schema| schema.get().starts_with('{'))
        .ok_or_else(|| ApiError::invalid(path, format!("`{path}.schema` must be an object")))?;
    let wrapped = format!(
        r#"{{"type":"json_schema","json_schema":{{"name":"response","schema":{},"strict":true}}}}"#,
        schema.get()
    );
    Ok(Some((Raw::slice_of(fields.body(), schema.get()), Raw::whole(wrapped.into()))))
}
