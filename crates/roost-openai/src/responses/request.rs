use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::echo::{ResponseEcho, VERBATIM};
use super::{input, tools};
use crate::conversation::Conversation;
use crate::fields::Fields;
use crate::sampling::token_limit;
use crate::{ApiError, ChatRequest, FieldPolicy, Flavor, Generation, Ignored, Raw};

/// Members that clients send and that change nothing here.
const NO_EFFECT: &[&str] =
    &["user", "include", "stream_options", "top_logprobs", "context_management", "moderation"];

impl ChatRequest {
    /// Reads a body of `POST /v1/responses` or `POST /v1/responses/input_tokens` as a chat request, and what the
    /// answer will show of it. Its messages and tools are new JSON, not slices of the body.
    ///
    /// # Errors
    /// 400 that names the member at fault, 501 for what needs responses to be stored.
    pub fn of_response(body: &Bytes, policy: FieldPolicy) -> Result<(Self, Box<ResponseEcho>), ApiError> {
        let mut fields = Fields::of_body(body)?;
        let mut ignored = Ignored::default();
        refuse(&mut fields)?;
        let model: String = fields.required("model")?;
        if model.is_empty() {
            return Err(ApiError::invalid("model", "`model` must not be empty"));
        }
        let input = fields.raw("input").ok_or_else(|| fields.missing("input"))?;
        let instructions: Option<String> = fields.get("instructions")?;
        let verbatim = VERBATIM.iter().map(|(name, _)| (*name, fields.peek(name))).collect();
        let tools = tools::take(&mut fields, policy, &mut ignored)?;
        let mut conversation = Conversation::new(body.len() + body.len() / 8);
        input::convert(&mut conversation, instructions.as_deref(), input, &tools.names)?;
        let (schema, format) = text_format(&mut fields)?;
        let reasoning = reasoning(&mut fields)?;
        let limit: Option<u64> = fields.get("max_output_tokens")?;
        let limit = limit.map(|limit| token_limit("max_output_tokens", limit)).transpose()?;
        let parallel = fields.get("parallel_tool_calls")?;
        let store = fields.get("store")?;
        fields.accept(NO_EFFECT);
        let mut generation = Generation::take(&mut fields, Flavor::Chat, policy, &mut ignored)?;
        generation.limits.max_tokens = limit.or(generation.limits.max_tokens);
        generation.sampling.n = None;
        generation.output.logprobs = None;
        if schema.is_some() {
            generation.sampling.guided.json = schema;
        }
        let echo = ResponseEcho {
            model: model.clone(),
            instructions,
            max_output_tokens: generation.limits.max_tokens,
            parallel_tool_calls: parallel,
            temperature: generation.sampling.temperature,
            top_p: generation.sampling.top_p,
            presence_penalty: generation.sampling.presence_penalty,
            frequency_penalty: generation.sampling.frequency_penalty,
            store,
            verbatim,
            tools: tools.shown,
            names: tools.names,
            shows_reasoning: reasoning.shown,
        };
        let request = ChatRequest {
            model,
            messages: conversation.finish(),
            tools: tools.functions,
            tool_choice: tools.choice,
            parallel_tool_calls: parallel,
            generation,
            chat_template_kwargs: match fields.slice("chat_template_kwargs") {
                None => fields.slice("chat_template_args"),
                kwargs => kwargs,
            },
            reasoning_effort: reasoning.effort,
            thinking: None,
            add_generation_prompt: None,
            continue_final_message: None,
            response_format: format,
            expects_reasoning: false,
            ignored: Ignored::default(),
        };
        fields.accept(&VERBATIM.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        fields.rest(policy, &mut ignored)?;
        Ok((ChatRequest { ignored, ..request }, Box::new(echo)))
    }
}

/// What cannot be done without keeping responses, or would not be kept to.
fn refuse(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    const STORED: &str = "responses are not stored here; send the whole conversation in `input`";
    for (name, why) in [
        ("previous_response_id", STORED),
        ("conversation", STORED),
        ("prompt", "stored prompts do not exist here; send `instructions` and `input`"),
        ("max_tool_calls", "no tools run here, so their calls cannot be limited"),
    ] {
        if fields.raw(name).is_some() {
            return Err(ApiError::not_implemented(name, format!("`{name}` is not supported: {why}.")));
        }
    }
    if fields.get::<bool>("background")? == Some(true) {
        let text = "`background: true` is not supported: responses are not stored here; use `stream`.";
        return Err(ApiError::not_implemented("background", text));
    }
    Ok(())
}

struct Reasoning {
    effort: Option<Raw>,
    /// A summary was asked for.
    shown: bool,
}

fn reasoning(fields: &mut Fields<'_>) -> Result<Reasoning, ApiError> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        effort: Option<&'a RawValue>,
        summary: Option<String>,
        generate_summary: Option<String>,
    }
    let Some(raw) = fields.raw("reasoning") else { return Ok(Reasoning { effort: None, shown: false }) };
    let wire: Wire<'_> = serde_json::from_str(raw.get()).map_err(|_| {
        ApiError::invalid("reasoning", "`reasoning` must be an object with `effort` and `summary`")
    })?;
    Ok(Reasoning {
        effort: wire.effort.map(|effort| Raw::slice_of(fields.body(), effort.get())),
        shown: wire.summary.or(wire.generate_summary).is_some(),
    })
}

/// The schema of a structured answer, and the format as the chat API says it.
fn text_format(fields: &mut Fields<'_>) -> Result<(Option<Raw>, Option<Raw>), ApiError> {
    #[derive(Deserialize)]
    struct Text<'a> {
        #[serde(borrow)]
        format: Option<Format<'a>>,
    }
    #[derive(Deserialize)]
    struct Format<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(borrow)]
        name: Option<&'a RawValue>,
        #[serde(borrow)]
        schema: Option<&'a RawValue>,
        #[serde(borrow)]
        strict: Option<&'a RawValue>,
    }
    let Some(raw) = fields.raw("text") else { return Ok((None, None)) };
    let text: Text<'_> = serde_json::from_str(raw.get())
        .map_err(|e| ApiError::invalid("text", format!("Failed to read `text`: {e}")))?;
    let Some(format) = text.format else { return Ok((None, None)) };
    match &*format.r#type {
        "text" => Ok((None, None)),
        "json_object" => {
            let schema = Raw::whole(Bytes::from_static(br#"{"type":"object"}"#));
            Ok((Some(schema), Some(Raw::whole(Bytes::from_static(br#"{"type":"json_object"}"#)))))
        }
        "json_schema" => {
            let schema = format.schema.ok_or_else(|| {
                ApiError::invalid("text.format.schema", "missing field `text.format.schema`")
            })?;
            let or =
                |raw: Option<&RawValue>, default: &'static str| raw.map_or(default, RawValue::get).to_owned();
            let wrapped = format!(
                r#"{{"type":"json_schema","json_schema":{{"name":{},"schema":{},"strict":{}}}}}"#,
                or(format.name, "\"response\""),
                schema.get(),
                or(format.strict, "null"),
            );
            Ok((Some(Raw::slice_of(fields.body(), schema.get())), Some(Raw::whole(wrapped.into()))))
        }
        other => {
            let shown: String = other.chars().take(64).collect();
            Err(ApiError::invalid(
                "text.format.type",
                format!("`text.format.type` must be text, json_object or json_schema, not `{shown}`"),
            ))
        }
    }
}
