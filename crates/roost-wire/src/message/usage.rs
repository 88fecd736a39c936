use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Token counts of a request; the last one of a stream counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompletionUsage {
    /// Tokens in the prompt.
    pub prompt_tokens: u32,
    /// Tokens generated so far.
    pub completion_tokens: u32,
    /// Sum of both.
    pub total_tokens: u32,
    /// Breakdown of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
    /// Breakdown of the answer, as the worker sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<Value>,
}

/// Breakdown of the prompt tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptTokensDetails {
    /// Tokens of audio input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_tokens: Option<u32>,
    /// Tokens whose blocks were already cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u32>,
}
