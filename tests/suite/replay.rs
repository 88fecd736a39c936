//! The exchanges recorded from a live Dynamo 1.6.1 frontend, replayed: each difference is on a list, and each entry of
//! the list is explained in `docs/api-differences.md`.

mod differences;
mod folded;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result};
use roost_tests::{Cluster, Options, Peers, Reply, ScriptedEngine, fixture};
use roost_tokenizer::{Backend, Tokenizer};
use roost_worker::{EngineCard, ModelFiles, Role};
use serde_json::{Map, Value, json};

use differences::LIST;

/// One place where the two differ.
#[derive(Debug)]
struct Difference {
    case: String,
    path: String,
    theirs: Value,
    ours: Value,
}

#[tokio::test]
async fn answers_equal_the_recorded_ones_but_for_what_is_listed() -> Result<()> {
    let Some(peers) = Peers::find() else { return Ok(()) };
    let mut found = Vec::new();
    for (file, parsers) in
        [("wire_parsers.json", (Some("hermes"), Some("qwen3"))), ("wire_no_parsers.json", (None, None))]
    {
        let text = std::fs::read_to_string(fixture("http").join(file))?;
        // The recorded worker was in a namespace of its own.
        let text = text.replace("demo.backend", "dynamo.backend").replace("demo/backend", "dynamo/backend");
        let recorded: Value = serde_json::from_str(&text.replace("\"demo\"", "\"dynamo\""))?;
        let cluster = cluster(&peers, parsers).await?;
        for case in recorded["cases"].as_array().context("cases")? {
            found.extend(replay(&cluster, case).await.with_context(|| case["name"].to_string())?);
        }
    }
    let documented = std::fs::read_to_string(fixture("../../docs/api-differences.md"))?;
    let mut used = BTreeSet::new();
    let mut unexplained = String::new();
    for difference in &found {
        let Difference { case, path, theirs, ours } = difference;
        match LIST.iter().find(|entry| entry.explains(case, path)) {
            Some(entry) => {
                used.insert((entry.key, entry.cases, entry.paths));
                assert!(
                    documented.contains(&format!("| {} |", entry.key)),
                    "{} is not documented",
                    entry.key
                );
            }
            None => unexplained += &format!("{case} {path}: {theirs} -> {ours}\n"),
        }
    }
    assert!(unexplained.is_empty(), "differences that nobody wanted:\n{unexplained}");
    for entry in LIST {
        assert!(used.contains(&(entry.key, entry.cases, entry.paths)), "{entry:?} explains nothing any more");
    }
    Ok(())
}

async fn cluster(peers: &Peers, (tool, reasoning): (Option<&str>, Option<&str>)) -> Result<Cluster> {
    let mut cluster = Options::new(0).start().await?;
    let files = ModelFiles::in_dir(peers.model());
    let tokenizer = Tokenizer::load(&files.tokenizer, Backend::Fast, true)?;
    let card = EngineCard {
        model_name: "qwen3".into(),
        aliases: Vec::new(),
        role: Role::Aggregated,
        files,
        context_length: 4096,
        kv_block_size: 16,
        eagle: false,
        total_kv_blocks: 1000,
        max_num_seqs: 16,
        max_num_batched_tokens: 8192,
        dp_start_rank: 0,
        dp_size: 1,
        publishes_kv_events: false,
        tool_call_parser: tool.map(str::to_owned),
        reasoning_parser: reasoning.map(str::to_owned),
        bootstrap: None,
        runtime_config: Map::new(),
        runtime_data: Map::new(),
    };
    cluster.add_engine(Arc::new(ScriptedEngine::new(card, tokenizer))).await?;
    cluster.wait_for_workers("qwen3", 1).await?;
    Ok(cluster)
}

async fn replay(cluster: &Cluster, case: &Value) -> Result<Vec<Difference>> {
    let name = case["name"].as_str().context("name")?.to_owned();
    let request = &case["request"];
    let method: &'static str = match request["method"].as_str() {
        Some("POST") => "POST",
        Some("OPTIONS") => "OPTIONS",
        _ => "GET",
    };
    let mut sent = cluster.get(request["path"].as_str().context("path")?).method(method);
    let headers = request["headers"].as_object();
    let body = match (request["raw_body"].as_str().or(request["raw"].as_str()), &request["body"]) {
        (Some(raw), _) => Some(raw.to_owned()),
        (None, Value::Null) => None,
        (None, body) => Some(body.to_string()),
    };
    if let Some(body) = body {
        sent = sent.raw_body(body);
        if !headers.is_some_and(|headers| headers.contains_key("content-type")) {
            sent = sent.header("content-type", "application/json");
        }
    }
    for (name, value) in headers.into_iter().flatten() {
        sent = sent.header(name, value.as_str().context("header")?);
    }
    let before = cluster.workers[0].journal().requests().len();
    let reply = sent.send().await?;
    let seen: Vec<Value> = cluster.workers[0].journal().requests()[before..]
        .iter()
        .map(|seen| serde_json::to_value(&seen.request).map(engine))
        .collect::<Result<_, _>>()?;
    let theirs = &case["response"];
    let mut compare = Compare { case: name, found: Vec::new() };
    compare.value("status", &theirs["status"], &reply.status.into());
    for header in ["content-type", "cache-control", "allow", "x-request-id"] {
        let ours = reply.header(header).map_or(Value::Null, |value| normal(&json!(value)));
        compare.value(&format!("headers.{header}"), &theirs["headers"][header], &ours);
    }
    match theirs["events"].as_array() {
        Some(events) if reply.status == 200 => {
            let (theirs, ours) = (folded::fold(events), folded::fold(&events_of(&reply)));
            compare.value("events", &theirs, &ours);
        }
        Some(_) => {}
        None => {
            let ours = reply.json().unwrap_or_else(|_| reply.text().into());
            compare.value("body", &theirs["body"], &normal(&ours));
        }
    }
    let expected = match &case["engine_saw"] {
        Value::Null => Vec::new(),
        Value::Array(list) => list.iter().cloned().map(engine).collect(),
        one => vec![engine(one.clone())],
    };
    compare.value("engine", &json!(expected), &json!(seen));
    Ok(compare.found)
}

/// Events with the fields that each has.
fn events_of(reply: &Reply) -> Vec<Value> {
    let text = reply.text();
    let event = |block: &str| {
        let mut event = Map::new();
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("data", data)) => {
                    event.insert("data".into(), serde_json::from_str(data).unwrap_or_else(|_| data.into()));
                }
                Some(("event", name)) => {
                    event.insert("event".into(), name.into());
                }
                _ => {
                    let comment = line.strip_prefix(':').unwrap_or(line).trim();
                    // The recorder read it as JSON.
                    let text: Option<String> = serde_json::from_str(comment).ok();
                    event.insert("comment".into(), text.unwrap_or_else(|| comment.to_owned()).into());
                }
            }
        }
        Value::from(event)
    };
    text.split_terminator("\n\n").map(event).map(|event| normal(&event)).collect()
}

/// What the worker got, reduced to what matters.
fn engine(request: Value) -> Value {
    const SHOWN: [&str; 8] = [
        "stop_conditions",
        "sampling_options",
        "output_options",
        "eos_token_ids",
        "annotations",
        "routing",
        "extra_args",
        "require_reasoning",
    ];
    let mut shown: Map<String, Value> = SHOWN
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), without_nulls(request.get(*name)?.clone())?)))
        .collect();
    let count = match &request["token_ids"] {
        Value::Array(ids) => format!("<{} ids>", ids.len()),
        // `sampling_options` of a request are bytes when the plane packs them.
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    shown.insert("token_ids".into(), count.into());
    shown.into()
}

fn without_nulls(value: Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Object(map) => {
            let kept: Map<String, Value> =
                map.into_iter().filter_map(|(name, value)| Some((name, without_nulls(value)?))).collect();
            (!kept.is_empty()).then(|| kept.into())
        }
        Value::Array(list) if list.is_empty() => None,
        other => Some(other),
    }
}

/// Replaces what is different in each run, as the recorder did.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(name, value)| {
                let value = match (name.as_str(), value) {
                    ("created" | "created_at" | "completed_at", _) => "<time>".into(),
                    ("prefill_worker_id" | "decode_worker_id" | "instance_id", Value::Number(_)) => {
                        "<instance>".into()
                    }
                    ("request_received_ms", Value::Number(_)) => "<number>".into(),
                    (name, Value::Number(_)) if name.ends_with("_time_ms") || name == "ttft_ms" => {
                        "<number>".into()
                    }
                    _ => normal(value),
                };
                (name.clone(), value)
            })
            .collect(),
        Value::Array(list) => list.iter().map(normal).collect(),
        Value::String(text) => normal_text(text).into(),
        other => other.clone(),
    }
}

fn normal_text(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let run = rest
            .find(|c: char| !(c.is_ascii_digit() || ('a'..='f').contains(&c) || c == '-'))
            .unwrap_or(rest.len());
        let (hex, after) = rest.split_at(run);
        let is_uuid = hex.len() >= 36
            && hex.is_char_boundary(36)
            && uuid::Uuid::try_parse(&hex[hex.len() - 36..]).is_ok();
        if is_uuid {
            out.push_str(&hex[..hex.len() - 36]);
            out.push_str("<uuid>");
        } else if hex.len() >= 16 && out.ends_with(['_', '-']) && !hex.contains('-') {
            out.push_str("<hex>");
        } else {
            out.push_str(hex);
        }
        let mut chars = after.chars();
        out.extend(chars.next());
        rest = chars.as_str();
    }
    match out.find("127.0.0.1:") {
        Some(at) => {
            let end = out[at..].find('/').map_or(out.len(), |end| at + end);
            format!("{}<tcp address>{}", &out[..at], &out[end..])
        }
        None => out,
    }
}

struct Compare {
    case: String,
    found: Vec<Difference>,
}

impl Compare {
    fn value(&mut self, path: &str, theirs: &Value, ours: &Value) {
        match (theirs, ours) {
            (Value::Object(a), Value::Object(b)) => {
                let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for name in names {
                    let missing = json!("<absent>");
                    let (x, y) = (a.get(name).unwrap_or(&missing), b.get(name).unwrap_or(&missing));
                    self.value(&format!("{path}.{name}"), x, y);
                }
            }
            (Value::Array(a), Value::Array(b)) => {
                for at in 0..a.len().max(b.len()) {
                    let missing = json!("<absent>");
                    let (x, y) = (a.get(at).unwrap_or(&missing), b.get(at).unwrap_or(&missing));
                    self.value(&format!("{path}[{at}]"), x, y);
                }
            }
            // The peer narrows numbers to single precision.
            (Value::Number(a), Value::Number(b))
                if a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| (a - b).abs() < 1e-6) => {}
            _ if theirs == ours => {}
            _ => self.found.push(Difference {
                case: self.case.clone(),
                path: path.to_owned(),
                theirs: theirs.clone(),
                ours: ours.clone(),
            }),
        }
    }
}
