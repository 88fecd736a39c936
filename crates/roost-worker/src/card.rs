//! What an engine says about itself: everything a worker registers.

use std::path::PathBuf;

/// The part of a request that a worker computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Prefill and decode in one engine.
    #[default]
    Aggregated,
    /// Prefill only; the KV cache goes to a decode worker.
    Prefill,
    /// Decode only; the KV cache comes from a prefill worker.
    Decode,
}

impl Role {
    /// The component under which workers of this role register unless told otherwise.
    pub fn default_component(self) -> &'static str {
        match self {
            Role::Prefill => "prefill",
            Role::Aggregated | Role::Decode => "backend",
        }
    }

    /// The `model_type` flags of the model card.
    pub fn model_type(self) -> &'static str {
        match self {
            Role::Prefill => "Prefill",
            Role::Aggregated | Role::Decode => "Chat | Completions",
        }
    }
}

/// Where a prefill engine hands KV cache over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapEndpoint {
    /// Host name or address that decode engines can reach.
    pub host: String,
    /// Port of the bootstrap server.
    pub port: u16,
}

/// The files that a frontend needs to tokenize, render and detokenize for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFiles {
    /// Model directory or hub name, as the engine was given it.
    pub source_path: String,
    /// `config.json`.
    pub config: PathBuf,
    /// `tokenizer.json`.
    pub tokenizer: PathBuf,
    /// `tokenizer_config.json`.
    pub tokenizer_config: PathBuf,
    /// `generation_config.json`, when the model has one.
    pub generation_config: Option<PathBuf>,
    /// `chat_template.jinja`, when the template is not in the tokenizer's configuration.
    pub chat_template: Option<PathBuf>,
}

impl ModelFiles {
    /// Finds the files of a model directory by their usual names; optional ones only if they exist.
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        let optional = |name: &str| Some(dir.join(name)).filter(|path| path.is_file());
        Self {
            config: dir.join("config.json"),
            tokenizer: dir.join("tokenizer.json"),
            tokenizer_config: dir.join("tokenizer_config.json"),
            generation_config: optional("generation_config.json"),
            chat_template: optional("chat_template.jinja"),
            source_path: dir.to_string_lossy().into_owned(),
        }
    }
}

/// The facts of an engine that its worker registers. Fixed for the life of the engine.
#[derive(Debug, Clone)]
pub struct EngineCard {
    /// Served model name: what a client writes in `model`.
    pub model_name: String,
    /// Further names of the same model.
    pub aliases: Vec<String>,
    /// What the engine computes.
    pub role: Role,
    /// The model's files.
    pub files: ModelFiles,
    /// Longest sequence the engine serves, in tokens; 0 when unknown.
    pub context_length: u32,
    /// Tokens per KV block, as in the published events.
    pub kv_block_size: u32,
    /// The published blocks are hashed together with the token behind them, see [`Cut`](roost_kv::Cut).
    pub eagle: bool,
    /// KV capacity of each rank, in blocks.
    pub total_kv_blocks: u64,
    /// Sequences that each rank runs at once.
    pub max_num_seqs: u64,
    /// Tokens that each rank prefills in one step.
    pub max_num_batched_tokens: u64,
    /// First data-parallel rank of this instance.
    pub dp_start_rank: u32,
    /// Number of data-parallel ranks, at least 1.
    pub dp_size: u32,
    /// Whether [`Engine::kv_changes`](crate::Engine::kv_changes) yields streams.
    pub publishes_kv_events: bool,
    /// Tool-call parser the frontend shall use.
    pub tool_call_parser: Option<String>,
    /// Reasoning parser the frontend shall use.
    pub reasoning_parser: Option<String>,
    /// Bootstrap server, on prefill engines.
    pub bootstrap: Option<BootstrapEndpoint>,
    /// Further members of the card's `runtime_config`, such as `taints`.
    pub runtime_config: serde_json::Map<String, serde_json::Value>,
    /// Free engine facts for `runtime_data`.
    pub runtime_data: serde_json::Map<String, serde_json::Value>,
}

impl EngineCard {
    /// The ranks served by this instance, in order.
    pub fn ranks(&self) -> impl Iterator<Item = u32> + use<> {
        self.dp_start_rank..self.dp_start_rank + self.dp_size
    }
}
