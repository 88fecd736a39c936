use std::collections::HashMap;

use roost_kv::{BlockHash, EngineHash, StoredBlock};

use super::{Admission, CacheFull, PrefixCache};

/// The chain of a sequence written as letters, one block each.
fn chain(sequence: &str) -> Vec<StoredBlock> {
    let mut name = 7_u64;
    let letters = sequence.bytes();
    letters
        .map(|letter| {
            name = name.wrapping_mul(1_000_003).wrapping_add(u64::from(letter));
            StoredBlock { engine: EngineHash(name), local: BlockHash(u64::from(letter)) }
        })
        .collect()
}

fn run(cache: &mut PrefixCache, sequence: &str) -> (usize, usize) {
    let mut removed = Vec::new();
    let chain = chain(sequence);
    let mut admission = cache.admit(&chain, 0, &mut removed).unwrap();
    let hit = admission.held_pages();
    cache.store(&mut admission, &chain);
    cache.release(admission);
    (hit, removed.len())
}

#[test]
fn repeats_and_extensions_hit() {
    let mut cache = PrefixCache::new(8);
    assert_eq!(run(&mut cache, "abc"), (0, 0));
    assert_eq!(run(&mut cache, "abc"), (3, 0));
    assert_eq!(run(&mut cache, "abcde"), (3, 0));
    assert_eq!(run(&mut cache, "abx"), (2, 0));
    assert_eq!(cache.used_blocks(), 6);
    assert_eq!(cache.active_blocks(), 0);
}

#[test]
fn the_leaf_used_longest_ago_goes_first() {
    let mut cache = PrefixCache::new(5);
    run(&mut cache, "ab");
    run(&mut cache, "xy");
    run(&mut cache, "ab");
    assert_eq!(run(&mut cache, "pq"), (0, 1), "one block is free, one must go");
    assert_eq!(cache.lookup(&chain("xy")), 1, "the leaf of the older sequence went");
    assert_eq!(cache.lookup(&chain("ab")), 2);
}

#[test]
fn held_pages_are_never_evicted_and_full_changes_nothing() {
    let mut cache = PrefixCache::new(4);
    let mut removed = Vec::new();
    let held = chain("abc");
    let mut admission = cache.admit(&held, 0, &mut removed).unwrap();
    cache.store(&mut admission, &held);
    let full = cache.admit(&chain("xy"), 0, &mut removed);
    assert!(matches!(full, Err(CacheFull { needed: 2, available: 1 })));
    assert_eq!((cache.used_blocks(), cache.active_blocks(), removed.len()), (3, 3, 0));
    cache.release(admission);
    assert_eq!(run(&mut cache, "wxyz"), (0, 3));
}

#[test]
fn a_prefix_stored_by_both_is_stored_once() {
    let mut cache = PrefixCache::new(8);
    let mut removed = Vec::new();
    let (one, two) = (chain("abc"), chain("abd"));
    let mut first = cache.admit(&one, 1, &mut removed).unwrap();
    let mut second = cache.admit(&two, 1, &mut removed).unwrap();
    assert_eq!(cache.active_blocks(), 8, "neither knows of the other yet");
    assert_eq!(cache.store(&mut first, &one), [(None, one.clone())]);
    assert_eq!(cache.store(&mut second, &two), [(Some(two[1].engine), vec![two[2]])]);
    assert_eq!(cache.active_blocks(), 6, "four pages and two blocks for what is to come");
    cache.release(first);
    cache.release(second);
    assert_eq!((cache.used_blocks(), cache.active_blocks()), (4, 0));
}

#[test]
fn storing_stops_at_the_reservation() {
    let mut cache = PrefixCache::new(8);
    let whole = chain("abcd");
    let mut admission = cache.admit(&whole[..2], 1, &mut Vec::new()).unwrap();
    cache.store(&mut admission, &whole);
    assert_eq!((admission.held_pages(), admission.reserved_blocks()), (3, 0));
    assert_eq!(cache.lookup(&whole), 3);
    cache.release(admission);
}

#[test]
fn clearing_spares_what_is_held() {
    let mut cache = PrefixCache::new(8);
    run(&mut cache, "abx");
    let held = chain("ab");
    let admission = cache.admit(&held, 0, &mut Vec::new()).unwrap();
    assert_eq!(cache.clear_unheld(), [chain("abx")[2].engine]);
    cache.release(admission);
    assert_eq!(cache.clear_unheld().len(), 2);
    assert_eq!(cache.used_blocks(), 0);
}

/// A random history, replayed into the plainest possible model: a set of blocks with their parents.
#[test]
fn replayed_changes_give_the_resident_blocks() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut cache = PrefixCache::new(24);
        let mut model: HashMap<EngineHash, Option<EngineHash>> = HashMap::new();
        let mut running: Vec<(Admission, Vec<StoredBlock>)> = Vec::new();
        for _ in 0..600 {
            if running.len() < 3 && random.bool() {
                let sequence: String = (0..random.usize(1..7)).map(|_| random.char('a'..'c')).collect();
                let chain = chain(&sequence);
                let mut removed = Vec::new();
                if let Ok(admission) = cache.admit(&chain, random.usize(..2), &mut removed) {
                    assert_eq!(admission.held_pages() + removed.len(), {
                        for gone in &removed {
                            assert!(model.remove(gone).is_some(), "seed {seed}: removed what was not stored");
                            assert!(
                                !model.values().any(|parent| *parent == Some(*gone)),
                                "seed {seed}: an inner page went"
                            );
                        }
                        chain.iter().take_while(|page| model.contains_key(&page.engine)).count()
                            + removed.len()
                    });
                    running.push((admission, chain));
                }
            } else if !running.is_empty() {
                let (mut admission, chain) = running.swap_remove(random.usize(..running.len()));
                if random.u8(..10) < 8 {
                    for (parent, pages) in cache.store(&mut admission, &chain) {
                        let mut parent = parent;
                        for page in pages {
                            assert!(
                                parent.is_none_or(|parent| model.contains_key(&parent)),
                                "seed {seed}: an orphan"
                            );
                            assert!(model.insert(page.engine, parent).is_none(), "seed {seed}: stored twice");
                            parent = Some(page.engine);
                        }
                    }
                }
                cache.release(admission);
            }
            assert!(cache.used_blocks() <= cache.capacity(), "seed {seed}: over capacity");
            let snapshot: HashMap<EngineHash, Option<EngineHash>> = flatten(&cache);
            assert_eq!(snapshot, model, "seed {seed}");
        }
        assert!(model.len() > 4, "seed {seed}: the history stored something");
    }
}

/// The snapshot as a set, checked for order: parents before children.
fn flatten(cache: &PrefixCache) -> HashMap<EngineHash, Option<EngineHash>> {
    let mut seen = HashMap::new();
    for (mut parent, pages) in cache.snapshot() {
        for page in pages {
            assert!(parent.is_none_or(|parent| seen.contains_key(&parent)), "parents come first");
            seen.insert(page.engine, parent);
            parent = Some(page.engine);
        }
    }
    seen
}
