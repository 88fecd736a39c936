//! A worker as a frontend sees it.

use std::ops::Range;
use std::sync::Arc;

use roost_kv::{WorkerId, WorkerRank};

use crate::record::{EndpointId, InstanceRecord, ModelCard, Target, WorkerType};

/// One joined worker: a model card and the endpoint instance that takes the model's requests.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerInfo {
    /// The worker.
    pub worker: WorkerId,
    /// Number of this join, unique in the process and growing. A worker that leaves and returns gets another one.
    pub epoch: u64,
    /// The endpoint, usually `dyn://dynamo.backend.generate`.
    pub endpoint: EndpointId,
    /// Where requests go.
    pub target: Target,
    /// The part it plays.
    pub role: Role,
    /// The data-parallel ranks that it serves, in the numbering used everywhere.
    pub ranks: Range<u32>,
    /// What it serves.
    pub card: Arc<ModelCard>,
    /// Sum over what must agree between workers of one set; see [`ModelCard::mdcsum`].
    pub mdcsum: String,
    /// The instance record behind `target`.
    pub instance: Arc<InstanceRecord>,
}

impl WorkerInfo {
    /// All (worker, rank) pairs of this worker.
    pub fn worker_ranks(&self) -> impl Iterator<Item = WorkerRank> + '_ {
        self.ranks.clone().map(|dp_rank| WorkerRank::new(self.worker, dp_rank))
    }
}

/// The part that a worker plays for its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Prefill and decode.
    Aggregated,
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
    /// Encoder of images and the like; takes no token requests.
    Encode,
}

impl Role {
    /// The role that a card announces; workers up to 1.3 do not, and are told by their model type.
    pub fn of(card: &ModelCard) -> Self {
        match card.worker_type {
            Some(WorkerType::Aggregated) => Role::Aggregated,
            Some(WorkerType::Prefill) => Role::Prefill,
            Some(WorkerType::Decode) => Role::Decode,
            Some(WorkerType::Encode) => Role::Encode,
            None if card.model_type.has("Prefill") => Role::Prefill,
            None => Role::Aggregated,
        }
    }

    /// Name as used in cards, logs and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Aggregated => "aggregated",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
            Role::Encode => "encode",
        }
    }
}
