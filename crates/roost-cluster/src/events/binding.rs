//! The payload of `session_affinity_events`: where a session lives, as one frontend tells the others.

use roost_kv::WorkerId;
use serde::{Deserialize, Serialize};

use super::EventError;

/// One binding, newly made or in use again.
///
/// Delivery is best effort and unordered. Between two bindings of a session the greater (`sequence`, `writer_id`) wins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingEvent {
    /// The session as its clients name it, or the key of its parent's children.
    pub session_id: String,
    /// The worker.
    #[serde(rename = "worker_id")]
    pub worker: WorkerId,
    /// The rank; `None` for a session that is bound to a worker but to none of its ranks.
    #[serde(default)]
    pub dp_rank: Option<u32>,
    /// The write's logical time: nanoseconds since the Unix epoch, pushed beyond everything seen before.
    pub sequence: u64,
    /// The frontend that made the binding.
    pub writer_id: u64,
}

impl BindingEvent {
    /// Decodes a payload.
    ///
    /// # Errors
    /// [`EventError::Payload`].
    pub fn decode(payload: &[u8]) -> Result<Self, EventError> {
        rmp_serde::from_slice(payload).map_err(|e| EventError::payload("session_affinity_events")(&e))
    }

    /// Encodes a payload.
    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(self).expect("plain structs always encode")
    }
}
