use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use roost_kv::{BlockHash, SequenceHash, WorkerId, WorkerRank};
use serde_json::Value;

use super::*;
use crate::fixtures::{array, load, small, uint};

fn prompt(locals: &[u64]) -> Arc<[SequenceHash]> {
    roost_kv::hash::sequence_hashes(&locals.iter().copied().map(BlockHash).collect::<Vec<_>>()).into()
}

fn demand(rank: WorkerRank, slot: RankSlot, prompt: &Arc<[SequenceHash]>, prefill_tokens: u64) -> Demand<'_> {
    Demand {
        rank,
        slot,
        isl_tokens: 0,
        block_size: 4,
        prefill_tokens,
        expected_output_tokens: None,
        blocks: Blocks::Shared(prompt),
        probe: false,
        owner: Owner::Request,
    }
}

/// The slots of the peer's trace: worker 1 rank 0, worker 2 ranks 0 and 1.
fn slot(value: &Value) -> RankSlot {
    match (uint(&value["worker"]), small(&value["dp_rank"])) {
        (1, 0) => 0,
        (2, dp_rank) => 1 + dp_rank,
        other => panic!("unknown rank {other:?}"),
    }
}

#[test]
fn the_peers_trace_gives_the_same_projection() {
    let trace = load("routing/active_load.json");
    let query = prompt(&[1, 2, 3, 8]);
    let (mut load, mut bookings, mut shared) = (Load::default(), BTreeMap::new(), Vec::new());
    load.ensure_rank(2);
    for step in array(&trace["steps"]) {
        let op = &step["op"];
        let booking = || bookings[op["request"].as_str().unwrap()];
        match op["op"].as_str().unwrap() {
            "start" => {}
            "add" => {
                let tracked = op.get("track_prefill_tokens").is_none_or(|tracked| tracked.as_bool().unwrap());
                let prefill = if tracked { uint(&op["prefill_tokens"]) } else { 0 };
                let blocks = prompt(&array(&op["blocks"]).iter().map(uint).collect::<Vec<_>>());
                let rank = WorkerRank::new(WorkerId(uint(&op["worker"])), small(&op["dp_rank"]));
                let id = load.book(&demand(rank, slot(op), &blocks, prefill));
                bookings.insert(op["request"].as_str().unwrap().to_owned(), id);
            }
            "prefill_completed" => load.prefill_done(booking()),
            "output_block" => {
                load.output_blocks(booking(), 1, op.get("decay_fraction").and_then(Value::as_f64))
            }
            "free" => _ = load.release(booking()),
            other => panic!("unknown step {other}"),
        }
        load.shared_with(&query, &mut shared);
        for expected in array(&step["projection"]) {
            let slot = slot(expected);
            let usage = load.usage(slot);
            assert_eq!(usage.active_blocks, uint(&expected["active_decode_blocks"]), "blocks after {op}");
            assert_eq!(usage.prefill_tokens, uint(&expected["active_prefill_tokens"]), "tokens after {op}");
            assert_eq!(usage.requests, small(&expected["active_requests"]), "requests after {op}");
            let additional = 4 - shared[slot as usize];
            assert_eq!(additional, small(&expected["additional_active_blocks"]), "additional after {op}");
        }
    }
    assert_eq!((load.len(), load.prefixes.len()), (0, 0));
}

#[test]
fn giving_back_twice_or_after_reuse_has_no_effect() {
    let mut load = Load::default();
    load.ensure_rank(0);
    let blocks = prompt(&[1, 2]);
    let first = load.book(&demand(WorkerRank::default(), 0, &blocks, 8));
    assert!(load.release(first).is_some());
    assert!(load.release(first).is_none());
    let second = load.book(&demand(WorkerRank::default(), 0, &blocks, 8));
    assert!(load.release(first).is_none());
    load.prefill_done(first);
    assert_eq!(load.usage(0), Usage { active_blocks: 2, prefill_tokens: 8, requests: 1 });
    assert!(load.release(second).is_some());
    assert_eq!(load.usage(0), Usage::default());
}

/// What a rank's requests use, by definition.
fn distinct(prompts: &[&Arc<[SequenceHash]>]) -> u64 {
    prompts.iter().flat_map(|prompt| prompt.iter()).collect::<HashSet<_>>().len() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn shared_blocks_are_counted_by_definition(
        steps in prop::collection::vec((prop::collection::vec(0_u64..3, 0..12), 0_u32..3, any::<prop::sample::Index>(), any::<bool>()), 1..60),
        query in prop::collection::vec(0_u64..3, 0..14),
    ) {
        let mut load = Load::default();
        load.ensure_rank(2);
        let mut running: Vec<(BookingId, RankSlot, Arc<[SequenceHash]>)> = Vec::new();
        let (query, mut shared) = (prompt(&query), Vec::new());
        let check = |load: &Load, running: &[(BookingId, RankSlot, Arc<[SequenceHash]>)], shared: &mut Vec<u32>| {
            load.shared_with(&query, shared);
            for slot in 0..3 {
                let here: Vec<_> = running.iter().filter(|r| r.1 == slot).map(|r| &r.2).collect();
                assert_eq!(load.usage(slot).active_blocks, distinct(&here));
                let used: HashSet<_> = here.iter().flat_map(|prompt| prompt.iter()).collect();
                let leading = query.iter().take_while(|block| used.contains(block)).count();
                assert_eq!(shared[slot as usize] as usize, leading);
            }
        };
        for (blocks, slot, victim, release) in steps {
            if release && !running.is_empty() {
                let (id, slot, blocks) = running.swap_remove(victim.index(running.len()));
                let siblings: Vec<_> = running.iter().filter(|r| r.1 == slot).map(|r| &r.2).collect();
                let own = distinct(&[siblings.clone(), vec![&blocks]].concat()) - distinct(&siblings);
                // A fraction of 0 takes exactly the request's own blocks off.
                let before = load.usage(slot).active_blocks;
                load.output_blocks(id, 0, Some(0.0));
                assert_eq!(load.usage(slot).active_blocks, before - own);
                assert!(load.release(id).is_some());
            } else {
                let blocks = prompt(&blocks);
                let rank = WorkerRank::new(WorkerId(u64::from(slot)), 0);
                let id = load.book(&demand(rank, slot, &blocks, 1));
                running.push((id, slot, blocks));
            }
            check(&load, &running, &mut shared);
            prop_assert!(load.prefixes.len() <= 2 * running.len());
        }
        for (id, ..) in running {
            load.release(id);
        }
        prop_assert_eq!(load.prefixes.len(), 0);
    }
}
