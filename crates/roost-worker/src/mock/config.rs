//! What a mock engine pretends to be.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{TextCodec, Transfers};
use crate::{BootstrapEndpoint, ModelFiles, Role, ScriptBook};

/// Settings of a [`MockEngine`](crate::MockEngine). `MockConfig::new` gives usable defaults.
#[derive(Debug, Clone)]
pub struct MockConfig {
    /// Served model name.
    pub model_name: String,
    /// Further names of the model.
    pub aliases: Vec<String>,
    /// The model's files.
    pub files: ModelFiles,
    /// What the engine computes.
    pub role: Role,
    /// Longest sequence, in tokens.
    pub context_length: u32,
    /// Tokens per KV block, at least 1.
    pub block_size: u32,
    /// KV blocks are those of an engine with EAGLE speculation, see [`Cut`](roost_kv::Cut).
    pub eagle: bool,
    /// KV capacity of each rank, in blocks.
    pub total_blocks: usize,
    /// Requests that each rank runs at once; the others wait.
    pub max_num_seqs: usize,
    /// First data-parallel rank.
    pub dp_start_rank: u32,
    /// Number of data-parallel ranks, at least 1.
    pub dp_size: u32,
    /// Whether the ranks report their KV caches.
    pub kv_events: bool,
    /// How long things take.
    pub timing: MockTiming,
    /// Tokens per item of an unscripted answer, at least 1.
    pub tokens_per_item: usize,
    /// Tokens generated when the request gives no limit.
    pub default_max_tokens: u32,
    /// What the engine says when no script is chosen.
    pub answer: Answer,
    /// Seed of everything random.
    pub seed: u64,
    /// Scripts that prompts may choose; needs `codec`.
    pub scripts: ScriptBook,
    /// Text to ids and back, in the model's vocabulary. Scripts and echo answers need it.
    pub codec: Option<TextCodec>,
    /// Bootstrap server to announce, on prefill engines.
    pub bootstrap: Option<BootstrapEndpoint>,
    /// Hand-over of KV cache between prefill and decode engines of one process. Without it a decode
    /// engine has the KV cache at once.
    pub transfers: Option<Arc<Transfers>>,
    /// A decode engine computes a prompt itself where the request says so, as vLLM's does; SGLang's refuses.
    pub local_prefill: bool,
    /// Tool-call parser to announce.
    pub tool_call_parser: Option<String>,
    /// Reasoning parser to announce.
    pub reasoning_parser: Option<String>,
    /// Further members of `runtime_config` to announce, such as `taints`.
    pub runtime_config: serde_json::Map<String, serde_json::Value>,
    /// Further facts to announce, such as which engine a gateway belongs to.
    pub runtime_data: serde_json::Map<String, serde_json::Value>,
    /// Cancelled by a scripted `exit`: whoever runs the worker ends it abruptly.
    pub exit: CancellationToken,
}

/// Speed of a mock engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MockTiming {
    /// Time before the first token that does not depend on the prompt.
    pub prefill_base: Duration,
    /// Uncached prompt tokens that a rank prefills per second, one prompt after the other.
    pub prefill_tokens_per_s: f64,
    /// Time between the tokens of a sequence.
    pub itl: Duration,
    /// Divides every delay; infinity makes the engine instant.
    pub speed: f64,
}

/// What an unscripted answer consists of. The same prompt, seed and settings give the same answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Ids drawn from a range of the vocabulary, a number of them drawn from another range.
    Tokens {
        /// Ids to draw from; must not be empty and should hold no special tokens.
        vocabulary: Range<u32>,
        /// Natural length of the answer, in tokens, before the end-of-turn token.
        length: Range<u32>,
    },
    /// A sentence that names the session's turn and the cached part of the prompt.
    Echo,
    /// A text that follows from the prompt's ids, see [`recital`](super::recital): whoever knows the ids knows the whole
    /// answer. A request that brings a part of its answer behind its prompt gets the rest.
    Recital {
        /// Ids with which prompts end; what follows the last of them is a part of the answer.
        mark: Vec<u32>,
        /// Length of the answer, characters.
        length: usize,
    },
}

impl MockTiming {
    /// No delays at all.
    pub const INSTANT: Self = Self {
        prefill_base: Duration::ZERO,
        prefill_tokens_per_s: f64::INFINITY,
        itl: Duration::ZERO,
        speed: f64::INFINITY,
    };

    /// Time to prefill `uncached` tokens.
    pub fn prefill(&self, uncached: usize) -> Duration {
        let tokens = Duration::try_from_secs_f64(uncached as f64 / self.prefill_tokens_per_s);
        self.scaled(self.prefill_base + tokens.unwrap_or(Duration::MAX / 2))
    }

    /// Time for `tokens` decode steps.
    pub fn decode(&self, tokens: usize) -> Duration {
        self.scaled(self.itl.saturating_mul(u32::try_from(tokens).unwrap_or(u32::MAX)))
    }

    fn scaled(&self, delay: Duration) -> Duration {
        Duration::try_from_secs_f64(delay.as_secs_f64() / self.speed).unwrap_or(Duration::MAX / 2)
    }
}

impl Default for MockTiming {
    /// A mid-size accelerator: 8,000 tokens/s prefill, 10 ms between tokens.
    fn default() -> Self {
        Self {
            prefill_base: Duration::from_millis(5),
            prefill_tokens_per_s: 8000.0,
            itl: Duration::from_millis(10),
            speed: 1.0,
        }
    }
}

impl MockConfig {
    /// An aggregated engine of one rank with blocks of 64 tokens that answers letters.
    pub fn new(model_name: impl Into<String>, files: ModelFiles) -> Self {
        Self {
            model_name: model_name.into(),
            aliases: Vec::new(),
            files,
            role: Role::Aggregated,
            context_length: 262_144,
            block_size: 64,
            eagle: false,
            total_blocks: 16_384,
            max_num_seqs: 256,
            dp_start_rank: 0,
            dp_size: 1,
            kv_events: true,
            timing: MockTiming::default(),
            tokens_per_item: 1,
            default_max_tokens: 256,
            answer: Answer::Tokens { vocabulary: 97..123, length: 16..128 },
            seed: 0,
            scripts: ScriptBook::default(),
            codec: None,
            bootstrap: None,
            transfers: None,
            local_prefill: false,
            tool_call_parser: None,
            reasoning_parser: None,
            runtime_config: serde_json::Map::new(),
            runtime_data: serde_json::Map::new(),
            exit: CancellationToken::new(),
        }
    }
}
