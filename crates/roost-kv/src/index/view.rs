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
    /// Sequence hash per node.
    pub(super) sequence: Slab<SequenceHash>,
    /// Owners that hold the block and all before it, per node.
    pub(super) credited: Slab<SetId>,
    pub(super) sets: Sets,
    /// Owner per lane; `None` while its blocks are being dropped.
    pub(super) owners: Vec<Option<(WorkerRank, Tier)>>,
}

impl View {
    pub(super) fn node(&self, hash: SequenceHash) -> Option<u32> {
        self.table.find(mix(hash.0), |&node| self.sequence.get(node) == hash).copied()
    }

    /// Returns the owners credited with a block; none if the block is unknown.
    pub(super) fn credited(&self, hash: SequenceHash) -> SetId {
        self.node(hash).map_or(EMPTY, |node| self.credited.get(node))
    }
}

/// Spreads a hash or small number over 64 bits. Hashes are good already, small numbers are not.
pub(super) fn mix(value: u64) -> u64 {
    let wide = u128::from(value ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xD6E8_FEB8_6659_FD93_u64);
    (wide >> 64) as u64 ^ wide as u64
}
