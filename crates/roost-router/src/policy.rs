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
/// Temperature 0: the lowest cost; of equal ones the one with the fewest running requests; of those any. A
/// higher temperature draws, the cheaper the likelier.
pub(crate) fn by_cost(candidates: &[Candidate], temperature: f64, rng: &mut Rng) -> Option<usize> {
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
    let count = candidates.iter().filter(|candidate| best(candidate)).count();
    let chosen = rng.usize(..count);
    candidates.iter().enumerate().filter(|(_, candidate)| best(candidate)).nth(chosen).map(|(index, _)| index)
}

/// Returns the weight of a rank for a session: the same in every frontend, evenly spread, and unchanged for the
/// other ranks when one comes or goes.
pub(crate) fn rendezvous(session: &str, rank: WorkerRank) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&rank.worker.0.to_le_bytes());
    hasher.update(&rank.dp_rank.to_le_bytes());
    hasher.update(session.as_bytes());
    let mut weight = [0; 8];
    hasher.finalize_xof().fill(&mut weight);
    u64::from_le_bytes(weight)
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
