use std::collections::BTreeMap;

use serde::Deserialize;

use crate::fields::Fields;
use crate::{ApiError, FieldPolicy, Ignored};

/// Most annotations of one request.
const ANNOTATION_LIMIT: usize = 64;
/// Most taints that a request may name, required and preferred ones each.
const TAINT_LIMIT: usize = 64;

/// NVIDIA's extension member, as far as it is honoured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NvExt {
    /// Passed to the worker verbatim.
    pub annotations: Vec<String>,
    /// Members asked for in the answer's `nvext`.
    pub extra_fields: Vec<String>,
    /// Pin to a worker instance.
    pub worker: Option<u64>,
    /// Pin to a data-parallel rank.
    pub dp_rank: Option<u32>,
    /// Pin of the prefill leg to a worker instance.
    pub prefill_worker: Option<u64>,
    /// Pin of the prefill leg to a data-parallel rank.
    pub prefill_dp_rank: Option<u32>,
    /// Take the likeliest token each time, whatever the sampling numbers say.
    pub greedy: bool,
    /// When the client made the request, in milliseconds of the Unix epoch; passed to the worker.
    pub request_timestamp_ms: Option<f64>,
    /// Latency that the client hopes for; passed to the worker.
    pub targets: Option<LatencyTargets>,
    /// Isolates the KV cache.
    pub cache_salt: Option<String>,
    /// Prompt as token ids, in place of template and tokenizer.
    pub token_data: Option<Vec<u32>>,
    /// Expected output tokens.
    pub expected_output_tokens: Option<u32>,
    /// Priority jump in seconds.
    pub priority: Option<i32>,
    /// Strict priority class.
    pub strict_priority: Option<u32>,
    /// Properties asked of workers.
    pub constraints: RoutingConstraints,
    /// Budget of reasoning tokens.
    pub max_thinking_tokens: Option<u32>,
    /// Session of clients that do not send it as a header.
    pub session_control: Option<SessionControl>,
}

/// Latency that a client hopes for, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct LatencyTargets {
    /// To the first token.
    #[serde(default)]
    pub ttft_target: Option<f64>,
    /// Between tokens.
    #[serde(default)]
    pub itl_target: Option<f64>,
}

/// A session as clients of Dynamo before 1.4 name it. An idle time of its own (`timeout`) is not honoured: the
/// server's is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SessionControl {
    /// The session.
    pub session_id: String,
    /// What becomes of it; without one it goes on.
    #[serde(default)]
    pub action: Option<SessionAction>,
}

/// What becomes of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionAction {
    /// It begins: the turn is like any other, for a session needs no opening.
    Open,
    /// It stays with a worker.
    Bind,
    /// It is over after this answer.
    Close,
}

/// Properties (taints) asked of the workers that serve a request.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct RoutingConstraints {
    /// A worker must have all of these.
    #[serde(default, rename = "required_taints")]
    pub required: Vec<String>,
    /// A worker is the cheaper the more of these it has, by weight; negative weights make it dearer.
    #[serde(default, rename = "preferred_taints")]
    pub preferred: BTreeMap<String, f64>,
}

impl RoutingConstraints {
    fn checked(self) -> Result<Self, ApiError> {
        if self.required.len().max(self.preferred.len()) > TAINT_LIMIT {
            let text = format!("`nvext.routing_constraints` names more than {TAINT_LIMIT} taints");
            return Err(ApiError::invalid("nvext.routing_constraints", text));
        }
        Ok(self)
    }
}

/// Members that clients send and that change nothing here: text prompts are raw anyway, and media are not served.
const NO_EFFECT: &[&str] = &["use_raw_prompt", "metadata_upload"];

#[derive(Deserialize, Default)]
struct AgentHints {
    priority: Option<i32>,
    strict_priority: Option<u32>,
    osl: Option<u32>,
}

impl NvExt {
    pub(crate) fn take(
        fields: &mut Fields<'_>,
        policy: FieldPolicy,
        ignored: &mut Ignored,
    ) -> Result<Self, ApiError> {
        let body = fields.body();
        let Some(raw) = fields.raw("nvext") else { return Ok(NvExt::default()) };
        let mut inner = Fields::of_raw(body, raw, "nvext.")?;
        let hints: AgentHints = inner.get("agent_hints")?.unwrap_or_default();
        let decode: Option<u64> = inner.get("decode_worker_id")?;
        let backend: Option<u64> = inner.get("backend_instance_id")?;
        let constraints: Option<RoutingConstraints> = inner.get("routing_constraints")?;
        let nvext = NvExt {
            prefill_worker: inner.get("prefill_worker_id")?,
            prefill_dp_rank: inner.get("prefill_dp_rank")?,
            greedy: inner.get("greed_sampling")?.unwrap_or(false),
            request_timestamp_ms: inner.get("request_timestamp_ms")?,
            targets: inner.get("router")?,
            annotations: inner.get("annotations")?.unwrap_or_default(),
            extra_fields: inner.get("extra_fields")?.unwrap_or_default(),
            worker: decode.or(backend),
            dp_rank: inner.get("dp_rank")?,
            cache_salt: inner.get::<String>("cache_salt")?.filter(|salt| !salt.is_empty()),
            token_data: inner.get("token_data")?,
            expected_output_tokens: hints.osl,
            priority: hints.priority,
            strict_priority: hints.strict_priority,
            constraints: constraints.unwrap_or_default().checked()?,
            max_thinking_tokens: inner.get("max_thinking_tokens")?,
            session_control: inner.get::<SessionControl>("session_control")?,
        };
        if nvext.annotations.len() > ANNOTATION_LIMIT {
            return Err(ApiError::invalid(
                "nvext.annotations",
                format!("`nvext.annotations` has more than {ANNOTATION_LIMIT} entries"),
            ));
        }
        inner.accept(NO_EFFECT);
        inner.rest(policy, ignored)?;
        Ok(nvext)
    }

    /// What is left of it where the member is not taken: what keeps caches apart.
    #[must_use]
    pub fn only_salt(self) -> Self {
        NvExt { cache_salt: self.cache_salt, ..NvExt::default() }
    }

    /// Whether the answer's `nvext` is to have a member.
    pub fn wants(&self, field: &str) -> bool {
        self.extra_fields.iter().any(|wanted| wanted == field)
    }
}
