//! The payload of `kv_metrics`: a rank's load.

use roost_kv::{WorkerId, WorkerRank};
use serde::{Deserialize, Serialize};

use super::EventError;

/// Load of one rank as its worker reports it, on change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The worker.
    pub worker_id: u64,
    /// Its data-parallel rank.
    #[serde(default)]
    pub dp_rank: u32,
    /// KV blocks held by running requests.
    #[serde(default)]
    pub active_decode_blocks: Option<u64>,
    /// Prompt tokens that wait for or are in prefill.
    #[serde(default)]
    pub active_prefill_tokens: Option<u64>,
    /// KV blocks in use, cached ones included.
    #[serde(default)]
    pub kv_used_blocks: Option<u64>,
}

impl Load {
    /// The rank.
    pub fn rank(&self) -> WorkerRank {
        WorkerRank::new(WorkerId(self.worker_id), self.dp_rank)
    }

    /// Decodes a payload.
    ///
    /// # Errors
    /// [`EventError::Payload`].
    pub fn decode(payload: &[u8]) -> Result<Self, EventError> {
        rmp_serde::from_slice(payload).map_err(|e| EventError::payload("kv_metrics")(&e))
    }

    /// Encodes a payload.
    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("plain structs always encode")
    }
}
