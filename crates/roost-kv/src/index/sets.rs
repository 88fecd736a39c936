//! Interned owner sets: equal sets have equal ids, so a run of blocks with the same owners costs one set.

use hashbrown::HashTable;

use super::view::mix;

/// Name of an interned set.
pub(super) type SetId = u32;

/// The set without owners. Never freed.
pub(super) const EMPTY: SetId = 0;

/// All owner sets in use, reference counted.
#[derive(Debug)]
pub(super) struct Sets {
    entries: Vec<Entry>,
    free: Vec<SetId>,
    by_content: HashTable<SetId>,
    /// The last change made: consecutive blocks of an event make the same one. Never out of date, as only a
    /// change frees a set or gives its id to another, and each change is remembered here in its turn.
    last: Option<(SetId, u32, SetId)>,
}

#[derive(Debug)]
struct Entry {
    /// Sorted.
    lanes: Box<[u32]>,
    /// Exclusive or of the lanes' hashes, so that one lane more or less is one operation.
    hash: u64,
    refs: u32,
}

impl Default for Sets {
    fn default() -> Self {
        let empty = Entry { lanes: Box::default(), hash: 0, refs: 1 };
        let mut by_content = HashTable::new();
        by_content.insert_unique(0, EMPTY, |_| 0);
        Self { entries: vec![empty], free: Vec::new(), by_content, last: None }
    }
}

impl Sets {
    /// Returns the lanes of a set, sorted.
    pub(super) fn lanes(&self, set: SetId) -> &[u32] {
        &self.entries[set as usize].lanes
    }

    pub(super) fn contains(&self, set: SetId, lane: u32) -> bool {
        match self.lanes(set) {
            [] => false,
            [only] => *only == lane,
            lanes => lanes.binary_search(&lane).is_ok(),
        }
    }

    /// Exchanges a reference to `set` for one to `set` with `lane` added, or removed if it was a member.
    pub(super) fn toggle(&mut self, set: SetId, lane: u32) -> SetId {
        let toggled = match self.last {
            Some((from, by, to)) if from == set && by == lane => to,
            _ => self.find_or_insert(set, lane),
        };
        self.last = Some((set, lane, toggled));
        if toggled != EMPTY {
            self.entries[toggled as usize].refs += 1;
        }
        self.release(set);
        toggled
    }

    /// Gives a reference to `set` up.
    pub(super) fn drop_all(&mut self, set: SetId) {
        self.last = None;
        self.release(set);
    }

    /// Number of distinct sets, the empty one included.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn bytes(&self) -> usize {
        let lanes: usize = self.entries.iter().map(|entry| size_of_val(&*entry.lanes)).sum();
        lanes + self.entries.capacity() * size_of::<Entry>() + self.by_content.capacity() * 8
    }

    /// Gives back one reference; the last one frees the set.
    fn release(&mut self, set: SetId) {
        if set == EMPTY {
            return;
        }
        let entry = &mut self.entries[set as usize];
        entry.refs -= 1;
        if entry.refs > 0 {
            return;
        }
        let hash = entry.hash;
        entry.lanes = Box::default();
        if let Ok(found) = self.by_content.find_entry(hash, |&id| id == set) {
            found.remove();
        }
        self.free.push(set);
    }

    fn find_or_insert(&mut self, set: SetId, lane: u32) -> SetId {
        let base = &self.entries[set as usize];
        let hash = base.hash ^ mix(u64::from(lane) + 1);
        let position = base.lanes.binary_search(&lane);
        let same = |id: &SetId| {
            let other = &self.entries[*id as usize];
            other.hash == hash && is_toggled(&base.lanes, position, lane, &other.lanes)
        };
        if let Some(&found) = self.by_content.find(hash, same) {
            return found;
        }
        let mut lanes = base.lanes.to_vec();
        match position {
            Ok(at) => _ = lanes.remove(at),
            Err(at) => lanes.insert(at, lane),
        }
        let entry = Entry { lanes: lanes.into(), hash, refs: 0 };
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = entry;
                id
            }
            None => {
                self.entries.push(entry);
                SetId::try_from(self.entries.len() - 1)
                    .expect("a set needs memory; there are fewer than 2^32")
            }
        };
        self.by_content.insert_unique(hash, id, |&id| self.entries[id as usize].hash);
        id
    }
}

/// Tells whether `other` is `base` with `lane` toggled, `position` being where it is or belongs.
fn is_toggled(base: &[u32], position: Result<usize, usize>, lane: u32, other: &[u32]) -> bool {
    match position {
        Ok(at) => other.len() + 1 == base.len() && other[..at] == base[..at] && other[at..] == base[at + 1..],
        Err(at) => {
            other.len() == base.len() + 1
                && other[at] == lane
                && other[..at] == base[..at]
                && other[at + 1..] == base[at..]
        }
    }
}
