//! What a worker reports about its KV cache.

use serde::{Deserialize, Serialize};

use crate::{BlockHash, EngineHash, WorkerRank};

/// Where a block is kept, nearest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Accelerator memory.
    #[default]
    Device,
    /// Host memory.
    #[serde(alias = "host_pinned")]
    Host,
    /// Local disk.
    Disk,
    /// A store outside the worker.
    External,
}

impl Tier {
    /// All tiers, nearest first.
    pub const ALL: [Self; 4] = [Self::Device, Self::Host, Self::Disk, Self::External];

    /// Returns the tier's position in [`Tier::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One change of one rank's cache. Events of a rank must be applied in the engine's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEvent {
    /// The rank's own counter, first event 1. Gaps are the caller's concern.
    pub event_id: u64,
    /// The owner of the blocks.
    pub rank: WorkerRank,
    /// The tier the change concerns; [`KvEventData::Cleared`] concerns every tier of the rank.
    pub tier: Tier,
    /// The change.
    pub data: KvEventData,
}

/// The change that a [`KvEvent`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvEventData {
    /// A chain of blocks is now held.
    Stored {
        /// The block before the first one; `None` at the start of a prompt.
        parent: Option<EngineHash>,
        /// The blocks, in prompt order.
        blocks: Vec<StoredBlock>,
    },
    /// Blocks are no longer held. Unknown ones are skipped.
    Removed {
        /// The blocks, in any order.
        blocks: Vec<EngineHash>,
    },
    /// The rank holds nothing any more, in any tier.
    Cleared,
}

/// One block of [`KvEventData::Stored`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// The engine's name for the block, used by later parents and removals.
    pub engine: EngineHash,
    /// The content hash.
    pub local: BlockHash,
}
