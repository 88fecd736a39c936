//! Whether a prompt is better computed by the decode worker itself than on a prefill worker.

use crate::ConfigError;

#[cfg(test)]
mod tests;

/// What speaks for the decode worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalPrefillPolicy {
    /// Little of the prompt is new to it.
    #[default]
    NewTokens,
    /// The prefill worker is busy.
    PrefillLoad,
    /// Either.
    NewTokensOrLoad,
}

/// Options of conditional disaggregation; the defaults are Dynamo's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalPrefill {
    /// What speaks for the decode worker.
    pub policy: LocalPrefillPolicy,
    /// Prompt tokens that are new to it must be fewer than this.
    pub new_tokens: u32,
    /// And a smaller part of the prompt than this, 0 to 1.
    pub new_share: f64,
    /// A prefill worker with more prompt tokens to compute than this many times what it computes at once is busy.
    /// `None`: none is.
    pub prefill_busy: Option<f64>,
    /// A decode worker that would use more than this share of its KV blocks is left alone. `None`: none is.
    pub decode_busy: Option<f64>,
}

impl Default for LocalPrefill {
    fn default() -> Self {
        Self {
            policy: LocalPrefillPolicy::default(),
            new_tokens: 2048,
            new_share: 0.7,
            prefill_busy: None,
            decode_busy: None,
        }
    }
}

/// What the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Prompt length, tokens.
    pub prompt_tokens: u32,
    /// Of those, the tokens that the decode worker has cached.
    pub cached_tokens: u32,
    /// Whether the prefill worker that would be chosen is busy; `None` if that is not known.
    pub prefill_busy: Option<bool>,
    /// KV blocks in use on the decode worker with this request.
    pub decode_blocks: u64,
    /// KV blocks that it has; `None` if it does not say.
    pub decode_capacity: Option<u64>,
}

impl LocalPrefill {
    /// Checks the ranges.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let weights = [
            ("new share of local prefill", Some(self.new_share)),
            ("prefill busy threshold", self.prefill_busy),
            ("decode busy threshold", self.decode_busy),
        ];
        let wrong =
            |(_, value): &(_, Option<f64>)| value.is_some_and(|value| !value.is_finite() || value < 0.0);
        match weights.into_iter().find(wrong) {
            Some((option, value)) => Err(ConfigError::Weight { option, value: value.unwrap_or_default() }),
            None => Ok(()),
        }
    }

    /// Whether the load of prefill workers matters.
    pub fn asks_for_prefill_load(&self) -> bool {
        self.policy != LocalPrefillPolicy::NewTokens && self.prefill_busy.is_some()
    }

    /// Decides. A decode worker whose load has a limit and is not known, or is over it, computes no prompts.
    pub fn decide(&self, outlook: &Outlook) -> bool {
        let new = outlook.prompt_tokens.saturating_sub(outlook.cached_tokens);
        let share = f64::from(new) / f64::from(outlook.prompt_tokens.max(1));
        let little_is_new = new < self.new_tokens && share < self.new_share;
        let prefill_is_busy = outlook.prefill_busy == Some(true);
        let wanted = match self.policy {
            LocalPrefillPolicy::NewTokens => little_is_new,
            LocalPrefillPolicy::PrefillLoad => prefill_is_busy,
            LocalPrefillPolicy::NewTokensOrLoad => little_is_new || prefill_is_busy,
        };
        let may = self.decode_busy.is_none_or(|share| {
            outlook
                .decode_capacity
                .is_some_and(|capacity| outlook.decode_blocks as f64 <= share * capacity as f64)
        });
        wanted && may
    }
}
