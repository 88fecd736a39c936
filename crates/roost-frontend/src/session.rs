//! Who is asking: session, pins and priority, read from the headers once.

use http::{HeaderMap, HeaderValue};
use roost_openai::{SessionAction, SessionControl};

#[cfg(test)]
mod tests;

/// Longest request id that is echoed.
const REQUEST_ID_LIMIT: usize = 128;

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
    /// `x-request-id` to echo: visible ASCII of bounded length, else absent.
    pub(crate) request_id: Option<HeaderValue>,
    /// `x-dynamo-request-id` when it is a UUID.
    pub(crate) uuid: Option<uuid::Uuid>,
}

impl Session {
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
            request_id: headers.get("x-request-id").filter(|v| echoable(v)).cloned(),
            uuid: text(headers, "x-dynamo-request-id").and_then(|v| v.parse().ok()),
        }
    }
}

impl Session {
    /// Takes over what the body says of the session where the headers say nothing.
    pub(crate) fn with_control(mut self, control: Option<&SessionControl>) -> Self {
        let Some(control) = control else { return self };
        let named = control.session_id.trim();
        if self.id.is_none() && !named.is_empty() {
            self.id = Some(named.into());
        }
        let is_same = self.id.as_deref() == Some(named);
        self.is_final |= is_same && control.action == Some(SessionAction::Close);
        self
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
    (Some(id.into()), parent.filter(|parent| *parent != id).map(Into::into))
}

/// First value, trimmed; empty or undecodable is absent.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = std::str::from_utf8(headers.get(name)?.as_bytes()).ok()?.trim();
    (!value.is_empty()).then_some(value)
}

fn number<T: std::str::FromStr>(headers: &HeaderMap, names: &[&str]) -> Option<T> {
    names.iter().find_map(|name| text(headers, name)?.parse().ok())
}

fn echoable(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=REQUEST_ID_LIMIT).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
}
