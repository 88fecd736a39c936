use crate::fields::Fields;
use crate::{ApiError, FieldPolicy, Flavor, Ignored, Limits, NvExt, Output, Sampling, Stop, StreamOptions};

/// What chat and text completions have in common: how to generate and how to answer.
#[derive(Debug, Clone, Default)]
pub struct Generation {
    /// Answer as server-sent events.
    pub stream: bool,
    /// Stream details.
    pub stream_options: StreamOptions,
    /// How much to generate.
    pub limits: Limits,
    /// When to stop.
    pub stop: Stop,
    /// Sampling numbers.
    pub sampling: Sampling,
    /// What the answer shows.
    pub output: Output,
    /// Isolates the KV cache.
    pub cache_salt: Option<String>,
    /// NVIDIA's extension member.
    pub nvext: NvExt,
}

impl Generation {
    pub(crate) fn take(
        fields: &mut Fields<'_>,
        flavor: Flavor,
        policy: FieldPolicy,
        ignored: &mut Ignored,
    ) -> Result<Self, ApiError> {
        let stream = fields.get("stream")?.unwrap_or(false);
        let nvext = NvExt::take(fields, policy, ignored)?;
        let mut limits = Limits::take(fields)?;
        limits.max_thinking_tokens = limits.max_thinking_tokens.or(nvext.max_thinking_tokens);
        Ok(Generation {
            stream,
            stream_options: StreamOptions::take(fields, stream)?,
            limits,
            stop: Stop::take(fields)?,
            sampling: Sampling::take(fields)?,
            output: Output::take(fields, flavor)?,
            cache_salt: fields.get("cache_salt")?,
            nvext,
        })
    }
}
