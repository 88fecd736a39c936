//! Random histories against the index by definition.

use proptest::prelude::*;

use super::*;
use crate::index::oracle::Oracle;

/// One random step. Numbers are reduced to what exists.
#[derive(Clone, Debug)]
enum Step {
    /// Stores `length` blocks of chain `chain` from `start`, under names of dialect `dialect`.
    Store {
        owner: u8,
        tier: u8,
        chain: u8,
        start: u8,
        length: u8,
        dialect: u8,
    },
    Remove {
        owner: u8,
        tier: u8,
        chain: u8,
        blocks: Vec<u8>,
        dialect: u8,
    },
    Clear {
        owner: u8,
    },
    RemoveRank {
        owner: u8,
    },
    RemoveWorker {
        owner: u8,
    },
}

/// Blocks of a chain: two windows and a part.
const CHAIN: u8 = 75;
const FORK: u8 = 31;

fn step(tiers: u8) -> impl Strategy<Value = Step> {
    let tier = 0..tiers;
    let store = (any::<u8>(), tier.clone(), 0..3_u8, 0..CHAIN, 1..CHAIN, 0..2_u8).prop_map(
        |(owner, tier, chain, start, length, dialect)| Step::Store {
            owner,
            tier,
            chain,
            start,
            length,
            dialect,
        },
    );
    // A few blocks from anywhere, or the end of a prompt as an engine drops it.
    let tail = (0..CHAIN, 1..CHAIN)
        .prop_map(|(first, count)| (first..(first + count).min(CHAIN)).rev().collect::<Vec<u8>>());
    let blocks = prop_oneof![prop::collection::vec(0..CHAIN, 1..4), tail];
    let remove =
        (any::<u8>(), tier, 0..3_u8, blocks, 0..2_u8).prop_map(|(owner, tier, chain, blocks, dialect)| {
            Step::Remove { owner, tier, chain, blocks, dialect }
        });
    prop_oneof![
        8 => store,
        8 => remove,
        1 => any::<u8>().prop_map(|owner| Step::Clear { owner }),
        1 => any::<u8>().prop_map(|owner| Step::RemoveRank { owner }),
        1 => any::<u8>().prop_map(|owner| Step::RemoveWorker { owner }),
    ]
}

/// Chains share their first blocks: chain `c` forks off at block `FORK · c`.
fn local(chain: u8, block: u8) -> u64 {
    let own = block >= FORK * chain;
    1000 + u64::from(block) + if own { 100 * u64::from(chain) } else { 0 }
}

/// Engine names depend on the place in the chain and on the dialect, some on the latter not.
fn name(chain: u8, block: u8, dialect: u8) -> u64 {
    let dialect = if block.is_multiple_of(3) { 0 } else { u64::from(dialect) };
    dialect << 32 | local(chain, block)
}

fn owner(number: u8) -> WorkerRank {
    rank(u64::from(number % 4) / 2, u32::from(number % 2))
}

fn event_of(step: &Step) -> Option<KvEvent> {
    Some(match step {
        Step::Store { owner: number, tier, chain, start, length, dialect } => {
            let range = *start..(start + length).min(CHAIN);
            let blocks: Vec<_> =
                range.map(|block| (name(*chain, block, *dialect), local(*chain, block))).collect();
            let parent = start.checked_sub(1).map(|parent| name(*chain, parent, *dialect));
            stored(owner(*number), Tier::ALL[usize::from(*tier)], parent, &blocks)
        }
        Step::Remove { owner: number, tier, chain, blocks, dialect } => {
            let names: Vec<u64> = blocks.iter().map(|block| name(*chain, *block, *dialect)).collect();
            removed(owner(*number), Tier::ALL[usize::from(*tier)], &names)
        }
        Step::Clear { owner: number } => event(owner(*number), Tier::Device, KvEventData::Cleared),
        Step::RemoveRank { .. } | Step::RemoveWorker { .. } => return None,
    })
}

fn check(steps: &[Step]) {
    let (index, mut oracle) = (Index::new(), Oracle::default());
    for step in steps {
        match (event_of(step), step) {
            (Some(event), _) => {
                index.apply(&event);
                oracle.apply(&event);
            }
            (None, Step::RemoveRank { owner: number }) => {
                index.remove_rank(owner(*number));
                oracle.apply(&event(owner(*number), Tier::Device, KvEventData::Cleared));
            }
            (None, Step::RemoveWorker { owner: number }) => {
                index.remove_worker(owner(*number).worker);
                oracle.remove_worker(owner(*number).worker);
            }
            (None, _) => unreachable!("other steps are events"),
        }
        for chain in 0..3 {
            let chain = prompt(&(0..CHAIN).map(|block| local(chain, block)).collect::<Vec<_>>());
            for length in [1, 5, 32, 40, 64, usize::from(CHAIN)] {
                assert_eq!(
                    index.overlap(&chain[..length]),
                    oracle.overlap(&chain[..length]),
                    "after {step:?}"
                );
            }
        }
        let stats = index.stats();
        assert_eq!(stats.residencies, oracle.residencies());
        assert_eq!(stats.blocks - stats.unheld_blocks, oracle.distinct());
    }
    for worker in 0..2 {
        index.remove_worker(WorkerId(worker));
    }
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.unheld_blocks, stats.residencies, stats.owners), (0, 0, 0, 0));
    assert_eq!(index.view.read().sets.len(), 1, "only the empty set is left");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn one_tier_is_exact(steps in prop::collection::vec(step(1), 1..60)) {
        check(&steps);
    }

    #[test]
    fn four_tiers_are_exact(steps in prop::collection::vec(step(4), 1..60)) {
        check(&steps);
    }
}
