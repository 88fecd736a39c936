//! Body bytes to a request that a worker takes: split, look the model up, render, tokenize, hash. One hop.

mod calls;
mod literal;
pub(crate) mod memory;
pub(crate) mod pool;
mod prompt;
mod reading;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use roost_kv::{Blocks, hash};
use roost_openai::{
    ApiError, ChatRequest, CompletionRequest, Generation, Guided, NvExt, Prompt, Raw, RoutingConstraints,
    StreamOptions,
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
use crate::trace::Traced;

/// Why a prompt is refused when the prepare threads have too much to do.
pub(crate) const POOL_FULL: &str =
    "Too many prompts are waiting to be tokenized. Please retry after a short wait.";
/// What is said when a prepare thread broke.
pub(crate) const POOL_LOST: &str = "The request could not be prepared.";

/// A request ready to be placed. Ids and hashes are shared, never copied, on the way to the wire and on a retry.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Request id on the plane: a UUID, with the number of the prompt where there are several.
    pub(crate) id: Box<str>,
    /// What it runs on.
    pub(crate) model: Arc<Model>,
    /// Session and parent, for affinity.
    pub(crate) session: Session,
    /// Where it must run, if anywhere.
    pub(crate) pin: Pin,
    /// Where its prefill leg must run, if anywhere.
    pub(crate) prefill_pin: Pin,
    /// Properties that its workers must have, and that they had better have, by weight.
    pub(crate) required: Vec<String>,
    pub(crate) preferred: Vec<(String, f64)>,
    /// Hashed prompt.
    pub(crate) blocks: Blocks,
    /// What the hashes took.
    pub(crate) hashing: Duration,
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
    /// A UUID.
    pub(crate) id: Box<str>,
    /// What the client knows the request by.
    pub(crate) request_id: String,
    pub(crate) model: Arc<Model>,
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

/// The prompts of a request, at least one, and the client's side.
pub(crate) type Ready = (Vec<Prepared>, Wanted);

type Outcome = Result<Ready, Unprepared>;

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
) -> Result<Ready, ApiError> {
    let mut finisher =
        Finisher::begin(shared, &model, api.endpoint(), request.generation.stream, &session, received);
    let kwargs = template_kwargs(&request, model.assets.parsers.reasons());
    let template_kwargs = finisher.check(kwargs)?;
    let read = Read { body, request: &request, recalled, kwargs: template_kwargs.as_deref() };
    let result = prompt_ids(shared, &model, read, &session, &mut finisher);
    let ids = finisher.check(result)?;
    let calls = finisher.check(Calls::of(&request, &model))?;
    let asked = Asked { form, generation: request.generation, template_kwargs, calls: Some(calls) };
    complete(shared, model, vec![ids], asked, session, finisher)
}

fn completion(
    shared: &Shared,
    model: Arc<Model>,
    request: CompletionRequest,
    session: Session,
    received: Instant,
) -> Result<Ready, ApiError> {
    let mut finisher = Finisher::begin(
        shared,
        &model,
        Api::Completion.endpoint(),
        request.generation.stream,
        &session,
        received,
    );
    let started = Instant::now();
    let has_text = request.prompts.iter().any(|prompt| matches!(prompt, Prompt::Text(_)));
    let one = |prompt| match prompt {
        Prompt::Ids(ids) => known_ids(&model, ids, "prompt").map(PromptIds::from),
        Prompt::Text(text) => raw_ids(&model.assets.tokenizer, &text, true).map(PromptIds::from),
    };
    let prompts = match request.generation.nvext.token_data.clone() {
        Some(ids) => known_ids(&model, ids, "nvext.token_data").map(|ids| vec![ids.into()]),
        None => request.prompts.into_iter().map(one).collect(),
    };
    if has_text && request.generation.nvext.token_data.is_none() {
        finisher.tokenized(started.elapsed());
    }
    let prompts = finisher.check(prompts)?;
    let asked =
        Asked { form: Form::Completion, generation: request.generation, template_kwargs: None, calls: None };
    complete(shared, model, prompts, asked, session, finisher)
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
    blocks: Option<(Blocks, Duration)>,
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
    let prompt = with_prompt(model, read, session, |request| {
        literal::or_else(shared, request, |request| shared.memory.prompt(request))
    });
    if let Some(id) = session.id.as_deref().filter(|_| session.is_final) {
        shared.memory.forget(&model.mdcsum, id);
    }
    let prompt = prompt?;
    model.metrics.prompt(prompt.reused_tokens, prompt.ids.len());
    finisher.rendered(prompt.rendering);
    finisher.tokenized(prompt.tokenizing);
    Ok(PromptIds { ids: prompt.ids, blocks: Some((prompt.blocks, prompt.hashing)) })
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
    shared: &Shared,
    model: Arc<Model>,
    prompts: Vec<PromptIds>,
    mut asked: Asked,
    session: Session,
    mut finisher: Finisher,
) -> Result<Ready, ApiError> {
    let counts_reasoning = asked.calls.is_some() && model.assets.parsers.reasons();
    let id = session.uuid.to_string();
    let max_tokens = asked.generation.limits.max_tokens;
    let is_alone = prompts.len() == 1;
    let mut prepared = Vec::with_capacity(prompts.len());
    let mut lengths = Vec::with_capacity(prompts.len());
    let mut choices = Vec::with_capacity(prompts.len());
    let first = prompts.first().map(|prompt| prompt.ids.clone()).unwrap_or_default();
    let extras = Extras::of(&asked.generation.nvext, &id, &first, &model.assets.tokenizer);
    for (number, PromptIds { ids, blocks }) in prompts.into_iter().enumerate() {
        lengths.push(ids.len() as u64);
        let room = finisher.check(room(&model, ids.len()))?;
        // More than fits is capped to what fits: the answer then ends with `length`.
        asked.generation.limits.max_tokens = max_tokens.map(|max| max.min(room));
        let salt = salt(&session, &asked.generation);
        let hashed = blocks.unwrap_or_else(|| {
            let started = Instant::now();
            (Blocks::compute(&ids, model.cut, hash::seed(None, salt)), started.elapsed())
        });
        let engine = finisher.check(engine_request(&model, ids.clone(), &asked, &session, salt))?;
        let id = if is_alone { id.clone() } else { format!("{id}-{number}") };
        if let Some(sink) =
            shared.trace.as_ref().filter(|_| is_alone && asked.generation.sampling.n.unwrap_or(1) == 1)
        {
            finisher.trace(Traced::new(sink, &session, &ids, &hashed.0));
        }
        prepared.push(placeable(id.into(), &model, &asked, &session, engine, hashed));
        choices.extend(choices_of(&model, &mut asked, &ids));
    }
    finisher.prepared(lengths.iter().sum(), extras);
    let wanted = Wanted {
        id: id.into(),
        request_id: session.echo(),
        model,
        form: asked.form,
        stream: asked.generation.stream,
        stream_options: asked.generation.stream_options,
        choices: Choices::new(choices, &lengths, counts_reasoning),
        finisher,
    };
    Ok((prepared, wanted))
}

/// Tokens that an answer may have beside a prompt.
fn room(model: &Model, prompt: usize) -> Result<u32, ApiError> {
    let (limit, prompt) = (u64::from(model.context_length), prompt as u64);
    match limit {
        0 => Ok(u32::MAX),
        limit if prompt >= limit => Err(ApiError::context_length(limit, prompt + 1)),
        limit => Ok(u32::try_from(limit - prompt).unwrap_or(u32::MAX)),
    }
}

fn placeable(
    id: Box<str>,
    model: &Arc<Model>,
    asked: &Asked,
    session: &Session,
    engine: EngineRequest,
    (blocks, hashing): (Blocks, Duration),
) -> Prepared {
    let nvext = &asked.generation.nvext;
    let [pin, prefill_pin] = session.pins(nvext);
    Prepared {
        id,
        session: session.clone(),
        pin,
        prefill_pin,
        required: nvext.constraints.required.clone(),
        preferred: nvext.constraints.preferred.clone().into_iter().collect(),
        blocks,
        hashing,
        expected_output_tokens: nvext.expected_output_tokens,
        priority: session.priority.or(nvext.priority).unwrap_or(0),
        strict_priority: session.strict_priority.or(nvext.strict_priority).unwrap_or(0),
        engine,
        model: Arc::clone(model),
    }
}

/// What workers are told of the properties that were asked for.
fn constraints(asked: &RoutingConstraints) -> Option<serde_json::Value> {
    let mut told = serde_json::Map::new();
    if !asked.required.is_empty() {
        told.insert("required_taints".to_owned(), asked.required.clone().into());
    }
    if !asked.preferred.is_empty() {
        told.insert("preferred_taints".to_owned(), serde_json::json!(asked.preferred));
    }
    (!told.is_empty()).then(|| told.into())
}

/// The choices of one prompt. Its calls are taken: only a request with one prompt has any.
fn choices_of(model: &Model, asked: &mut Asked, prompt: &PromptTokens) -> Vec<Choice> {
    let calls = asked.calls.take().and_then(|calls| calls.parse(model, prompt.tail()));
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
            decode: model.assets.tokenizer.decode_stream(prompt.tail(), skip_special),
            stops: stops.clone(),
            stop_ids: stop_ids.clone(),
            max_tokens: asked.generation.limits.max_tokens,
            parser: calls.as_ref().map(|calls| model.assets.parsers.start(calls)),
            logprobs: logprobs.clone().map(Logprobs::new),
        })
    };
    (0..asked.generation.sampling.n.unwrap_or(1)).map(|_| choice()).collect()
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
            routing_constraints: constraints(&asked.generation.nvext.constraints),
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
    let read = |raw: &Option<Raw>| {
        raw.as_ref().map(|raw| serde_json::from_str(raw.as_str())).transpose().map_err(|e| {
            ApiError::invalid("response_format", format!("The format of the answer cannot be read: {e}"))
        })
    };
    Ok(Some(GuidedDecoding {
        json: read(&guided.json)?,
        structural_tag: read(&guided.structural_tag)?,
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
