//! A prefix cache: the block used longest ago goes first, the end of a prompt before its beginning.

use hashbrown::HashMap;
use roost_kv::SequenceHash;

#[cfg(test)]
mod tests;

const NONE: u32 = u32::MAX;

/// Blocks of one rank, in order of their last use.
#[derive(Debug)]
pub(super) struct Cache {
    capacity: usize,
    by_hash: HashMap<SequenceHash, u32, foldhash::fast::FixedState>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Used last.
    newest: u32,
    /// Used longest ago.
    oldest: u32,
    /// Blocks that running requests use.
    pinned: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: SequenceHash,
    /// Requests that use it now.
    users: u32,
    newer: u32,
    older: u32,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            by_hash: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            pinned: 0,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn pinned(&self) -> usize {
        self.pinned
    }

    /// Returns how many leading blocks of a prompt are cached. A block is cached only with all before it.
    pub(super) fn matched(&self, prompt: &[SequenceHash]) -> u32 {
        prompt.partition_point(|block| self.by_hash.contains_key(block)) as u32
    }

    /// Puts a prompt's blocks in, as used last and by one more request, and returns those that had to go for it.
    /// `reserved` blocks of the capacity are not for the cache.
    pub(super) fn take(&mut self, prompt: &[SequenceHash], reserved: usize) -> Vec<SequenceHash> {
        // The beginning last: it is the newest, and the end goes before it.
        for &hash in prompt.iter().rev() {
            let slot = match self.by_hash.get(&hash) {
                Some(&slot) => {
                    self.unlink(slot);
                    slot
                }
                None => self.add(hash),
            };
            self.link(slot);
            self.slots[slot as usize].users += 1;
            self.pinned += usize::from(self.slots[slot as usize].users == 1);
        }
        let mut evicted = Vec::new();
        let mut candidate = self.oldest;
        while self.by_hash.len().saturating_add(reserved) > self.capacity && candidate != NONE {
            let Slot { hash, users, newer, .. } = self.slots[candidate as usize];
            if users == 0 {
                self.unlink(candidate);
                self.by_hash.remove(&hash);
                self.free.push(candidate);
                evicted.push(hash);
            }
            candidate = newer;
        }
        evicted
    }

    /// A request no longer uses its prompt's blocks.
    pub(super) fn give_back(&mut self, prompt: &[SequenceHash]) {
        for hash in prompt {
            if let Some(&slot) = self.by_hash.get(hash) {
                let users = &mut self.slots[slot as usize].users;
                *users -= 1;
                self.pinned -= usize::from(*users == 0);
            }
        }
    }

    fn add(&mut self, hash: SequenceHash) -> u32 {
        let slot = Slot { hash, users: 0, newer: NONE, older: NONE };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.by_hash.insert(hash, index);
        index
    }

    fn link(&mut self, slot: u32) {
        self.slots[slot as usize].older = self.newest;
        self.slots[slot as usize].newer = NONE;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.slots[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }
}
