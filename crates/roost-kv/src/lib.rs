//! Block and sequence hashes, worker ids, KV-cache events and the prefix index. Knows nothing of tokio,
//! transports or cost.
//!
//! A prompt becomes [`Blocks`]; workers report their caches as [`KvEvent`]s; [`Index`] answers which
//! [`WorkerRank`] holds how much of a prompt ([`Overlap`]). [`ApproximateIndex`] guesses the same from
//! routing decisions where workers report nothing.

mod approximate;
mod blocks;
mod event;
#[cfg(test)]
mod fixtures;
pub mod hash;
mod ids;
mod index;
mod overlap;

pub use approximate::ApproximateIndex;
pub use blocks::{Blocks, Cut};
pub use event::{KvEvent, KvEventData, StoredBlock, Tier};
pub use ids::{BlockHash, EngineHash, SequenceHash, TokenId, WorkerId, WorkerRank};
pub use index::{Applied, Index, IndexStats};
pub use overlap::{Ascending, Overlap, OwnerOverlap};
