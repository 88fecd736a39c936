//! Choosing among candidates, by cost or by the simpler modes. All randomness comes from the caller.

use fastrand::Rng;
use roost_kv::{WorkerId, WorkerRank};

use crate::Mode;
use crate::explain::Candidate;

#[cfg(test)]
mod tests;

/// Costs closer than this, relative to their size, are equal.
const EQUAL: f64 = 1e-9;

/// Chooses by cost. `None` only if there are no candidates.
///
/// Temperature 0: the lowest cost; of equal ones the one with the fewest running requests; of those the one that the
/// session prefers, without a session any. A higher temperature draws, the cheaper the likelier.
pub(crate) fn by_cost(
    candidates: &[Candidate],
    temperature: f64,
    session: Option<Preference>,
    rng: &mut Rng,
) -> Option<usize> {
    let costs = || candidates.iter().map(|candidate| candidate.terms.total());
    let lowest = costs().min_by(f64::total_cmp)?;
    if temperature > 0.0 {
        let highest = costs().max_by(f64::total_cmp)?;
        let spread = (highest - lowest) * temperature;
        let weight = |cost: f64| if spread > 0.0 { (-(cost - lowest) / spread).exp() } else { 1.0 };
        let mut draw = rng.f64() * costs().map(weight).sum::<f64>();
        let drawn = costs().position(|cost| {
            draw -= weight(cost);
            draw < 0.0
        });
        return drawn.or(Some(candidates.len() - 1));
    }
    let tied = |candidate: &&Candidate| candidate.terms.total() - lowest <= EQUAL * lowest.abs().max(1.0);
    let fewest = candidates.iter().filter(tied).map(|tied| tied.load.active_requests).min()?;
    let best = |candidate: &Candidate| tied(&candidate) && candidate.load.active_requests == fewest;
    if let Some(session) = session {
        let tied = candidates.iter().enumerate().filter(|(_, candidate)| best(candidate));
        return tied.max_by_key(|(_, tied)| session.weight(tied.rank)).map(|(index, _)| index);
    }
    let count = candidates.iter().filter(|candidate| best(candidate)).count();
    let chosen = rng.usize(..count);
    candidates.iter().enumerate().filter(|(_, candidate)| best(candidate)).nth(chosen).map(|(index, _)| index)
}

/// A session's preference among equals: the same in every frontend, evenly spread over sessions, and unchanged for
/// the other ranks when one comes or goes (rendezvous hashing).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preference(u64);

impl Preference {
    pub(crate) fn of(session: &str) -> Self {
        let mut seed = [0; 8];
        blake3::Hasher::new().update(session.as_bytes()).finalize_xof().fill(&mut seed);
        Self(u64::from_le_bytes(seed))
    }

    /// Returns the weight of a rank; the highest is preferred.
    pub(crate) fn weight(self, rank: WorkerRank) -> u64 {
        mix(mix(self.0 ^ rank.worker.0) ^ u64::from(rank.dp_rank))
    }
}

/// Spreads the bits of a number (the finalizer of splitmix64).
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Chooses by one of the modes without cost: first a worker, then its least loaded rank.
///
/// Candidates are sorted by worker. `turn` counts the calls, for round robin.
pub(crate) fn by_mode(mode: Mode, candidates: &[Candidate], turn: &mut u64, rng: &mut Rng) -> Option<usize> {
    let workers: Vec<(WorkerId, u64)> = candidates
        .chunk_by(|a, b| a.rank.worker == b.rank.worker)
        .map(|ranks| {
            (ranks[0].rank.worker, ranks.iter().map(|rank| u64::from(rank.load.active_requests)).sum())
        })
        .collect();
    if workers.is_empty() {
        return None;
    }
    let (worker, _) = match mode {
        Mode::RoundRobin => {
            let next = workers[usize::try_from(*turn % workers.len() as u64).unwrap_or(0)];
            *turn = turn.wrapping_add(1);
            next
        }
        Mode::PowerOfTwo => {
            let first = rng.usize(..workers.len());
            let second = (first + rng.usize(1..workers.len().max(2))) % workers.len();
            if workers[second].1 < workers[first].1 { workers[second] } else { workers[first] }
        }
        Mode::LeastLoaded => {
            let least = workers.iter().map(|worker| worker.1).min()?;
            let tied: Vec<_> = workers.into_iter().filter(|worker| worker.1 == least).collect();
            tied[rng.usize(..tied.len())]
        }
        Mode::Kv | Mode::Random | Mode::Direct | Mode::DeviceAwareWeighted => {
            workers[rng.usize(..workers.len())]
        }
    };
    least_loaded_rank(candidates, worker, rng)
}

fn least_loaded_rank(candidates: &[Candidate], worker: WorkerId, rng: &mut Rng) -> Option<usize> {
    let ranks = || candidates.iter().enumerate().filter(|(_, candidate)| candidate.rank.worker == worker);
    let fewest = ranks().map(|(_, rank)| rank.load.active_requests).min()?;
    let tied = || ranks().filter(|(_, rank)| rank.load.active_requests == fewest);
    let chosen = rng.usize(..tied().count());
    tied().nth(chosen).map(|(index, _)| index)
}
