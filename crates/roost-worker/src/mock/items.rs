//! Response items in the style of SGLang workers: sparse maps, usage on the first and the last.

use roost_wire::message::{
    BootstrapInfo, CompletionUsage, EngineOutput, EngineRequest, PromptTokensDetails, TopLogprob,
};
use serde_json::json;

use super::TextCodec;

/// Log probability that the chosen token always has.
const CHOSEN: f64 = -0.5;

/// An item of new tokens for one choice.
pub(super) fn tokens(index: u32, ids: &[u32]) -> EngineOutput {
    EngineOutput { index: Some(index), token_ids: ids.into(), ..EngineOutput::default() }
}

/// Token counts.
pub(super) fn usage(prompt: usize, completion: usize, cached: u64) -> CompletionUsage {
    let cached_tokens = Some(saturated(cached));
    CompletionUsage {
        prompt_tokens: saturated(prompt as u64),
        completion_tokens: saturated(completion as u64),
        total_tokens: saturated((prompt + completion) as u64),
        prompt_tokens_details: Some(PromptTokensDetails { cached_tokens, ..PromptTokensDetails::default() }),
        completion_tokens_details: None,
    }
}

/// What the engine tells about its cache at the end of a request.
pub(super) fn cache_hit(prompt: usize, cached: u64) -> Box<serde_json::Value> {
    json!({"kv_cache_hit": {"prompt_tokens": prompt, "reused_tokens": cached}}).into()
}

/// The first item of a prefill answer: where decode finds the KV cache.
pub(super) fn bootstrap(info: &BootstrapInfo) -> EngineOutput {
    let triple = json!({
        "bootstrap_host": info.bootstrap_host,
        "bootstrap_port": info.bootstrap_port,
        "bootstrap_room": info.bootstrap_room,
    });
    EngineOutput { disaggregated_params: Some(triple.into()), ..EngineOutput::default() }
}

/// Adds log probabilities if the request asks for them: a fixed value for the token chosen, and for
/// each alternative (the ids that follow it) one less.
pub(super) fn add_logprobs(output: &mut EngineOutput, request: &EngineRequest, codec: Option<&TextCodec>) {
    let Some(alternatives) = request.output_options.logprobs else { return };
    output.log_probs = Some(vec![CHOSEN; output.token_ids.len()]);
    if alternatives == 0 {
        return;
    }
    let entry = |token_id: u32, rank: u32| TopLogprob {
        rank: rank + 1,
        token_id,
        token: codec.map(|codec| codec.decode(&[token_id])),
        logprob: CHOSEN - f64::from(rank),
        bytes: None,
    };
    let top = |id: &u32| (0..alternatives.min(20)).map(|rank| entry(id.saturating_add(rank), rank)).collect();
    output.top_logprobs = Some(output.token_ids.iter().map(top).collect());
}

fn saturated(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
