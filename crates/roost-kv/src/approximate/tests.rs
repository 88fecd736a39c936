use super::*;
use crate::BlockHash;
use crate::hash::sequence_hashes;

const TTL: Duration = Duration::from_secs(120);

fn rank(worker: u64) -> WorkerRank {
    WorkerRank::new(WorkerId(worker), 0)
}

fn prompt(blocks: std::ops::Range<u64>) -> Vec<SequenceHash> {
    sequence_hashes(&blocks.map(BlockHash).collect::<Vec<_>>())
}

fn lengths(overlap: &Overlap) -> Vec<(u64, u32)> {
    overlap.owners().iter().map(|owner| (owner.rank.worker.0, owner.device)).collect()
}

#[test]
fn a_routed_prompt_is_remembered_until_it_expires() {
    let start = Instant::now();
    let index = ApproximateIndex::new(TTL, 1000, start);
    index.record(start, rank(1), &prompt(0..4));
    index.record(start, rank(2), &prompt(0..2));
    assert_eq!(lengths(&index.overlap(start, &prompt(0..6))), [(1, 4), (2, 2)]);
    let late = start + TTL - Duration::from_millis(1);
    assert_eq!(lengths(&index.overlap(late, &prompt(0..6))), [(1, 4), (2, 2)]);
    assert!(index.overlap(start + TTL, &prompt(0..6)).is_empty());
    assert_eq!(index.expire(start + TTL), 6);
    assert!(index.is_empty());
}

#[test]
fn use_renews_the_part_that_was_used() {
    let start = Instant::now();
    let index = ApproximateIndex::new(TTL, 1000, start);
    index.record(start, rank(1), &prompt(0..4));
    let later = start + Duration::from_secs(60);
    index.record(later, rank(1), &prompt(0..2));
    index.expire(start + TTL);
    assert_eq!(index.len(), 2);
    assert_eq!(lengths(&index.overlap(start + TTL, &prompt(0..4))), [(1, 2)]);
    index.expire(later + TTL);
    assert!(index.is_empty());
}

#[test]
fn deadlines_are_rounded_up_to_a_tick() {
    let start = Instant::now();
    let index = ApproximateIndex::new(TTL, 1000, start);
    index.record(start + Duration::from_millis(30), rank(1), &prompt(0..1));
    let end = start + TTL + Duration::from_millis(99);
    assert_eq!(lengths(&index.overlap(end, &prompt(0..1))), [(1, 1)]);
    assert!(index.overlap(end + Duration::from_millis(1), &prompt(0..1)).is_empty());
}

#[test]
fn a_full_index_drops_what_expires_first() {
    let start = Instant::now();
    let index = ApproximateIndex::new(TTL, 5, start);
    index.record(start, rank(1), &prompt(0..3));
    index.record(start + Duration::from_secs(1), rank(1), &prompt(100..104));
    assert_eq!(index.len(), 5);
    assert_eq!(lengths(&index.overlap(start, &prompt(100..104))), [(1, 4)]);
}

#[test]
fn a_full_index_of_renewed_entries_still_shrinks() {
    let start = Instant::now();
    let index = ApproximateIndex::new(TTL, 4, start);
    index.record(start, rank(1), &prompt(0..4));
    index.record(start + Duration::from_secs(1), rank(1), &prompt(0..4));
    index.record(start + Duration::from_secs(2), rank(1), &prompt(0..8));
    assert_eq!(index.len(), 4);
}

#[test]
fn a_worker_that_left_is_forgotten() {
    let start = Instant::now();
    let index = ApproximateIndex::new(TTL, 1000, start);
    index.record(start, rank(1), &prompt(0..4));
    index.record(start, rank(2), &prompt(0..4));
    index.remove_worker(WorkerId(1));
    assert_eq!(lengths(&index.overlap(start, &prompt(0..4))), [(2, 4)]);
    index.remove_rank(rank(2));
    assert!(index.is_empty());
    assert_eq!(index.expire(start + TTL), 0);
}
