//! Recovery queries and their answers.

use roost_kv::KvEvent;
use serde::{Deserialize, Serialize};

use super::EventError;
use super::kv::WireEvent;
use crate::record::Codec;

/// Asks a rank for its history or its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvQuery {
    /// The worker.
    pub worker_id: u64,
    /// Its data-parallel rank.
    #[serde(default)]
    pub dp_rank: u32,
    /// First event wanted; `None` asks for the whole state.
    #[serde(default)]
    pub start_event_id: Option<u64>,
    /// Last event wanted; answers may run beyond it.
    #[serde(default)]
    pub end_event_id: Option<u64>,
    /// Whether the asker understands [`KvAnswer::TreeDumpFailed`].
    #[serde(default)]
    pub supports_tree_dump_failed: bool,
    /// `recovery`.
    #[serde(default)]
    pub kind: Option<String>,
}

impl KvQuery {
    /// The query of a rank for everything from `start_event_id` on, or for its whole state.
    pub fn recovery(rank: roost_kv::WorkerRank, start_event_id: Option<u64>) -> Self {
        Self {
            worker_id: rank.worker.0,
            dp_rank: rank.dp_rank,
            start_event_id,
            end_event_id: None,
            supports_tree_dump_failed: true,
            kind: Some("recovery".to_owned()),
        }
    }

    /// Encodes the request body in the codec of the endpoint that is asked.
    pub fn encode(&self, codec: Codec) -> Vec<u8> {
        encode(self, codec)
    }

    /// Decodes a request body.
    ///
    /// # Errors
    /// [`EventError::Payload`].
    pub fn decode(bytes: &[u8], codec: Codec) -> Result<Self, EventError> {
        decode(bytes, codec, "recovery query")
    }
}

/// The answer to a [`KvQuery`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvAnswer {
    /// The whole state: forget the rank, apply the events, go on after `last_event_id`.
    TreeDump {
        /// What makes up the state. Their ids mean nothing.
        events: Vec<KvEvent>,
        /// The newest event that the state includes.
        last_event_id: u64,
    },
    /// The events asked for, up to the newest.
    Events {
        /// The events.
        events: Vec<KvEvent>,
        /// The newest one.
        last_event_id: u64,
    },
    /// Nothing newer than what the asker has, or a counter that started again.
    TooNew {
        /// `start_event_id` of the query.
        requested_start: Option<u64>,
        /// End of the query, or the newest event.
        requested_end: Option<u64>,
        /// The newest event there is.
        newest_available: u64,
    },
    /// The query's end is before its start.
    InvalidRange {
        /// Start of the query.
        start_id: u64,
        /// End of the query.
        end_id: u64,
    },
    /// The state could not be read now; what the asker has stays valid.
    TreeDumpFailed {
        /// The newest event.
        last_event_id: Option<u64>,
        /// Why.
        message: Option<String>,
    },
    /// The query failed.
    Error(String),
}

#[derive(Serialize, Deserialize)]
enum Wire<'a> {
    TreeDump {
        #[serde(borrow)]
        events: Vec<WireEvent<'a>>,
        last_event_id: u64,
        #[serde(default)]
        reset_scope: ResetScope,
    },
    Events {
        #[serde(borrow)]
        events: Vec<WireEvent<'a>>,
        last_event_id: u64,
    },
    TooNew {
        #[serde(default)]
        requested_start: Option<u64>,
        #[serde(default)]
        requested_end: Option<u64>,
        newest_available: u64,
    },
    InvalidRange {
        start_id: u64,
        end_id: u64,
    },
    TreeDumpFailed {
        #[serde(default)]
        last_event_id: Option<u64>,
        #[serde(default)]
        message: Option<String>,
    },
    Error(String),
}

/// Which of a rank's blocks a dump replaces.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResetScope {
    #[default]
    All,
    Domain(Domain),
}

/// Dumps of other domains than the worker's own are never asked for, and refused.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Domain {
    Worker,
}

impl KvAnswer {
    /// Encodes the response item in the codec of the request.
    pub fn encode(&self, codec: Codec) -> Vec<u8> {
        let wire = match self {
            KvAnswer::TreeDump { events, last_event_id } => Wire::TreeDump {
                events: events.iter().map(WireEvent::from).collect(),
                last_event_id: *last_event_id,
                reset_scope: ResetScope::All,
            },
            KvAnswer::Events { events, last_event_id } => Wire::Events {
                events: events.iter().map(WireEvent::from).collect(),
                last_event_id: *last_event_id,
            },
            KvAnswer::TooNew { requested_start, requested_end, newest_available } => Wire::TooNew {
                requested_start: *requested_start,
                requested_end: *requested_end,
                newest_available: *newest_available,
            },
            KvAnswer::InvalidRange { start_id, end_id } => {
                Wire::InvalidRange { start_id: *start_id, end_id: *end_id }
            }
            KvAnswer::TreeDumpFailed { last_event_id, message } => {
                Wire::TreeDumpFailed { last_event_id: *last_event_id, message: message.clone() }
            }
            KvAnswer::Error(text) => Wire::Error(text.clone()),
        };
        encode(&wire, codec)
    }

    /// Decodes a response item.
    ///
    /// # Errors
    /// [`EventError::Payload`], also for kinds of answers that are not known here.
    pub fn decode(bytes: &[u8], codec: Codec) -> Result<Self, EventError> {
        let wire: Wire<'_> = decode(bytes, codec, "recovery answer")?;
        let convert = |events: Vec<WireEvent<'_>>| events.into_iter().map(KvEvent::from).collect();
        Ok(match wire {
            Wire::TreeDump { events, last_event_id, reset_scope: _ } => {
                KvAnswer::TreeDump { events: convert(events), last_event_id }
            }
            Wire::Events { events, last_event_id } => {
                KvAnswer::Events { events: convert(events), last_event_id }
            }
            Wire::TooNew { requested_start, requested_end, newest_available } => {
                KvAnswer::TooNew { requested_start, requested_end, newest_available }
            }
            Wire::InvalidRange { start_id, end_id } => KvAnswer::InvalidRange { start_id, end_id },
            Wire::TreeDumpFailed { last_event_id, message } => {
                KvAnswer::TreeDumpFailed { last_event_id, message }
            }
            Wire::Error(text) => KvAnswer::Error(text),
        })
    }
}

fn encode<T: Serialize>(value: &T, codec: Codec) -> Vec<u8> {
    match codec {
        Codec::Msgpack => rmp_serde::to_vec_named(value).expect("plain structs always encode"),
        Codec::Json => serde_json::to_vec(value).expect("plain structs always encode"),
    }
}

fn decode<'de, T: Deserialize<'de>>(
    bytes: &'de [u8],
    codec: Codec,
    what: &'static str,
) -> Result<T, EventError> {
    match codec {
        Codec::Msgpack => rmp_serde::from_slice(bytes).map_err(|e| EventError::payload(what)(&e)),
        Codec::Json => serde_json::from_slice(bytes).map_err(|e| EventError::payload(what)(&e)),
    }
}
