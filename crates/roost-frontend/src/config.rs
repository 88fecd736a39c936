//! What the frontend needs to know, as plain data.

use std::path::PathBuf;
use std::time::Duration;

use roost_openai::{ErrorShape, FieldPolicy};
use roost_template::DeepSeekStyle;
use roost_tokenizer::Backend;

use crate::bindings::BindingsFile;
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

/// HTTP side.
#[derive(Debug, Clone)]
pub struct Http {
    /// Largest request body in bytes; more is 413.
    pub body_limit: usize,
    /// Longest pause between two pieces of a request body; then 408.
    pub body_stall: Option<Duration>,
    /// Longest idle time of a kept-alive connection, the reading of a request head included.
    pub idle: Option<Duration>,
    /// Connections at the same time; further ones wait in the backlog.
    pub max_connections: usize,
    /// Requests at the same time; further ones are refused as overload.
    pub max_inflight: Option<usize>,
    /// How long a request waits for a model that is not ready yet.
    pub model_wait: Duration,
    /// Requests that may wait so; further ones are refused.
    pub held_requests: usize,
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
    /// Whether thresholds and routing decisions can be looked at and changed.
    pub admin_api: bool,
    /// Member that carries reasoning text.
    pub reasoning_field: &'static str,
    /// How long running answers may go on after a shutdown was asked for.
    pub drain: Duration,
    /// How long new requests are still served after a shutdown was asked for, so that balancers can notice.
    pub notice: Duration,
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
            idle: Some(Duration::from_secs(3600)),
            max_connections: 16_384,
            max_inflight: None,
            model_wait: Duration::from_secs(10),
            held_requests: 1024,
            keep_alive: Some(Duration::from_secs(15)),
            worker_silence: Some(Duration::from_secs(600)),
            overload_status: 529,
            error_shape: ErrorShape::Both,
            fields: FieldPolicy::Ignore,
            admin_api: true,
            reasoning_field: "reasoning_content",
            drain: Duration::from_secs(5),
            notice: Duration::ZERO,
        }
    }
}

impl Default for Prepare {
    fn default() -> Self {
        Prepare { threads: None, queue: 1024, inline_bytes: 16 << 10, memory: MemoryConfig::default() }
    }
}

impl Default for Route {
    fn default() -> Self {
        Route {
            router: roost_router::Config::default(),
            prefill_affinity_ttl: None,
            decode_without_prefill: false,
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
