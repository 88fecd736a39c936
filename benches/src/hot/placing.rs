//! Where a prompt goes: the index's answer, the decision, and the events that keep the index right.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use roost_kv::{
    BlockHash, EngineHash, Index, KvEvent, KvEventData, Overlap, OwnerOverlap, SequenceHash, StoredBlock,
    Tier, WorkerId, WorkerRank, hash,
};
use roost_router::{Config, Core, End, Mode, Request, Worker};

use super::{Runner, measured};

/// Blocks of a prompt of 100,000 tokens.
const BLOCKS: usize = 1562;
/// Blocks that all sessions begin with.
const SHARED: usize = 128;
const RANKS: u64 = 64;
/// Requests that run on each rank.
const RUNNING: u64 = 8;
/// Blocks that a worker stores at once: a prefill of 4,096 tokens.
pub(super) const EVENT_BLOCKS: u64 = 64;

fn rank(at: u64) -> WorkerRank {
    WorkerRank::new(WorkerId(at % RANKS + 1), 0)
}

/// The blocks of a session's prompt.
fn prompt(session: u64) -> (Vec<BlockHash>, Vec<SequenceHash>) {
    let content = |at: usize| match at < SHARED {
        true => at as u64,
        false => (1 + session) << 32 | at as u64,
    };
    let local: Vec<BlockHash> =
        (0..BLOCKS).map(|at| BlockHash(content(at).wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    let sequence = hash::sequence_hashes(&local);
    (local, sequence)
}

fn stored(
    rank: WorkerRank,
    local: &[BlockHash],
    sequence: &[SequenceHash],
    from: usize,
    to: usize,
) -> KvEvent {
    let blocks = (from..to).map(|at| StoredBlock { engine: EngineHash(sequence[at].0), local: local[at] });
    let parent = from.checked_sub(1).map(|before| EngineHash(sequence[before].0));
    let data = KvEventData::Stored { parent, blocks: blocks.collect() };
    KvEvent { event_id: 1, rank, tier: Tier::Device, data }
}

/// An index in which every rank has a session of its own beside the shared beginning.
fn filled() -> Index {
    let index = Index::new();
    for session in 0..RANKS {
        let (local, sequence) = prompt(session);
        index.apply(&stored(rank(session), &local, &sequence, 0, BLOCKS));
    }
    index
}

pub(super) fn lookup(_: &Path, run: Runner<'_>) -> anyhow::Result<()> {
    let index = filled();
    let prompts: Vec<_> = (0..RANKS).map(|session| prompt(session).1).collect();
    let mut call = 0;
    run(Box::new(move || {
        call += 1;
        let prompt = &prompts[call % prompts.len()];
        drop(measured(|| index.overlap(prompt)));
        Ok(())
    }))
}

pub(super) fn store(_: &Path, run: Runner<'_>) -> anyhow::Result<()> {
    let index = filled();
    let (mut session, mut at) = (RANKS, BLOCKS);
    let (mut local, mut sequence) = (Vec::new(), Vec::new());
    run(Box::new(move || {
        if at + EVENT_BLOCKS as usize > BLOCKS {
            (local, sequence) = prompt(session);
            (session, at) = (session + 1, SHARED);
        }
        let to = at + EVENT_BLOCKS as usize;
        let event = stored(rank(session), &local, &sequence, at, to);
        at = to;
        let applied = measured(|| index.apply(&event));
        anyhow::ensure!(u64::from(applied.stored) == EVENT_BLOCKS, "{applied:?}");
        Ok(())
    }))
}

pub(super) fn decision(_: &Path, run: Runner<'_>) -> anyhow::Result<()> {
    let mut core = Core::new(Config { mode: Mode::Kv, ..Config::default() }, 7)?;
    let mut now = Instant::now();
    for id in 1..=RANKS {
        core.worker_joined(now, Worker { id: WorkerId(id), ranks: 1, ..Worker::default() });
    }
    let prompts: Vec<(Arc<[SequenceHash]>, Overlap)> = (0..RANKS)
        .map(|session| {
            let owners = (0..RANKS).step_by(3).map(|at| {
                let blocks = if at == session { 1500 } else { 128 };
                OwnerOverlap::device_only(rank(at), blocks)
            });
            (prompt(session).1.into(), owners.collect())
        })
        .collect();
    let request = |call: usize| {
        let (sequence, overlap) = &prompts[call % prompts.len()];
        Request { id: Some("request"), ..Request::new(100_000, 64, sequence, overlap) }
    };
    let mut running = Vec::new();
    for call in 0..(RANKS * RUNNING) as usize {
        let placement = core.place(now, &request(call)).map_err(|refused| anyhow::anyhow!("{refused:?}"))?;
        core.first_token(now, placement.booking);
        running.push(placement.booking);
    }
    let mut call = 0;
    run(Box::new(move || {
        now += Duration::from_micros(50);
        call += 1;
        let request = request(call);
        let slot = call % running.len();
        let placement = measured(|| {
            let placement = core.place(now, &request).ok()?;
            core.first_token(now, placement.booking);
            core.finish(now, running[slot], End::Ok);
            Some(placement)
        });
        running[slot] = anyhow::Context::context(placement, "a worker for every request")?.booking;
        Ok(())
    }))
}
