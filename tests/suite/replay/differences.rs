//! The list of deliberate differences.

/// Differences of one kind.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its row in `docs/api-differences.md`.
    pub(super) key: &'static str,
    /// Cases, separated by spaces; `*` at the end of a name stands for anything.
    pub(super) cases: &'static str,
    /// Places, separated by spaces; `*` stands for anything.
    pub(super) paths: &'static str,
}

impl Entry {
    pub(super) fn explains(&self, case: &str, path: &str) -> bool {
        self.cases.split(' ').any(|pattern| matches(pattern, case))
            && self.paths.split(' ').any(|pattern| matches(pattern, path))
    }
}

/// Whether `text` is what the pattern says: pieces in order with anything between them.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = left.find(piece) else { return false };
        left = &left[at + piece.len()..];
    }
    left.ends_with(last)
}

pub(super) const LIST: &[Entry] = &[
    Entry { key: "request-id", cases: "*", paths: "headers.x-request-id events*.data.error.request_id" },
    Entry { key: "error-body", cases: "*", paths: "body.error" },
    Entry {
        key: "error-text",
        cases: "*",
        paths: "body.message body.error.message body.details events*.data.error.message",
    },
    Entry { key: "hit-rate", cases: "extra_fields_*", paths: "*.nvext.timing.kv_hit_rate" },
    Entry { key: "abort", cases: "finish_cancelled finish_abort", paths: "status body.*" },
    Entry {
        key: "reasoning-count",
        cases: "reasoning_unclosed",
        paths: "body.usage.completion_tokens_details.reasoning_tokens",
    },
    Entry {
        key: "space",
        cases: "tool_two_stream tool_with_reasoning",
        paths: "events* body.choices*.content",
    },
    Entry { key: "broken-calls", cases: "tool_truncated tool_bad_args", paths: "body.choices*.content" },
    Entry {
        key: "early-errors",
        cases: "engine_value_error_stream engine_runtime_error_stream",
        paths: "status headers.*",
    },
    Entry {
        key: "unknown-fields",
        cases: "unknown_fields request_chat_template nvext_unknown",
        paths: "status body.* engine*",
    },
    Entry { key: "session-control", cases: "nvext_session_control", paths: "status body.* engine*" },
    Entry {
        key: "nulls",
        cases: "null_user_content null_assistant_content_with_call",
        paths: "status body.* engine*",
    },
    Entry { key: "broken-arguments", cases: "tool_args_not_json", paths: "status body.* engine*" },
    Entry {
        key: "wrong-method",
        cases: "get_on_post_route cors_preflight",
        paths: "headers.content-type body",
    },
    Entry { key: "instance-path", cases: "health", paths: "body.instances*.tcp" },
    Entry { key: "echo", cases: "completion_echo", paths: "status body.* engine*" },
    Entry {
        key: "token-counts",
        cases: "responses_input_tokens messages_*",
        paths: "body.input_tokens events[0].data.message.usage.input_tokens",
    },
    Entry {
        key: "messages-stream",
        cases: "messages_stream messages_tool_stream",
        paths: "events*.data.usage events*.stop_sequence events[*]",
    },
    Entry { key: "messages-engine", cases: "messages_*", paths: "engine*.extra_args.*" },
    Entry { key: "logit-bias", cases: "sampling_all", paths: "engine*.logit_bias" },
];
