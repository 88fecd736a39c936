use serde_json::{Value, json};

use super::*;
use crate::Likely;

fn events(out: &BytesMut) -> Vec<Value> {
    std::str::from_utf8(out)
        .unwrap()
        .split_terminator("\n\n")
        .map(|event| {
            let data = event.strip_prefix("data: ").unwrap();
            serde_json::from_str(data).unwrap_or_else(|_| Value::String(data.into()))
        })
        .collect()
}

/// The shapes are those of the exchanges `stream_include_usage` and `completion_stream` recorded from the peer.
fn golden(name: &str) -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/http/wire_no_parsers.json");
    let parsers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/http/wire_parsers.json");
    for file in [path, parsers] {
        let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let found = json["cases"].as_array().unwrap().iter().find(|c| c["name"] == name).cloned();
        if let Some(case) = found {
            return case["response"]["events"]
                .as_array()
                .unwrap()
                .iter()
                .map(|e| e["data"].clone())
                .collect();
        }
    }
    panic!("no case {name}");
}

fn normalise(mut events: Vec<Value>, id: &str) -> Vec<Value> {
    for event in &mut events {
        if let Some(map) = event.as_object_mut() {
            map["id"] = json!(id);
            map["created"] = json!("<time>");
        }
    }
    events
}

#[test]
fn chat_stream_equals_the_peer() {
    let mut w = ChunkWriter::new(Flavor::Chat, "chatcmpl-1", "qwen3", 7);
    let mut out = BytesMut::new();
    let usage =
        Usage { prompt_tokens: 19, completion_tokens: 4, cached_tokens: None, reasoning_tokens: None };
    for text in ["<think>", "why", "</think>", "ok"] {
        w.piece(&mut out, 0, Piece::Content(text), &[], &usage);
    }
    w.finish(&mut out, 0, Finish::Stop, &[], &usage);
    w.usage(&mut out, &usage);
    w.done(&mut out);
    let ours = normalise(events(&out), "chatcmpl-<uuid>");
    let theirs = golden("stream_no_parser");
    assert_eq!(ours, theirs);
    for (a, b) in ours.iter().zip(&theirs) {
        assert_eq!(a.to_string(), b.to_string(), "member order");
    }
}

#[test]
fn completion_stream_equals_the_peer() {
    let mut w = ChunkWriter::new(Flavor::Completion, "cmpl-1", "qwen3", 7);
    let mut out = BytesMut::new();
    let usage = Usage { prompt_tokens: 8, completion_tokens: 2, cached_tokens: None, reasoning_tokens: None };
    w.piece(&mut out, 0, Piece::Content("Hi"), &[], &usage);
    w.piece(&mut out, 0, Piece::Content(" there"), &[], &usage);
    w.finish(&mut out, 0, Finish::Stop, &[], &usage);
    w.usage(&mut out, &usage);
    w.done(&mut out);
    assert_eq!(normalise(events(&out), "cmpl-<uuid>"), golden("completion_stream"));
}

#[test]
fn an_answer_without_text_is_one_chunk() {
    let mut w = ChunkWriter::new(Flavor::Chat, "chatcmpl-1", "qwen3", 7);
    let mut out = BytesMut::new();
    w.finish(&mut out, 0, Finish::Stop, &[], &Usage::default());
    w.done(&mut out);
    assert_eq!(normalise(events(&out), "chatcmpl-<uuid>"), golden("empty_output_stream"));
}

#[test]
fn nvext_and_running_usage_are_on_every_chunk() {
    let mut w = ChunkWriter::new(Flavor::Chat, "c", "m", 7);
    w.set_running_usage(true);
    w.set_nvext(r#"{"worker_id":{"decode_worker_id":1}}"#);
    let mut out = BytesMut::new();
    let usage =
        Usage { prompt_tokens: 3, completion_tokens: 1, cached_tokens: Some(2), reasoning_tokens: None };
    w.piece(&mut out, 0, Piece::Content("a"), &[], &usage);
    let event = &events(&out)[0];
    assert_eq!(event["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
    assert_eq!(event["nvext"]["worker_id"]["decode_worker_id"], 1);
}

#[test]
fn log_probabilities_equal_the_peer() {
    let likely =
        |token: &str, logprob| Likely { token: token.into(), bytes: token.as_bytes().into(), logprob };
    let token = |id, text: &str, other: &str| TokenLogprob {
        id,
        chosen: likely(text, -0.5),
        top: vec![likely(text, -0.5), likely(other, -1.5)],
    };
    let mut w = ChunkWriter::new(Flavor::Chat, "chatcmpl-1", "qwen3", 7);
    let mut out = BytesMut::new();
    let usage = Usage::default();
    w.piece(&mut out, 0, Piece::Content("Hi"), &[token(13048, "Hi", " nob")], &usage);
    w.piece(&mut out, 0, Piece::Content(" é"), &[token(3958, " é", "ball")], &usage);
    w.finish(&mut out, 0, Finish::Stop, &[], &usage);
    w.done(&mut out);
    let (ours, theirs) = (normalise(events(&out), "chatcmpl-<uuid>"), golden("logprobs_stream"));
    assert_eq!(ours, theirs);
    for (a, b) in ours.iter().zip(&theirs) {
        assert_eq!(a.to_string(), b.to_string(), "member order");
    }
}

#[test]
fn two_choices_equal_the_peer() {
    let mut w = ChunkWriter::new(Flavor::Chat, "chatcmpl-1", "qwen3", 7);
    let mut out = BytesMut::new();
    let usage = Usage::default();
    for text in ["Hi", " yo"] {
        for index in 0..2 {
            w.piece(&mut out, index, Piece::Content(text), &[], &usage);
        }
    }
    for index in 0..2 {
        w.finish(&mut out, index, Finish::Stop, &[], &usage);
    }
    w.done(&mut out);
    assert_eq!(normalise(events(&out), "chatcmpl-<uuid>"), golden("n2_stream"));
}

/// The members of the recorded exchanges `reasoning_stream` and `tool_named_stream`, less the role-only first chunk
/// and the empty `content` beside each call.
#[test]
fn reasoning_and_calls() {
    let mut w = ChunkWriter::new(Flavor::Chat, "c", "m", 7);
    let mut out = BytesMut::new();
    let usage = Usage::default();
    w.piece(&mut out, 0, Piece::Reasoning("why"), &[], &usage);
    w.piece(&mut out, 0, Piece::ToolStart { index: 0, id: "call-1", name: "get_weather" }, &[], &usage);
    w.piece(&mut out, 0, Piece::ToolArguments { index: 0, fragment: "{\"" }, &[], &usage);
    w.finish(&mut out, 0, Finish::ToolCalls, &[], &usage);
    let deltas: Vec<Value> = events(&out).iter().map(|event| event["choices"][0]["delta"].clone()).collect();
    assert_eq!(
        deltas,
        [
            json!({"reasoning_content": "why", "role": "assistant"}),
            json!({"tool_calls": [{"index": 0, "id": "call-1", "type": "function",
                "function": {"name": "get_weather", "arguments": ""}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\""}}]}),
            json!({}),
        ]
    );
}
