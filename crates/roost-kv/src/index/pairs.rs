//! A table from short tags to places, in which many places may have one tag.
//!
//! Entries lie in the order of their hashes in one array of pairs, each as near behind its own position as there is
//! room. So a look-up reads one line of memory, and growing copies from front to back.

use super::view::Place;

/// An entry, eight bytes.
type Pair = (u32, Place);

const EMPTY: Pair = (0, Place::NOWHERE);

/// At most so many of eight slots are in use: beyond, the way from an entry's own position to a free slot grows fast.
const FULL: usize = 6;

/// The table.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    slots: Vec<Pair>,
    len: usize,
}

impl Pairs {
    /// Finds a place with this tag for which `is_it` holds.
    pub(super) fn find(&self, tag: u32, is_it: impl FnMut(Place) -> bool) -> Option<Place> {
        self.find_slot(tag, is_it).map(|slot| self.slots[slot].1)
    }

    /// Reads where a tag is or will be.
    pub(super) fn approach(&self, tag: u32) -> bool {
        self.slots.get(self.home(tag)).is_some_and(|pair| pair.0 == tag)
    }

    /// Adds an entry. Tells whether there was one with this tag.
    pub(super) fn add(&mut self, tag: u32, place: Place) -> bool {
        self.reserve(1);
        let mut slot = self.home(tag);
        let mut known = false;
        while self.slots[slot] != EMPTY {
            known |= self.slots[slot].0 == tag;
            slot = self.after(slot);
        }
        self.slots[slot] = (tag, place);
        self.len += 1;
        known
    }

    /// Takes an entry out, if it is there.
    pub(super) fn remove(&mut self, tag: u32, place: Place) {
        let Some(mut hole) = self.find_slot(tag, |other| other == place) else { return };
        self.len -= 1;
        // Those behind it move up as far as their own positions allow.
        let mut slot = hole;
        loop {
            slot = self.after(slot);
            let pair = self.slots[slot];
            if pair == EMPTY {
                break;
            }
            if self.distance(self.home(pair.0), slot) >= self.distance(hole, slot) {
                self.slots[hole] = pair;
                hole = slot;
            }
        }
        self.slots[hole] = EMPTY;
    }

    /// Makes room for so many more, so that adding them does not take the time to.
    pub(super) fn reserve(&mut self, more: usize) {
        let wanted = self.len + more;
        if wanted * 8 > self.slots.len() * FULL {
            self.resize((self.slots.len() * 3 / 2).max(wanted * 8 / FULL + 1).max(16));
        }
    }

    /// Whether little of its memory is in use.
    pub(super) fn is_sparse(&self) -> bool {
        self.len < self.slots.len() / 8
    }

    /// Gives back what is not needed soon.
    pub(super) fn shrink(&mut self) {
        self.resize(if self.len == 0 { 0 } else { (self.len * 2).max(16) });
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Pair>()
    }

    fn resize(&mut self, size: usize) {
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; size]);
        for pair in old.into_iter().filter(|pair| *pair != EMPTY) {
            let mut slot = self.home(pair.0);
            while self.slots[slot] != EMPTY {
                slot = self.after(slot);
            }
            self.slots[slot] = pair;
        }
    }

    fn find_slot(&self, tag: u32, mut is_it: impl FnMut(Place) -> bool) -> Option<usize> {
        let mut slot = self.home(tag);
        loop {
            let pair = *self.slots.get(slot)?;
            if pair == EMPTY {
                return None;
            }
            if pair.0 == tag && is_it(pair.1) {
                return Some(slot);
            }
            slot = self.after(slot);
        }
    }

    /// The position of a tag: equal parts of all hashes to all slots, in order.
    fn home(&self, tag: u32) -> usize {
        let spread = u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(spread) * self.slots.len() as u128) >> 64) as usize
    }

    fn after(&self, slot: usize) -> usize {
        match slot + 1 {
            end if end == self.slots.len() => 0,
            next => next,
        }
    }

    /// Steps from one slot to a later one, round the end.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Against a plain map of lists, with few tags, so that ways from positions to slots get long and go round the end.
    #[test]
    fn as_a_map_of_lists() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut pairs, mut lists) = (Pairs::default(), HashMap::<u32, Vec<Place>>::new());
            // Tags whose positions are in the last slots of any size, and others.
            let tags: Vec<u32> = (0..u32::MAX)
                .step_by(7919)
                .filter(|tag| u64::from(*tag).wrapping_mul(0x9E37_79B9_7F4A_7C15) > u64::MAX / 16 * 15)
                .take(20)
                .chain((0..40).map(|_| random.u32(..)))
                .collect();
            for step in 0..4000_u32 {
                let tag = *random.choice(&tags).expect("there are some");
                let list = lists.entry(tag).or_default();
                match random.u8(..100) {
                    0..=47 => {
                        let known = pairs.add(tag, Place::new(step, 0));
                        assert_eq!(known, !list.is_empty());
                        list.push(Place::new(step, 0));
                    }
                    48..=94 => {
                        if !list.is_empty() {
                            let place = list.swap_remove(random.usize(..list.len()));
                            pairs.remove(tag, place);
                        }
                        pairs.remove(tag, Place::new(1 << 20, 0));
                    }
                    _ => pairs.shrink(),
                }
                let mut found = Vec::new();
                pairs.find(tag, |place| {
                    found.push(place);
                    false
                });
                let mut expected = list.clone();
                found.sort_by_key(|place| place.run());
                expected.sort_by_key(|place| place.run());
                assert_eq!(found, expected, "seed {seed}, step {step}");
                assert_eq!(pairs.len, lists.values().map(Vec::len).sum::<usize>());
            }
        }
    }
}
