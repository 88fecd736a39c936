//! The routes that count, make and read tokens without asking a worker.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use roost_openai::{ApiError, ErrorShape};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::body;
use crate::models::{Lookup, Model};
use crate::prepare::{self, pool::PoolError};
use crate::reply;
use crate::session::Session;
use crate::shared::Shared;

/// Most prompts, or lists of ids, of one request.
const BATCH_LIMIT: usize = 1024;

/// `POST /v1/messages/count_tokens` and `POST /v1/responses/input_tokens`.
pub(crate) async fn count(shared: Arc<Shared>, api: Api, request: Request) -> Response {
    let shape = api.error_shape(shared.config.http.error_shape);
    answer(shared, request, shape, move |shared, body, session| {
        let count = prepare::count(shared, api, body, session)?;
        Ok(match api {
            Api::Responses => json!({"object": "response.input_tokens", "input_tokens": count}),
            Api::Messages | Api::Chat | Api::Completion => json!({"input_tokens": count}),
        })
    })
    .await
}

/// `POST /tokenize`.
pub(crate) async fn tokenize(shared: Arc<Shared>, request: Request) -> Response {
    let shape = shared.config.http.error_shape;
    answer(shared, request, shape, encode).await
}

/// `POST /detokenize`.
pub(crate) async fn detokenize(shared: Arc<Shared>, request: Request) -> Response {
    let shape = shared.config.http.error_shape;
    answer(shared, request, shape, decode).await
}

/// Reads the body and does the work, on the prepare threads unless there is little of it.
async fn answer(
    shared: Arc<Shared>,
    request: Request,
    shape: ErrorShape,
    work: impl FnOnce(&Shared, &Bytes, &Session) -> Result<Value, ApiError> + Send + 'static,
) -> Response {
    let session = Session::of(request.headers());
    let echo = session.echo();
    let result = async {
        if shared.is_draining() {
            return Err(ApiError::new(503, "Service is shutting down."));
        }
        body::accepts(request.headers())?;
        let body = shared.bodies.read(request.into_body(), shared.config.http.body_limit).await?;
        if body.len() <= shared.config.prepare.inline_bytes {
            return work(&shared, &body, &session);
        }
        let job = Arc::clone(&shared);
        let overload = shared.config.http.overload_status;
        match shared.pool.run(move || work(&job, &body, &session)).await {
            Ok(result) => result,
            Err(PoolError::Full) => Err(ApiError::new(overload, prepare::POOL_FULL)),
            Err(PoolError::Lost) => Err(ApiError::new(500, prepare::POOL_LOST)),
        }
    };
    let mut response = match result.await {
        Ok(value) => reply::json(StatusCode::OK, BytesMut::from(value.to_string().as_bytes())),
        Err(error) => reply::error(&error, shape),
    };
    if let Ok(echo) = http::HeaderValue::from_str(&echo) {
        response.headers_mut().insert("x-request-id", echo);
    }
    response
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

/// Text, or the messages of a chat, to ids.
fn encode(shared: &Shared, body: &Bytes, session: &Session) -> Result<Value, ApiError> {
    #[derive(Deserialize)]
    struct Wire {
        model: Option<String>,
        prompt: Option<OneOrMany<String>>,
        messages: Option<serde::de::IgnoredAny>,
        add_special_tokens: Option<bool>,
        return_token_strs: Option<bool>,
    }
    let wire: Wire = parse(body)?;
    let model = find(shared, wire.model.as_deref(), session)?;
    let tokenizer = &model.assets.tokenizer;
    let names = |ids: &[u32]| -> Value {
        ids.iter().map(|id| tokenizer.id_to_token(*id).unwrap_or_default()).collect::<Vec<_>>().into()
    };
    let with_names = wire.return_token_strs == Some(true);
    let text = |text: &String| prepare::raw_ids(tokenizer, text, wire.add_special_tokens.unwrap_or(true));
    let mut answer = json!({"max_model_len": model.context_length});
    match (wire.prompt, wire.messages) {
        (Some(OneOrMany::Many(prompts)), None) => {
            check_batch(prompts.len(), "prompt")?;
            let lists = prompts.iter().map(text).collect::<Result<Vec<_>, _>>()?;
            answer["count"] = lists.iter().map(Vec::len).collect::<Vec<_>>().into();
            if with_names {
                answer["token_strs"] = lists.iter().map(|ids| names(ids)).collect::<Vec<_>>().into();
            }
            answer["tokens"] = lists.into();
        }
        (prompt, messages) => {
            let ids = match (prompt, messages) {
                (Some(OneOrMany::One(prompt)), None) => text(&prompt)?,
                (None, Some(_)) => prepare::chat_ids(shared, &model, body)?,
                _ => {
                    return Err(ApiError::invalid("prompt", "send either `prompt` or `messages`"));
                }
            };
            answer["count"] = ids.len().into();
            if with_names {
                answer["token_strs"] = names(&ids);
            }
            answer["tokens"] = ids.into();
        }
    }
    Ok(answer)
}

/// Ids to text.
fn decode(shared: &Shared, body: &Bytes, session: &Session) -> Result<Value, ApiError> {
    #[derive(Deserialize)]
    struct Wire {
        model: Option<String>,
        tokens: Vec<OneOrMany<u32>>,
        skip_special_tokens: Option<bool>,
    }
    let wire: Wire = parse(body)?;
    let model = find(shared, wire.model.as_deref(), session)?;
    let tokenizer = &model.assets.tokenizer;
    let text = |ids: &[u32]| match ids.iter().find(|id| tokenizer.id_to_bytes(**id).is_none()) {
        Some(id) => {
            Err(ApiError::invalid("tokens", format!("`tokens` has id {id}, which this model does not have.")))
        }
        None => Ok(tokenizer.decode(ids, wire.skip_special_tokens.unwrap_or(true))),
    };
    let mut flat = Vec::with_capacity(wire.tokens.len());
    let mut lists = Vec::new();
    for entry in wire.tokens {
        match entry {
            OneOrMany::One(id) => flat.push(id),
            OneOrMany::Many(ids) => lists.push(ids),
        }
    }
    let shown: Value = match (flat.is_empty(), lists.is_empty()) {
        (_, true) => text(&flat)?.into(),
        (true, false) => {
            check_batch(lists.len(), "tokens")?;
            lists.iter().map(|ids| text(ids)).collect::<Result<Vec<_>, _>>()?.into()
        }
        (false, false) => {
            return Err(ApiError::invalid(
                "tokens",
                "`tokens` must be a list of ids or a list of such lists",
            ));
        }
    };
    Ok(json!({"text": shown, "prompt": shown}))
}

fn parse<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|e| ApiError::invalid("", format!("Failed to parse the request body as JSON: {e}")))
}

fn check_batch(length: usize, name: &str) -> Result<(), ApiError> {
    if length > BATCH_LIMIT {
        return Err(ApiError::invalid(name, format!("`{name}` has more than {BATCH_LIMIT} entries")));
    }
    Ok(())
}

/// The named model; without a name, the only one there is.
fn find(shared: &Shared, name: Option<&str>, session: &Session) -> Result<Arc<Model>, ApiError> {
    if let Some(name) = name {
        return prepare::find(shared, name, session);
    }
    let registry = shared.models.snapshot();
    let mut names = registry.ready.keys();
    match (names.next(), names.next()) {
        (Some(only), None) if matches!(shared.models.lookup(only), Lookup::Ready(_)) => {
            prepare::find(shared, only, session)
        }
        _ => Err(ApiError::invalid("model", "missing field `model`")),
    }
}
