//! A guess at what workers hold, from where prompts were routed: for workers that report no events.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::{Overlap, OwnerOverlap, SequenceHash, WorkerId, WorkerRank};

#[cfg(test)]
mod tests;

/// Deadlines are rounded up to this, so that blocks that expire together are stored together.
const TICK: Duration = Duration::from_millis(100);

/// Prompts by where they were routed, each remembered for a fixed time after its last use.
///
/// Bounded: beyond the capacity the entries that expire first are dropped. Shareable between threads.
#[derive(Debug)]
pub struct ApproximateIndex {
    ttl: Duration,
    capacity: usize,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Owners of a block and the tick at which each expires.
    blocks: HashMap<SequenceHash, Vec<Held>, foldhash::fast::FixedState>,
    /// Every entry of `blocks` once, at a tick no later than its own. Renewal does not move it.
    due: BTreeMap<u64, Vec<(SequenceHash, WorkerRank)>>,
    entries: usize,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    rank: WorkerRank,
    expires: u64,
}

impl ApproximateIndex {
    /// Creates an empty index whose entries live `ttl` after their last use.
    ///
    /// `capacity` bounds the number of (block, rank) entries; `now` is any moment before first use.
    pub fn new(ttl: Duration, capacity: usize, now: Instant) -> Self {
        Self { ttl, capacity: capacity.max(1), start: now, state: Mutex::default() }
    }

    /// Remembers that `rank` was given the prompt, and so will hold it. Renews what it already held.
    pub fn record(&self, now: Instant, rank: WorkerRank, prompt: &[SequenceHash]) {
        let expires = self.tick(now + self.ttl, true);
        let state = &mut *self.state.lock();
        state.expire(self.tick(now, false));
        for &block in prompt {
            let owners = state.blocks.entry(block).or_default();
            if let Some(held) = owners.iter_mut().find(|held| held.rank == rank) {
                held.expires = held.expires.max(expires);
                continue;
            }
            owners.push(Held { rank, expires });
            state.due.entry(expires).or_default().push((block, rank));
            state.entries += 1;
        }
        while state.entries > self.capacity && state.drop_next() {}
    }

    /// Returns for each rank how many leading blocks of the prompt it should still hold.
    ///
    /// Use of a block is use of all before it, so what a rank holds ends at one place, found by halving. Only
    /// a full index that drops entries before their time can have gaps; they may be credited.
    pub fn overlap(&self, now: Instant, prompt: &[SequenceHash]) -> Overlap {
        let now = self.tick(now, false);
        let state = self.state.lock();
        let owners = |block: &SequenceHash| {
            state.blocks.get(block).into_iter().flatten().filter(move |held| held.expires > now)
        };
        let first = prompt.first().into_iter().flat_map(&owners);
        let length = |rank| prompt.partition_point(|block| owners(block).any(|held| held.rank == rank));
        let entry = |held: &Held| {
            OwnerOverlap::device_only(held.rank, u32::try_from(length(held.rank)).unwrap_or(u32::MAX))
        };
        first.map(entry).collect()
    }

    /// Frees what has expired. Returns the number of entries freed.
    pub fn expire(&self, now: Instant) -> usize {
        let mut state = self.state.lock();
        let before = state.entries;
        state.expire(self.tick(now, false));
        before - state.entries
    }

    /// Forgets everything about a worker.
    pub fn remove_worker(&self, worker: WorkerId) {
        self.state.lock().retain(|rank| rank.worker != worker);
    }

    /// Forgets everything about one rank.
    pub fn remove_rank(&self, rank: WorkerRank) {
        self.state.lock().retain(|other| other != rank);
    }

    /// Returns the number of (block, rank) entries, expired ones not yet freed included.
    pub fn len(&self) -> usize {
        self.state.lock().entries
    }

    /// Tells whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn tick(&self, at: Instant, round_up: bool) -> u64 {
        let ticks = at.saturating_duration_since(self.start).as_nanos();
        let tick = TICK.as_nanos();
        let ticks = if round_up { ticks.div_ceil(tick) } else { ticks / tick };
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

impl State {
    /// Frees every entry whose tick has come.
    fn expire(&mut self, now: u64) {
        while self.due.first_key_value().is_some_and(|(&tick, _)| tick <= now) {
            let Some((_, due)) = self.due.pop_first() else { return };
            for (block, rank) in due {
                self.settle(block, rank, now);
            }
        }
    }

    /// Drops the entry that is due first, whether expired or not. False if there is none.
    fn drop_next(&mut self) -> bool {
        let Some(mut first) = self.due.first_entry() else { return false };
        let tick = *first.key();
        let next = first.get_mut().pop();
        if first.get().is_empty() {
            first.remove();
        }
        if let Some((block, rank)) = next {
            self.settle(block, rank, tick);
        }
        true
    }

    /// Frees an entry that expires no later than `now`; a renewed one is put off.
    fn settle(&mut self, block: SequenceHash, rank: WorkerRank, now: u64) {
        let Some(owners) = self.blocks.get_mut(&block) else { return };
        let Some(index) = owners.iter().position(|held| held.rank == rank) else { return };
        let expires = owners[index].expires;
        if expires > now {
            self.due.entry(expires).or_default().push((block, rank));
            return;
        }
        owners.swap_remove(index);
        if owners.is_empty() {
            self.blocks.remove(&block);
        }
        self.entries -= 1;
    }

    fn retain(&mut self, keep: impl Fn(WorkerRank) -> bool) {
        let mut entries = 0;
        self.blocks.retain(|_, owners| {
            owners.retain(|held| keep(held.rank));
            entries += owners.len();
            !owners.is_empty()
        });
        self.due.retain(|_, due| {
            due.retain(|(_, rank)| keep(*rank));
            !due.is_empty()
        });
        self.entries = entries;
        if entries == 0 {
            *self = Self::default();
        }
    }
}
