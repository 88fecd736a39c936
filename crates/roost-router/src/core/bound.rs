//! Bounded load: when a bound session is better served elsewhere, although its cache is at home.

use std::time::Instant;

use super::Core;
use crate::affinity::Binding;
use crate::explain::Candidate;
use crate::{AffinityMode, BoundConfig, Mode, Request, cost};

impl Core {
    /// Returns the rank for which a session leaves its own, `home`, if the load demands it.
    ///
    /// `candidates` holds `home` and gets the other ranks too when they are looked at.
    pub(super) fn spill(
        &mut self,
        now: Instant,
        request: &Request<'_>,
        binding: Binding,
        home: &Candidate,
        candidates: &mut Vec<Candidate>,
    ) -> Option<Candidate> {
        let config = self.config.affinity;
        let is_asked = config.mode == AffinityMode::Bounded
            && self.config.mode == Mode::Kv
            && request.pin.is_none()
            && !binding.tentative
            && binding.since_move.is_none_or(|since| since >= config.bound.cooldown);
        let block = f64::from(request.block_size);
        // Most ranks are not hot: the others are looked at only if this one could be.
        let floor = f64::from(config.bound.floor_tokens) / block;
        let busy = home.load.prefill_tokens as f64 / block + home.load.active_blocks as f64;
        if !is_asked || busy < floor {
            return None;
        }
        candidates.clear();
        self.survey(now, request, candidates);
        let least = candidates.iter().map(|candidate| candidate.load.prefill_tokens).min().unwrap_or(0);
        let prompt = self.prompt(request, least);
        for candidate in &mut *candidates {
            candidate.terms = self.terms(&prompt, candidate);
        }
        let home = candidates.iter().find(|candidate| candidate.rank == home.rank).copied()?;
        let weight = if self.config.track_prefill_tokens { config.bound.decode_weight } else { 1.0 };
        let cost = |candidate: &Candidate| {
            let cost::Terms { prefill, decode, requests, preference, .. } = candidate.terms;
            (prefill + weight * decode + requests) * preference
        };
        let others = candidates.iter().filter(|candidate| candidate.rank != home.rank);
        let best = others.min_by(|a, b| {
            let by_cost = cost(a).total_cmp(&cost(b));
            by_cost.then(a.load.active_requests.cmp(&b.load.active_requests))
        })?;
        let cached = |candidate: &Candidate| cost::effective_blocks(&self.config.cost, &candidate.overlap);
        let rebuild = match self.config.cost.overlap_credit > 0.0 {
            true => (cached(&home) - cached(best)).max(0.0),
            false => 0.0,
        };
        let costs = Costs { home: cost(&home), best: cost(best), rebuild, floor };
        leaves(&config.bound, &costs).then_some(*best)
    }
}

/// What a move would gain and lose, blocks.
#[derive(Clone, Copy, Debug)]
struct Costs {
    home: f64,
    best: f64,
    rebuild: f64,
    floor: f64,
}

/// Tells whether a session leaves its rank.
fn leaves(config: &BoundConfig, costs: &Costs) -> bool {
    let gain = costs.home - costs.best;
    costs.home >= config.ratio * costs.best && gain >= config.rebuild_factor * costs.rebuild + costs.floor
}

#[cfg(test)]
mod tests;
