//! Describing candidates and putting a cost on them.

use std::time::Instant;

use roost_kv::{OwnerOverlap, WorkerRank};

use super::Core;
use crate::cost::{self, Prompt, RankLoad, Terms};
use crate::explain::{Candidate, Reason};
use crate::load::RankSlot;
use crate::policy::{self, Preference};
use crate::{Mode, Request};

impl Core {
    /// Describes a rank; its terms follow when the least loaded rank is known.
    pub(super) fn candidate(
        &self,
        request: &Request<'_>,
        rank: WorkerRank,
        slot: RankSlot,
        preference: Option<f64>,
    ) -> Candidate {
        self.candidate_with(request, request.overlap.get(rank), slot, preference)
    }

    /// The same where the rank's overlap is known.
    pub(super) fn candidate_with(
        &self,
        request: &Request<'_>,
        overlap: OwnerOverlap,
        slot: RankSlot,
        preference: Option<f64>,
    ) -> Candidate {
        let usage = self.load.usage(slot);
        let blocks = u32::try_from(request.sequence.len()).unwrap_or(u32::MAX);
        let tracked = self.config.track_active_blocks;
        let shared = match tracked && self.config.assume_kv_reuse {
            true => self.shared[slot as usize],
            false => 0,
        };
        Candidate {
            rank: overlap.rank,
            overlap,
            load: RankLoad {
                prefill_tokens: usage.prefill_tokens,
                active_blocks: if tracked { usage.active_blocks } else { 0 },
                active_requests: usage.requests,
                additional_blocks: if tracked { blocks - shared } else { 0 },
            },
            preference,
            terms: Terms::default(),
        }
    }

    pub(super) fn terms(&self, prompt: &Prompt<'_>, candidate: &Candidate) -> Terms {
        let Candidate { load, overlap, preference, .. } = candidate;
        cost::terms(&self.config.cost, prompt, Some(*load), overlap, *preference)
    }

    pub(super) fn prompt<'a>(&self, request: &Request<'a>, least_prefill_tokens: u64) -> Prompt<'a> {
        Prompt {
            isl_tokens: request.isl_tokens,
            block_size: request.block_size,
            shared_cache: request.shared_cache,
            role: self.config.role,
            track_prefill: self.config.track_prefill_tokens,
            least_prefill_tokens,
        }
    }

    /// Computes the cost of every candidate, with what sessions promise if one is being bound.
    pub(super) fn score(&mut self, now: Instant, request: &Request<'_>, candidates: &mut [Candidate]) {
        if self.config.mode != Mode::Kv {
            return;
        }
        let least = candidates.iter().map(|candidate| candidate.load.prefill_tokens).min().unwrap_or(0);
        let prompt = self.prompt(request, least);
        for candidate in &mut *candidates {
            candidate.terms = self.terms(&prompt, candidate);
        }
        if request.session.is_some() && request.pin.is_none() {
            self.add_future(now, request, candidates);
        }
    }

    /// Adds the load that bound sessions promise: a session is about to be bound for long, and what runs
    /// at this moment says little about that.
    fn add_future(&mut self, now: Instant, request: &Request<'_>, candidates: &mut [Candidate]) {
        let Some(table) = &self.affinity else { return };
        let config = &self.config.affinity;
        let parent = request.parent.and_then(|parent| table.contribution(now, parent));
        let promised = |rank: WorkerRank| {
            let own = parent.filter(|(of, _)| *of == rank).map_or(0.0, |(_, tokens)| tokens);
            (table.promised_tokens(now, rank) - own).max(0.0)
        };
        let least = candidates.iter().map(|candidate| promised(candidate.rank)).fold(f64::INFINITY, f64::min);
        let matched = candidates.iter().map(|candidate| candidate.overlap.device).max().unwrap_or(0);
        let end = (matched as usize).checked_sub(1).and_then(|last| request.sequence.get(last).copied());
        // A sub-agent's prompt begins with its parent's: that is no sign of a prefix worth copying.
        let shared_by = end.filter(|_| parent.is_none()).map_or(0, |end| self.popularity.of(end));
        let cap = f64::from(config.future_cap_tokens)
            + f64::from(shared_by) * f64::from(matched) * f64::from(request.block_size);
        for candidate in candidates {
            let excess = (promised(candidate.rank) - least) * config.future_weight;
            candidate.terms.future = excess.min(cap) / f64::from(request.block_size);
            if parent.is_some_and(|(rank, _)| rank == candidate.rank) {
                candidate.terms.bonus = config.parent_bonus_blocks;
            }
        }
        if let Some(end) = end.filter(|_| parent.is_none()) {
            self.popularity.count(end);
        }
    }

    pub(super) fn pick(&mut self, request: &Request<'_>, candidates: &[Candidate]) -> (usize, Reason) {
        let reason = match (request.pin.is_none(), self.config.mode) {
            (false, _) => Reason::Pin,
            (true, Mode::Kv) => Reason::Cost,
            (true, _) => Reason::Mode,
        };
        let index = match self.config.mode {
            Mode::Kv => {
                let session = request.session.filter(|_| self.affinity.is_some()).map(Preference::of);
                policy::by_cost(candidates, self.config.cost.temperature, session, &mut self.rng)
            }
            mode => policy::by_mode(mode, candidates, &mut self.turn, &mut self.rng),
        };
        (index.unwrap_or(0), reason)
    }

    pub(super) fn cached_tokens(&self, request: &Request<'_>, overlap: &OwnerOverlap) -> u32 {
        if self.config.cost.overlap_credit == 0.0 {
            return 0;
        }
        let blocks = cost::effective_blocks(&self.config.cost, overlap);
        cost::cached_tokens(blocks, request.block_size)
    }

    pub(super) fn best_cached(&self, request: &Request<'_>, candidates: &[Candidate]) -> u32 {
        if self.config.cost.overlap_credit == 0.0 {
            return 0;
        }
        let blocks = candidates
            .iter()
            .map(|candidate| cost::effective_blocks(&self.config.cost, &candidate.overlap))
            .fold(0.0, f64::max);
        cost::cached_tokens(blocks, request.block_size)
    }

    /// Returns the cached tokens given up because the term for promised load changed the choice.
    pub(super) fn lost_by_spreading(
        &self,
        request: &Request<'_>,
        candidates: &[Candidate],
        chosen: &Candidate,
    ) -> u32 {
        let Some(plain) = candidates.iter().min_by(|a, b| a.terms.plain().total_cmp(&b.terms.plain())) else {
            return 0;
        };
        if chosen.terms.plain() <= plain.terms.plain() {
            return 0;
        }
        let [kept, had] = [chosen, plain].map(|candidate| self.cached_tokens(request, &candidate.overlap));
        had.saturating_sub(kept)
    }
}
