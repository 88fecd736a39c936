//! What the frontend needs to know, as plain data.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use roost_openai::{ErrorShape, FieldPolicy};
use roost_router::LocalPrefill;
use roost_template::DeepSeekStyle;
use roost_tokenizer::Backend;

use crate::bindings::BindingsFile;
use crate::door::{ApiKeys, CorsOrigins};
use crate::prepare::memory::MemoryConfig;

/// Configuration of a [`crate::Frontend`].
#[derive(Debug, Clone)]
pub struct Config {
    /// HTTP side.
    pub http: Http,
    /// Render, tokenize, hash.
    pub prepare: Prepare,
    /// Workers and retries.
    pub route: Route,
    /// Which models are served and how their files are loaded.
    pub models: ModelSource,
}

/// Limits that lists of models tell of every model, tokens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Advertised {
    /// In place of the card's context length.
    pub context_window: Option<u64>,
    /// Longest answer; no card says it.
    pub max_output_tokens: Option<u64>,
}

impl Advertised {
    /// The context window of a model whose card says this; 0 is nothing.
    pub(crate) fn window_of(self, card: u32) -> Option<u64> {
        self.context_window.or((card > 0).then_some(u64::from(card)))
    }
}

/// HTTP side.
#[derive(Debug, Clone)]
pub struct Http {
    /// Largest request body in bytes; more is 413.
    pub body_limit: usize,
    /// Longest pause between two pieces of a request body; then 408. A body that trickles has this much time, and a
    /// second more for each KiB of it.
    pub body_stall: Option<Duration>,
    /// Bytes of all request bodies that are read or prepared at the same time; further ones are refused with 503.
    pub body_memory: Option<usize>,
    /// Longest time for a whole request head: from its first byte, the first one from the start of the connection.
    pub head: Option<Duration>,
    /// Longest time from the end of an answer to the next request.
    pub idle: Option<Duration>,
    /// Longest time in which a client takes no bytes of an answer; then the answer is dropped.
    pub write_stall: Option<Duration>,
    /// Largest request head in bytes, at least 8 KiB; more is 431.
    pub max_head_bytes: usize,
    /// Most header lines of a request; more is 431.
    pub max_headers: usize,
    /// Connections at the same time. On further ones only probes are answered, anything else with 503.
    pub max_connections: usize,
    /// Requests at the same time; further ones are refused with 503.
    pub max_inflight: Option<usize>,
    /// How long a request waits for a model that is not ready yet.
    pub model_wait: Duration,
    /// Requests that may wait so; further ones are refused.
    pub held_requests: usize,
    /// Keys of which clients must show one; `None`: nobody is asked.
    pub api_keys: Option<Arc<ApiKeys>>,
    /// Keys of the administrative routes, in place of those.
    pub admin_keys: Option<Arc<ApiKeys>>,
    /// Web pages that may call.
    pub cors: Option<CorsOrigins>,
    /// Silence after which a comment line is sent on a stream.
    pub keep_alive: Option<Duration>,
    /// Silence of a worker after which its answer is ended with an error.
    pub worker_silence: Option<Duration>,
    /// Status of an overload answer.
    pub overload_status: u16,
    /// Shape of error bodies.
    pub error_shape: ErrorShape,
    /// Unknown members of requests.
    pub fields: FieldPolicy,
    /// Whether `nvext` of requests is honoured; otherwise only its cache salt is.
    pub nvext: bool,
    /// Context window and output limit that lists of models tell, in place of what cards say.
    pub advertised: Advertised,
    /// Whether thresholds and routing decisions can be looked at and changed.
    pub admin_api: bool,
    /// Member that carries reasoning text.
    pub reasoning_field: &'static str,
    /// Send usage at the end of every stream, as if each request had asked for it.
    pub force_usage: bool,
    /// Prefix, in lower case, of headers passed to the worker as metadata.
    pub metadata_prefix: String,
    /// Where routes are found.
    pub paths: Paths,
    /// Serve the Messages API.
    pub messages_api: bool,
    /// Leave the billing line of Claude Code out of system prompts.
    pub strip_anthropic_preamble: bool,
    /// How long running answers may go on after a shutdown was asked for.
    pub drain: Duration,
    /// How long new requests are still served after a shutdown was asked for, so that balancers can notice.
    pub notice: Duration,
}

/// Where routes are found, each an absolute path. Routes below one of them move with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// Chat completions.
    pub chat: String,
    /// Text completions.
    pub completions: String,
    /// The Responses API.
    pub responses: String,
    /// The Messages API.
    pub messages: String,
    /// Models and their readiness.
    pub models: String,
    /// Health.
    pub health: String,
    /// Liveness.
    pub live: String,
    /// Metrics.
    pub metrics: String,
}

impl Default for Paths {
    fn default() -> Self {
        Paths {
            chat: "/v1/chat/completions".into(),
            completions: "/v1/completions".into(),
            responses: "/v1/responses".into(),
            messages: "/v1/messages".into(),
            models: "/v1/models".into(),
            health: "/health".into(),
            live: "/live".into(),
            metrics: "/metrics".into(),
        }
    }
}

/// Render, tokenize, hash.
#[derive(Debug, Clone)]
pub struct Prepare {
    /// Threads; `None` is one less than the cores, at least one.
    pub threads: Option<usize>,
    /// Requests that may wait for a thread; more is overload.
    pub queue: usize,
    /// Bodies up to this many bytes are prepared where they were read.
    pub inline_bytes: usize,
    /// What is kept of earlier prompts.
    pub memory: MemoryConfig,
    /// Control tokens that users and tools spell stay text.
    pub literal_control_tokens: bool,
}

/// Workers and retries.
#[derive(Debug, Clone)]
pub struct Route {
    /// The router of each pool.
    pub router: roost_router::Config,
    /// Idle lifetime of a session's binding to a prefill worker; that of the others is the router's own.
    pub prefill_affinity_ttl: Option<Duration>,
    /// Give whole requests to decode workers while there is no prefill worker; off: refuse them.
    pub decode_without_prefill: bool,
    /// When decode workers compute prompts themselves although there are prefill workers; `None`: never.
    pub local_prefill: Option<LocalPrefill>,
    /// Feed the index from the workers' events; off: from routed prompts.
    pub kv_events: bool,
    /// Lifetime of an entry of the approximate index.
    pub approximate_ttl: Duration,
    /// Tokens per KV block in place of the cards' own.
    pub block_size: Option<u32>,
    /// Workers a request may be tried on before its first token.
    pub attempts: usize,
    /// How often a request that has begun to answer may move to another worker.
    pub migration_limit: u32,
    /// Prompt and answer so far, in tokens, beyond which it does not move.
    pub migration_max_tokens: Option<u32>,
    /// From the call of a worker to the first token, queueing and prefill included.
    pub first_token: Option<Duration>,
    /// From the end of the prefill leg to the first token of the decode leg.
    pub kv_transfer: Option<Duration>,
    /// Workers that must have been seen before anything is ready.
    pub min_initial_workers: usize,
    /// Where bindings outlive the process; `None`: nowhere.
    pub bindings_file: Option<BindingsFile>,
    /// Seed of draws and ties.
    pub seed: u64,
    /// Send token ids as one binary string.
    pub token_ids_as_bytes: bool,
}

/// Which models are served and how their files are loaded.
#[derive(Debug, Clone)]
pub struct ModelSource {
    /// Serve the discovered model under this name too.
    pub name: Option<String>,
    /// Folder used in place of the files that cards name.
    pub path: Option<PathBuf>,
    /// Folder for downloaded files.
    pub cache_dir: PathBuf,
    /// Encoder.
    pub backend: Backend,
    /// Use the other encoder when the preferred one cannot load a model.
    pub fallback: bool,
    /// How DeepSeek's conversations are rendered.
    pub deepseek: DeepSeekStyle,
}

impl Default for Http {
    fn default() -> Self {
        Http {
            body_limit: 45 << 20,
            body_stall: Some(Duration::from_secs(60)),
            body_memory: Some(2 << 30),
            head: Some(Duration::from_secs(30)),
            idle: Some(Duration::from_secs(3600)),
            write_stall: Some(Duration::from_secs(120)),
            max_head_bytes: 64 << 10,
            max_headers: 100,
            max_connections: 16_384,
            max_inflight: None,
            model_wait: Duration::from_secs(10),
            held_requests: 1024,
            api_keys: None,
            admin_keys: None,
            cors: None,
            keep_alive: Some(Duration::from_secs(15)),
            worker_silence: Some(Duration::from_secs(600)),
            overload_status: 529,
            error_shape: ErrorShape::Both,
            fields: FieldPolicy::Ignore,
            admin_api: true,
            reasoning_field: "reasoning_content",
            nvext: true,
            advertised: Advertised::default(),
            force_usage: false,
            metadata_prefix: "x-dynamo-meta-".to_owned(),
            paths: Paths::default(),
            messages_api: true,
            strip_anthropic_preamble: true,
            drain: Duration::from_secs(5),
            notice: Duration::ZERO,
        }
    }
}

impl Default for Prepare {
    fn default() -> Self {
        Prepare {
            threads: None,
            queue: 1024,
            inline_bytes: 16 << 10,
            memory: MemoryConfig::default(),
            literal_control_tokens: false,
        }
    }
}

impl Default for Route {
    fn default() -> Self {
        Route {
            router: roost_router::Config::default(),
            prefill_affinity_ttl: None,
            decode_without_prefill: false,
            local_prefill: None,
            kv_events: true,
            approximate_ttl: Duration::from_secs(120),
            block_size: None,
            attempts: 3,
            migration_limit: 0,
            migration_max_tokens: None,
            first_token: Some(Duration::from_secs(7200)),
            kv_transfer: Some(Duration::from_secs(300)),
            min_initial_workers: 0,
            bindings_file: None,
            seed: 0,
            token_ids_as_bytes: false,
        }
    }
}
