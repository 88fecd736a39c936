use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::float;

/// When to stop generating. Every key is sent, null when unset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopConditions {
    /// Most tokens to generate; unset leaves the limit to the worker.
    pub max_tokens: Option<u32>,
    /// Strings that end the answer; always matched by the frontend.
    pub stop: Option<Vec<String>>,
    /// Tokens that end the answer.
    pub stop_token_ids: Option<Vec<u32>>,
    /// Tokens that end the answer and stay visible in it.
    pub stop_token_ids_visible: Option<Vec<u32>>,
    /// Tokens that end the answer and are not shown, as a rule the end-of-sequence tokens of the model.
    pub stop_token_ids_hidden: Option<Vec<u32>>,
    /// Fewest tokens to generate before a stop token counts.
    pub min_tokens: Option<u32>,
    /// Generate on past end-of-sequence tokens.
    pub ignore_eos: Option<bool>,
    /// Most tokens to spend on reasoning.
    pub max_thinking_tokens: Option<u32>,
}

/// How to choose the next token. Every key is sent, null when unset; client values are passed through.
///
/// Floats are sent as 32-bit values when that is exact, otherwise as 64-bit values.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SamplingOptions {
    /// Answers to generate.
    pub n: Option<u32>,
    /// Candidates to choose the answers from.
    pub best_of: Option<u32>,
    /// Penalty for tokens that occurred at all.
    #[serde(serialize_with = "float::narrow")]
    pub presence_penalty: Option<f64>,
    /// Penalty for tokens by how often they occurred.
    #[serde(serialize_with = "float::narrow")]
    pub frequency_penalty: Option<f64>,
    /// Factor on repeated tokens, 1 for none.
    #[serde(serialize_with = "float::narrow")]
    pub repetition_penalty: Option<f64>,
    /// Flatness of the distribution, 0 for greedy.
    #[serde(serialize_with = "float::narrow")]
    pub temperature: Option<f64>,
    /// Nucleus mass in (0, 1].
    #[serde(serialize_with = "float::narrow")]
    pub top_p: Option<f64>,
    /// Candidates to keep; −1 keeps all.
    pub top_k: Option<i32>,
    /// Least probability relative to the best token.
    #[serde(serialize_with = "float::narrow")]
    pub min_p: Option<f64>,
    /// Search with beams instead of sampling.
    pub use_beam_search: Option<bool>,
    /// Exponent on the length of a beam.
    #[serde(serialize_with = "float::narrow")]
    pub length_penalty: Option<f64>,
    /// Seed of the sampler.
    pub seed: Option<i64>,
    /// Token id in decimal to what is added to its logit. The peer's frontend drops it; omitted when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logit_bias: Option<BTreeMap<String, f64>>,
    /// Keep the matched stop string in the answer.
    pub include_stop_str_in_output: Option<bool>,
    /// Constraint on the text of the answer.
    pub guided_decoding: Option<GuidedDecoding>,
}

/// A constraint on the text of an answer; only the set keys are sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuidedDecoding {
    /// A JSON schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<Value>,
    /// A regular expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
    /// A list of admitted answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<Vec<String>>,
    /// A context-free grammar in EBNF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grammar: Option<String>,
    /// The engine's constraint library to use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// A pattern for white space between JSON tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whitespace_pattern: Option<String>,
    /// A structural tag description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structural_tag: Option<Value>,
}

/// What an answer carries besides its tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputOptions {
    /// Keep the matched stop string; omitted when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_stop_trim: Option<bool>,
    /// Number of alternatives with log probabilities per generated token.
    pub logprobs: Option<u32>,
    /// Number of alternatives with log probabilities per prompt token.
    pub prompt_logprobs: Option<u32>,
    /// Leave special tokens out of the text.
    pub skip_special_tokens: Option<bool>,
    /// Return the rendered prompt.
    pub formatted_prompt: Option<bool>,
    /// Write tokens that are no text as `token_id:N`.
    pub return_tokens_as_token_ids: Option<bool>,
}
