//! The body of a request. The ids of the prompt, which are nearly all of it, are written straight into the buffer.

use roost_wire::message::{EngineRequest, GuidedDecoding};
use roost_worker::{EngineError, Role};
use serde::Serialize;
use serde_json::Value;

/// What of a server shapes its requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The part that it computes.
    pub(crate) role: Role,
    /// Its data-parallel ranks.
    pub(crate) dp_size: u32,
}

#[derive(Serialize, Default)]
struct Fields<'a> {
    rid: &'a str,
    stream: bool,
    sampling_params: Sampling<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_logprob: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprob_start_len: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs_num: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lora_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_salt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    require_reasoning: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_thinking_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    routed_dp_rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disagg_prefill_dp_rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bootstrap_host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bootstrap_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bootstrap_room: Option<u64>,
}

#[derive(Serialize, Default)]
struct Sampling<'a> {
    /// Null is "until the end": left out it would be 128.
    max_new_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_new_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repetition_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sampling_seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ignore_eos: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_token_ids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logit_bias: Option<&'a std::collections::BTreeMap<String, f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json_schema: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    regex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ebnf: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structural_tag: Option<String>,
}

/// Writes the body.
///
/// # Errors
/// The request asks for what no SGLang server can do.
pub(super) fn body(request: &EngineRequest, rid: &str, limits: &Limits) -> Result<Vec<u8>, EngineError> {
    if request.multi_modal_data.is_some() || request.prompt_embeds.is_some() {
        return Err(EngineError::InvalidRequest(
            "media cannot be sent to a plain SGLang server by token ids".into(),
        ));
    }
    let fields = fields(request, rid, limits)?;
    // Ids of large vocabularies have up to six digits.
    let mut out = Vec::with_capacity(1024 + request.token_ids.len() * 7);
    serde_json::to_writer(&mut out, &fields).map_err(|error| EngineError::Failed(error.to_string()))?;
    // Into the object that was just closed.
    out.pop();
    out.extend_from_slice(b",\"input_ids\":[");
    let mut digits = itoa::Buffer::new();
    for &id in request.token_ids.iter() {
        out.extend_from_slice(digits.format(id).as_bytes());
        out.push(b',');
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.extend_from_slice(b"]}");
    Ok(out)
}

fn fields<'a>(request: &'a EngineRequest, rid: &'a str, limits: &Limits) -> Result<Fields<'a>, EngineError> {
    let routing = request.routing.as_ref();
    let meeting = request.bootstrap_info.as_ref();
    let logprobs = request.output_options.logprobs;
    let sampling_params = sampling(request)?;
    if meeting.is_some() && sampling_params.n.is_some_and(|n| n > 1) {
        return Err(EngineError::InvalidRequest(
            "n above 1 is not possible where prefill and decode run on different servers".into(),
        ));
    }
    if limits.role != Role::Aggregated && meeting.is_none() {
        return Err(EngineError::Failed(
            "a prefill or decode server was asked without a meeting place".into(),
        ));
    }
    let has_ranks = limits.dp_size > 1;
    Ok(Fields {
        rid,
        stream: true,
        sampling_params,
        return_logprob: logprobs.map(|_| true),
        logprob_start_len: logprobs.map(|_| -1),
        top_logprobs_num: logprobs.filter(|&count| count > 0),
        priority: routing.and_then(|routing| routing.priority),
        lora_path: routing.and_then(|routing| routing.lora_name.as_deref()),
        session_id: request.agent_context.as_ref().map(|agent| agent.session_id.as_str()),
        cache_salt: routing.and_then(|routing| routing.cache_salt.as_deref()),
        require_reasoning: request.require_reasoning.then_some(true),
        max_thinking_tokens: request.stop_conditions.max_thinking_tokens,
        routed_dp_rank: routing.and_then(|routing| routing.dp_rank).filter(|_| has_ranks),
        disagg_prefill_dp_rank: meeting.and(routing).and_then(|routing| routing.prefill_dp_rank),
        bootstrap_host: meeting.map(|meeting| meeting.bootstrap_host.as_str()),
        bootstrap_port: meeting.map(|meeting| meeting.bootstrap_port),
        bootstrap_room: meeting.map(|meeting| meeting.bootstrap_room),
    })
}

fn sampling(request: &EngineRequest) -> Result<Sampling<'_>, EngineError> {
    let options = &request.sampling_options;
    let stop = &request.stop_conditions;
    if options.use_beam_search == Some(true) || options.best_of.is_some_and(|best| best > 1) {
        return Err(EngineError::InvalidRequest("beam search and best_of are not available".into()));
    }
    let mut sampling = Sampling {
        max_new_tokens: stop.max_tokens,
        min_new_tokens: stop.min_tokens.filter(|&min| min > 0),
        n: options.n.filter(|&n| n > 1),
        temperature: options.temperature,
        top_p: options.top_p,
        // 0 is "off" to OpenAI's clients, which SGLang writes as -1.
        top_k: options.top_k.map(|k| if k == 0 { -1 } else { k }),
        min_p: options.min_p,
        frequency_penalty: options.frequency_penalty,
        presence_penalty: options.presence_penalty,
        repetition_penalty: options.repetition_penalty,
        sampling_seed: options.seed,
        ignore_eos: stop.ignore_eos,
        stop_token_ids: stop_ids(request),
        logit_bias: options.logit_bias.as_ref(),
        ..Sampling::default()
    };
    if let Some(guide) = &options.guided_decoding {
        guided(guide, &mut sampling);
    }
    Ok(sampling)
}

/// Every id at which the engine may stop by itself.
fn stop_ids(request: &EngineRequest) -> Vec<u32> {
    let stop = &request.stop_conditions;
    let lists = [&stop.stop_token_ids, &stop.stop_token_ids_visible, &stop.stop_token_ids_hidden];
    let mut ids: Vec<u32> = lists.into_iter().flatten().flatten().copied().collect();
    if stop.ignore_eos != Some(true) {
        ids.extend(&request.eos_token_ids);
    }
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn guided<'a>(guide: &'a GuidedDecoding, sampling: &mut Sampling<'a>) {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if let Some(schema) = &guide.json {
        sampling.json_schema = Some(text(schema));
    } else if let Some(regex) = &guide.regex {
        sampling.regex = Some(regex.clone());
    } else if let Some(choices) = &guide.choice {
        let escaped: Vec<String> = choices.iter().map(|choice| escape(choice)).collect();
        sampling.regex = Some(format!("({})", escaped.join("|")));
    } else if let Some(grammar) = &guide.grammar {
        sampling.ebnf = Some(grammar);
    } else if let Some(tag) = &guide.structural_tag {
        sampling.structural_tag = Some(text(tag));
    }
}

/// A text as a regular expression that matches it alone.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if "\\.+*?()|[]{}^$#&-~/".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests;
