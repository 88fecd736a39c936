//! What a mock engine is going to say, decided before it says it.

use std::time::Duration;

use roost_wire::message::{EngineOutput, EngineRequest, FinishReason, StopReason};
use serde_json::Value;

use super::{Answer, MockConfig, TextCodec};
use crate::script::{Script, Step};
use crate::{EngineError, Role};

/// Tokens of a scripted answer for which KV blocks are reserved; scripts may say far more than fits.
const RESERVED_SCRIPT_TOKENS: usize = 4096;

/// The tokens of one generated answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Generation {
    pub(super) tokens: Vec<u32>,
    pub(super) finish: FinishReason,
    pub(super) stop: Option<StopReason>,
}

/// One action of a scripted answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    Pause(Duration),
    /// The same item so many times: what is repeated a million times is kept once.
    Emit {
        index: u32,
        ids: Vec<u32>,
        logprob: Option<f64>,
        times: usize,
    },
    Raw(Box<EngineOutput>),
    Fail(EngineError),
    Exit,
    Finish {
        choices: u32,
        reason: FinishReason,
        ids: Vec<u32>,
        cached: Option<u64>,
        usage: bool,
    },
}

/// The most tokens a request may generate: its own limit or the default, within the context.
pub(super) fn token_limit(request: &EngineRequest, config: &MockConfig) -> usize {
    let room = (config.context_length as usize).saturating_sub(request.token_ids.len());
    (request.stop_conditions.max_tokens.unwrap_or(config.default_max_tokens) as usize).min(room)
}

/// Draws one answer. `choice` numbers the answers of one request; `prompt_name` stands for the prompt.
pub(super) fn generate(
    request: &EngineRequest,
    config: &MockConfig,
    prompt_name: u64,
    choice: u32,
    echo: &[u32],
) -> Generation {
    let conditions = &request.stop_conditions;
    let limit = token_limit(request, config);
    let min = conditions.min_tokens.unwrap_or(0) as usize;
    let ignore_eos = conditions.ignore_eos.unwrap_or(false);
    let eos: Vec<u32> = if ignore_eos {
        Vec::new()
    } else {
        let hidden = conditions.stop_token_ids_hidden.iter().flatten();
        hidden.chain(&request.eos_token_ids).copied().collect()
    };
    let visible = conditions.stop_token_ids.iter().chain(&conditions.stop_token_ids_visible).flatten();
    let stops: Vec<u32> = eos.iter().chain(visible).copied().collect();

    let request_seed = request.sampling_options.seed.unwrap_or(0) as u64;
    let seed =
        config.seed ^ prompt_name.rotate_left(choice) ^ request_seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut random = fastrand::Rng::with_seed(seed);
    let (natural, mut draw): (usize, Box<dyn FnMut(usize) -> u32 + '_>) = match &config.answer {
        Answer::Tokens { vocabulary, length } => {
            let natural = if length.is_empty() { length.start } else { random.u32(length.clone()) };
            (natural as usize, Box::new(move |_| random.u32(vocabulary.clone())))
        }
        Answer::Echo | Answer::Recital { .. } => {
            (echo.len(), Box::new(move |at| echo.get(at % echo.len().max(1)).copied().unwrap_or(0)))
        }
    };
    let mut tokens = Vec::with_capacity(limit.min(natural + 1));
    while tokens.len() < limit {
        let at_end = tokens.len() >= natural.max(min);
        let token = match eos.first() {
            Some(eos) if at_end => *eos,
            None if at_end && !ignore_eos => {
                return Generation { tokens, finish: FinishReason::Stop, stop: None };
            }
            _ => draw(tokens.len()),
        };
        tokens.push(token);
        if tokens.len() > min && stops.contains(&token) {
            let stop = Some(StopReason::Token(i64::from(token)));
            return Generation { tokens, finish: FinishReason::Stop, stop };
        }
    }
    Generation { tokens, finish: FinishReason::Length, stop: None }
}

/// Turns the steps of a script that concern `role` into actions.
///
/// A prefill engine says nothing of its own: it only pauses and fails. The request's token limit cuts
/// what is said and ends the answer.
pub(super) fn compile(
    script: &Script,
    role: Role,
    codec: &TextCodec,
    limit: usize,
) -> Result<Vec<Act>, EngineError> {
    let mut acts = Vec::new();
    let mut left = limit;
    for step in script.steps_for(role) {
        if let Some(pause) = step.sleep {
            acts.push(Act::Pause(pause));
        }
        if role != Role::Prefill && !say(step, codec, &mut left, &mut acts)? {
            let usage = script.steps_for(role).all(|step| step.usage.unwrap_or(true));
            let (choices, reason) = (step.choices.unwrap_or(1), FinishReason::Length);
            acts.push(Act::Finish { choices, reason, ids: Vec::new(), cached: None, usage });
            return Ok(acts);
        }
        if let Some(text) = &step.raise {
            acts.push(Act::Fail(EngineError::Failed(text.clone())));
        }
        if let Some(text) = &step.raise_invalid {
            acts.push(Act::Fail(EngineError::InvalidRequest(text.clone())));
        }
        if let Some(text) = &step.reject {
            acts.push(Act::Fail(EngineError::Rejected(text.clone())));
        }
        if step.exit {
            acts.push(Act::Exit);
        }
        if let Some(reason) = &step.finish
            && role != Role::Prefill
        {
            acts.push(Act::Finish {
                choices: step.choices.unwrap_or(1),
                reason: parse(Value::String(reason.clone()))?,
                ids: step.ids.clone().unwrap_or_default(),
                cached: step.cached,
                usage: step.usage.unwrap_or(true),
            });
        }
    }
    Ok(acts)
}

/// Tokens for which a scripted answer needs blocks.
pub(super) fn reserved_tokens(acts: &[Act]) -> usize {
    let said =
        acts.iter().map(|act| if let Act::Emit { ids, times, .. } = act { ids.len() * times } else { 0 });
    said.sum::<usize>().min(RESERVED_SCRIPT_TOKENS)
}

/// Adds what a step says that is nothing but a repetition of items, without writing it out; `None` if it says more. False
/// when it reaches the token limit.
fn repeat(step: &Step, codec: &TextCodec, left: &mut usize, acts: &mut Vec<Act>) -> Option<bool> {
    let plain = Step { text_repeat: step.text_repeat.clone(), per: step.per, ..Step::default() };
    let ((text, times), per) = (step.text_repeat.as_ref()?, step.per?);
    let unit = codec.encode(text);
    if *step != plain || unit.is_empty() || per == 0 || per % unit.len() != 0 {
        return None;
    }
    let total = unit.len() * times;
    let said = total.min(*left);
    let goes_on = total < *left;
    *left -= said;
    let ids = |count: usize| unit.iter().copied().cycle().take(count).collect::<Vec<u32>>();
    for (count, times) in [(per, said / per), (said % per, 1)] {
        if count > 0 && times > 0 {
            acts.push(Act::Emit { index: 0, ids: ids(count), logprob: None, times });
        }
    }
    Some(goes_on)
}

/// Adds what a step says; false when it reaches the token limit, which ends the answer.
fn say(step: &Step, codec: &TextCodec, left: &mut usize, acts: &mut Vec<Act>) -> Result<bool, EngineError> {
    if let Some(goes_on) = repeat(step, codec, left, acts) {
        return Ok(goes_on);
    }
    let mut ids = step.text.as_deref().map(|text| codec.encode(text)).unwrap_or_default();
    if let Some((text, times)) = &step.text_repeat {
        ids.extend(codec.encode(&text.repeat(*times)));
    }
    if let (Some(more), None) = (&step.ids, &step.finish) {
        ids.extend(more);
    }
    ids.truncate(step.at_most.unwrap_or(usize::MAX));
    let cut = !ids.is_empty() && ids.len() >= *left;
    ids.truncate(*left);
    *left -= ids.len();
    let per = step.per.unwrap_or(ids.len()).max(1);
    for (number, ids) in ids.chunks(per).enumerate() {
        if let Some(gap) = step.gap.filter(|_| number > 0) {
            acts.push(Act::Pause(gap));
        }
        if let Some(Act::Emit { ids: before, times, .. }) = acts.last_mut()
            && number > 0
            && step.choices.is_none()
            && before == ids
        {
            *times += 1;
            continue;
        }
        let choice = |index| Act::Emit { index, ids: ids.to_vec(), logprob: step.logprobs, times: 1 };
        acts.extend((0..step.choices.unwrap_or(1)).map(choice));
    }
    if cut {
        return Ok(false);
    }
    if let Some(raw) = &step.raw {
        acts.push(Act::Raw(Box::new(parse(raw.clone())?)));
    }
    Ok(true)
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, EngineError> {
    serde_json::from_value(value).map_err(|error| EngineError::Failed(format!("script: {error}")))
}

#[cfg(test)]
mod tests;
