//! Names of things: tokens, workers, ranks and the three kinds of block hash.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One entry of a model's vocabulary.
pub type TokenId = u32;

/// A worker process as discovery names it (its instance id).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub u64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One data-parallel rank of one worker: the unit that owns a KV cache and carries load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerRank {
    /// The worker the rank belongs to.
    pub worker: WorkerId,
    /// The rank's number, global to the model as the worker announces it.
    pub dp_rank: u32,
}

impl WorkerRank {
    /// Names rank `dp_rank` of `worker`.
    pub const fn new(worker: WorkerId, dp_rank: u32) -> Self {
        Self { worker, dp_rank }
    }
}

impl fmt::Display for WorkerRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker, self.dp_rank)
    }
}

/// Hash of the content of one block alone (`tokens_hash` on the wire).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlockHash(pub u64);

/// Hash of a block and everything before it: equal hashes mean equal prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SequenceHash(pub u64);

/// The engine's own name for a block. Opaque: two engines may name equal content differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EngineHash(pub u64);

impl EngineHash {
    /// Reinterprets the bits of a hash that an engine publishes as a signed integer.
    pub const fn from_signed(hash: i64) -> Self {
        Self(hash as u64)
    }
}
