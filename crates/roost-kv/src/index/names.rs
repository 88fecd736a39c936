//! Which block an engine means: names to places.
//!
//! Engines that hold equal content call it by the same name nearly always. So a block keeps the name it was first
//! stored under, in its run; one table for all lanes leads from names to places, and whether a lane holds the place
//! says whether the name is the lane's. Other names are listed apart.

use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};

use super::view::{Place, View, mix};
use crate::EngineHash;

type Map<K, V> = HashMap<K, V, foldhash::fast::FixedState>;

/// The names of all lanes.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Blocks by the name they keep: part of its hash, so that the table grows without reading blocks.
    table: HashTable<(u32, Place)>,
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
        let tag = tag(name);
        let is_it = |&(other, place): &(u32, Place)| {
            other == tag
                && view.block(place).name == name
                && view.holds(lane, place)
                && self.keeps(lane, place)
        };
        self.table.find(spread(tag), is_it).map(|(_, place)| *place)
    }

    /// Tells whether a lane calls the block at this place, which exists, by the name that it keeps, and that is this one.
    pub(super) fn is_kept_by(&self, view: &View, lane: u32, place: Place, name: EngineHash) -> bool {
        self.others.is_empty()
            && view.block(place).name == name
            && view.holds(lane, place)
            && self.keeps(lane, place)
    }

    /// Reads where a name is or will be, so that it is near when it is needed.
    pub(super) fn approach(&self, name: EngineHash) -> Option<Place> {
        let tag = tag(name);
        self.table.find(spread(tag), |(other, _)| *other == tag).map(|(_, place)| *place)
    }

    /// A block was added and keeps this name. Tells whether a lane may call something else by it.
    pub(super) fn keep(&mut self, name: EngineHash, place: Place) -> bool {
        let tag = tag(name);
        let hasher = |(tag, _): &(u32, Place)| spread(*tag);
        match self.table.entry(spread(tag), |(other, _)| *other == tag, hasher) {
            Entry::Vacant(entry) => {
                entry.insert((tag, place));
                !self.others.is_empty()
            }
            Entry::Occupied(_) => {
                self.table.insert_unique(spread(tag), (tag, place), hasher);
                true
            }
        }
    }

    /// A block is gone, or will keep another name.
    pub(super) fn drop_kept(&mut self, name: EngineHash, place: Place) {
        if let Ok(entry) = self.table.find_entry(spread(tag(name)), |(_, other)| *other == place) {
            entry.remove();
        }
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
        self.table.len() < self.table.capacity() / 8
    }

    /// Gives memory back where little of it is in use.
    pub(super) fn shrink(&mut self) {
        if self.is_sparse() {
            self.table.shrink_to(self.table.len() * 2, |(tag, _)| spread(*tag));
        }
        if self.others.is_empty() {
            self.others.shrink_to_fit();
            self.counts.shrink_to_fit();
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.capacity() * 8 / 7 * 9 + self.others.capacity() * 25 + self.counts.capacity() * 17
    }

    fn keeps(&self, lane: u32, place: Place) -> bool {
        self.counts.is_empty() || self.counts.get(&(lane, place)).is_none_or(|count| count.kept)
    }
}

fn tag(name: EngineHash) -> u32 {
    (mix(name.0) >> 32) as u32
}

/// The hash of an entry, made of its tag alone.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
