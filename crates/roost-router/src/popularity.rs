//! How many sessions began with the same cached prefix.
//!
//! A prefix that many sessions share (a system prompt) is recomputed once per worker when sessions are
//! spread, a private one (a conversation taken up again) every time. The two look the same in a single
//! lookup; what tells them apart is that first turns keep ending their match at the same block.

use roost_kv::SequenceHash;

/// Prefixes remembered. A power of two.
const SLOTS: usize = 1024;

/// Counts of first turns by the last block of their longest match. Bounded; forgets rare ones first.
#[derive(Debug)]
pub(crate) struct Popularity {
    slots: Vec<(SequenceHash, u32)>,
}

impl Default for Popularity {
    fn default() -> Self {
        Self { slots: vec![(SequenceHash::default(), 0); SLOTS] }
    }
}

impl Popularity {
    /// Returns how many first turns before had their match end at `block`.
    pub(crate) fn of(&self, block: SequenceHash) -> u32 {
        let (known, count) = self.slots[slot(block)];
        if known == block { count } else { 0 }
    }

    /// Counts one. A different prefix in the same place is worn down before it is replaced.
    pub(crate) fn count(&mut self, block: SequenceHash) {
        let (known, count) = &mut self.slots[slot(block)];
        if *known == block {
            *count = count.saturating_add(1);
        } else if *count <= 1 {
            (*known, *count) = (block, 1);
        } else {
            *count -= 1;
        }
    }
}

fn slot(block: SequenceHash) -> usize {
    block.0 as usize & (SLOTS - 1)
}
