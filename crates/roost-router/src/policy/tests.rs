use roost_kv::{OwnerOverlap, WorkerRank};

use super::*;
use crate::cost::{RankLoad, Terms};

/// A candidate of the given worker and rank with its running requests and cost.
fn candidate(worker: u64, dp_rank: u32, active_requests: u32, cost: f64) -> Candidate {
    let rank = WorkerRank::new(WorkerId(worker), dp_rank);
    Candidate {
        rank,
        overlap: OwnerOverlap::device_only(rank, 0),
        load: RankLoad { active_requests, ..RankLoad::default() },
        preference: None,
        terms: Terms { decode: cost, preference: 1.0, ..Terms::default() },
    }
}

/// Counts the choices of 3000 draws per candidate.
fn draws(
    candidates: &[Candidate],
    mut choose: impl FnMut(&[Candidate], &mut Rng) -> Option<usize>,
) -> Vec<u32> {
    let mut rng = Rng::with_seed(7);
    let mut counts = vec![0; candidates.len()];
    for _ in 0..3000 {
        counts[choose(candidates, &mut rng).unwrap()] += 1;
    }
    counts
}

#[test]
fn equal_costs_go_to_the_fewest_requests_and_then_to_any() {
    let candidates =
        [candidate(1, 0, 2, 5.0), candidate(2, 0, 1, 5.0), candidate(3, 0, 1, 5.0), candidate(4, 0, 0, 6.0)];
    let counts = draws(&candidates, |candidates, rng| by_cost(candidates, 0.0, None, rng));
    assert_eq!((counts[0], counts[3]), (0, 0));
    assert!(counts[1].abs_diff(1500) < 150, "{counts:?}");
}

#[test]
fn temperature_draws_the_cheaper_more_often() {
    let candidates = [candidate(1, 0, 0, 0.0), candidate(2, 0, 0, 5.0), candidate(3, 0, 0, 10.0)];
    let counts = draws(&candidates, |candidates, rng| by_cost(candidates, 1.0, None, rng));
    // Weights 1, e^-0.5, e^-1.
    for (count, weight) in counts.iter().zip([1.0, 0.6065, 0.3679]) {
        let expected = 3000.0 * weight / 1.9744;
        assert!((f64::from(*count) - expected).abs() < 150.0, "{counts:?}");
    }
    let counts = draws(&candidates, |candidates, rng| by_cost(candidates, 10_000_000.0, None, rng));
    assert!(counts.iter().all(|count| count.abs_diff(1000) < 150), "{counts:?}");
}

#[test]
fn round_robin_takes_turns_over_workers_not_ranks() {
    let candidates = [candidate(1, 0, 0, 0.0), candidate(1, 1, 0, 0.0), candidate(2, 0, 0, 0.0)];
    let (mut turn, mut rng) = (0, Rng::with_seed(1));
    let mut next =
        || candidates[by_mode(Mode::RoundRobin, &candidates, &mut turn, &mut rng).unwrap()].rank.worker.0;
    assert_eq!([next(), next(), next(), next()], [1, 2, 1, 2]);
}

#[test]
fn the_other_modes_look_at_running_requests_or_at_nothing() {
    let candidates =
        [candidate(1, 0, 3, 0.0), candidate(1, 1, 0, 0.0), candidate(2, 0, 1, 0.0), candidate(3, 0, 9, 0.0)];
    let mode = |mode: Mode| draws(&candidates, move |candidates, rng| by_mode(mode, candidates, &mut 0, rng));
    assert_eq!(mode(Mode::LeastLoaded), [0, 0, 3000, 0]);
    let two = mode(Mode::PowerOfTwo);
    // Worker 3 is never the better of two; worker 2 always is.
    assert_eq!((two[0], two[3]), (0, 0));
    assert!(two[2].abs_diff(2000) < 150, "{two:?}");
    let random = mode(Mode::Random);
    assert!(random[1..].iter().all(|count| count.abs_diff(1000) < 150) && random[0] == 0, "{random:?}");
}

#[test]
fn one_worker_is_enough_for_every_mode() {
    let only = [candidate(1, 0, 0, 0.0)];
    for mode in [Mode::RoundRobin, Mode::Random, Mode::PowerOfTwo, Mode::LeastLoaded] {
        assert_eq!(by_mode(mode, &only, &mut 0, &mut Rng::with_seed(1)), Some(0));
        assert_eq!(by_mode(mode, &[], &mut 0, &mut Rng::with_seed(1)), None);
    }
}

#[test]
fn equal_ranks_are_chosen_by_the_session_alone() {
    let candidates = [candidate(1, 0, 0, 5.0), candidate(2, 0, 0, 5.0), candidate(2, 1, 0, 5.0)];
    let choose = |candidates: &[Candidate], session: &str, seed| {
        let chosen =
            by_cost(candidates, 0.0, Some(Preference::of(session)), &mut Rng::with_seed(seed)).unwrap();
        candidates[chosen].rank
    };
    let mut counts = std::collections::BTreeMap::new();
    for session in 0..3000 {
        let session = format!("s{session}");
        let rank = choose(&candidates, &session, 1);
        assert_eq!(rank, choose(&candidates, &session, 2), "whatever the seed");
        // Without a rank that was not chosen, nothing changes.
        let fewer: Vec<Candidate> = candidates
            .iter()
            .copied()
            .filter(|other| other.rank == rank || other.rank.dp_rank == 0)
            .collect();
        assert_eq!(rank, choose(&fewer, &session, 3));
        *counts.entry(rank).or_insert(0_u32) += 1;
    }
    assert!(counts.values().all(|count| count.abs_diff(1000) < 150), "{counts:?}");
}
