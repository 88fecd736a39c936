use serde_json::Value;

use super::*;
use crate::fixtures::{array, hash, hashes, load, uint};
use crate::hash::sequence_hashes;
use crate::{BlockHash, EngineHash, OwnerOverlap, Tier};

mod properties;

fn rank(worker: u64, dp_rank: u32) -> WorkerRank {
    WorkerRank::new(WorkerId(worker), dp_rank)
}

fn event(rank: WorkerRank, tier: Tier, data: KvEventData) -> KvEvent {
    KvEvent { event_id: 1, rank, tier, data }
}

/// A store of blocks whose engine and local hashes are given.
fn stored(rank: WorkerRank, tier: Tier, parent: Option<u64>, blocks: &[(u64, u64)]) -> KvEvent {
    let block =
        |&(engine, local): &(u64, u64)| StoredBlock { engine: EngineHash(engine), local: BlockHash(local) };
    let blocks = blocks.iter().map(block).collect();
    event(rank, tier, KvEventData::Stored { parent: parent.map(EngineHash), blocks })
}

fn removed(rank: WorkerRank, tier: Tier, blocks: &[u64]) -> KvEvent {
    event(rank, tier, KvEventData::Removed { blocks: blocks.iter().copied().map(EngineHash).collect() })
}

fn prompt(locals: &[u64]) -> Vec<SequenceHash> {
    sequence_hashes(&locals.iter().copied().map(BlockHash).collect::<Vec<_>>())
}

/// Reads one step of the peer's traces, other than a query.
fn step_of(step: &Value) -> KvEvent {
    let rank = rank(step["worker"].as_u64().unwrap(), uint(&step["dp_rank"]));
    let data = match step["op"].as_str().unwrap() {
        "stored" => KvEventData::Stored {
            parent: (!step["parent"].is_null()).then(|| EngineHash(hash(&step["parent"]))),
            blocks: array(&step["blocks"])
                .iter()
                .map(|block| StoredBlock {
                    engine: EngineHash(hash(&block["block_hash"])),
                    local: BlockHash(hash(&block["tokens_hash"])),
                })
                .collect(),
        },
        "removed" => KvEventData::Removed { blocks: hashes(&step["block_hashes"], EngineHash) },
        "cleared" => KvEventData::Cleared,
        other => panic!("unknown step {other}"),
    };
    event(rank, Tier::Device, data)
}

fn owners(expected: &Value) -> Overlap {
    let owner = |owner: &Value| {
        let rank = rank(owner["worker"].as_u64().unwrap(), uint(&owner["dp_rank"]));
        OwnerOverlap::device_only(rank, uint(&owner["blocks"]))
    };
    array(expected).iter().map(owner).collect()
}

/// Replays a trace and returns the number of queries compared.
fn replay(trace: &Value) -> usize {
    let index = Index::new();
    let mut queries = 0;
    for step in array(&trace["steps"]) {
        match step["op"].as_str().unwrap() {
            "worker_removed" => _ = index.remove_worker(WorkerId(step["worker"].as_u64().unwrap())),
            "query" => {
                queries += 1;
                // The exact answer: that of the reference by definition where the peers disagree.
                let exact = step["peers_differ"].get("kv_index_reference").unwrap_or(&step["expect"]);
                let prompt = sequence_hashes(&hashes(&step["locals"], BlockHash));
                assert_eq!(index.overlap(&prompt), owners(exact), "query {queries} of {}", trace["name"]);
            }
            _ => _ = index.apply(&step_of(step)),
        }
    }
    queries
}

#[test]
fn hand_made_scenarios_are_exact() {
    let traces = load("routing/overlap_events.json");
    assert_eq!(array(&traces["scenarios"]).len(), 17);
    assert!(array(&traces["scenarios"]).iter().map(replay).sum::<usize>() > 17);
}

#[test]
fn random_engines_are_exact() {
    let traces = load("routing/overlap_events.json");
    assert!(array(&traces["random"]).iter().map(replay).sum::<usize>() > 100);
}

#[test]
fn tiers_extend_each_other_as_in_the_peer() {
    let cases = load("routing/tiers.json");
    let length = u64::from(uint(&cases["query_blocks"]));
    for case in array(&cases["cases"]) {
        let index = Index::new();
        for range in array(&case["stored"]) {
            let rank = rank(range["worker"].as_u64().unwrap(), uint(&range["dp_rank"]));
            let tier = match range["tier"].as_str().unwrap() {
                "Device" => Tier::Device,
                "HostPinned" => Tier::Host,
                "Disk" => Tier::Disk,
                "External" => Tier::External,
                other => panic!("unknown tier {other}"),
            };
            let (first, end) = (range["first_block"].as_u64().unwrap(), range["end_block"].as_u64().unwrap());
            // Block `i` has engine hash 100 + i and local hash 500 + i.
            let blocks: Vec<_> = (first..end).map(|block| (100 + block, 500 + block)).collect();
            index.apply(&stored(rank, tier, first.checked_sub(1).map(|parent| 100 + parent), &blocks));
        }
        let overlap = index.overlap(&prompt(&(500..500 + length).collect::<Vec<_>>()));
        for expected in array(&case["expect"]) {
            let owner = overlap.get(rank(expected["worker"].as_u64().unwrap(), 0));
            let name = &case["name"];
            assert_eq!(owner.device, uint(&expected["device_blocks"]), "device of {name}");
            assert_eq!(owner.host, uint(&expected["host_extension_blocks"]), "host of {name}");
            // The peer counts the external store as disk.
            assert_eq!(
                owner.disk + owner.external,
                uint(&expected["disk_extension_blocks"]),
                "disk of {name}"
            );
        }
        assert_eq!(overlap.owners().len(), array(&case["expect"]).len());
    }
}

#[test]
fn a_removal_goes_on_after_an_unknown_block() {
    // C-KV-03.
    let index = Index::new();
    let (a, b) = (rank(1, 0), rank(2, 0));
    index.apply(&stored(a, Tier::Device, None, &[(1, 1), (2, 2), (3, 3)]));
    index.apply(&stored(b, Tier::Device, None, &[(1, 1), (2, 2)]));
    let applied = index.apply(&removed(a, Tier::Device, &[9, 3, 2]));
    assert_eq!(applied, Applied { removed: 2, unknown_removed: 1, ..Applied::default() });
    let overlap = index.overlap(&prompt(&[1, 2, 3]));
    assert_eq!((overlap.get(a).device, overlap.get(b).device), (1, 2));
    index.apply(&event(a, Tier::Device, KvEventData::Cleared));
    let overlap = index.overlap(&prompt(&[1, 2, 3]));
    assert_eq!((overlap.get(a).device, overlap.get(b).device), (0, 2));
    assert_eq!(index.stats().unknown_removed_blocks, 1);
}

#[test]
fn clearing_a_rank_leaves_its_sibling_and_takes_all_tiers() {
    let index = Index::new();
    index.apply(&stored(rank(1, 0), Tier::Device, None, &[(1, 1)]));
    index.apply(&stored(rank(1, 0), Tier::Host, None, &[(1, 1), (2, 2)]));
    index.apply(&stored(rank(1, 1), Tier::Device, None, &[(1, 1)]));
    index.apply(&event(rank(1, 0), Tier::Device, KvEventData::Cleared));
    assert_eq!(index.overlap(&prompt(&[1, 2])), Overlap::new(vec![OwnerOverlap::device_only(rank(1, 1), 1)]));
    assert_eq!(index.rank_blocks(rank(1, 0)), 0);
}

#[test]
fn an_unknown_parent_is_skipped_and_counted() {
    let index = Index::new();
    let applied = index.apply(&stored(rank(1, 0), Tier::Device, Some(7), &[(8, 8), (9, 9)]));
    assert_eq!(applied, Applied { skipped: 2, ..Applied::default() });
    let applied = index.apply(&stored(rank(1, 0), Tier::Device, Some(8), &[(8, 8)]));
    assert_eq!(applied.skipped, 1, "a block cannot follow itself");
    assert_eq!((index.stats().skipped_events, index.stats().blocks), (2, 0));
}

#[test]
fn a_host_block_may_follow_a_device_block() {
    let index = Index::new();
    let owner = rank(1, 0);
    index.apply(&stored(owner, Tier::Device, None, &[(1, 1), (2, 2)]));
    index.apply(&stored(owner, Tier::Host, Some(2), &[(3, 3)]));
    assert_eq!(
        index.overlap(&prompt(&[1, 2, 3])).get(owner),
        OwnerOverlap { host: 1, ..OwnerOverlap::device_only(owner, 2) }
    );
    // Without the device blocks there is a hole before it.
    index.apply(&removed(owner, Tier::Device, &[1]));
    assert!(index.overlap(&prompt(&[1, 2, 3])).is_empty());
    index.apply(&stored(owner, Tier::Host, None, &[(1, 1), (2, 2)]));
    assert_eq!(index.overlap(&prompt(&[1, 2, 3])).get(owner).host, 3);
}

/// The rank comes to the end of the first window, but in another tier than it began.
#[test]
fn a_tier_that_goes_on_within_the_first_window_is_told_apart() {
    let index = Index::new();
    let owner = rank(1, 0);
    let blocks: Vec<(u64, u64)> = (1..=40).map(|block| (block, block)).collect();
    index.apply(&stored(owner, Tier::Device, None, &blocks[..10]));
    index.apply(&stored(owner, Tier::Host, Some(10), &blocks[10..]));
    let contents: Vec<u64> = (1..=40).collect();
    for length in [12, 32, 33, 40] {
        let expected = OwnerOverlap { host: length as u32 - 10, ..OwnerOverlap::device_only(owner, 10) };
        assert_eq!(index.overlap(&prompt(&contents[..length])).get(owner), expected, "{length} blocks");
    }
}

#[test]
fn one_content_under_two_names_is_held_until_both_are_removed() {
    let index = Index::new();
    let owner = rank(1, 0);
    index.apply(&stored(owner, Tier::Device, None, &[(1, 5)]));
    index.apply(&stored(owner, Tier::Device, None, &[(2, 5)]));
    index.apply(&removed(owner, Tier::Device, &[1]));
    assert_eq!(index.overlap(&prompt(&[5])).get(owner).device, 1);
    index.apply(&removed(owner, Tier::Device, &[2]));
    assert!(index.overlap(&prompt(&[5])).is_empty());
    assert_eq!(index.stats().blocks, 0);
}

#[test]
fn a_name_stored_again_with_other_content_replaces_the_old() {
    let index = Index::new();
    let owner = rank(1, 0);
    index.apply(&stored(owner, Tier::Device, None, &[(1, 5)]));
    index.apply(&stored(owner, Tier::Device, None, &[(1, 6)]));
    assert!(index.overlap(&prompt(&[5])).is_empty());
    assert_eq!(index.overlap(&prompt(&[6])).get(owner).device, 1);
}

#[test]
fn memory_follows_what_is_resident() {
    let index = Index::new();
    let (owner, chain) = (rank(1, 0), 64);
    let mut peak = 0;
    for round in 0..400_u64 {
        let blocks: Vec<_> = (0..chain)
            .map(|block| if block < 8 { (block, block) } else { (round * 100 + block, round * 100 + block) })
            .collect();
        index.apply(&stored(owner, Tier::Device, None, &blocks));
        let old: Vec<u64> = (8..chain).rev().map(|block| round.saturating_sub(4) * 100 + block).collect();
        if round >= 4 {
            index.apply(&removed(owner, Tier::Device, &old));
        }
        let stats = index.stats();
        assert_eq!(stats.blocks, stats.residencies);
        if round == 40 {
            peak = stats.bytes;
        }
    }
    let bytes = index.stats().bytes;
    assert!(bytes <= peak * 6 / 5, "{bytes} bytes after {peak}");
    assert_eq!(index.remove_worker(WorkerId(1)), 8 + 4 * 56);
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.residencies, stats.owners, stats.unheld_blocks), (0, 0, 0, 0));
    assert!(stats.bytes < 4096, "{} bytes left", stats.bytes);
}

#[test]
fn a_residency_costs_at_most_40_bytes() {
    let index = Index::new();
    let (workers, sessions, shared, own) = (16, 64, 128_u64, 896_u64);
    for session in 0..sessions {
        let block = |i: u64| if i < shared { i } else { (session + 1) << 20 | i };
        let blocks: Vec<_> = (0..shared + own).map(|i| (block(i), block(i))).collect();
        index.apply(&stored(rank(session % workers, 0), Tier::Device, None, &blocks));
    }
    let stats = index.stats();
    assert_eq!(stats.residencies as u64, workers * shared + sessions * own);
    let each = stats.bytes / stats.residencies;
    assert!(each <= 40, "{each} bytes");
}

#[test]
fn readers_see_a_prefix_while_a_writer_works() {
    let index = Index::new();
    let owner = rank(1, 0);
    let blocks: Vec<_> = (0..1000_u64).map(|block| (block, block + 10_000)).collect();
    let chain = prompt(&blocks.iter().map(|block| block.1).collect::<Vec<_>>());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50 {
                index.apply(&stored(owner, Tier::Device, None, &blocks));
                index.apply(&event(owner, Tier::Device, KvEventData::Cleared));
            }
            index.apply(&stored(owner, Tier::Device, None, &blocks));
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            assert!(index.overlap(&chain).get(owner).device <= 1000);
        }
    });
    assert_eq!(index.overlap(&chain).get(owner).device, 1000);
}
