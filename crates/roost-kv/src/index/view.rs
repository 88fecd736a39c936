//! What lookups read: the runs of blocks, the tables that lead to them, and who an owner is.

use hashbrown::HashTable;

use super::run::{Block, Coverage, Run, TIERS, UNCOVERED, WINDOW};
use super::sets::Sets;
use super::slab::Slab;
use crate::{SequenceHash, Tier, WorkerRank};

/// The part of the index shared between the writer and lookups.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) runs: Slab<Run>,
    /// Runs by the hash of their first block.
    pub(super) heads: HashTable<u32>,
    /// Runs that end a window, by the hash of their last block.
    pub(super) ends: HashTable<u32>,
    pub(super) sets: Sets,
    /// Owner per lane; `None` while its blocks are being dropped.
    pub(super) owners: Vec<Option<Owner>>,
}

/// One owner in one tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) rank: WorkerRank,
    pub(super) tier: Tier,
    /// Lanes of the rank by tier, [`NONE`] where it has none.
    pub(super) lanes: [u32; TIERS],
}

/// No run, no lane.
pub(super) const NONE: u32 = u32::MAX;

/// A block's place: its run, and its position there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place(u32);

impl Place {
    /// No place.
    pub(super) const NOWHERE: Self = Self(NONE);

    pub(super) fn new(run: u32, index: u8) -> Self {
        debug_assert!(run < NONE >> WINDOW.ilog2(), "a run takes memory; there are fewer than 2^27");
        Self(run << WINDOW.ilog2() | u32::from(index))
    }

    pub(super) fn run(self) -> u32 {
        self.0 >> WINDOW.ilog2()
    }

    pub(super) fn index(self) -> u8 {
        (self.0 as usize % WINDOW) as u8
    }
}

impl View {
    /// The run that begins with this block.
    pub(super) fn head(&self, hash: SequenceHash) -> Option<u32> {
        self.heads.find(mix(hash.0), |&run| self.runs.get(run).blocks[0].sequence == hash).copied()
    }

    /// The run that ends a window with this block.
    pub(super) fn end(&self, hash: SequenceHash) -> Option<&Run> {
        let is_it = |&run: &u32| self.runs.get(run).blocks.last().is_some_and(|last| last.sequence == hash);
        self.ends.find(mix(hash.0), is_it).map(|&run| self.runs.get(run))
    }

    pub(super) fn block(&self, place: Place) -> Block {
        self.runs.get(place.run()).blocks[usize::from(place.index())]
    }

    /// Tells whether a lane holds a block.
    pub(super) fn holds(&self, lane: u32, place: Place) -> bool {
        self.runs.get(place.run()).held(lane) >> place.index() & 1 == 1
    }

    /// The tier of a rank that covers the block before a run and all before that; the nearest at the start of a prompt.
    pub(super) fn entry(&self, run: u32, rank: &[u32; TIERS]) -> usize {
        let Run { parent, attached, .. } = *self.runs.get(run);
        if parent == NONE {
            return 0;
        }
        let before = self.runs.get(parent);
        if attached + 1 == before.len() {
            let credited = |&lane: &u32| lane != NONE && self.sets.contains(before.credited, lane);
            return rank.iter().position(credited).unwrap_or(UNCOVERED);
        }
        let entry = self.entry(parent, rank);
        Coverage::of(entry, before.held_by_tier(rank)).tier_after(entry, attached + 1)
    }
}

/// Spreads a hash or small number over 64 bits. Hashes are good already, small numbers are not.
pub(super) fn mix(value: u64) -> u64 {
    let wide = u128::from(value ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xD6E8_FEB8_6659_FD93_u64);
    (wide >> 64) as u64 ^ wide as u64
}
