//! The payload of `active_sequences_events`: requests that begin, leave prefill and end, as the frontend that placed
//! them or the worker that runs them tells.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use roost_kv::{SequenceHash, WorkerId, WorkerRank};
use serde::{Deserialize, Serialize};

use super::EventError;

/// One step in the life of a request that somebody else placed.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceEvent {
    /// The request.
    pub request_id: String,
    /// Where it runs.
    pub rank: WorkerRank,
    /// What has happened.
    pub step: SequenceStep,
    /// Who tells: a frontend, or the worker itself.
    pub origin: u64,
    /// The adapter, if one is used.
    pub lora_name: Option<String>,
}

/// What can happen to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum SequenceStep {
    /// It was placed.
    Begun(SequenceBegun),
    /// Its first token is there.
    PrefillCompleted,
    /// It has ended.
    Ended,
}

/// The load that a placed request brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceBegun {
    /// Chained hashes of the prompt's full blocks; `None` when the placement did not know them.
    pub blocks: Option<Arc<[SequenceHash]>>,
    /// Whether its prefill counts as load.
    pub counts_prefill: bool,
    /// Expected length of the answer, tokens.
    pub expected_output_tokens: Option<u32>,
    /// Prompt tokens that were not cached where it was placed.
    pub prefill_tokens: Option<u64>,
    /// How long its prefill was predicted to take.
    pub prefill_duration: Option<Duration>,
}

impl SequenceEvent {
    /// Decodes a payload: a batch, as ZeroMQ publishers send it, or one event, as NATS publishers do.
    ///
    /// # Errors
    /// [`EventError::Payload`].
    pub fn decode(payload: &[u8]) -> Result<Vec<Self>, EventError> {
        let what = "active_sequences_events";
        let wire: Payload = rmp_serde::from_slice(payload).map_err(|e| EventError::payload(what)(&e))?;
        Ok(match wire {
            Payload { events: Some(events), .. } => events.into_iter().map(Self::from).collect(),
            Payload {
                request_id: Some(request_id),
                worker: Some(worker),
                data: Some(data),
                router_id: Some(router_id),
                lora_name,
                ..
            } => vec![Wire { request_id, worker, data, router_id, lora_name }.into()],
            _ => return Err(EventError::payload(what)(&"neither a batch nor an event")),
        })
    }

    /// Encodes a batch.
    pub fn encode_batch(events: &[Self]) -> Vec<u8> {
        #[derive(Serialize)]
        struct Batch<'a> {
            events: Vec<Wire<'a>>,
        }
        let batch = Batch { events: events.iter().map(Wire::from).collect() };
        rmp_serde::to_vec_named(&batch).expect("plain structs always encode")
    }

    /// Encodes one event without a batch around it.
    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec_named(&Wire::from(self)).expect("plain structs always encode")
    }
}

/// Either shape of a payload; read in one pass.
#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    events: Option<Vec<Wire<'static>>>,
    #[serde(default)]
    request_id: Option<String>,
    #[serde(default)]
    worker: Option<WireWorker>,
    #[serde(default)]
    data: Option<WireData<'static>>,
    #[serde(default)]
    router_id: Option<u64>,
    #[serde(default)]
    lora_name: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    request_id: String,
    worker: WireWorker,
    data: WireData<'a>,
    router_id: u64,
    #[serde(default)]
    lora_name: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct WireWorker {
    worker_id: u64,
    #[serde(default)]
    dp_rank: u32,
}

#[derive(Serialize, Deserialize)]
enum WireData<'a> {
    AddRequest {
        #[serde(default)]
        token_sequence: Option<Cow<'a, [SequenceHash]>>,
        #[serde(default = "yes")]
        track_prefill_tokens: bool,
        #[serde(default)]
        expected_output_tokens: Option<u32>,
        #[serde(default)]
        prefill_load_hint: Option<WireHint>,
    },
    MarkPrefillCompleted,
    Free,
}

#[derive(Serialize, Deserialize)]
struct WireHint {
    initial_effective_prefill_tokens: u64,
    #[serde(default)]
    expected_prefill_duration: Option<Duration>,
}

const fn yes() -> bool {
    true
}

impl From<Wire<'_>> for SequenceEvent {
    fn from(wire: Wire<'_>) -> Self {
        let step = match wire.data {
            WireData::AddRequest {
                token_sequence,
                track_prefill_tokens,
                expected_output_tokens,
                prefill_load_hint,
            } => SequenceStep::Begun(SequenceBegun {
                blocks: token_sequence.map(Arc::from),
                counts_prefill: track_prefill_tokens,
                expected_output_tokens,
                prefill_tokens: prefill_load_hint.as_ref().map(|hint| hint.initial_effective_prefill_tokens),
                prefill_duration: prefill_load_hint.and_then(|hint| hint.expected_prefill_duration),
            }),
            WireData::MarkPrefillCompleted => SequenceStep::PrefillCompleted,
            WireData::Free => SequenceStep::Ended,
        };
        SequenceEvent {
            request_id: wire.request_id,
            rank: WorkerRank::new(WorkerId(wire.worker.worker_id), wire.worker.dp_rank),
            step,
            origin: wire.router_id,
            lora_name: wire.lora_name,
        }
    }
}

impl<'a> From<&'a SequenceEvent> for Wire<'a> {
    fn from(event: &'a SequenceEvent) -> Self {
        let data = match &event.step {
            SequenceStep::Begun(begun) => WireData::AddRequest {
                token_sequence: begun.blocks.as_deref().map(Cow::Borrowed),
                track_prefill_tokens: begun.counts_prefill,
                expected_output_tokens: begun.expected_output_tokens,
                prefill_load_hint: begun.prefill_tokens.map(|tokens| WireHint {
                    initial_effective_prefill_tokens: tokens,
                    expected_prefill_duration: begun.prefill_duration,
                }),
            },
            SequenceStep::PrefillCompleted => WireData::MarkPrefillCompleted,
            SequenceStep::Ended => WireData::Free,
        };
        Wire {
            request_id: event.request_id.clone(),
            worker: WireWorker { worker_id: event.rank.worker.0, dp_rank: event.rank.dp_rank },
            data,
            router_id: event.origin,
            lora_name: event.lora_name.clone(),
        }
    }
}
