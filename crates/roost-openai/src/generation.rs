use serde_json::value::RawValue;

use crate::fields::Fields;
use crate::{
    ApiError, FieldPolicy, Flavor, Ignored, Limits, NvExt, Output, Raw, Sampling, Stop, StreamOptions,
};

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
    /// Members for the engine alone, by name.
    pub engine: Vec<(&'static str, Raw)>,
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
        let engine = for_the_engine(fields)?;
        let mut limits = Limits::take(fields)?;
        limits.max_thinking_tokens = limits.max_thinking_tokens.or(nvext.max_thinking_tokens);
        let mut sampling = Sampling::take(fields)?;
        if nvext.greedy {
            (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) =
                (Some(0.0), None, None, None);
        }
        Ok(Generation {
            stream,
            stream_options: StreamOptions::take(fields, stream)?,
            limits,
            stop: Stop::take(fields)?,
            sampling,
            output: Output::take(fields, flavor)?,
            cache_salt: fields.get("cache_salt")?,
            nvext,
            engine,
        })
    }
}

/// Checks the form of members that engines understand and nobody on the way; the values go on verbatim.
fn for_the_engine(fields: &mut Fields<'_>) -> Result<Vec<(&'static str, Raw)>, ApiError> {
    let mut found = Vec::new();
    let mut take = |name: &'static str, check: fn(&RawValue) -> bool, form: &str| match fields.raw(name) {
        None => Ok(()),
        Some(value) if check(value) => {
            found.push((name, Raw::slice_of(fields.body(), value.get())));
            Ok(())
        }
        Some(_) => Err(ApiError::invalid(name, format!("Validation: `{name}` must be {form}"))),
    };
    fn is<T: serde::de::DeserializeOwned>(value: &RawValue) -> bool {
        serde_json::from_str::<T>(value.get()).is_ok()
    }
    take("detokenize", is::<bool>, "a boolean")?;
    take("allowed_token_ids", is::<Vec<u32>>, "a list of token ids")?;
    take("bad_words_token_ids", is::<Vec<Vec<u32>>>, "a list of lists of token ids")?;
    take("logprob_token_ids", is::<Vec<u32>>, "a list of token ids")?;
    Ok(found)
}
