//! A chat to its prompt: template arguments, rendering, ids; and prompts that are only counted.

use std::time::SystemTime;

use bytes::Bytes;
use roost_kv::hash;
use roost_openai::{ApiError, ChatRequest, Purpose, Raw};
use roost_template::{RenderInput, ThinkingControls};

use super::memory::{HashedPrompt, PromptError, PromptMemory, PromptRequest, Recalled};
use super::{find, literal, reading, salt, tokenize_error};
use crate::api::Api;
use crate::models::Model;
use crate::session::Session;
use crate::shared::Shared;

/// A chat request as it was read.
pub(super) struct Read<'a> {
    pub(super) body: &'a Bytes,
    pub(super) request: &'a ChatRequest,
    pub(super) recalled: Option<Recalled>,
    /// Template arguments, a JSON object.
    pub(super) kwargs: Option<&'a str>,
}

/// Makes the prompt of a chat.
pub(super) fn with_prompt(
    model: &Model,
    Read { body, request, recalled, kwargs }: Read<'_>,
    session: &Session,
    make: impl FnOnce(&PromptRequest<'_>) -> Result<HashedPrompt, PromptError>,
) -> Result<HashedPrompt, ApiError> {
    let template = model.assets.template.as_ref().map_err(|why| ApiError::invalid("model", why.clone()))?;
    let messages_at = request.messages.offset_in(body).expect("messages are a slice of the body");
    let prompt = make(&PromptRequest {
        model: &model.mdcsum,
        session: session.id.as_deref(),
        parent: session.parent.as_deref(),
        template,
        tokenizer: &model.assets.tokenizer,
        messages_at,
        recalled: recalled.filter(|recalled| recalled.familiar.messages == messages_at),
        body: body.clone(),
        input: RenderInput {
            tools: request.tools.as_ref().map(Raw::as_str),
            kwargs,
            add_generation_prompt: request.add_generation_prompt.unwrap_or(true),
            continue_final_message: request.continue_final_message.unwrap_or(false),
            response_format: request.response_format.as_ref().map(Raw::as_str),
            ..RenderInput::new(request.messages.as_str(), SystemTime::now())
        },
        cut: model.cut,
        seed: hash::seed(None, salt(session, &request.generation)),
    });
    prompt.map_err(|error| match error {
        PromptError::Encode(error) => tokenize_error(&error),
        PromptError::Render(error) if error.is_client_fault() => {
            ApiError::invalid("messages", error.to_string())
        }
        PromptError::Render(error) => ApiError::new(500, error.to_string()),
    })
}

/// Prompt tokens of a request. Nothing of it is remembered: it is not the session's next turn.
pub(crate) fn count(shared: &Shared, api: Api, body: &Bytes, session: &Session) -> Result<usize, ApiError> {
    let request = reading::chat(shared, api, body, Purpose::Count)?.0;
    let model = find(shared, &request.model, session)?;
    Ok(unremembered(shared, &model, &request)?.ids.len())
}

/// Ids of a chat. Nothing of it is remembered.
pub(crate) fn chat_ids(shared: &Shared, model: &Model, body: &Bytes) -> Result<Vec<u32>, ApiError> {
    let request = reading::chat(shared, Api::Chat, body, Purpose::Count)?.0;
    Ok(unremembered(shared, model, &request)?.ids.to_vec())
}

fn unremembered(shared: &Shared, model: &Model, request: &ChatRequest) -> Result<HashedPrompt, ApiError> {
    let body = request.messages.bytes();
    let kwargs = template_kwargs(request, model.assets.parsers.reasons())?;
    let read = Read { body, request, recalled: None, kwargs: kwargs.as_deref() };
    with_prompt(model, read, &Session::default(), |request| {
        literal::or_else(shared, request, PromptMemory::unremembered)
    })
}

/// Template arguments with the request's reasoning controls folded in; `None` when there are neither.
pub(super) fn template_kwargs(request: &ChatRequest, reasons: bool) -> Result<Option<String>, ApiError> {
    #[derive(serde::Deserialize)]
    struct Thinking {
        r#type: String,
    }
    let read = |param: &'static str, raw: &Raw| {
        serde_json::from_str::<serde_json::Value>(raw.as_str())
            .map_err(|e| ApiError::invalid(param, format!("Failed to deserialize `{param}`: {e}")))
    };
    let mut kwargs = match &request.chat_template_kwargs {
        None => serde_json::Map::new(),
        Some(raw) => match read("chat_template_kwargs", raw)? {
            serde_json::Value::Object(map) => map,
            _ => {
                return Err(ApiError::invalid(
                    "chat_template_kwargs",
                    "`chat_template_kwargs` must be an object",
                ));
            }
        },
    };
    if kwargs.contains_key("chat_template") {
        return Err(ApiError::invalid(
            "chat_template_kwargs",
            "Validation: a chat template cannot be sent with a request",
        ));
    }
    // As the peer does it for Anthropic's clients, which have no other way to ask.
    let is_off = request.thinking.as_ref().is_some_and(|thinking| thinking.as_str().contains("disabled"));
    if request.expects_reasoning && reasons && !is_off {
        kwargs.entry("enable_thinking").or_insert(true.into());
        kwargs.entry("truncate_history_thinking").or_insert(false.into());
    }
    let effort: Option<String> = match &request.reasoning_effort {
        None => None,
        Some(raw) => Some(
            serde_json::from_str(raw.as_str())
                .map_err(|_| ApiError::invalid("reasoning_effort", "`reasoning_effort` must be a string"))?,
        ),
    };
    let thinking: Option<Thinking> = match &request.thinking {
        None => None,
        Some(raw) => Some(
            serde_json::from_str(raw.as_str())
                .map_err(|_| ApiError::invalid("thinking", "`thinking` must be an object with a `type`"))?,
        ),
    };
    let thinking = thinking.as_ref().map(|thinking| thinking.r#type.as_str());
    ThinkingControls { reasoning_effort: effort.as_deref(), thinking }.apply(&mut kwargs);
    Ok((!kwargs.is_empty()).then(|| serde_json::Value::Object(kwargs).to_string()))
}
