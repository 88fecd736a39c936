//! The cost of giving a request to a rank, in blocks. Lower is better.
//!
//! With `bs` the block size, `ISL` the prompt tokens, `P` the prompt tokens the rank still has to compute:
//!
//! ```text
//! credit = overlap_credit · decay · device + host_weight · host + disk_weight · (disk + external)
//!        + shared_multiplier · shared blocks beyond the device match
//! decay  = 1 / (1 + credit_decay · ((P − lowest P) / bs) / ceil(ISL / bs))
//! cost   = prefill_scale · max((P + ISL) / bs − credit, 0)
//!        + active blocks + prompt blocks not active there + request_weight · running requests
//! cost  *= exp(−tanh(sum of the weights of preferred taints the worker has))
//! ```
//!
//! An overlap credit of 0 removes the whole credit. Where prefill is not tracked the first line is 0, except
//! on a decode pool with a credit, where the credit is taken off the blocks instead.

use std::ops::Range;

use roost_kv::OwnerOverlap;

use crate::{CostConfig, Role};

#[cfg(test)]
mod tests;

/// What is the same for all candidates of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt<'a> {
    pub(crate) isl_tokens: u32,
    pub(crate) block_size: u32,
    pub(crate) shared_cache: &'a [Range<u32>],
    pub(crate) role: Role,
    pub(crate) track_prefill: bool,
    /// The lowest count of queued prefill tokens over all candidates.
    pub(crate) least_prefill_tokens: u64,
}

/// The load of a rank as the cost sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankLoad {
    /// Prompt tokens still to be computed.
    pub prefill_tokens: u64,
    /// Blocks in use by running requests.
    pub active_blocks: u64,
    /// Running requests.
    pub active_requests: u32,
    /// Blocks of the request's prompt that are not among the active ones.
    pub additional_blocks: u32,
}

/// The parts of a cost, blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Prefill to be done before and for the request, cached part taken off.
    pub prefill: f64,
    /// Blocks in use, those of the request included.
    pub decode: f64,
    /// Charge for running requests.
    pub requests: f64,
    /// Factor for preferred taints.
    pub preference: f64,
    /// Cost expected from the rank's sessions; only for a session that is being bound.
    pub future: f64,
    /// Taken off because the session's parent is there.
    pub bonus: f64,
}

impl Terms {
    /// Returns the cost without what concerns sessions: the peer's formula.
    pub fn plain(&self) -> f64 {
        (self.prefill + self.decode + self.requests) * self.preference
    }

    /// Returns the cost.
    pub fn total(&self) -> f64 {
        self.plain() + self.future - self.bonus
    }
}

/// Computes the terms for one candidate. `load` is `None` where nothing is known of the rank.
pub(crate) fn terms(
    config: &CostConfig,
    prompt: &Prompt<'_>,
    load: Option<RankLoad>,
    overlap: &OwnerOverlap,
    preference_weight: Option<f64>,
) -> Terms {
    let block = f64::from(prompt.block_size);
    let isl = f64::from(prompt.isl_tokens);
    let known = load.unwrap_or_default();
    let credit = credit(config, prompt, known.prefill_tokens, overlap);
    let mut decode = known.active_blocks as f64 + f64::from(known.additional_blocks);
    let prefill = if prompt.track_prefill {
        config.prefill_scale * ((known.prefill_tokens as f64 + isl) / block - credit).max(0.0)
    } else {
        if prompt.role == Role::Decode {
            decode = (decode - credit).max(0.0);
        }
        0.0
    };
    Terms {
        prefill,
        decode,
        requests: config.request_weight * f64::from(known.active_requests),
        preference: preference_weight.map_or(1.0, |weight| (-weight.tanh()).exp()),
        future: 0.0,
        bonus: 0.0,
    }
}

/// Returns the cached blocks weighted by tier.
pub(crate) fn effective_blocks(config: &CostConfig, overlap: &OwnerOverlap) -> f64 {
    f64::from(overlap.device)
        + config.host_weight * f64::from(overlap.host)
        + config.disk_weight * f64::from(overlap.disk + overlap.external)
}

/// Returns the effective blocks in whole tokens.
pub(crate) fn cached_tokens(effective_blocks: f64, block_size: u32) -> u32 {
    (effective_blocks * f64::from(block_size)).round() as u32
}

fn credit(config: &CostConfig, prompt: &Prompt<'_>, prefill_tokens: u64, overlap: &OwnerOverlap) -> f64 {
    if config.overlap_credit == 0.0 {
        return 0.0;
    }
    let mut decay = 1.0;
    if config.credit_decay > 0.0 && prompt.track_prefill {
        let excess = prefill_tokens.saturating_sub(prompt.least_prefill_tokens) as f64;
        let prompt_blocks = f64::from(prompt.isl_tokens.div_ceil(prompt.block_size).max(1));
        decay = 1.0 / (1.0 + config.credit_decay * (excess / f64::from(prompt.block_size)) / prompt_blocks);
    }
    let beyond = |range: &Range<u32>| range.end.saturating_sub(range.start.max(overlap.device));
    let shared: u32 = prompt.shared_cache.iter().map(beyond).sum();
    config.overlap_credit * decay * f64::from(overlap.device)
        + config.host_weight * f64::from(overlap.host)
        + config.disk_weight * f64::from(overlap.disk + overlap.external)
        + config.shared_multiplier * f64::from(shared)
}
