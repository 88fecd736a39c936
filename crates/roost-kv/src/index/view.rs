//! What lookups read: the table of blocks, their credited owners, and who an owner is.

use hashbrown::HashTable;

use super::sets::{EMPTY, SetId, Sets};
use super::slab::Slab;
use crate::{SequenceHash, Tier, WorkerRank};

/// The part of the index shared between the writer and lookups.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Nodes by sequence hash.
    pub(super) table: HashTable<u32>,
    pub(super) nodes: Slab<Node>,
    pub(super) sets: Sets,
    /// Owner per lane; `None` while its blocks are being dropped.
    pub(super) owners: Vec<Option<(WorkerRank, Tier)>>,
}

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// One block and its place in the tree. Half a cache line, never across two: what a lookup or a change needs
/// of a block costs one access to memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Node {
    pub(super) sequence: SequenceHash,
    /// Owners that hold the block and all before it.
    pub(super) credited: SetId,
    /// Owners that hold the block.
    pub(super) held: SetId,
    pub(super) parent: u32,
    pub(super) first_child: u32,
    pub(super) next: u32,
    pub(super) previous: u32,
}

impl View {
    pub(super) fn node(&self, hash: SequenceHash) -> Option<u32> {
        self.table.find(mix(hash.0), |&node| self.nodes.get(node).sequence == hash).copied()
    }

    /// Returns the owners credited with a block; none if the block is unknown.
    pub(super) fn credited(&self, hash: SequenceHash) -> SetId {
        self.node(hash).map_or(EMPTY, |node| self.nodes.get(node).credited)
    }
}

/// Spreads a hash or small number over 64 bits. Hashes are good already, small numbers are not.
pub(super) fn mix(value: u64) -> u64 {
    let wide = u128::from(value ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xD6E8_FEB8_6659_FD93_u64);
    (wide >> 64) as u64 ^ wide as u64
}
