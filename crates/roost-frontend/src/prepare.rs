//! Body bytes to a request that a worker takes: split, look the model up, render, tokenize, hash. One hop.

mod calls;
pub(crate) mod memory;
pub(crate) mod pool;
mod prompt;
mod reading;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use roost_kv::{Blocks, hash};
use roost_openai::{
    ApiError, ChatRequest, CompletionRequest, Generation, Guided, NvExt, Prompt, Raw, StreamOptions,
};
use roost_router::Pin;
use roost_tokenizer::{StopIds, StopScanner, Tokenizer, without_nul};
use roost_wire::message::{
    AgentContext, EngineRequest, GuidedDecoding, OutputOptions, PromptTokens, RouterTargets, Routing,
    SamplingOptions, StopConditions,
};

use self::calls::Calls;
use self::prompt::{Read, template_kwargs, with_prompt};
pub(crate) use self::prompt::{chat_ids, count};
use self::reading::Parsed;
pub(crate) use self::reading::Reading;
use crate::admit;
use crate::api::{Api, Form};
use crate::dispatch::LOCAL_PREFILL;
use crate::finish::{Extras, Finisher};
use crate::hold::not_ready;
use crate::models::{Lookup, Model, Waiting};
use crate::prepare::memory::Recalled;
use crate::respond::choice::{Choice, Ending};
use crate::respond::choices::Choices;
use crate::respond::logprobs::{self, Logprobs};
use crate::session::Session;
use crate::shared::Shared;

/// Why a prompt is refused when the prepare threads have too much to do.
pub(crate) const POOL_FULL: &str =
    "Too many prompts are waiting to be tokenized. Please retry after a short wait.";
/// What is said when a prepare thread broke.
pub(crate) const POOL_LOST: &str = "The request could not be prepared.";

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
    pub(crate) form: Form,
    pub(crate) stream: bool,
    pub(crate) stream_options: StreamOptions,
    pub(crate) choices: Choices,
    pub(crate) finisher: Finisher,
}

/// What is wanted of a prompt that is ids.
struct Asked {
    form: Form,
    generation: Generation,
    /// Arguments of the template: engines tell from them whether the answer may begin with reasoning.
    template_kwargs: Option<String>,
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

/// Prepares a request for an answer. CPU work: runs on the pool unless the body is small.
pub(crate) fn prepare(
    shared: &Shared,
    api: Api,
    body: Bytes,
    session: Session,
    received: Instant,
) -> Outcome {
    resume(shared, Reading::of(shared, api, body, session, received)?)
}

/// Goes on with a request that was read.
pub(crate) fn resume(shared: &Shared, reading: Reading) -> Outcome {
    if let Lookup::Waiting(Waiting { passes: true, .. }) = shared.models.lookup(reading.model()) {
        return Err(Unprepared::Waits(Box::new(reading)));
    }
    let model = find(shared, reading.model(), &reading.session).map_err(Refused::early)?;
    let session = &reading.session;
    let pins = session.pins(&reading.generation().nvext);
    if let Some(failure) = admit::refuse(&model, session.id.as_deref(), pins) {
        let mut finisher = reading.open_books(shared, &model);
        return Err(Refused::counted(finisher.fail(&failure)).into());
    }
    let Reading { parsed, session, received } = reading;
    let prepared = match parsed {
        Parsed::Chat { body, request, recalled, api, form } => {
            chat(shared, model, (api, form), (&body, *request, recalled), session, received)
        }
        Parsed::Completion(request) => completion(shared, model, *request, session, received),
    };
    prepared.map_err(|error| Refused::counted(error).into())
}

fn chat(
    shared: &Shared,
    model: Arc<Model>,
    (api, form): (Api, Form),
    (body, request, recalled): (&Bytes, ChatRequest, Option<Recalled>),
    session: Session,
    received: Instant,
) -> Result<(Prepared, Wanted), ApiError> {
    let mut finisher = Finisher::begin(shared, &model, api.endpoint(), request.generation.stream, received);
    let kwargs = template_kwargs(&request, model.assets.parsers.reasons());
    let template_kwargs = finisher.check(kwargs)?;
    let read = Read { body, request: &request, recalled, kwargs: template_kwargs.as_deref() };
    let result = prompt_ids(shared, &model, read, &session, &mut finisher);
    let ids = finisher.check(result)?;
    let calls = finisher.check(Calls::of(&request, &model))?;
    let asked = Asked { form, generation: request.generation, template_kwargs, calls: Some(calls) };
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
        Finisher::begin(shared, &model, Api::Completion.endpoint(), request.generation.stream, received);
    let ids = match (request.generation.nvext.token_data.clone(), &request.prompt) {
        (Some(ids), _) => known_ids(&model, ids, "nvext.token_data"),
        (None, Prompt::Ids(ids)) => known_ids(&model, ids.clone(), "prompt"),
        (None, Prompt::Text(text)) => {
            let started = Instant::now();
            let ids = raw_ids(&model.assets.tokenizer, text, true);
            finisher.tokenized(started.elapsed());
            ids
        }
    };
    let ids = finisher.check(ids)?.into();
    let asked =
        Asked { form: Form::Completion, generation: request.generation, template_kwargs: None, calls: None };
    complete(model, ids, asked, session, finisher)
}

/// Ids of a text; with the tokens that the tokenizer puts around texts, there is no second beginning where the text
/// spells one.
pub(crate) fn raw_ids(tokenizer: &Tokenizer, text: &str, add_special: bool) -> Result<Vec<u32>, ApiError> {
    raw_prompt(tokenizer, text, add_special).map_err(|error| tokenize_error(&error))
}

fn raw_prompt(
    tokenizer: &Tokenizer,
    text: &str,
    add_special: bool,
) -> Result<Vec<u32>, roost_tokenizer::Error> {
    let mut ids = tokenizer.encode(&without_nul(text), add_special)?;
    if !add_special {
        return Ok(ids);
    }
    if let [first, second, ..] = *ids
        && first == second
        && tokenizer.encode("", true)?.first() == Some(&first)
    {
        ids.remove(0);
    }
    Ok(ids)
}

/// The version of a model that a session is served by.
pub(crate) fn find(shared: &Shared, name: &str, session: &Session) -> Result<Arc<Model>, ApiError> {
    match shared.models.lookup(name) {
        Lookup::Ready(versions) => Ok(Arc::clone(versions.choose(session, || fastrand::u64(..)))),
        Lookup::Waiting(waiting) => Err(not_ready(name, waiting)),
        Lookup::Unknown => Err(ApiError::model_not_found(name)),
    }
}

/// A prompt as ids, with its hashes where they came along.
struct PromptIds {
    ids: PromptTokens,
    blocks: Option<Blocks>,
}

impl From<Vec<u32>> for PromptIds {
    fn from(ids: Vec<u32>) -> Self {
        PromptIds { ids: ids.into(), blocks: None }
    }
}

fn prompt_ids(
    shared: &Shared,
    model: &Model,
    read: Read<'_>,
    session: &Session,
    finisher: &mut Finisher,
) -> Result<PromptIds, ApiError> {
    if let Some(ids) = read.request.generation.nvext.token_data.clone() {
        return known_ids(model, ids, "nvext.token_data").map(PromptIds::from);
    }
    let prompt = with_prompt(model, read, session, |request| shared.memory.prompt(request));
    if let Some(id) = session.id.as_deref().filter(|_| session.is_final) {
        shared.memory.forget(&model.mdcsum, id);
    }
    let prompt = prompt?;
    shared.metrics.prompt(prompt.reused_tokens, prompt.ids.len());
    finisher.rendered(prompt.rendering);
    finisher.tokenized(prompt.tokenizing);
    Ok(PromptIds { ids: prompt.ids, blocks: Some(prompt.blocks) })
}

/// What keeps the KV cache of this request apart from that of others.
fn salt<'a>(session: &'a Session, generation: &'a Generation) -> Option<&'a str> {
    session.tenant.as_deref().or(generation.nvext.cache_salt.as_deref()).or(generation.cache_salt.as_deref())
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
    let engine = finisher.check(engine_request(&model, tokens.clone(), &asked, &session, salt))?;
    let id = session.uuid.to_string().into_boxed_str();
    let extras = Extras::of(&asked.generation.nvext, &id, &tokens, &model.assets.tokenizer);
    finisher.prepared(isl, &session, extras);
    let counts_reasoning = asked.calls.is_some() && model.assets.parsers.reasons();
    let calls = asked.calls.and_then(|calls| calls.parse(&model, tokens.tail()));
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
            decode: model.assets.tokenizer.decode_stream(tokens.tail(), skip_special),
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
        form: asked.form,
        stream: asked.generation.stream,
        stream_options: asked.generation.stream_options,
        choices,
        finisher,
    };
    Ok((prepared, wanted))
}

fn engine_request(
    model: &Model,
    token_ids: PromptTokens,
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
        extra_args: extra_args(asked, salt),
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

fn extra_args(asked: &Asked, salt: Option<&str>) -> Option<serde_json::Value> {
    let generation = &asked.generation;
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
    let mut parser = serde_json::Map::new();
    if let Some(kwargs) = &asked.template_kwargs {
        parser.insert("chat_template_kwargs".into(), serde_json::from_str(kwargs).unwrap_or_default());
    }
    let mut args = serde_json::Map::new();
    let parts = [("nvext", inner), ("sampling_options", sampling), ("reasoning_parser_kwargs", parser)];
    for (name, part) in parts {
        if !part.is_empty() {
            args.insert(name.into(), part.into());
        }
    }
    (!args.is_empty()).then(|| args.into())
}
