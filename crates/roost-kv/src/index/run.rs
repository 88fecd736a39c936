//! A run of blocks, who holds which of them, and how far each rank is credited in it.

use smallvec::SmallVec;

use super::sets::{EMPTY, SetId};
use super::view::NONE;
use crate::{EngineHash, SequenceHash, Tier};

/// Blocks of a window. Prompts are cut into windows of so many blocks and a run stays within one, so that the end of
/// every window is the end of a run: the places that a lookup can jump to.
pub(super) const WINDOW: usize = 32;

/// Number of tiers.
pub(super) const TIERS: usize = Tier::ALL.len();

/// The state of a rank that misses a block: no tier covers it.
pub(super) const UNCOVERED: usize = TIERS;

/// One block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) sequence: SequenceHash,
    /// What the engine that stored it first calls it.
    pub(super) name: EngineHash,
}

/// Consecutive blocks of one window, without a branch before the last unless a run says so in `attached`.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) blocks: Vec<Block>,
    /// Sorted by lane; none without a block.
    holders: SmallVec<[Holder; 1]>,
    /// The lanes that cover the last block and all before it, one a rank: the tier that does.
    pub(super) credited: SetId,
    pub(super) parent: u32,
    pub(super) first_child: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Position of the first block in its window.
    pub(super) start: u8,
    /// Position in the parent of the block before the first.
    pub(super) attached: u8,
}

/// The blocks of a run that one lane holds, a bit each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) lane: u32,
    pub(super) blocks: u32,
}

/// How far a rank covers a run, in blocks: by each tier and the nearer ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    pub(super) reach: [u8; TIERS],
}

// === impl Run ===

impl Run {
    pub(super) fn new(parent: u32, attached: u8, start: u8) -> Self {
        Self {
            blocks: Vec::new(),
            holders: SmallVec::new(),
            credited: EMPTY,
            parent,
            first_child: NONE,
            next: NONE,
            previous: NONE,
            start,
            attached,
        }
    }

    pub(super) fn len(&self) -> u8 {
        self.blocks.len() as u8
    }

    /// Whether its last block is the last of the window.
    pub(super) fn ends_window(&self) -> bool {
        usize::from(self.start) + self.blocks.len() == WINDOW
    }

    /// Whether nobody but `lane` holds any of it.
    pub(super) fn is_private(&self, lane: u32) -> bool {
        self.holders.iter().all(|holder| holder.lane == lane)
    }

    pub(super) fn holders(&self) -> &[Holder] {
        &self.holders
    }

    /// The blocks that a lane holds, a bit each.
    pub(super) fn held(&self, lane: u32) -> u32 {
        match self.holders.as_slice() {
            [only] => {
                if only.lane == lane {
                    only.blocks
                } else {
                    0
                }
            }
            holders => match holders.binary_search_by_key(&lane, |holder| holder.lane) {
                Ok(at) => holders[at].blocks,
                Err(_) => 0,
            },
        }
    }

    /// The blocks that each tier of a rank holds.
    pub(super) fn held_by_tier(&self, rank: &[u32; TIERS]) -> [u32; TIERS] {
        rank.map(|lane| if lane == NONE { 0 } else { self.held(lane) })
    }

    /// The blocks that any lane holds.
    pub(super) fn held_by_any(&self) -> u32 {
        self.holders.iter().fold(0, |all, holder| all | holder.blocks)
    }

    /// Sets the blocks that a lane holds.
    pub(super) fn set_held(&mut self, lane: u32, blocks: u32) {
        match self.holders.binary_search_by_key(&lane, |holder| holder.lane) {
            Ok(at) if blocks == 0 => {
                self.holders.remove(at);
                if self.holders.len() <= 1 {
                    self.holders.shrink_to_fit();
                }
            }
            Ok(at) => self.holders[at].blocks = blocks,
            Err(_) if blocks == 0 => {}
            Err(at) => self.holders.insert(at, Holder { lane, blocks }),
        }
    }

    /// How many leading blocks are those of a prompt.
    pub(super) fn matched(&self, prompt: &[SequenceHash]) -> usize {
        let length = self.blocks.len().min(prompt.len());
        // Equal hashes mean equal prefixes: the last one tells for all.
        if length > 0 && self.blocks[length - 1].sequence == prompt[length - 1] {
            return length;
        }
        let pairs = self.blocks.iter().zip(prompt);
        pairs.take_while(|(block, hash)| block.sequence == **hash).count()
    }
}

// === impl Coverage ===

impl Coverage {
    /// Of a rank that comes into the run covered by tier `entry`. A tier goes on where the same or a nearer one stopped.
    pub(super) fn of(entry: usize, held: [u32; TIERS]) -> Self {
        let mut reach = [0; TIERS];
        let mut at = 0_u32;
        for tier in entry..TIERS {
            at += (u64::from(held[tier]) >> at).trailing_ones();
            reach[tier] = at as u8;
        }
        Self { reach }
    }

    /// The tier that covers the block before block `blocks` of a run that was come into with `entry`.
    pub(super) fn tier_after(&self, entry: usize, blocks: u8) -> usize {
        match blocks {
            0 => entry,
            _ => self.reach.iter().position(|reach| *reach >= blocks).unwrap_or(UNCOVERED),
        }
    }
}
