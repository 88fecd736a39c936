//! When a rank has too much to do to be given more.

use crate::ConfigError;

#[cfg(test)]
mod tests;

/// Assumed where a worker does not say how many tokens it computes at once.
pub(crate) const UNKNOWN_MAX_BATCHED_TOKENS: u64 = 10_000_000;

/// Limits beyond which a rank is busy. A worker is overloaded when all its ranks are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BusyThresholds {
    /// Share of the rank's KV blocks in use, 0 to 1.
    pub active_decode_blocks: Option<f64>,
    /// Prompt tokens still to be computed.
    pub active_prefill_tokens: Option<u64>,
    /// The same in multiples of what the worker computes at once, at least 0.
    pub active_prefill_tokens_frac: Option<f64>,
}

/// The state of one rank that the thresholds look at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RankUse {
    pub(crate) prefill_tokens: u64,
    pub(crate) booked_blocks: u64,
    /// Blocks in use by the worker's own account, if it reported lately.
    pub(crate) reported_blocks: Option<u64>,
    pub(crate) total_blocks: Option<u64>,
    pub(crate) max_batched_tokens: Option<u64>,
}

impl BusyThresholds {
    /// Checks the ranges.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let invalid = |option, range, value| Err(ConfigError::Threshold { option, range, value });
        if let Some(value) = self.active_decode_blocks
            && !(0.0..=1.0).contains(&value)
        {
            return invalid("active decode blocks threshold", "between 0 and 1", value);
        }
        if let Some(value) = self.active_prefill_tokens_frac
            && !(value.is_finite() && value >= 0.0)
        {
            return invalid("active prefill tokens fraction threshold", "at least 0", value);
        }
        Ok(())
    }

    pub(crate) fn is_busy(&self, rank: RankUse) -> bool {
        let batch = rank.max_batched_tokens.unwrap_or(UNKNOWN_MAX_BATCHED_TOKENS) as f64;
        let queued = rank.prefill_tokens;
        let used = rank.booked_blocks.max(rank.reported_blocks.unwrap_or(0)) as f64;
        self.active_prefill_tokens.is_some_and(|limit| queued > limit)
            || self.active_prefill_tokens_frac.is_some_and(|frac| queued as f64 > frac * batch)
            || self
                .active_decode_blocks
                .zip(rank.total_blocks)
                .is_some_and(|(share, total)| used > share * total as f64)
    }
}
