use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CompletionUsage, FinishReason, OutputTokens, TraceLink};

/// One item of an answer (the peer's `LLMEngineOutput`).
///
/// Decodes both live styles: all base keys with explicit nulls, and sparse maps. Is written sparsely, which
/// every reader accepts. What hardly an item has is boxed: items are moved often, one for each token.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineOutput {
    /// Which of several answers this belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// New tokens, none to several.
    pub token_ids: OutputTokens,
    /// Text of each token, from workers that detokenize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Vec<Option<String>>>,
    /// Text of the item, from workers that detokenize.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Kind of output, `text` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_type: Option<String>,
    /// Sum of the log probabilities so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cum_log_probs: Option<f64>,
    /// Log probability of each token in `token_ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_probs: Option<Vec<f64>>,
    /// Alternatives for each token in `token_ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<Vec<Vec<TopLogprob>>>,
    /// Why the answer ended, on its last item or on an empty one behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// The stop string or token that was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Token counts; the last one of a stream counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_usage: Option<CompletionUsage>,
    /// What a prefill worker hands to the decode worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disaggregated_params: Option<Box<Value>>,
    /// What the engine tells about itself: `kv_cache_hit`, `routed_experts`, `prompt_logprobs`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_data: Option<Box<Value>>,
    /// Parts of a multimodal answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_parts: Option<Box<Value>>,
    /// What an encode worker hands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder_result: Option<Box<Value>>,
    /// Span of the worker, for the next worker to link to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_trace_link: Option<TraceLink>,
    /// Further values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<Box<Value>>,
    /// What a standalone router measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_data: Option<Box<Value>>,
    /// Text held back by the peer's decoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jailed_text: Option<Box<Value>>,
}

/// An alternative for one token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopLogprob {
    /// Place in the order of probability.
    #[serde(default)]
    pub rank: u32,
    /// The token.
    pub token_id: u32,
    /// Its text, when the worker knows it.
    #[serde(default)]
    pub token: Option<String>,
    /// Its log probability.
    pub logprob: f64,
    /// Bytes of its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<u8>>,
}

/// The stop string or stop token that ended an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StopReason {
    /// A stop token.
    Token(i64),
    /// A stop string.
    Text(String),
}
