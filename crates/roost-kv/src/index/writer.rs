//! Changing the tree: stores and removals.

use hashbrown::HashTable;

use super::lanes::{Lane, Lanes};
use super::names::Names;
use super::run::{Block, Run, WINDOW};
use super::upkeep::Touched;
use super::view::{NONE, Place, View, mix};
use super::{Applied, IndexStats};
use crate::hash::next_sequence_hash;
use crate::{EngineHash, SequenceHash, StoredBlock, WorkerRank};

/// What only the writer needs: the engines' names, what each lane holds, and the state of a change in progress.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Runs ever allocated; those not in use are in `free`.
    allocated: u32,
    free: Vec<u32>,
    pub(super) lanes: Lanes,
    pub(super) names: Names,
    blocks: usize,
    pub(super) unheld: usize,
    /// Room for blocks in all runs.
    capacity: usize,
    skipped_events: u64,
    unknown_removed_blocks: u64,
    /// The run that is being changed and has not been brought up to date.
    pub(super) touched: Option<Touched>,
    /// Scratch space of the upkeep.
    pub(super) pending: Vec<(u32, usize, usize)>,
    hashes: Vec<SequenceHash>,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trimmed {
    Not,
    Shorter,
    Gone,
}

impl Writer {
    /// Finds the block that a rank calls `hash`, in this lane first and then in its other tiers.
    pub(super) fn find(&self, view: &View, lane: &Lane, hash: EngineHash) -> Option<Place> {
        let others = lane.rank.into_iter().filter(|&id| id != NONE && id != lane.id);
        std::iter::once(lane.id).chain(others).find_map(|id| self.names.find(view, id, hash))
    }

    /// Chains the hashes of a step of blocks and reads the places where their names are or will be.
    ///
    /// Changing a name waits for memory several times in a row. Here the waits of all blocks overlap.
    pub(super) fn approach_store(&mut self, view: &View, parent: Option<Place>, step: &[StoredBlock]) {
        let mut before = parent.map(|place| view.block(place).sequence);
        self.hashes.clear();
        for block in step {
            let hash = next_sequence_hash(before, block.local);
            self.hashes.push(hash);
            before = Some(hash);
        }
        std::hint::black_box(step.iter().filter(|block| self.names.approach(block.engine).is_some()).count());
    }

    /// Reads the places of blocks that are about to be removed, for the same reason.
    pub(super) fn approach_remove(&mut self, step: &[EngineHash]) {
        std::hint::black_box(step.iter().filter(|hash| self.names.approach(**hash).is_some()).count());
    }

    /// Adds the blocks of the step that was approached after `parent`. Returns the place of the last, or `Err` with the
    /// position of a block whose hash is taken by another prefix.
    pub(super) fn store(
        &mut self,
        view: &mut View,
        lane: &Lane,
        mut parent: Option<Place>,
        step: &[StoredBlock],
        applied: &mut Applied,
    ) -> Result<Option<Place>, usize> {
        for (position, block) in step.iter().enumerate() {
            let block = Block { sequence: self.hashes[position], name: block.engine };
            match self.store_one(view, lane, parent, (block, step.len() - position), applied) {
                Some(place) => parent = Some(place),
                None => {
                    self.settle(view);
                    return Err(position);
                }
            }
        }
        self.settle(view);
        Ok(parent)
    }

    fn store_one(
        &mut self,
        view: &mut View,
        lane: &Lane,
        parent: Option<Place>,
        (block, to_come): (Block, usize),
        applied: &mut Applied,
    ) -> Option<Place> {
        let (place, is_new, may_be_known) = match self.existing(view, parent, block)? {
            Some(place) => (place, false, true),
            None => {
                let (place, may_be_known) = self.add(view, lane, parent, (block, to_come));
                (place, true, may_be_known)
            }
        };
        let known = match may_be_known {
            true => self.names.find(view, lane.id, block.name),
            false => None,
        };
        if known == Some(place) {
            applied.duplicate += 1;
            return Some(place);
        }
        self.touch(view, place.run(), lane);
        let run = view.runs.get_mut(place.run());
        let bit = 1 << place.index();
        let held = run.held(lane.id);
        let kept = run.blocks[usize::from(place.index())].name;
        if held & bit == 0 {
            let was_unheld = is_new || run.held_by_any() & bit == 0;
            run.set_held(lane.id, held | bit);
            self.unheld -= usize::from(was_unheld);
            if was_unheld && !is_new && kept != block.name {
                // Nobody calls it by the old name.
                run.blocks[usize::from(place.index())].name = block.name;
                self.names.drop_kept(kept, place);
                self.names.keep(block.name, place);
            }
            if held == 0 {
                self.lanes.holdings(lane.id).runs.insert(place.run());
            }
        }
        if known.is_some() {
            // The engine uses the name for other content: we missed the removal of the old.
            self.remove_one(view, lane, block.name, applied);
            self.settle(view);
        }
        let kept = view.block(place).name;
        self.names.add(kept, lane.id, place, block.name, held & bit != 0);
        self.lanes.holdings(lane.id).residencies += 1;
        applied.stored += 1;
        Some(place)
    }

    /// Returns the place of a block after `parent` if there is one. The outer `None`: its hash is taken by another
    /// prefix.
    fn existing(&self, view: &View, parent: Option<Place>, block: Block) -> Option<Option<Place>> {
        if let Some(place) = parent {
            let run = view.runs.get(place.run());
            if let Some(next) = run.blocks.get(usize::from(place.index()) + 1)
                && next.sequence == block.sequence
            {
                return Some(Some(Place::new(place.run(), place.index() + 1)));
            }
            if run.first_child == NONE {
                return Some(None);
            }
        }
        if let Some(head) = view.head(block.sequence) {
            let run = view.runs.get(head);
            let follows = match parent {
                Some(place) => run.parent == place.run() && run.attached == place.index(),
                None => run.parent == NONE,
            };
            return follows.then_some(Some(Place::new(head, 0)));
        }
        Some(None)
    }

    /// Adds a block, the first of so many, after `parent`. Tells whether its name may be in use.
    fn add(
        &mut self,
        view: &mut View,
        lane: &Lane,
        parent: Option<Place>,
        (block, to_come): (Block, usize),
    ) -> (Place, bool) {
        let run = match parent {
            Some(place) if self.can_grow(view, lane, place) => place.run(),
            _ => self.add_run(view, parent, block.sequence),
        };
        let index = self.push(view, run, block, to_come);
        let place = Place::new(run, index);
        (place, self.names.keep(block.name, place))
    }

    /// Tells whether a block after `last` becomes part of its run: only the end of a run that nobody else holds grows.
    fn can_grow(&self, view: &View, lane: &Lane, last: Place) -> bool {
        let run = view.runs.get(last.run());
        last.index() + 1 == run.len()
            && !run.ends_window()
            && run.first_child == NONE
            && run.is_private(lane.id)
    }

    /// Removes a step of blocks by the engine's names.
    pub(super) fn remove(
        &mut self,
        view: &mut View,
        lane: &Lane,
        step: &[EngineHash],
        applied: &mut Applied,
    ) {
        let mut last = None;
        for &hash in step {
            // Engines drop the ends of prompts: most often it is the block before the last one.
            let before = last.filter(|place| self.names.is_kept_by(view, lane.id, *place, hash));
            let place = before.or_else(|| self.names.find(view, lane.id, hash));
            last = place.and_then(Place::before);
            match place {
                Some(place) => self.remove_at(view, lane, place, hash, applied),
                None => applied.unknown_removed += 1,
            }
        }
        self.settle(view);
    }

    fn remove_one(&mut self, view: &mut View, lane: &Lane, hash: EngineHash, applied: &mut Applied) {
        match self.names.find(view, lane.id, hash) {
            Some(place) => self.remove_at(view, lane, place, hash, applied),
            None => applied.unknown_removed += 1,
        }
    }

    fn remove_at(
        &mut self,
        view: &mut View,
        lane: &Lane,
        place: Place,
        hash: EngineHash,
        applied: &mut Applied,
    ) {
        applied.removed += 1;
        self.lanes.holdings(lane.id).residencies -= 1;
        if self.names.take(lane.id, place, hash) {
            return;
        }
        self.touch(view, place.run(), lane);
        let run = view.runs.get_mut(place.run());
        let bit = 1 << place.index();
        let left = run.held(lane.id) & !bit;
        run.set_held(lane.id, left);
        self.unheld += usize::from(run.held_by_any() & bit == 0);
        if left == 0 {
            self.lanes.holdings(lane.id).runs.remove(&place.run());
        }
    }
}

// === impl Writer: runs ===

impl Writer {
    /// Makes an empty run after `parent`.
    fn add_run(&mut self, view: &mut View, parent: Option<Place>, first: SequenceHash) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.allocated += 1;
            self.allocated - 1
        });
        let mut run = match parent {
            None => Run::new(NONE, 0, 0),
            Some(place) => {
                let start = (usize::from(view.runs.get(place.run()).start + place.index()) + 1) % WINDOW;
                Run::new(place.run(), place.index(), start as u8)
            }
        };
        if let Some(place) = parent {
            run.next = std::mem::replace(&mut view.runs.get_mut(place.run()).first_child, number);
            if run.next != NONE {
                view.runs.get_mut(run.next).previous = number;
            }
        }
        view.runs.put(number, run);
        view.heads.insert_unique(mix(first.0), number, |&run| mix(view.runs.get(run).blocks[0].sequence.0));
        number
    }

    /// Adds a block, the first of so many, at the end of a run.
    fn push(&mut self, view: &mut View, number: u32, block: Block, to_come: usize) -> u8 {
        let run = view.runs.get_mut(number);
        let index = run.len();
        if run.blocks.len() == run.blocks.capacity() {
            let before = run.blocks.capacity();
            let room = WINDOW - usize::from(run.start);
            let wanted = (before * 2).max(before + to_come).max(4);
            run.blocks.reserve_exact(wanted.min(room).saturating_sub(before).max(1));
            self.capacity += run.blocks.capacity() - before;
        }
        run.blocks.push(block);
        let ends_window = run.ends_window();
        self.blocks += 1;
        self.unheld += 1;
        if ends_window {
            let View { ends, runs, .. } = view;
            let hash = |&run: &u32| mix(runs.get(run).blocks.last().map_or(0, |last| last.sequence.0));
            ends.insert_unique(mix(block.sequence.0), number, hash);
        }
        index
    }

    /// Frees the blocks at the end of a run that nobody holds and nothing follows, and then those before the run. The
    /// credited set of a run that is left shorter is made true.
    pub(super) fn collect(&mut self, view: &mut View, mut number: u32) {
        while number != NONE {
            let parent = view.runs.get(number).parent;
            match self.trim(view, number) {
                Trimmed::Gone => number = parent,
                Trimmed::Shorter => return self.credit_all(view, number),
                Trimmed::Not => return,
            }
        }
    }

    /// Frees the blocks at the end of a run that nobody holds and nothing follows.
    pub(super) fn trim(&mut self, view: &mut View, number: u32) -> Trimmed {
        let run = view.runs.get(number);
        let mut keep = WINDOW - run.held_by_any().leading_zeros() as usize;
        let mut child = run.first_child;
        while child != NONE {
            let run = view.runs.get(child);
            keep = keep.max(usize::from(run.attached) + 1);
            child = run.next;
        }
        if keep >= run.blocks.len() {
            return Trimmed::Not;
        }
        self.truncate(view, number, keep);
        if keep > 0 {
            return Trimmed::Shorter;
        }
        self.unlink(view, number);
        Trimmed::Gone
    }

    fn truncate(&mut self, view: &mut View, number: u32, keep: usize) {
        let View { runs, ends, heads, .. } = view;
        let run = runs.get_mut(number);
        if run.ends_window()
            && let Some(last) = run.blocks.last()
            && let Ok(entry) = ends.find_entry(mix(last.sequence.0), |&other| other == number)
        {
            entry.remove();
        }
        if keep == 0
            && let Ok(entry) = heads.find_entry(mix(run.blocks[0].sequence.0), |&other| other == number)
        {
            entry.remove();
        }
        let gone = run.blocks.len() - keep;
        self.blocks -= gone;
        self.unheld -= gone;
        for (index, block) in run.blocks.iter().enumerate().skip(keep) {
            self.names.drop_kept(block.name, Place::new(number, index as u8));
        }
        run.blocks.truncate(keep);
        let before = run.blocks.capacity();
        if keep * 4 <= before {
            run.blocks.shrink_to(keep);
        }
        self.capacity -= before - run.blocks.capacity();
    }

    /// Takes a run without blocks out of the tree.
    fn unlink(&mut self, view: &mut View, number: u32) {
        let set = view.runs.get(number).credited;
        view.sets.drop_all(set);
        let Run { parent, next, previous, .. } = *view.runs.get(number);
        if next != NONE {
            view.runs.get_mut(next).previous = previous;
        }
        if previous != NONE {
            view.runs.get_mut(previous).next = next;
        } else if parent != NONE {
            view.runs.get_mut(parent).first_child = next;
        }
        view.runs.put(number, Run::new(NONE, 0, 0));
        self.free.push(number);
    }
}

// === impl Writer: sizes ===

impl Writer {
    /// Counts a store that could not be placed.
    pub(super) fn skip_event(&mut self, blocks: usize) -> Applied {
        self.skipped_events += 1;
        Applied { skipped: u32::try_from(blocks).unwrap_or(u32::MAX), ..Applied::default() }
    }

    pub(super) fn count_unknown(&mut self, blocks: u32) {
        self.unknown_removed_blocks += u64::from(blocks);
    }

    pub(super) fn rank_blocks(&self, rank: WorkerRank) -> usize {
        self.lanes.rank_blocks(rank)
    }

    /// Whether much of the memory is not in use.
    pub(super) fn is_sparse(&self) -> bool {
        self.blocks == 0 || self.names.is_sparse()
    }

    /// Gives memory back that is not in use: all of it when the tree is empty.
    pub(super) fn shrink(&mut self, view: &mut View) {
        if self.blocks == 0 {
            self.allocated = 0;
            self.free = Vec::new();
            self.names = Names::default();
            self.pending = Vec::new();
            self.lanes.shrink();
            view.heads = HashTable::new();
            view.ends = HashTable::new();
            view.runs.clear();
            return;
        }
        self.names.shrink();
        let View { heads, ends, runs, .. } = view;
        if heads.len() < heads.capacity() / 8 {
            heads.shrink_to(heads.len() * 2, |&run| mix(runs.get(run).blocks[0].sequence.0));
        }
        if ends.len() < ends.capacity() / 8 {
            let hash = |&run: &u32| mix(runs.get(run).blocks.last().map_or(0, |last| last.sequence.0));
            ends.shrink_to(ends.len() * 2, hash);
        }
    }

    pub(super) fn stats(&self, view: &View) -> IndexStats {
        let tables = (view.heads.capacity() + view.ends.capacity()) * 8 / 7 * 5 + self.free.capacity() * 4;
        let blocks = self.capacity * size_of::<Block>();
        IndexStats {
            blocks: self.blocks,
            unheld_blocks: self.unheld,
            residencies: self.lanes.residencies(),
            owners: self.lanes.owners(),
            bytes: view.runs.bytes()
                + blocks
                + tables
                + self.names.bytes()
                + self.lanes.bytes()
                + view.sets.bytes(),
            skipped_events: self.skipped_events,
            unknown_removed_blocks: self.unknown_removed_blocks,
        }
    }
}
