//! Body bytes to a request that a worker takes: split, look the model up, render, tokenize, hash. One hop.

mod calls;
pub(crate) mod memory;
pub(crate) mod pool;
mod reading;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use roost_kv::{Blocks, hash};
use roost_openai::{
    ApiError, ChatRequest, CompletionRequest, Flavor, Generation, Guided, NvExt, Prompt, Raw, StreamOptions,
};
use roost_router::Pin;
use roost_template::{RenderInput, ThinkingControls};
use roost_tokenizer::{StopIds, StopScanner, Tokenizer, without_nul};
use roost_wire::message::{
    AgentContext, EngineRequest, GuidedDecoding, OutputOptions, RouterTargets, Routing, SamplingOptions,
    StopConditions,
};

use self::calls::Calls;
use self::reading::Parsed;
pub(crate) use self::reading::Reading;
use crate::admit;
use crate::dispatch::LOCAL_PREFILL;
use crate::finish::{Extras, Finisher};
use crate::hold::not_ready;
use crate::models::{Lookup, Model, Waiting};
use crate::prepare::memory::{PromptError, PromptRequest, Recalled};
use crate::respond::choice::{Choice, Ending};
use crate::respond::choices::Choices;
use crate::respond::logprobs::{self, Logprobs};
use crate::session::Session;
use crate::shared::Shared;

/// A request ready to be placed. Ids and hashes are shared, never copied, on the way to the wire and on a retry.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Request id on the plane: a UUID.
    pub(crate) id: Box<str>,
    /// What it runs on.
    pub(crate) model: Arc<Model>,
    /// Session and parent, for affinity.
    pub(crate) session: Session,
    /// Where it must run, if anywhere.
    pub(crate) pin: Pin,
    /// Where its prefill leg must run, if anywhere.
    pub(crate) prefill_pin: Pin,
    /// Hashed prompt.
    pub(crate) blocks: Blocks,
    /// Expected output tokens, as hinted.
    pub(crate) expected_output_tokens: Option<u32>,
    /// The request as workers get it, but for its rank.
    pub(crate) engine: EngineRequest,
    /// Seconds ahead of others where requests wait.
    pub(crate) priority: i32,
    /// Where requests wait, higher goes before all lower.
    pub(crate) strict_priority: u32,
}

/// The client's side of a prepared request.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) flavor: Flavor,
    pub(crate) stream: bool,
    pub(crate) stream_options: StreamOptions,
    pub(crate) choices: Choices,
    pub(crate) finisher: Finisher,
}

/// What is wanted of a prompt that is ids.
struct Asked {
    flavor: Flavor,
    generation: Generation,
    calls: Option<Calls>,
}

/// Why a request was not prepared.
#[derive(Debug)]
pub(crate) enum Unprepared {
    /// It will not be.
    Refused(Refused),
    /// Its model will be ready soon: to be prepared again then, with [`resume`].
    Waits(Box<Reading>),
}

/// A request that is not served.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: ApiError,
    /// Its books were opened and are closed: nothing is left to count.
    pub(crate) counted: bool,
}

impl Refused {
    pub(crate) fn early(error: ApiError) -> Self {
        Refused { error, counted: false }
    }

    fn counted(error: ApiError) -> Self {
        Refused { error, counted: true }
    }
}

impl From<Refused> for Unprepared {
    fn from(refused: Refused) -> Self {
        Unprepared::Refused(refused)
    }
}

type Outcome = Result<(Prepared, Wanted), Unprepared>;

/// Prepares a chat or text completion. CPU work: runs on the pool unless the body is small.
pub(crate) fn prepare(
    shared: &Shared,
    flavor: Flavor,
    body: Bytes,
    session: Session,
    received: Instant,
) -> Outcome {
    resume(shared, Reading::of(shared, flavor, body, session, received)?)
}

/// Goes on with a request that was read.
pub(crate) fn resume(shared: &Shared, reading: Reading) -> Outcome {
    let model = match shared.models.lookup(reading.model()) {
        Lookup::Ready(versions) => Arc::clone(versions.choose(&reading.session, || fastrand::u64(..))),
        Lookup::Waiting(Waiting { passes: true, .. }) => return Err(Unprepared::Waits(Box::new(reading))),
        Lookup::Waiting(waiting) => return Err(Refused::early(not_ready(reading.model(), waiting)).into()),
        Lookup::Unknown => return Err(Refused::early(ApiError::model_not_found(reading.model())).into()),
    };
    let session = &reading.session;
    let pins = session.pins(&reading.generation().nvext);
    if let Some(failure) = admit::refuse(&model, session.id.as_deref(), pins) {
        let mut finisher = reading.open_books(shared, &model);
        return Err(Refused::counted(finisher.fail(&failure)).into());
    }
    let Reading { parsed, session, received } = reading;
    let prepared = match parsed {
        Parsed::Chat { body, request, recalled } => {
            chat(shared, model, &body, *request, recalled, session, received)
        }
        Parsed::Completion(request) => completion(shared, model, *request, session, received),
    };
    prepared.map_err(|error| Refused::counted(error).into())
}

fn chat(
    shared: &Shared,
    model: Arc<Model>,
    body: &Bytes,
    request: ChatRequest,
    recalled: Option<Recalled>,
    session: Session,
    received: Instant,
) -> Result<(Prepared, Wanted), ApiError> {
    let mut finisher = Finisher::begin(shared, &model, Flavor::Chat, request.generation.stream, received);
    let read = Read { body, request: &request, recalled };
    let result = prompt_ids(shared, &model, read, &session, &mut finisher);
    let ids = finisher.check(result)?;
    let calls = finisher.check(Calls::of(&request, &model))?;
    let asked = Asked { flavor: Flavor::Chat, generation: request.generation, calls: Some(calls) };
    complete(model, ids, asked, session, finisher)
}

fn completion(
    shared: &Shared,
    model: Arc<Model>,
    request: CompletionRequest,
    session: Session,
    received: Instant,
) -> Result<(Prepared, Wanted), ApiError> {
    let mut finisher =
        Finisher::begin(shared, &model, Flavor::Completion, request.generation.stream, received);
    let ids = match (request.generation.nvext.token_data.clone(), &request.prompt) {
        (Some(ids), _) => known_ids(&model, ids, "nvext.token_data"),
        (None, Prompt::Ids(ids)) => known_ids(&model, ids.clone(), "prompt"),
        (None, Prompt::Text(text)) => {
            let started = Instant::now();
            let ids = raw_prompt(&model.assets.tokenizer, text).map_err(|e| tokenize_error(&e));
            finisher.tokenized(started.elapsed());
            ids
        }
    };
    let ids = finisher.check(ids)?.into();
    let asked = Asked { flavor: Flavor::Completion, generation: request.generation, calls: None };
    complete(model, ids, asked, session, finisher)
}

/// A raw prompt gets the tokens that the model's tokenizer puts around text, but no second beginning of text where it
/// has spelled one.
fn raw_prompt(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, roost_tokenizer::Error> {
    let mut ids = tokenizer.encode(&without_nul(text), true)?;
    if let [first, second, ..] = *ids
        && first == second
        && tokenizer.encode("", true)?.first() == Some(&first)
    {
        ids.remove(0);
    }
    Ok(ids)
}

/// A prompt as ids, with its hashes where they came along.
struct PromptIds {
    ids: Arc<[u32]>,
    blocks: Option<Blocks>,
}

impl From<Vec<u32>> for PromptIds {
    fn from(ids: Vec<u32>) -> Self {
        PromptIds { ids: ids.into(), blocks: None }
    }
}

/// A chat request as it was read.
struct Read<'a> {
    body: &'a Bytes,
    request: &'a ChatRequest,
    recalled: Option<Recalled>,
}

fn prompt_ids(
    shared: &Shared,
    model: &Model,
    Read { body, request, recalled }: Read<'_>,
    session: &Session,
    finisher: &mut Finisher,
) -> Result<PromptIds, ApiError> {
    if let Some(ids) = request.generation.nvext.token_data.clone() {
        return known_ids(model, ids, "nvext.token_data").map(PromptIds::from);
    }
    let template = model.assets.template.as_ref().map_err(|why| ApiError::invalid("model", why.clone()))?;
    let kwargs = template_kwargs(request)?;
    let messages_at = request.messages.offset_in(body).expect("messages are a slice of the body");
    let prompt = shared.memory.prompt(&PromptRequest {
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
            kwargs: kwargs.as_deref(),
            add_generation_prompt: request.add_generation_prompt.unwrap_or(true),
            continue_final_message: request.continue_final_message.unwrap_or(false),
            response_format: request.response_format.as_ref().map(Raw::as_str),
            ..RenderInput::new(request.messages.as_str(), SystemTime::now())
        },
        block_size: model.block_size,
        seed: hash::seed(None, salt(session, &request.generation)),
    });
    if let Some(id) = session.id.as_deref().filter(|_| session.is_final) {
        shared.memory.forget(&model.mdcsum, id);
    }
    let prompt = prompt.map_err(|error| match error {
        PromptError::Encode(error) => tokenize_error(&error),
        PromptError::Render(error) if error.is_client_fault() => {
            ApiError::invalid("messages", error.to_string())
        }
        PromptError::Render(error) => ApiError::new(500, error.to_string()),
    })?;
    shared.metrics.prompt(prompt.reused_tokens, prompt.ids.len());
    finisher.rendered(prompt.rendering);
    finisher.tokenized(prompt.tokenizing);
    Ok(PromptIds { ids: prompt.ids, blocks: Some(prompt.blocks) })
}

/// What keeps the KV cache of this request apart from that of others.
fn salt<'a>(session: &'a Session, generation: &'a Generation) -> Option<&'a str> {
    session.tenant.as_deref().or(generation.nvext.cache_salt.as_deref()).or(generation.cache_salt.as_deref())
}

/// Template arguments with the request's reasoning controls folded in; `None` when there are neither.
fn template_kwargs(request: &ChatRequest) -> Result<Option<String>, ApiError> {
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

fn tokenize_error(error: &roost_tokenizer::Error) -> ApiError {
    tracing::warn!(%error, "prompt cannot be tokenized");
    ApiError::invalid("messages", "The prompt cannot be tokenized.")
}

fn known_ids(model: &Model, ids: Vec<u32>, param: &str) -> Result<Vec<u32>, ApiError> {
    let tokenizer = &model.assets.tokenizer;
    match ids.iter().find(|id| tokenizer.id_to_bytes(**id).is_none()) {
        Some(id) => Err(ApiError::invalid(
            param,
            format!("`{param}` has token id {id}, which this model does not have."),
        )),
        None => Ok(ids),
    }
}

fn complete(
    model: Arc<Model>,
    PromptIds { ids: tokens, blocks }: PromptIds,
    mut asked: Asked,
    session: Session,
    mut finisher: Finisher,
) -> Result<(Prepared, Wanted), ApiError> {
    let isl = tokens.len() as u64;
    let limit = u64::from(model.context_length);
    if limit > 0 && isl >= limit {
        return finisher.check(Err(ApiError::context_length(limit, isl + 1)));
    }
    // More than fits is capped to what fits: the answer then ends with `length`.
    if limit > 0
        && let Some(max_tokens) = &mut asked.generation.limits.max_tokens
    {
        let room = u32::try_from(limit - isl).unwrap_or(u32::MAX);
        *max_tokens = room.min(*max_tokens);
    }
    let salt = salt(&session, &asked.generation);
    let blocks = blocks.unwrap_or_else(|| Blocks::compute(&tokens, model.block_size, hash::seed(None, salt)));
    let engine = finisher.check(engine_request(&model, Arc::clone(&tokens), &asked, &session, salt))?;
    let id = session.uuid.to_string().into_boxed_str();
    let extras = Extras::of(&asked.generation.nvext, &id, &tokens, &model.assets.tokenizer);
    finisher.prepared(isl, &session, extras);
    let counts_reasoning = asked.calls.is_some() && model.assets.parsers.reasons();
    let calls = asked.calls.and_then(|calls| calls.parse(&model, &tokens));
    // Marks of some families are special tokens: the parser must see them.
    let marks = calls.is_some() && model.assets.parsers.needs_special_tokens();
    let skip_special = asked.generation.output.skip_special_tokens.unwrap_or(true) && !marks;
    let ignore_eos = asked.generation.stop.ignore_eos == Some(true);
    let hidden: &[u32] = if ignore_eos { &[] } else { &model.assets.eos };
    let stops = StopScanner::new(
        asked.generation.stop.strings.iter().map(String::as_str),
        asked.generation.stop.include_stop_str == Some(true),
    );
    let stop_ids = StopIds::new(
        hidden.iter().copied(),
        asked.generation.stop.token_ids.iter().copied(),
        asked.generation.limits.min_tokens.unwrap_or(0),
    );
    let output = &asked.generation.output;
    let logprobs = output.logprobs.map(|alternatives| logprobs::Wanted {
        tokenizer: model.assets.tokenizer.clone(),
        alternatives: alternatives > 0,
        as_ids: output.return_tokens_as_token_ids == Some(true),
    });
    let choice = || {
        Choice::new(Ending {
            decode: model.assets.tokenizer.decode_stream(&tokens, skip_special),
            stops: stops.clone(),
            stop_ids: stop_ids.clone(),
            max_tokens: asked.generation.limits.max_tokens,
            parser: calls.as_ref().map(|calls| model.assets.parsers.start(calls)),
            logprobs: logprobs.clone().map(Logprobs::new),
        })
    };
    let list = (0..asked.generation.sampling.n.unwrap_or(1)).map(|_| choice()).collect();
    let choices = Choices::new(list, isl, counts_reasoning);
    let [pin, prefill_pin] = session.pins(&asked.generation.nvext);
    let priority = session.priority.or(asked.generation.nvext.priority).unwrap_or(0);
    let strict_priority = session.strict_priority.or(asked.generation.nvext.strict_priority).unwrap_or(0);
    let prepared = Prepared {
        id,
        session,
        pin,
        prefill_pin,
        blocks,
        expected_output_tokens: asked.generation.nvext.expected_output_tokens,
        priority,
        strict_priority,
        engine,
        model,
    };
    let wanted = Wanted {
        flavor: asked.flavor,
        stream: asked.generation.stream,
        stream_options: asked.generation.stream_options,
        choices,
        finisher,
    };
    Ok((prepared, wanted))
}

fn engine_request(
    model: &Model,
    token_ids: Arc<[u32]>,
    asked: &Asked,
    session: &Session,
    salt: Option<&str>,
) -> Result<EngineRequest, ApiError> {
    let ignore_eos = asked.generation.stop.ignore_eos == Some(true);
    let eos = if ignore_eos { Vec::new() } else { model.assets.eos.clone() };
    let list = |list: &[u32]| (!list.is_empty()).then(|| list.to_vec());
    let sampling = &asked.generation.sampling;
    let priority = session.priority.or(asked.generation.nvext.priority);
    Ok(EngineRequest {
        model: model.name.to_string(),
        token_ids,
        stop_conditions: StopConditions {
            max_tokens: asked.generation.limits.max_tokens,
            stop: (!ignore_eos && !asked.generation.stop.strings.is_empty())
                .then(|| asked.generation.stop.strings.clone()),
            stop_token_ids: list(&asked.generation.stop.token_ids),
            stop_token_ids_visible: None,
            stop_token_ids_hidden: list(&eos),
            min_tokens: asked.generation.limits.min_tokens,
            ignore_eos: asked.generation.stop.ignore_eos,
            max_thinking_tokens: asked.generation.limits.max_thinking_tokens,
        },
        sampling_options: SamplingOptions {
            n: sampling.n.map(u32::from),
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            repetition_penalty: sampling.repetition_penalty,
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            top_k: sampling.top_k,
            min_p: sampling.min_p,
            seed: sampling.seed,
            logit_bias: (!sampling.logit_bias.is_empty())
                .then(|| sampling.logit_bias.iter().map(|(id, bias)| (id.to_string(), *bias)).collect()),
            include_stop_str_in_output: asked.generation.stop.include_stop_str,
            guided_decoding: guided(&sampling.guided, asked.calls.as_ref())?,
            ..SamplingOptions::default()
        },
        output_options: OutputOptions {
            skip_special_tokens: asked.generation.output.skip_special_tokens,
            logprobs: asked.generation.output.logprobs,
            return_tokens_as_token_ids: asked.generation.output.return_tokens_as_token_ids,
            ..OutputOptions::default()
        },
        eos_token_ids: eos,
        mdc_sum: Some(model.mdcsum.to_string()),
        annotations: annotations(&asked.generation.nvext),
        routing: Some(Routing {
            cache_salt: salt.map(str::to_owned),
            expected_output_tokens: asked.generation.nvext.expected_output_tokens,
            priority,
            priority_jump: priority.map(f64::from),
            strict_priority: session.strict_priority.or(asked.generation.nvext.strict_priority),
            ..Routing::default()
        }),
        require_reasoning: asked.calls.as_ref().is_some_and(|calls| calls.require_reasoning),
        extra_args: extra_args(&asked.generation, salt),
        request_timestamp_ms: asked.generation.nvext.request_timestamp_ms,
        router: asked.generation.nvext.targets.map(|targets| RouterTargets {
            ttft_target: targets.ttft_target,
            itl_target: targets.itl_target,
        }),
        agent_context: session.id.as_deref().map(|id| AgentContext {
            session_id: id.to_owned(),
            parent_session_id: session.parent.as_deref().map(str::to_owned),
            session_final: session.is_final.then_some(true),
            ..AgentContext::default()
        }),
        image_cache_scope: session.id.as_deref().map(str::to_owned),
        ..EngineRequest::default()
    })
}

/// A tool choice that asks for calls goes before a format of the answer.
fn guided(guided: &Guided, calls: Option<&Calls>) -> Result<Option<GuidedDecoding>, ApiError> {
    if let Some(schema) = calls.and_then(|calls| calls.schema.clone()) {
        return Ok(Some(GuidedDecoding { json: Some(schema), ..GuidedDecoding::default() }));
    }
    if !guided.is_some() {
        return Ok(None);
    }
    let json =
        guided.json.as_ref().map(|raw| serde_json::from_str(raw.as_str())).transpose().map_err(|e| {
            ApiError::invalid("response_format", format!("The JSON schema cannot be read: {e}"))
        })?;
    Ok(Some(GuidedDecoding {
        json,
        regex: guided.regex.clone(),
        choice: guided.choice.clone(),
        grammar: guided.grammar.clone(),
        ..GuidedDecoding::default()
    }))
}

/// What the client wants the worker to be told, but for what is not the client's to say.
fn annotations(nvext: &NvExt) -> Vec<String> {
    nvext.annotations.iter().filter(|annotation| *annotation != LOCAL_PREFILL).cloned().collect()
}

fn extra_args(generation: &Generation, salt: Option<&str>) -> Option<serde_json::Value> {
    let nvext = &generation.nvext;
    let mut inner = serde_json::Map::new();
    if !nvext.extra_fields.is_empty() {
        inner.insert("extra_fields".into(), nvext.extra_fields.clone().into());
    }
    if nvext.token_data.is_some() {
        inner.insert("token_in".into(), true.into());
    }
    if let Some(salt) = salt {
        inner.insert("cache_salt".into(), salt.into());
    }
    let value = |raw: &Raw| serde_json::from_str::<serde_json::Value>(raw.as_str()).unwrap_or_default();
    let sampling: serde_json::Map<_, _> =
        generation.engine.iter().map(|(name, raw)| ((*name).to_owned(), value(raw))).collect();
    let mut args = serde_json::Map::new();
    for (name, part) in [("nvext", inner), ("sampling_options", sampling)] {
        if !part.is_empty() {
            args.insert(name.into(), part.into());
        }
    }
    (!args.is_empty()).then(|| args.into())
}
