use bytes::{BufMut, BytesMut};

use super::names::Names;
use crate::json::{write_string, write_u64};
use crate::{ApiError, Raw};

/// What a response shows of its request, and what its answer must know of it.
#[derive(Debug, Clone)]
pub struct ResponseEcho {
    pub(super) model: String,
    pub(super) instructions: Option<String>,
    pub(super) max_output_tokens: Option<u32>,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) temperature: Option<f64>,
    pub(super) top_p: Option<f64>,
    pub(super) presence_penalty: Option<f64>,
    pub(super) frequency_penalty: Option<f64>,
    pub(super) store: Option<bool>,
    /// Members that are shown as they came.
    pub(super) verbatim: Vec<(&'static str, Option<Raw>)>,
    pub(super) tools: Raw,
    pub(super) names: Names,
    /// Reasoning is shown to those who ask for a summary of it.
    pub(super) shows_reasoning: bool,
}

/// Members that are shown as they came, and what stands for them when they did not.
pub(super) const VERBATIM: &[(&str, &str)] = &[
    ("metadata", "{}"),
    ("prompt_cache_key", "null"),
    ("prompt_cache_retention", "null"),
    ("reasoning", "null"),
    ("safety_identifier", "null"),
    ("service_tier", "\"auto\""),
    ("text", "{\"format\":{\"type\":\"text\"}}"),
    ("tool_choice", "\"auto\""),
    ("truncation", "\"disabled\""),
];

/// How far a response has come.
#[derive(Debug, Clone, Copy)]
pub(super) enum Status<'a> {
    InProgress,
    Completed,
    Incomplete(&'static str),
    Failed(&'a ApiError),
}

impl Status<'_> {
    fn as_str(self) -> &'static str {
        match self {
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Incomplete(_) => "incomplete",
            Status::Failed(_) => "failed",
        }
    }
}

impl ResponseEcho {
    /// Writes the status of a response and all that is known from its request, without the closing brace.
    pub(super) fn write(&self, out: &mut BytesMut, id: &str, times: (u64, u64), status: Status<'_>) {
        let (created, now) = times;
        out.put_slice(b"{\"id\":");
        write_string(out, id);
        out.put_slice(b",\"object\":\"response\",\"created_at\":");
        write_u64(out, created);
        out.put_slice(b",\"completed_at\":");
        match status {
            Status::Completed => write_u64(out, now),
            _ => out.put_slice(b"null"),
        }
        out.put_slice(b",\"status\":");
        write_string(out, status.as_str());
        out.put_slice(b",\"error\":");
        match status {
            Status::Failed(error) => {
                out.put_slice(b"{\"code\":");
                let limited = matches!(error.status(), 429 | 529);
                write_string(out, if limited { "rate_limit_exceeded" } else { "server_error" });
                out.put_slice(b",\"message\":");
                write_string(out, error.message());
                out.put_u8(b'}');
            }
            _ => out.put_slice(b"null"),
        }
        out.put_slice(b",\"incomplete_details\":");
        match status {
            Status::Incomplete(reason) => {
                out.put_slice(b"{\"reason\":");
                write_string(out, reason);
                out.put_u8(b'}');
            }
            _ => out.put_slice(b"null"),
        }
        out.put_slice(
            b",\"background\":false,\"billing\":null,\"conversation\":null,\"max_tool_calls\":null,\
              \"previous_response_id\":null,\"prompt\":null,\"top_logprobs\":0,\"model\":",
        );
        write_string(out, &self.model);
        out.put_slice(b",\"instructions\":");
        match &self.instructions {
            Some(text) => write_string(out, text),
            None => out.put_slice(b"null"),
        }
        out.put_slice(b",\"max_output_tokens\":");
        match self.max_output_tokens {
            Some(limit) => write_u64(out, limit.into()),
            None => out.put_slice(b"null"),
        }
        out.put_slice(b",\"tools\":");
        out.put_slice(self.tools.as_bytes());
        let numbers = [
            ("temperature", self.temperature, 1.0),
            ("top_p", self.top_p, 1.0),
            ("presence_penalty", self.presence_penalty, 0.0),
            ("frequency_penalty", self.frequency_penalty, 0.0),
        ];
        for (name, value, default) in numbers {
            member(out, name, serde_json::Value::from(value.unwrap_or(default)).to_string().as_bytes());
        }
        let switches = [
            ("parallel_tool_calls", self.parallel_tool_calls.unwrap_or(true)),
            ("store", self.store == Some(true)),
        ];
        for (name, on) in switches {
            member(out, name, if on { b"true" } else { b"false" });
        }
        for ((name, given), (_, default)) in self.verbatim.iter().zip(VERBATIM) {
            member(out, name, given.as_ref().map_or(default.as_bytes(), Raw::as_bytes));
        }
    }
}

fn member(out: &mut BytesMut, name: &str, value: &[u8]) {
    out.put_slice(b",\"");
    out.put_slice(name.as_bytes());
    out.put_slice(b"\":");
    out.put_slice(value);
}
