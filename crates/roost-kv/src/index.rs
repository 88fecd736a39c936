//! Which rank holds which blocks, exactly, from the workers' events.
//!
//! Every block is known by its sequence hash, so equal prefixes are one place whatever the engines call them. Blocks
//! are kept in runs of up to a window of 32; who holds which of a run's blocks is a bit mask per owner. A run also has
//! the set of owners that are *credited* with its end, because they hold it and everything before it. The credited sets
//! shrink monotonically along a prompt, which is what lets a lookup search the ends of windows for the few places where
//! they change instead of visiting every block.
//!
//! One writer at a time changes the tree, in short steps; lookups run between the steps.

use parking_lot::Mutex;

use crate::{KvEvent, KvEventData, Overlap, SequenceHash, StoredBlock, WorkerId, WorkerRank};
use gate::Gate;
use lanes::Lane;
use view::Place;
use writer::Writer;

mod gate;
mod lanes;
mod lookup;
mod names;
#[cfg(test)]
mod oracle;
mod pairs;
mod run;
mod sets;
mod slab;
#[cfg(test)]
mod tests;
mod upkeep;
mod view;
mod writer;

/// Blocks changed in one step. Bounds how long a lookup waits for a large event.
const STEP_BLOCKS: u32 = 64;

/// Runs given up in one step.
const STEP_RUNS: u32 = 16;

/// The exact prefix index of one model.
///
/// Memory is proportional to what is resident now: a block that nobody holds is kept only while a held
/// block follows it. Shareable between threads; all methods are synchronous and short.
#[derive(Debug, Default)]
pub struct Index {
    /// Held for a whole change, so that two events never interleave.
    writer: Mutex<Writer>,
    /// What lookups read. The writer takes it for one step at a time.
    view: Gate,
}

/// What an event changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Blocks that became held.
    pub stored: u32,
    /// Stored blocks that were held already under the same name.
    pub duplicate: u32,
    /// Stored blocks that could not be placed: the block before them is unknown, or is among them.
    pub skipped: u32,
    /// Blocks that are no longer held.
    pub removed: u32,
    /// Removed blocks that were not known.
    pub unknown_removed: u32,
}

/// Size and history of an [`Index`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// Distinct blocks.
    pub blocks: usize,
    /// Distinct blocks that nobody holds, kept because a held block follows them.
    pub unheld_blocks: usize,
    /// Blocks held, counted once per owner, tier and engine name.
    pub residencies: usize,
    /// Owners known, counted once per tier.
    pub owners: usize,
    /// Memory in use, bytes (estimated from capacities).
    pub bytes: usize,
    /// Stored events skipped because of their parent, ever.
    pub skipped_events: u64,
    /// Removals of unknown blocks, ever.
    pub unknown_removed_blocks: u64,
}

impl Index {
    /// Creates an empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies one event. Events of one rank must come in the engine's order.
    ///
    /// A store after an unknown block changes nothing and is counted; an unknown removal is skipped and
    /// the rest of its event applied. A name that is stored again with other content replaces the old.
    pub fn apply(&self, event: &KvEvent) -> Applied {
        let mut writer = self.writer.lock();
        match &event.data {
            KvEventData::Stored { parent, blocks } => {
                let lane = writer.lanes.lane(&mut self.view.write(), event.rank, event.tier);
                let parent = match *parent {
                    None => Some(None),
                    Some(hash) if blocks.iter().any(|block| block.engine == hash) => None,
                    Some(hash) => writer.find(&self.view.read(), &lane, hash).map(Some),
                };
                match parent {
                    Some(parent) => self.store(&mut writer, &lane, parent, blocks),
                    None => writer.skip_event(blocks.len()),
                }
            }
            KvEventData::Removed { blocks } => {
                let mut applied = Applied::default();
                if let Some(lane) = writer.lanes.known(event.rank, event.tier) {
                    for step in blocks.chunks(STEP_BLOCKS as usize) {
                        writer.approach_remove(step);
                        writer.remove(&mut self.view.write(), &lane, step, &mut applied);
                    }
                } else {
                    applied.unknown_removed = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
                }
                writer.count_unknown(applied.unknown_removed);
                self.shrink(&mut writer);
                applied
            }
            KvEventData::Cleared => {
                Applied { removed: self.drop_rank(&mut writer, event.rank), ..Applied::default() }
            }
        }
    }

    /// Forgets everything about one rank, in all tiers. Returns the number of blocks it held.
    pub fn remove_rank(&self, rank: WorkerRank) -> u32 {
        self.drop_rank(&mut self.writer.lock(), rank)
    }

    /// Forgets everything about a worker. Returns the number of blocks its ranks held.
    pub fn remove_worker(&self, worker: WorkerId) -> u32 {
        let mut writer = self.writer.lock();
        let ranks = writer.lanes.ranks_of(worker);
        ranks.into_iter().map(|rank| self.drop_rank(&mut writer, rank)).sum()
    }

    /// Returns for each rank how many leading blocks of the prompt it holds.
    pub fn overlap(&self, prompt: &[SequenceHash]) -> Overlap {
        lookup::overlap(&self.view.read(), prompt)
    }

    /// Returns the number of blocks a rank holds, over all tiers.
    pub fn rank_blocks(&self, rank: WorkerRank) -> usize {
        self.writer.lock().rank_blocks(rank)
    }

    /// Returns size and history. Cost: a few additions per owner.
    pub fn stats(&self) -> IndexStats {
        let writer = self.writer.lock();
        writer.stats(&self.view.read())
    }

    fn store(
        &self,
        writer: &mut Writer,
        lane: &Lane,
        mut parent: Option<Place>,
        blocks: &[StoredBlock],
    ) -> Applied {
        let mut applied = Applied::default();
        let mut steps = blocks.chunks(STEP_BLOCKS as usize);
        for step in &mut steps {
            // The only writer reads without holding up lookups.
            writer.approach_store(&self.view.read(), parent, step);
            match writer.store(&mut self.view.write(), lane, parent, step, &mut applied) {
                Ok(last) => parent = last,
                Err(position) => {
                    let left = step.len() - position + steps.map(<[_]>::len).sum::<usize>();
                    applied.skipped += writer.skip_event(left).skipped;
                    return applied;
                }
            }
        }
        applied
    }

    fn drop_rank(&self, writer: &mut Writer, rank: WorkerRank) -> u32 {
        let Some(mut doomed) = writer.lanes.detach(&mut self.view.write(), rank) else { return 0 };
        while writer.release(&mut self.view.write(), &mut doomed, STEP_RUNS) {}
        let removed = u32::try_from(doomed.residencies).unwrap_or(u32::MAX);
        writer.lanes.retire(doomed);
        self.shrink(writer);
        removed
    }

    fn shrink(&self, writer: &mut Writer) {
        if writer.is_sparse() {
            writer.shrink(&mut self.view.write());
        }
    }
}
