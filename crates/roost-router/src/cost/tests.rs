//! The peer's selections: the cost of every candidate and the set of ranks it chose from.

use std::collections::BTreeSet;

use fastrand::Rng;
use roost_kv::{WorkerId, WorkerRank};
use serde_json::Value;

use super::*;
use crate::explain::Candidate;
use crate::fixtures::{array, load, small, uint};
use crate::policy;

fn rank(value: &Value) -> WorkerRank {
    WorkerRank::new(WorkerId(uint(&value["worker"])), small(&value["dp_rank"]))
}

fn config(value: &Value) -> CostConfig {
    let number = |name: &str| value[name].as_f64().unwrap();
    CostConfig {
        overlap_credit: number("overlap_score_credit"),
        credit_decay: number("overlap_score_credit_decay"),
        prefill_scale: number("prefill_load_scale"),
        request_weight: number("decode_active_request_weight"),
        host_weight: number("host_cache_hit_weight"),
        disk_weight: number("disk_cache_hit_weight"),
        shared_multiplier: value["shared_cache_multiplier"].as_f64().unwrap_or(0.0),
        temperature: 0.0,
    }
}

fn overlap(worker: &Value) -> OwnerOverlap {
    OwnerOverlap {
        rank: rank(worker),
        device: small(&worker["device_blocks"]),
        host: small(&worker["host_extension_blocks"]),
        disk: small(&worker["disk_extension_blocks"]),
        external: 0,
    }
}

fn rank_load(worker: &Value) -> Option<RankLoad> {
    let load = worker["load"].as_array()?;
    Some(RankLoad {
        prefill_tokens: uint(&load[0]),
        active_blocks: uint(&load[1]),
        active_requests: small(&load[2]),
        additional_blocks: small(&load[3]),
    })
}

/// Tells whether a worker passes the case's pin, allowed set and required taints.
fn eligible(case: &Value, worker: &Value) -> bool {
    let has = |taint: &Value| array(&worker["taints"]).contains(taint);
    let pinned = match case["pinned"].as_array() {
        Some(pin) => pin[0] == worker["worker"] && (pin[1].is_null() || pin[1] == worker["dp_rank"]),
        None => true,
    };
    let allowed = case["allowed"].as_array().is_none_or(|allowed| allowed.contains(&worker["worker"]));
    pinned && allowed && array(&case["required_taints"]).iter().all(has)
}

fn candidates(case: &Value) -> Vec<Candidate> {
    let config = config(&case["config"]);
    let workers: Vec<&Value> =
        array(&case["workers"]).iter().filter(|worker| eligible(case, worker)).collect();
    let shared: Vec<Range<u32>> =
        array(&case["shared_cache_ranges"]).iter().map(|range| small(&range[0])..small(&range[1])).collect();
    let prefill = workers.iter().map(|worker| rank_load(worker).unwrap_or_default().prefill_tokens);
    let prompt = Prompt {
        isl_tokens: small(&case["prompt_tokens"]),
        block_size: small(&case["block_size"]),
        shared_cache: &shared,
        role: if case["worker_type"] == "decode" { Role::Decode } else { Role::Prefill },
        track_prefill: case["track_prefill_tokens"].as_bool().unwrap(),
        least_prefill_tokens: prefill.min().unwrap_or(0),
    };
    let preferred = case["preferred_taints"].as_object().unwrap();
    let candidate = |worker: &&Value| {
        let taints = array(&worker["taints"]);
        let weights = preferred.iter().filter(|(name, _)| taints.iter().any(|taint| taint == name.as_str()));
        let weight =
            (!preferred.is_empty()).then(|| weights.map(|(_, weight)| weight.as_f64().unwrap()).sum());
        let (load, overlap) = (rank_load(worker), overlap(worker));
        Candidate {
            rank: rank(worker),
            terms: terms(&config, &prompt, load, &overlap, weight),
            overlap,
            load: load.unwrap_or_default(),
            preference: weight,
        }
    };
    workers.iter().map(candidate).collect()
}

fn check(case: &Value) {
    let candidates = candidates(case);
    for expected in case["cost"].as_array().into_iter().flatten() {
        let Some(candidate) = candidates.iter().find(|candidate| candidate.rank == rank(expected)) else {
            continue;
        };
        let (cost, wanted) = (candidate.terms.total(), expected["cost"].as_f64().unwrap());
        // The peer keeps taint weights in single precision.
        assert!(
            (cost - wanted).abs() <= 1e-6 * wanted.abs().max(1.0),
            "{cost} for {expected} in {}",
            case["name"]
        );
    }
    let mut rng = Rng::with_seed(1);
    let draws = (0..64).filter_map(|_| policy::by_cost(&candidates, 0.0, None, &mut rng));
    let chosen: BTreeSet<WorkerRank> = draws.map(|index| candidates[index].rank).collect();
    let expected: BTreeSet<WorkerRank> = array(&case["chosen"]).iter().map(rank).collect();
    assert_eq!(chosen, expected, "{}", case["name"]);
    assert_eq!(chosen.is_empty(), !case["error"].is_null());
    let config = config(&case["config"]);
    for choice in array(&case["chosen"]) {
        let candidate = candidates.iter().find(|candidate| candidate.rank == rank(choice)).unwrap();
        let effective = effective_blocks(&config, &candidate.overlap);
        assert_eq!(cached_tokens(effective, small(&case["block_size"])), small(&choice["cached_tokens"]));
    }
}

#[test]
fn hand_made_selections_are_those_of_the_peer() {
    let cases = load("routing/selection.json");
    assert_eq!(array(&cases["cases"]).len(), 25);
    array(&cases["cases"]).iter().for_each(check);
}

#[test]
fn random_selections_are_those_of_the_peer() {
    let cases = load("routing/selection.json");
    assert_eq!(array(&cases["random"]).len(), 24);
    array(&cases["random"]).iter().for_each(check);
}
