//! Which block an engine means: names to places.
//!
//! Engines that hold equal content call it by the same name nearly always. So a block keeps the name it was first
//! stored under, in its run; one table for all lanes leads from names to places, and whether a lane holds the place
//! says whether the name is the lane's. Other names are listed apart.

use hashbrown::HashMap;

use super::pairs::Pairs;
use super::view::{Place, View, mix};
use crate::EngineHash;

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// The names of all lanes.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Blocks by part of the hash of the name they keep.
    table: Pairs,
    /// Names that a block does not keep, by lane.
    others: Map<(u32, EngineHash), Place>,
    /// Blocks for which a lane has such names.
    counts: Map<(u32, Place), Count>,
}

/// The names by which a lane calls one block.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// Whether the one that the block keeps is among them.
    kept: bool,
    others: u32,
}

impl Names {
    /// Finds the block that a lane calls by this name.
    pub(super) fn find(&self, view: &View, lane: u32, name: EngineHash) -> Option<Place> {
        if !self.others.is_empty()
            && let Some(&place) = self.others.get(&(lane, name))
        {
            return Some(place);
        }
        let is_it =
            |place| view.block(place).name == name && view.holds(lane, place) && self.keeps(lane, place);
        self.table.find(tag(name), is_it)
    }

    /// Tells whether a lane calls the block at this place, which exists, by the name that it keeps, and that is this one.
    pub(super) fn is_kept_by(&self, view: &View, lane: u32, place: Place, name: EngineHash) -> bool {
        self.others.is_empty()
            && view.block(place).name == name
            && view.holds(lane, place)
            && self.keeps(lane, place)
    }

    /// Counts how many of these names, in this order, a lane uses for the block at this place and those before it in its
    /// run, if it uses no other names for any.
    pub(super) fn kept_in_a_row(&self, view: &View, lane: u32, last: Place, names: &[EngineHash]) -> usize {
        if !self.others.is_empty() || !self.counts.is_empty() {
            return 0;
        }
        let run = view.runs.get(last.run());
        let held = run.held(lane);
        let end = usize::from(last.index()) + 1;
        let blocks = run.blocks[..end].iter().enumerate().rev().zip(names);
        blocks.take_while(|((at, block), name)| block.name == **name && held >> at & 1 == 1).count()
    }

    /// Reads where a name is or will be, so that it is near when it is needed.
    pub(super) fn approach(&self, name: EngineHash) -> bool {
        self.table.approach(tag(name))
    }

    /// Makes room for the names of so many more blocks.
    pub(super) fn reserve(&mut self, more: usize) {
        self.table.reserve(more);
    }

    /// A block was added and keeps this name. Tells whether a lane may call something else by it.
    pub(super) fn keep(&mut self, name: EngineHash, place: Place) -> bool {
        self.table.add(tag(name), place) || !self.others.is_empty()
    }

    /// A block is gone, or will keep another name.
    pub(super) fn drop_kept(&mut self, name: EngineHash, place: Place) {
        self.table.remove(tag(name), place);
    }

    /// A lane that `held` the block before or not calls it by a name that is not among its names for it yet.
    pub(super) fn add(&mut self, kept: EngineHash, lane: u32, place: Place, name: EngineHash, held: bool) {
        if name == kept {
            if let Some(count) = self.counts.get_mut(&(lane, place)) {
                count.kept = true;
            }
            return;
        }
        self.others.insert((lane, name), place);
        self.counts.entry((lane, place)).or_insert(Count { kept: held, others: 0 }).others += 1;
    }

    /// A lane gives a name up. Tells whether it has another one for the block.
    pub(super) fn take(&mut self, lane: u32, place: Place, name: EngineHash) -> bool {
        if self.counts.is_empty() {
            return false;
        }
        let is_other = self.others.remove(&(lane, name)).is_some();
        let Some(count) = self.counts.get_mut(&(lane, place)) else { return false };
        match is_other {
            true => count.others -= 1,
            false => count.kept = false,
        }
        let left = *count;
        if left.others == 0 {
            self.counts.remove(&(lane, place));
        }
        left.kept || left.others > 0
    }

    /// A lane gives all its names up.
    pub(super) fn forget(&mut self, lane: u32) {
        if !self.counts.is_empty() {
            self.others.retain(|(other, _), _| *other != lane);
            self.counts.retain(|(other, _), _| *other != lane);
        }
    }

    pub(super) fn is_sparse(&self) -> bool {
        self.table.is_sparse()
    }

    /// Gives memory back where little of it is in use.
    pub(super) fn shrink(&mut self) {
        if self.is_sparse() {
            self.table.shrink();
        }
        if self.others.is_empty() {
            self.others.shrink_to_fit();
            self.counts.shrink_to_fit();
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.bytes() + self.others.capacity() * 25 + self.counts.capacity() * 17
    }

    fn keeps(&self, lane: u32, place: Place) -> bool {
        self.counts.is_empty() || self.counts.get(&(lane, place)).is_none_or(|count| count.kept)
    }
}

fn tag(name: EngineHash) -> u32 {
    (mix(name.0) >> 32) as u32
}
