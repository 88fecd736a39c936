//! Why a request went where it went: a record per decision, the latest of them kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use roost_kv::{OwnerOverlap, WorkerRank};

use crate::cost::{RankLoad, Terms};
use crate::{AffinityOutcome, Rejection};

#[cfg(test)]
mod tests;

/// Longest name of a request or session that is kept, bytes.
const NAME_BYTES: usize = 256;

/// Candidates kept per decision, the best ones.
const KEPT_CANDIDATES: usize = 16;

/// One decision.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Number of the decision in this pool, from 1.
    pub number: u64,
    /// When it was made.
    pub at: Instant,
    /// The request's name, its first 256 bytes; empty if it has none.
    pub request: String,
    /// The request's session, its first 256 bytes; empty if it has none.
    pub session: String,
    /// Prompt length, tokens.
    pub isl_tokens: u32,
    /// Tokens per block: the unit of overlap and cost.
    pub block_size: u32,
    /// The client's priority.
    pub priority: i32,
    /// What came of it.
    pub outcome: Outcome,
    /// What the session had to do with it.
    pub affinity: AffinityOutcome,
    /// Where the session was bound before, if it was.
    pub bound: Option<WorkerRank>,
    /// Number of ranks that could have served.
    pub considered: u32,
    /// Of those, the chosen one first and then the cheapest, at most 16. Ranks that were not scored, as
    /// when a session's binding decides, are absent.
    pub candidates: Vec<Candidate>,
}

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request was given to a rank.
    Placed {
        /// The rank.
        rank: WorkerRank,
        /// What decided.
        reason: Reason,
    },
    /// No rank could take it.
    Rejected(Rejection),
}

/// What decided for the chosen rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The session is bound to it.
    Session,
    /// The session left its rank, which is hot, for this one.
    Spill,
    /// The client named it.
    Pin,
    /// It has the lowest cost, or was drawn among equal or (with a temperature) weighted ones.
    Cost,
    /// It was its turn, by the pool's mode.
    Mode,
    /// No healthy worker was left: it failed lately and is tried again.
    LastResort,
}

impl Reason {
    /// Returns the reason as one word.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Spill => "spill",
            Self::Pin => "pin",
            Self::Cost => "cost",
            Self::Mode => "mode",
            Self::LastResort => "last_resort",
        }
    }
}

/// One rank as the decision saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The rank.
    pub rank: WorkerRank,
    /// Prompt blocks cached there.
    pub overlap: OwnerOverlap,
    /// Its load.
    pub load: RankLoad,
    /// Summed weight of the preferred properties its worker has; `None` if the request prefers none.
    pub preference: Option<f64>,
    /// The parts of its cost; zero in modes without cost.
    pub terms: Terms,
}

/// The latest decisions.
#[derive(Debug)]
pub(crate) struct Decisions {
    capacity: usize,
    made: u64,
    ring: VecDeque<Arc<Decision>>,
}

impl Decisions {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), made: 0, ring: VecDeque::new() }
    }

    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Records a decision, in the memory of the oldest one if nobody uses that any more.
    ///
    /// `candidates` is reordered: the chosen one first, then the cheapest that are kept.
    pub(crate) fn record(
        &mut self,
        at: Instant,
        (request, session): (&str, &str),
        candidates: &mut [Candidate],
        fill: impl FnOnce(&mut Decision),
    ) -> Arc<Decision> {
        self.made += 1;
        let mut slot = match self.ring.len() < self.capacity {
            true => None,
            false => self.ring.pop_front(),
        }
        .unwrap_or_else(|| Arc::new(Decision::empty(at)));
        if Arc::get_mut(&mut slot).is_none() {
            slot = Arc::new(Decision::empty(at));
        }
        let decision = Arc::get_mut(&mut slot).expect("a slot that is not shared was made just above");
        decision.number = self.made;
        decision.at = at;
        decision.request.clear();
        decision.request.push_str(cut(request));
        decision.session.clear();
        decision.session.push_str(cut(session));
        decision.considered = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
        fill(decision);
        if let Outcome::Placed { rank, .. } = decision.outcome
            && let Some(chosen) = candidates.iter().position(|candidate| candidate.rank == rank)
        {
            candidates.swap(0, chosen);
        }
        let by_cost = |a: &Candidate, b: &Candidate| a.terms.total().total_cmp(&b.terms.total());
        if candidates.len() > KEPT_CANDIDATES {
            candidates[1..].select_nth_unstable_by(KEPT_CANDIDATES - 2, by_cost);
        }
        let kept = candidates.len().min(KEPT_CANDIDATES);
        let kept = &mut candidates[..kept];
        if let [_, others @ ..] = kept {
            others.sort_unstable_by(by_cost);
        }
        decision.candidates.clear();
        decision.candidates.extend_from_slice(kept);
        self.ring.push_back(Arc::clone(&slot));
        slot
    }

    /// Returns up to `limit` decisions about the request or session of this name, latest first.
    pub(crate) fn about(&self, name: &str, limit: usize) -> Vec<Arc<Decision>> {
        let name = cut(name);
        let about = |decision: &&Arc<Decision>| decision.request == name || decision.session == name;
        self.ring.iter().rev().filter(about).take(limit).map(Arc::clone).collect()
    }

    /// Returns up to `limit` decisions, latest first.
    pub(crate) fn recent(&self, limit: usize) -> Vec<Arc<Decision>> {
        self.ring.iter().rev().take(limit).map(Arc::clone).collect()
    }
}

/// Returns as much of a name as is kept.
fn cut(name: &str) -> &str {
    let end = (0..=NAME_BYTES.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

impl Decision {
    fn empty(at: Instant) -> Self {
        Self {
            number: 0,
            at,
            request: String::new(),
            session: String::new(),
            isl_tokens: 0,
            block_size: 0,
            priority: 0,
            outcome: Outcome::Rejected(Rejection::NoWorkers),
            affinity: AffinityOutcome::None,
            bound: None,
            considered: 0,
            candidates: Vec::new(),
        }
    }
}
