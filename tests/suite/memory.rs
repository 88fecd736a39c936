//! C-KV-07: what the router remembers is bounded by what is there now, not by what ever was.
//!
//! The process is measured from outside, by its resident set, so that what the index thinks of itself does not count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use roost_kv::hash::sequence_hashes;
use roost_kv::{
    BlockHash, EngineHash, Index, KvEvent, KvEventData, Overlap, SequenceHash, StoredBlock, Tier, WorkerId,
    WorkerRank,
};
use roost_router::{Config, Core, End, Mode, Request, Worker};

const SHARED: u64 = 8;
const CHAIN: u64 = 64;
/// Chains resident at a time: 10,000 blocks with the shared ones.
const RESIDENT: u64 = (10_000 - SHARED) / (CHAIN - SHARED);

/// Resident set, KiB.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn rank() -> WorkerRank {
    WorkerRank::new(WorkerId(1), 0)
}

fn event(data: KvEventData) -> KvEvent {
    KvEvent { event_id: 1, rank: rank(), tier: Tier::Device, data }
}

fn name(chain: u64, block: u64) -> u64 {
    if block < SHARED { block + 1 } else { (chain + 1) << 8 | block }
}

/// Stores one chain more and removes the one that has been there longest.
fn turn_over(index: &Index, chain: u64) {
    let block = |block| {
        let name = name(chain, block);
        StoredBlock { engine: EngineHash(name), local: BlockHash(name.wrapping_mul(0x9E37_79B9_7F4A_7C15)) }
    };
    let blocks = (0..CHAIN).map(block).collect();
    index.apply(&event(KvEventData::Stored { parent: None, blocks }));
    if let Some(old) = chain.checked_sub(RESIDENT) {
        let blocks = (SHARED..CHAIN).rev().map(|block| EngineHash(name(old, block))).collect();
        index.apply(&event(KvEventData::Removed { blocks }));
    }
}

#[test]
fn c_kv_07_the_index_does_not_grow_with_what_it_has_seen() -> Result<()> {
    let index = Index::new();
    let chains = |blocks: u64| blocks / (CHAIN - SHARED);
    (0..chains(100_000)).for_each(|chain| turn_over(&index, chain));
    let warm = resident()?;
    (chains(100_000)..chains(2_000_000)).for_each(|chain| turn_over(&index, chain));
    let end = resident()?;
    assert!(end * 5 <= warm * 6, "{end} KiB after {warm}");
    let stats = index.stats();
    assert_eq!(stats.blocks as u64, SHARED + RESIDENT * (CHAIN - SHARED), "what is resident, no more");
    assert_eq!(stats.blocks, stats.residencies);
    index.remove_worker(WorkerId(1));
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.residencies, stats.owners), (0, 0, 0));
    assert!(stats.bytes < 4096, "{} bytes left", stats.bytes);
    Ok(())
}

/// Workers that come, fill their caches and leave need no more memory than the first of them: the allocator has got all
/// of it back, whether or not it passes it on to the system.
#[test]
fn c_kv_07_a_worker_that_leaves_makes_room_for_the_next() -> Result<()> {
    let index = Index::new();
    let before = resident()?;
    let mut full = 0;
    for worker in 0..5 {
        for chain in 0..5_000 {
            let blocks = (0..CHAIN).map(|block| {
                let name = (worker * 5_000 + chain + 1) << 8 | block;
                StoredBlock {
                    engine: EngineHash(name),
                    local: BlockHash(name.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
                }
            });
            let data = KvEventData::Stored { parent: None, blocks: blocks.collect() };
            let rank = WorkerRank::new(WorkerId(worker), 0);
            index.apply(&KvEvent { event_id: 1, rank, tier: Tier::Device, data });
        }
        let now = resident()?;
        if worker < 2 {
            // Warm-up: an allocator may keep large tables elsewhere until it has seen the first one given back.
            full = now;
            assert!(full > before + 8_000, "320,000 blocks are {} KiB", full - before);
        }
        assert!(now * 5 <= full * 6, "{now} KiB with the blocks of worker {worker}, {full} after warm-up");
        index.remove_worker(WorkerId(worker));
        let stats = index.stats();
        assert_eq!((stats.blocks, stats.residencies, stats.owners), (0, 0, 0));
        assert!(stats.bytes < 4096, "{} bytes left", stats.bytes);
    }
    Ok(())
}

#[test]
fn c_kv_07_requests_and_those_given_up_leave_nothing() -> Result<()> {
    let mut config = Config { mode: Mode::Kv, ..Config::default() };
    config.affinity.ttl = Some(Duration::from_secs(60));
    let mut core = Core::new(config, 1)?;
    let mut now = Instant::now();
    for id in 1..=2 {
        core.worker_joined(now, Worker { id: WorkerId(id), ..Worker::default() });
    }
    let overlap = Overlap::default();
    let mut request = |number: u64| -> Result<()> {
        now += Duration::from_millis(100);
        let blocks: Vec<BlockHash> = (0..125).map(|block| BlockHash(number << 8 | block)).collect();
        let sequence: Arc<[SequenceHash]> = sequence_hashes(&blocks).into();
        let session = format!("s{number}");
        let asked = Request {
            id: Some(&session),
            session: Some(&session),
            ..Request::new(8000, 64, &sequence, &overlap)
        };
        let placed = core.place(now, &asked)?;
        if number.is_multiple_of(10) {
            core.finish(now, placed.booking, End::Cancelled);
        } else {
            core.first_token(now, placed.booking);
            core.finish(now, placed.booking, End::Ok);
        }
        core.expire(now);
        Ok(())
    };
    // The record of the latest 4096 decisions fills first.
    (0..5_000).try_for_each(&mut request)?;
    let warm = resident()?;
    (5_000..25_000).try_for_each(&mut request)?;
    let end = resident()?;
    assert!(end * 5 <= warm * 6, "{end} KiB after {warm}");
    now += Duration::from_secs(61);
    core.expire(now);
    let snapshot = core.snapshot(now);
    assert_eq!((snapshot.active_requests, snapshot.bindings), (0, 0));
    assert!(snapshot.ranks.iter().all(|rank| (rank.active_blocks, rank.prefill_tokens) == (0, 0)));
    Ok(())
}
