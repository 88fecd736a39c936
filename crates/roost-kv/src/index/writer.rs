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
        self.names.reserve(step.len());
        let mut before = parent.map(|place| view.block(place).sequence);
        self.hashes.clear();
        for block in step {
            let hash = next_sequence_hash(before, block.local);
            self.hashes.push(hash);
            before = Some(hash);
        }
        std::hint::black_box(step.iter().filter(|block| self.names.approach(block.engine)).count());
    }

    /// Reads the places of blocks that are about to be removed, for the same reason.
    pub(super) fn approach_remove(&mut self, step: &[EngineHash]) {
        std::hint::black_box(step.iter().filter(|hash| self.names.approach(**hash)).count());
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
        let mut position = 0;
        while let Some(block) = step.get(position) {
            let block = Block { sequence: self.hashes[position], name: block.engine };
            match self.existing(view, parent, block) {
                Some(Some(place)) => {
                    self.hold(view, lane, place, block.name, applied);
                    parent = Some(place);
                    position += 1;
                }
                Some(None) => {
                    let run = match parent {
                        Some(place) if self.can_grow(view, lane, place) => place.run(),
                        _ => self.add_run(view, parent, block.sequence),
                    };
                    let added = self.append(view, lane, run, (step, position), applied);
                    parent = Some(Place::new(run, view.runs.get(run).len() - 1));
                    position += added;
                }
                None => {
                    self.settle(view);
                    return Err(position);
                }
            }
        }
        self.settle(view);
        Ok(parent)
    }

    /// A lane holds a block that somebody holds, held, or has just added, and calls it by this name.
    fn hold(&mut self, view: &mut View, lane: &Lane, place: Place, name: EngineHash, applied: &mut Applied) {
        let known = self.names.find(view, lane.id, name);
        if known == Some(place) {
            applied.duplicate += 1;
            return;
        }
        self.touch(view, place.run(), lane);
        let run = view.runs.get_mut(place.run());
        let bit = 1 << place.index();
        let held = run.held(lane.id);
        let kept = run.blocks[usize::from(place.index())].name;
        if held & bit == 0 {
            let was_unheld = run.held_by_any() & bit == 0;
            run.set_held(lane.id, held | bit);
            self.unheld -= usize::from(was_unheld);
            if was_unheld && kept != name {
                // Nobody calls it by the old name.
                run.blocks[usize::from(place.index())].name = name;
                self.names.drop_kept(kept, place);
                self.names.keep(name, place);
            }
            if held == 0 {
                self.lanes.holdings(lane.id).runs.insert(place.run());
            }
        }
        if let Some(old) = known {
            // The engine uses the name for other content: we missed the removal of the old.
            self.remove_at(view, lane, old, name, applied);
            self.settle(view);
        }
        let kept = view.block(place).name;
        self.names.add(kept, lane.id, place, name, held & bit != 0);
        self.lanes.holdings(lane.id).residencies += 1;
        applied.stored += 1;
    }

    /// Adds blocks of a step from a position on, of which none exists, at the end of a run that nobody but the lane holds:
    /// as many as the window has room for. Returns how many.
    fn append(
        &mut self,
        view: &mut View,
        lane: &Lane,
        number: u32,
        (step, position): (&[StoredBlock], usize),
        applied: &mut Applied,
    ) -> usize {
        let first = view.runs.get(number).len();
        let room = WINDOW - usize::from(view.runs.get(number).start + first);
        let step = &step[position..(position + room).min(step.len())];
        self.reserve(view, number, step.len());
        let mut added = 0;
        let mut in_doubt = None;
        for block in step {
            let index = first + added as u8;
            let run = view.runs.get_mut(number);
            run.blocks.push(Block { sequence: self.hashes[position + added], name: block.engine });
            added += 1;
            if self.names.keep(block.engine, Place::new(number, index)) {
                in_doubt = Some(block.engine);
                break;
            }
        }
        self.blocks += added;
        self.unheld += added;
        if view.runs.get(number).ends_window() {
            let View { ends, runs, .. } = view;
            let last = |run: u32| runs.get(run).blocks.last().map_or(0, |last| last.sequence.0);
            ends.insert_unique(mix(last(number)), number, |&run| mix(last(run)));
        }
        // What the lane may call something else already comes last, by itself.
        let certain = added - usize::from(in_doubt.is_some());
        if certain > 0 {
            self.touch(view, number, lane);
            let run = view.runs.get_mut(number);
            let held = run.held(lane.id);
            run.set_held(lane.id, held | bits(first, certain));
            self.unheld -= certain;
            let holdings = self.lanes.holdings(lane.id);
            holdings.residencies += certain;
            if held == 0 {
                holdings.runs.insert(number);
            }
            applied.stored += certain as u32;
        }
        if let Some(name) = in_doubt {
            self.hold(view, lane, Place::new(number, first + certain as u8), name, applied);
        }
        added
    }

    /// Makes room for so many blocks more.
    fn reserve(&mut self, view: &mut View, number: u32, more: usize) {
        let run = view.runs.get_mut(number);
        let before = run.blocks.capacity();
        let needed = run.blocks.len() + more;
        if needed > before {
            let room = WINDOW - usize::from(run.start);
            run.blocks.reserve_exact((before * 2).max(needed).max(4).min(room) - run.blocks.len());
            self.capacity += run.blocks.capacity() - before;
        }
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
        let mut last: Option<Place> = None;
        let mut position = 0;
        while let Some(&hash) = step.get(position) {
            // Engines drop the ends of prompts: most often it is the block before the last one.
            let before = last.filter(|place| self.names.is_kept_by(view, lane.id, *place, hash));
            let Some(place) = before.or_else(|| self.names.find(view, lane.id, hash)) else {
                applied.unknown_removed += 1;
                last = None;
                position += 1;
                continue;
            };
            let count = self.names.kept_in_a_row(view, lane.id, place, &step[position..]).max(1);
            match count {
                1 => self.remove_at(view, lane, place, hash, applied),
                _ => self.remove_row(view, lane, place, count, applied),
            }
            last = (usize::from(place.index()) >= count)
                .then(|| Place::new(place.run(), place.index() - count as u8));
            position += count;
        }
        self.settle(view);
    }

    /// Removes so many blocks, `last` and those before it, which the lane calls by their own names alone.
    fn remove_row(&mut self, view: &mut View, lane: &Lane, last: Place, count: usize, applied: &mut Applied) {
        applied.removed += count as u32;
        self.touch(view, last.run(), lane);
        let run = view.runs.get_mut(last.run());
        let row = bits(last.index() + 1 - count as u8, count);
        let left = run.held(lane.id) & !row;
        run.set_held(lane.id, left);
        self.unheld += (row & !run.held_by_any()).count_ones() as usize;
        let holdings = self.lanes.holdings(lane.id);
        holdings.residencies -= count;
        if left == 0 {
            holdings.runs.remove(&last.run());
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

/// So many bits from `first` on.
fn bits(first: u8, count: usize) -> u32 {
    (u32::MAX >> (WINDOW - count)) << first
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
