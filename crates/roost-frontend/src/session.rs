//! Who is asking: session, pins and priority, read from the headers once.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use roost_kv::WorkerId;
use roost_openai::{NvExt, SessionAction, SessionControl};
use roost_router::Pin;
use roost_telemetry::spans::{SpanContext, Spans};

pub(crate) mod metadata;
#[cfg(test)]
mod tests;

/// Longest request id that is echoed.
const REQUEST_ID_LIMIT: usize = 128;

/// Longest `tracestate` that is passed on; W3C wants this much.
const TRACE_STATE_LIMIT: usize = 512;

/// Longest session id that is kept as it came. Tables and logs have one for each session.
const SESSION_ID_LIMIT: usize = 256;

/// What the headers of a request say beyond its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// Session id; the key of affinity.
    pub(crate) id: Option<Box<str>>,
    /// The session that started this one.
    pub(crate) parent: Option<Box<str>>,
    /// The session ends with this request.
    pub(crate) is_final: bool,
    /// Pin to a worker instance.
    pub(crate) worker: Option<u64>,
    /// Pin to a data-parallel rank.
    pub(crate) dp_rank: Option<u32>,
    /// Pin of the prefill leg to a worker instance.
    pub(crate) prefill_worker: Option<u64>,
    /// Pin of the prefill leg to a data-parallel rank.
    pub(crate) prefill_dp_rank: Option<u32>,
    /// Priority jump in seconds.
    pub(crate) priority: Option<i32>,
    /// Strict priority class.
    pub(crate) strict_priority: Option<u32>,
    /// Tenant: isolates the KV cache; wins over the body's salt.
    pub(crate) tenant: Option<Box<str>>,
    /// The client's name for the request, if it is short and harmless wherever it may be shown.
    pub(crate) request_id: Option<Box<str>>,
    /// What the client wants the worker to know.
    pub(crate) metadata: Option<Arc<BTreeMap<String, String>>>,
    /// Its place in a trace, where spans are told of.
    pub(crate) trace: Option<SpanContext>,
    /// What the caller's tracer wants callees to know.
    pub(crate) trace_state: Option<Box<str>>,
    /// Our name for it: `x-dynamo-request-id` when that is a UUID, else a new one.
    pub(crate) uuid: uuid::Uuid,
}

impl Session {
    /// Where the leg that answers and the prefill leg must run, if anywhere. Headers go before the body.
    pub(crate) fn pins(&self, nvext: &NvExt) -> [Pin; 2] {
        let pin = Pin {
            worker: self.worker.or(nvext.worker).map(WorkerId),
            dp_rank: self.dp_rank.or(nvext.dp_rank),
        };
        let prefill_pin = Pin {
            worker: self.prefill_worker.or(nvext.prefill_worker).map(WorkerId),
            dp_rank: self.prefill_dp_rank.or(nvext.prefill_dp_rank),
        };
        [pin, prefill_pin]
    }

    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let (id, parent) = identity(headers);
        Session {
            id,
            parent,
            is_final: text(headers, "x-dynamo-session-final").is_some_and(|v| v.eq_ignore_ascii_case("true")),
            worker: number(headers, &["x-dynamo-worker-instance-id", "x-worker-instance-id"]),
            dp_rank: number(headers, &["x-dynamo-dp-rank", "x-dp-rank", "x-data-parallel-rank"])
                .filter(|rank| *rank != u32::MAX),
            prefill_worker: number(headers, &["x-dynamo-prefill-instance-id", "x-prefill-instance-id"]),
            prefill_dp_rank: number(headers, &["x-dynamo-prefill-dp-rank", "x-prefill-dp-rank"])
                .filter(|rank| *rank != u32::MAX),
            priority: number(headers, &["x-dynamo-request-priority"]),
            strict_priority: number(headers, &["x-dynamo-request-strict-priority"]),
            tenant: text(headers, "x-tenant-id").map(Into::into),
            metadata: None,
            trace: None,
            trace_state: None,
            request_id: text(headers, "x-request-id").filter(|id| is_harmless(id)).map(Into::into),
            uuid: text(headers, "x-dynamo-request-id")
                .and_then(|v| v.parse().ok())
                .unwrap_or_else(uuid::Uuid::new_v4),
        }
    }
}

impl Session {
    /// Takes its place in the trace of its caller, or in a new one.
    pub(crate) fn traced(&mut self, spans: &Spans, headers: &HeaderMap) {
        self.trace = Some(spans.context(text(headers, "traceparent")));
        let state = text(headers, "tracestate").filter(|state| state.len() <= TRACE_STATE_LIMIT);
        self.trace_state =
            state.filter(|state| state.bytes().all(|b| matches!(b, b' '..=b'~'))).map(Into::into);
    }

    /// `x-request-id` of the answer, which is the request's name in logs, too: the client's own, else ours.
    pub(crate) fn echo(&self) -> String {
        self.name().to_string()
    }

    /// The same without a copy.
    pub(crate) fn name(&self) -> RequestName<'_> {
        RequestName(self)
    }

    /// Takes over what the body says of the session where the headers say nothing.
    pub(crate) fn with_control(mut self, control: Option<&SessionControl>) -> Self {
        let Some(control) = control else { return self };
        let named = control.session_id.trim();
        let bounded = bounded(named);
        let is_same = self.id.as_ref().is_none_or(|id| *id == bounded) && !named.is_empty();
        if self.id.is_none() && is_same {
            self.id = Some(bounded);
        }
        self.is_final |= is_same && control.action == Some(SessionAction::Close);
        self
    }
}

/// The name of a request in logs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestName<'a>(&'a Session);

impl std::fmt::Display for RequestName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0.request_id {
            Some(name) => f.write_str(name),
            None => self.0.uuid.fmt(f),
        }
    }
}

/// Session and parent; the first kind of client that matches decides.
fn identity(headers: &HeaderMap) -> (Option<Box<str>>, Option<Box<str>>) {
    let get = |name| text(headers, name);
    let (id, parent) = if let Some(id) = get("x-dynamo-session-id") {
        (id, get("x-dynamo-parent-session-id"))
    } else if let Some(root) = get("x-claude-code-session-id") {
        match get("x-claude-code-agent-id") {
            Some(agent) => (agent, get("x-claude-code-parent-agent-id").or(Some(root))),
            None => (root, None),
        }
    } else if let Some(thread) = get("thread-id") {
        (thread, get("x-codex-parent-thread-id"))
    } else if let Some(id) = get("x-session-id") {
        (id, get("x-parent-session-id"))
    } else if let Some(id) = get("x-session-affinity").or_else(|| get("x-smg-routing-key")) {
        (id, get("x-dynamo-parent-session-id"))
    } else {
        return (None, None);
    };
    (Some(bounded(id)), parent.filter(|parent| *parent != id).map(bounded))
}

/// The id of a session, or a digest in place of one that is too long: the session keeps its worker all the same.
fn bounded(id: &str) -> Box<str> {
    if id.len() <= SESSION_ID_LIMIT {
        return id.into();
    }
    format!("digest-{}", blake3::hash(id.as_bytes()).to_hex()).into()
}

/// First value, trimmed; empty or undecodable is absent.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = std::str::from_utf8(headers.get(name)?.as_bytes()).ok()?.trim();
    (!value.is_empty()).then_some(value)
}

fn number<T: std::str::FromStr>(headers: &HeaderMap, names: &[&str]) -> Option<T> {
    names.iter().find_map(|name| text(headers, name)?.parse().ok())
}

/// Nothing of it means anything to a log, a shell, a browser or another server.
fn is_harmless(id: &str) -> bool {
    id.len() <= REQUEST_ID_LIMIT && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/+=@~".contains(&b))
}
