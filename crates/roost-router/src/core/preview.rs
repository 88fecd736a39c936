//! Where a request would go, without placing it.

use std::time::Instant;

use roost_kv::WorkerRank;

use super::Core;
use crate::busy::UNKNOWN_MAX_BATCHED_TOKENS;
use crate::{RankLoad, Rejection, Request};

/// The rank that a request would be given, as it is without the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preview {
    /// The rank.
    pub rank: WorkerRank,
    /// Prompt tokens that it has cached.
    pub cached_tokens: u32,
    /// Its load, and the blocks that the request would add.
    pub load: RankLoad,
    /// KV blocks that it has; `None` if neither the worker nor its card says.
    pub total_blocks: Option<u64>,
    /// Prompt tokens that its worker computes at once.
    pub max_batched_tokens: u64,
}

impl Preview {
    /// KV blocks in use with the request.
    pub fn blocks(&self) -> u64 {
        self.load.active_blocks + u64::from(self.load.additional_blocks)
    }

    /// Whether it has more prompt tokens to compute than `share` times what its worker computes at once.
    pub fn prefill_exceeds(&self, share: f64) -> bool {
        self.load.prefill_tokens as f64 > share * self.max_batched_tokens as f64
    }
}

impl Core {
    /// Returns where [`Core::place`] would put a request now. Nothing is booked, bound or recorded; where chance
    /// decides, it may decide otherwise the next time.
    pub fn preview(&mut self, now: Instant, request: &Request<'_>) -> Result<Preview, Rejection> {
        let table = self.affinity.as_ref();
        let binding = request.session.zip(table).and_then(|(session, table)| table.find(now, session));
        // A session that would be bound is not counted among those that begin with its prefix.
        let session = request.session.filter(|_| binding.is_some());
        let request = &Request { block_size: request.block_size.max(1), session, ..*request };
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let turn = self.turn;
        let chosen = self.choose(now, request, binding, &mut candidates);
        self.turn = turn;
        self.candidates = candidates;
        let chosen = chosen?.candidate;
        let member = &self.fleet.members[&chosen.rank.worker];
        let slot = member.slot(chosen.rank.dp_rank).expect("the choice is among the member's ranks");
        let report = self.fleet.reported(now, slot, self.config.report_max_age);
        Ok(Preview {
            rank: chosen.rank,
            cached_tokens: self.cached_tokens(request, &chosen.overlap),
            load: chosen.load,
            total_blocks: report.and_then(|report| report.total_blocks).or(member.worker.total_kv_blocks),
            max_batched_tokens: member.worker.max_batched_tokens.unwrap_or(UNKNOWN_MAX_BATCHED_TOKENS),
        })
    }
}
