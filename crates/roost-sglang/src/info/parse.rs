//! From a server's JSON to facts. Pure.

use roost_worker::Role;
use serde_json::Value;

use super::{KvEventSockets, ServerInfo};

/// Ports that a server uses unless told otherwise.
const BOOTSTRAP_PORT: u16 = 8998;

/// Reads `/server_info`, `/model_info` and `/v1/models`; the last may be null.
///
/// # Errors
/// Why the server cannot be used, in words for the operator.
pub(super) fn server_info(info: &Value, model: &Value, models: &Value) -> Result<ServerInfo, String> {
    if model["is_generation"] == Value::Bool(false) {
        return Err("it serves embeddings, not text; give only servers of generating models".into());
    }
    let mut remarks = Vec::new();
    let text = |name: &str| {
        let found = [&info[name], &model[name]].into_iter().find_map(|value| value.as_str());
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let number = |name: &str| info[name].as_u64();
    let model_path = text("model_path").ok_or("it does not say which model it serves (model_path)")?;
    let model_name = text("served_model_name").unwrap_or_else(|| model_path.clone());
    let role = match text("disaggregation_mode").as_deref() {
        None | Some("null") => Role::Aggregated,
        Some("prefill") => Role::Prefill,
        Some("decode") => Role::Decode,
        Some(other) => return Err(format!("its disaggregation mode {other:?} is not known here")),
    };
    let kv_events = kv_events(&info["kv_events"]);
    if kv_events.is_none() && role != Role::Decode {
        remarks.push(
            "it publishes no KV events, so that what it holds is guessed from what was sent to it; start it with \
             --kv-events-config '{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:5657\"}'"
                .into(),
        );
    } else if kv_events.as_ref().is_some_and(|sockets| sockets.replay_port_base.is_none()) {
        remarks.push(
            "its KV events cannot be replayed: what it held before this start stays unknown, and a lost event empties \
             the rank's index (add \"replay_endpoint\" to its --kv-events-config)"
                .into(),
        );
    }
    let block_size = info["kv_events"]["block_size"]
        .as_u64()
        .or_else(|| Some(number("page_size")? * number("dcp_size").unwrap_or(1).max(1)))
        .unwrap_or(1);
    if block_size == 1 {
        remarks.push(
            "its page size is 1: an index entry for each token; --page-size 64 costs 64 times less".into(),
        );
    }
    let listed = &models["data"][0];
    let context_length = number("context_length")
        .or_else(|| listed["max_model_len"].as_u64())
        .or_else(|| Some(number("max_req_input_len")? + 1));
    if context_length.is_none() {
        remarks.push(
            "it does not say how long a prompt may be: prompts that are too long are refused by it".into(),
        );
    }
    if info["skip_tokenizer_init"] == Value::Bool(true) && info["tokenizer_path"].is_null() {
        remarks.push("it has no tokenizer of its own: give --model-path".into());
    }
    Ok(ServerInfo {
        tokenizer_path: text("tokenizer_path").unwrap_or_else(|| model_path.clone()),
        role,
        context_length: context_length.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        block_size: u32::try_from(block_size)
            .ok()
            .filter(|&size| size > 0)
            .ok_or("its page size is absurd")?,
        dp_size: ranks(info)?,
        max_total_tokens: number("max_total_num_tokens").unwrap_or(0),
        max_running_requests: number("max_running_requests").unwrap_or(0),
        max_prefill_tokens: number("chunked_prefill_size")
            .filter(|&size| size > 0)
            .or_else(|| number("max_prefill_tokens"))
            .unwrap_or(0),
        chat_template: text("chat_template"),
        tool_call_parser: text("tool_call_parser"),
        reasoning_parser: text("reasoning_parser"),
        bootstrap_port: (role == Role::Prefill).then(|| {
            number("disaggregation_bootstrap_port")
                .and_then(|n| u16::try_from(n).ok())
                .unwrap_or(BOOTSTRAP_PORT)
        }),
        kv_events,
        bigram_keys: text("speculative_algorithm").is_some_and(|name| has_bigram_keys(&name)),
        version: text("version").unwrap_or_else(|| "unknown".into()),
        model_name,
        model_path,
        remarks,
    })
}

/// Ranks by the event publishers, else by the schedulers that report: `dp_size` alone may be 1 where attention is split.
fn ranks(info: &Value) -> Result<u32, String> {
    let published = info["kv_events"]["dp_size"].as_u64();
    let states = info["internal_states"].as_array().map(|states| states.len() as u64);
    let product = info["dp_size"].as_u64().unwrap_or(1) * info["attn_dp_size"].as_u64().unwrap_or(1);
    let ranks = published.or(states.filter(|&n| n > 0)).unwrap_or(product).max(1);
    u32::try_from(ranks).ok().filter(|&n| n <= 4096).ok_or_else(|| format!("it claims {ranks} ranks"))
}

fn kv_events(value: &Value) -> Option<KvEventSockets> {
    let port =
        |name: &str| value[name].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|&port| port > 0);
    if value["publisher"].as_str() != Some("zmq") {
        return None;
    }
    let host = value["endpoint_host"].as_str().unwrap_or_default().trim_matches(['[', ']']);
    let anywhere = matches!(host, "" | "*" | "0.0.0.0" | "::");
    let text = |name: &str, default: &str| value[name].as_str().unwrap_or(default).to_owned();
    Some(KvEventSockets {
        // A loopback address is meant as the server sees it, which may be on another machine; the rest of the
        // server is reached by its own host in any case.
        host: (!anywhere && !is_loopback(host)).then(|| host.to_owned()),
        port_base: port("endpoint_port_base")?,
        topic: text("topic", ""),
        replay_port_base: port("replay_endpoint_port_base"),
        load_port_base: port("load_endpoint_port_base"),
        load_topic: text("load_topic", "load"),
    })
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Draft models of the EAGLE family see pairs of tokens.
fn has_bigram_keys(algorithm: &str) -> bool {
    matches!(algorithm.to_ascii_uppercase().as_str(), "EAGLE" | "EAGLE3" | "NEXTN" | "FROZEN_KV_MTP")
}

#[cfg(test)]
mod tests;
