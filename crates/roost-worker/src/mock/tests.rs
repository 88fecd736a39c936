mod generation;
mod kv;
mod scripts;
mod split;
mod timing;

use futures_util::StreamExt;
use roost_wire::message::{EngineOutput, EngineRequest, FinishReason, StopConditions};

use super::{Answer, MockConfig, MockEngine, MockTiming, TextCodec};
use crate::{Engine, EngineContext, EngineError, ModelFiles, OutputStream};

/// An engine without delays and with blocks of 4 tokens.
fn config() -> MockConfig {
    MockConfig {
        block_size: 4,
        total_blocks: 64,
        timing: MockTiming::INSTANT,
        codec: Some(TextCodec::tiny_chat()),
        answer: Answer::Tokens { vocabulary: 97..123, length: 6..7 },
        ..MockConfig::new("m", ModelFiles::in_dir("/nonexistent"))
    }
}

fn engine(change: impl FnOnce(&mut MockConfig)) -> MockEngine {
    let mut config = config();
    change(&mut config);
    MockEngine::new(config)
}

/// A request for `max_tokens` after a prompt of the bytes of `prompt`.
fn request(prompt: &str, max_tokens: u32) -> EngineRequest {
    EngineRequest {
        model: "m".to_owned(),
        token_ids: TextCodec::tiny_chat().encode(prompt).into(),
        stop_conditions: StopConditions { max_tokens: Some(max_tokens), ..StopConditions::default() },
        eos_token_ids: vec![258],
        ..EngineRequest::default()
    }
}

async fn collect(stream: OutputStream) -> Result<Vec<EngineOutput>, EngineError> {
    stream.collect::<Vec<_>>().await.into_iter().collect()
}

async fn answer(engine: &MockEngine, request: EngineRequest) -> Result<Vec<EngineOutput>, EngineError> {
    collect(engine.generate(request, EngineContext::new("r"))).await
}

fn ids(items: &[EngineOutput]) -> Vec<u32> {
    items.iter().flat_map(|item| item.token_ids.iter().copied()).collect()
}

fn finish(items: &[EngineOutput]) -> Option<FinishReason> {
    items.last().and_then(|item| item.finish_reason.clone())
}

fn cached(items: &[EngineOutput]) -> Option<u32> {
    let usage = items.last()?.completion_usage.as_ref()?;
    usage.prompt_tokens_details.as_ref()?.cached_tokens
}
