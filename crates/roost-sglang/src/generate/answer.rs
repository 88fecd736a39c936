//! Events to outputs. The state is what was told of each choice: servers repeat the whole answer in every event unless
//! they are started with `--incremental-streaming-output`, and how much of an event is new follows from its counts alone.

mod tail;

use roost_wire::message::{
    CompletionUsage, EngineOutput, EngineRequest, FinishReason, OutputTokens, PromptTokensDetails, TopLogprob,
};
use roost_worker::EngineError;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::errors::{self, ErrorBody};

/// What has been told of an answer.
#[derive(Debug)]
pub(super) struct Answers {
    choices: Vec<Choice>,
    /// The server has said that nothing follows.
    done: bool,
    /// An event's end, as JSON of its own. Kept for its room.
    scratch: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Choice {
    /// Tokens told so far.
    tokens: u32,
    finished: bool,
}

/// An event, or what is behind the ids in one.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(default, borrow)]
    output_ids: Option<&'a RawValue>,
    #[serde(default, borrow)]
    meta_info: Option<Meta<'a>>,
    #[serde(default)]
    index: Option<u32>,
    #[serde(default)]
    error: Option<ErrorBody>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(default)]
    finish_reason: Option<Finish>,
    #[serde(default)]
    prompt_tokens: u32,
    #[serde(default)]
    completion_tokens: u32,
    #[serde(default)]
    cached_tokens: u32,
    #[serde(default)]
    cached_tokens_details: Option<serde_json::Value>,
    #[serde(default, borrow)]
    output_token_logprobs: Option<&'a RawValue>,
    #[serde(default, borrow)]
    output_top_logprobs: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Finish {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    status_code: Option<u16>,
    #[serde(default)]
    err_type: Option<String>,
}

/// `[logprob, token id, text or null]`.
type Logprob = (Option<f64>, u32, Option<String>);

impl Answers {
    pub(super) fn new(request: &EngineRequest) -> Self {
        let count = request.sampling_options.n.unwrap_or(1).max(1) as usize;
        Answers { choices: vec![Choice::default(); count], done: false, scratch: Vec::new() }
    }

    /// Takes the data of one event; `None` when it says nothing new.
    ///
    /// # Errors
    /// The server reports a failure, or says what cannot be understood. Nothing follows.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<Option<EngineOutput>, EngineError> {
        if data == b"[DONE]" {
            self.done = true;
            return Ok(None);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let taken = match tail::split(data, &mut scratch) {
            Some(ids) => parse(&scratch).and_then(|event| self.output(ids, event)),
            None => parse(data).and_then(|event| {
                let ids = event.output_ids.map_or("[]", RawValue::get).as_bytes();
                self.output(ids.strip_suffix(b"]").unwrap_or(ids), event)
            }),
        };
        self.scratch = scratch;
        taken
    }

    /// Whether every choice has ended.
    pub(super) fn is_complete(&self) -> bool {
        self.choices.iter().all(|choice| choice.finished)
    }

    /// The body has ended; what that means.
    pub(super) fn end(&self) -> Option<EngineError> {
        if self.is_complete() {
            return None;
        }
        let how = if self.done { "said that it was done" } else { "closed the connection" };
        Some(EngineError::Unavailable(format!("the server {how} before the answer had an end")))
    }

    /// `ids` end where the array of ids does.
    fn output(&mut self, ids: &[u8], event: Event<'_>) -> Result<Option<EngineOutput>, EngineError> {
        if let Some(error) = event.error {
            return Err(errors::reported(error));
        }
        let meta = event.meta_info.ok_or_else(|| garbled("an event without meta_info"))?;
        let index = event.index.unwrap_or(0);
        let many = self.choices.len() > 1;
        let choice =
            self.choices.get_mut(index as usize).ok_or_else(|| garbled("a choice that nobody asked for"))?;
        if choice.finished {
            return Err(garbled("tokens behind the end of the answer"));
        }
        let new = meta.completion_tokens.saturating_sub(choice.tokens) as usize;
        let token_ids: OutputTokens =
            tail::ids(ids, new).ok_or_else(|| garbled("fewer ids than its count of tokens says"))?;
        choice.tokens = choice.tokens.max(meta.completion_tokens);
        let mut output = EngineOutput {
            index: many.then_some(index),
            token_ids,
            log_probs: logprobs(meta.output_token_logprobs, new)?,
            top_logprobs: top_logprobs(meta.output_top_logprobs, new)?,
            ..EngineOutput::default()
        };
        if let Some(finish) = &meta.finish_reason {
            output.finish_reason = Some(finish_reason(finish)?);
            choice.finished = true;
            output.completion_usage = Some(usage(&meta));
            output.engine_data = meta
                .cached_tokens_details
                .filter(serde_json::Value::is_object)
                .map(|details| serde_json::json!({ "cached_tokens_details": details }).into());
        }
        let says_nothing = output.token_ids.is_empty() && output.finish_reason.is_none();
        Ok((!says_nothing).then_some(output))
    }
}

fn parse(json: &[u8]) -> Result<Event<'_>, EngineError> {
    serde_json::from_slice(json).map_err(|error| garbled(&error.to_string()))
}

fn garbled(what: &str) -> EngineError {
    EngineError::Failed(format!("the server sends what cannot be read: {what}"))
}

fn finish_reason(finish: &Finish) -> Result<FinishReason, EngineError> {
    Ok(match finish.kind.as_str() {
        "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        "abort" => {
            match errors::aborted(finish.status_code, finish.err_type.is_some(), finish.message.clone()) {
                Some(error) => return Err(error),
                None => FinishReason::Cancelled,
            }
        }
        other => return Err(garbled(&format!("the finish reason {other:?}"))),
    })
}

fn usage(meta: &Meta<'_>) -> CompletionUsage {
    CompletionUsage {
        prompt_tokens: meta.prompt_tokens,
        completion_tokens: meta.completion_tokens,
        total_tokens: meta.prompt_tokens.saturating_add(meta.completion_tokens),
        prompt_tokens_details: Some(PromptTokensDetails {
            cached_tokens: Some(meta.cached_tokens),
            audio_tokens: None,
        }),
        completion_tokens_details: None,
    }
}

fn logprobs(raw: Option<&RawValue>, new: usize) -> Result<Option<Vec<f64>>, EngineError> {
    let Some(raw) = raw else { return Ok(None) };
    let entries: Vec<Logprob> = tail::entries(raw, new).map_err(|error| garbled(&error.to_string()))?;
    Ok((!entries.is_empty())
        .then(|| entries.into_iter().map(|(logprob, ..)| logprob.unwrap_or(0.0)).collect()))
}

fn top_logprobs(raw: Option<&RawValue>, new: usize) -> Result<Option<Vec<Vec<TopLogprob>>>, EngineError> {
    let Some(raw) = raw else { return Ok(None) };
    let entries: Vec<Option<Vec<Logprob>>> =
        tail::entries(raw, new).map_err(|error| garbled(&error.to_string()))?;
    let tops =
        entries.into_iter().map(|tops| (1..).zip(tops.unwrap_or_default()).map(top).collect()).collect();
    let tops: Vec<Vec<TopLogprob>> = tops;
    Ok(tops.iter().any(|tops| !tops.is_empty()).then_some(tops))
}

fn top((rank, (logprob, token_id, token)): (u32, Logprob)) -> TopLogprob {
    TopLogprob { rank, token_id, token, logprob: logprob.unwrap_or(0.0), bytes: None }
}

#[cfg(test)]
mod tests;
