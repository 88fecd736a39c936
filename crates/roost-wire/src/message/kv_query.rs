use serde::{Deserialize, Serialize};

/// Body of a request to a worker's KV query endpoint.
///
/// Answers are returned as the bytes of the item, for the event plane to interpret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvQuery {
    /// Worker that is asked about.
    pub worker_id: u64,
    /// Its data-parallel rank.
    pub dp_rank: u32,
    /// First event wanted; unset asks for the whole state.
    #[serde(default)]
    pub start_event_id: Option<u64>,
    /// Last event wanted; workers answer up to their newest.
    #[serde(default)]
    pub end_event_id: Option<u64>,
    /// Whether the asker understands a failed dump.
    #[serde(default)]
    pub supports_tree_dump_failed: bool,
    /// Kind of query.
    #[serde(default = "recovery")]
    pub kind: String,
}

fn recovery() -> String {
    "recovery".to_owned()
}

impl KvQuery {
    /// A query for the whole state of one rank.
    #[must_use]
    pub fn snapshot(worker_id: u64, dp_rank: u32) -> Self {
        Self {
            worker_id,
            dp_rank,
            start_event_id: None,
            end_event_id: None,
            supports_tree_dump_failed: true,
            kind: recovery(),
        }
    }

    /// A query for the events from `start_event_id` on.
    #[must_use]
    pub fn since(worker_id: u64, dp_rank: u32, start_event_id: u64) -> Self {
        Self { start_event_id: Some(start_event_id), ..Self::snapshot(worker_id, dp_rank) }
    }
}
