//! What `roost mock-worker` needs to know.

use std::{path::PathBuf, time::Duration};

use crate::{
    effective::Effective,
    serve::{self, LogOptions},
    values::Values,
    worker_plane::WorkerPlane,
};

/// Options of `roost mock-worker`: workers that behave like an engine's, without a model.
#[derive(Debug, Clone)]
pub struct MockWorker {
    /// Name under which the model is served.
    pub model_name: String,
    /// Folder with tokenizer, template and configuration. `None`: a small built-in model.
    pub model_path: Option<PathBuf>,
    /// Leg of a request the workers serve.
    pub role: WorkerRole,
    /// Workers to start in this process.
    pub workers: usize,
    /// Data-parallel ranks per worker.
    pub data_parallel_size: u32,
    /// Tokens per KV block.
    pub block_size: u32,
    /// KV blocks per rank.
    pub kv_blocks: u64,
    /// Requests a rank runs at once.
    pub max_num_seqs: u64,
    /// Prefill tokens per batch, as told in the card.
    pub max_num_batched_tokens: u64,
    /// Context length told in the card. `None`: the model folder's.
    pub context_length: Option<u32>,
    /// Uncached prompt tokens a rank computes per second.
    pub prefill_tokens_per_second: f64,
    /// Time per generated token.
    pub inter_token_latency: Duration,
    /// All simulated times are divided by this.
    pub speed: f64,
    /// What the answers consist of.
    pub answer: AnswerMode,
    /// Seed of generated answers.
    pub seed: u64,
    /// Scripted answers, chosen by `@@name@@` in the prompt.
    pub script: Option<PathBuf>,
    /// Publish KV events.
    pub kv_events: bool,
    /// How frontends reach the workers.
    pub plane: WorkerPlane,
    /// Log output.
    pub log: LogOptions,
    /// Every option with its value and where it came from.
    pub effective: Effective,
    /// Things to tell the operator once at start.
    pub notices: Vec<String>,
}

/// Leg of a request a worker serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerRole {
    /// Prefill and decode in one worker.
    Aggregated,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
}

/// What a mock answer consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerMode {
    /// A short sentence about the request.
    Readable,
    /// Token ids drawn from the seed and the prompt.
    Random,
}

pub(crate) fn build(values: &Values, effective: Effective, notices: Vec<String>) -> MockWorker {
    let role = match values.choice("role") {
        "prefill" => WorkerRole::Prefill,
        "decode" => WorkerRole::Decode,
        _ => WorkerRole::Aggregated,
    };
    MockWorker {
        model_name: values.required_text("model-name"),
        model_path: values.path("model-path"),
        role,
        workers: values.size("workers"),
        data_parallel_size: values.u32("data-parallel-size"),
        block_size: values.u32("block-size"),
        kv_blocks: values.integer("kv-blocks"),
        max_num_seqs: values.integer("max-num-seqs"),
        max_num_batched_tokens: values.integer("max-num-batched-tokens"),
        context_length: values.optional_u32("context-length"),
        prefill_tokens_per_second: values.number("prefill-tokens-per-second"),
        inter_token_latency: values.duration("inter-token-latency-ms"),
        speed: values.number("speed"),
        answer: match values.choice("answer") {
            "random" => AnswerMode::Random,
            _ => AnswerMode::Readable,
        },
        seed: values.integer("seed"),
        script: values.path("script"),
        kv_events: values.switch("kv-events"),
        plane: WorkerPlane::of(values),
        log: serve::log(values),
        effective,
        notices,
    }
}
