//! The request trace: one record for each request that was ready for a worker, in Dynamo's schema
//! (`dynamo.request.trace.v1`), so that what reads Dynamo's traces reads these. No text of prompts or answers is in it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use roost_kv::{Blocks, SequenceHash, WorkerRank, hash};
use roost_openai::Finish;
use roost_telemetry::Records;
use roost_wire::message::PromptTokens;
use serde::{Serialize, Serializer, ser::SerializeSeq as _};

/// Where records go.
pub type RequestTrace = Records<RequestRecord>;

/// One line of the trace.
#[derive(Debug, Serialize)]
pub struct RequestRecord {
    schema: &'static str,
    event_type: &'static str,
    event_time_unix_ms: u64,
    event_source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_context: Option<AgentContext>,
    request: Request,
}

#[derive(Debug, Serialize)]
struct AgentContext {
    session_id: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_session_id: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_final: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Request {
    request_id: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x_request_id: Option<Box<str>>,
    model: Box<str>,
    input_tokens: u64,
    output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<u64>,
    request_received_ms: u64,
    prefill_wait_time_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefill_time_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft_ms: Option<f64>,
    total_time_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    avg_itl_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_hit_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<Workers>,
    replay: Replay,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish_reason_metadata: Option<FinishReason>,
}

#[derive(Debug, Serialize)]
struct Workers {
    prefill_worker_id: u64,
    prefill_dp_rank: u32,
    decode_worker_id: u64,
    decode_dp_rank: u32,
}

#[derive(Debug, Serialize)]
struct FinishReason {
    finish_reason: &'static str,
}

/// The prompt as a replay needs it.
#[derive(Debug, Clone, Serialize)]
struct Replay {
    trace_block_size: u32,
    input_length: usize,
    #[serde(serialize_with = "hashes")]
    input_sequence_hashes: Hashes,
}

/// Hashes of the complete blocks, shared with the router, and that of what is left.
#[derive(Debug, Clone)]
struct Hashes {
    complete: Arc<[SequenceHash]>,
    rest: Option<SequenceHash>,
}

/// What is known of a request when it is ready for a worker.
#[derive(Debug)]
pub(crate) struct Traced {
    sink: RequestTrace,
    request_id: Box<str>,
    x_request_id: Option<Box<str>>,
    session: Option<Box<str>>,
    parent: Option<Box<str>>,
    is_final: bool,
    replay: Replay,
}

/// What is known at its end.
#[derive(Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) model: &'a str,
    pub(crate) isl: u64,
    pub(crate) osl: u64,
    pub(crate) cached: Option<u64>,
    /// Part of the prompt that the router expected in the worker's cache, 0 to 1.
    pub(crate) hit_rate: f64,
    /// Where prompt and answer were computed.
    pub(crate) ranks: Option<(WorkerRank, WorkerRank)>,
    pub(crate) received: Instant,
    pub(crate) prepared: Option<Instant>,
    pub(crate) first_token: Option<Instant>,
    pub(crate) last_token: Option<Instant>,
    pub(crate) now: Instant,
    pub(crate) finish: Option<Finish>,
}

impl Traced {
    /// A request whose prompt these are.
    pub(crate) fn new(
        sink: &RequestTrace,
        session: &crate::session::Session,
        prompt: &PromptTokens,
        blocks: &Blocks,
    ) -> Self {
        Traced {
            sink: sink.clone(),
            request_id: session.uuid.to_string().into(),
            x_request_id: session.request_id.clone(),
            session: session.id.clone(),
            parent: session.parent.clone(),
            is_final: session.is_final,
            replay: Replay {
                trace_block_size: blocks.cut.block_size,
                input_length: prompt.len(),
                input_sequence_hashes: Hashes {
                    complete: Arc::clone(&blocks.sequence),
                    rest: rest(prompt, blocks),
                },
            },
        }
    }

    /// Writes the record.
    pub(crate) fn end(self, ended: &Ended<'_>) {
        let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
        let total = ended.now.saturating_duration_since(ended.received);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let prepared = ended.prepared.unwrap_or(ended.now);
        let pauses = ended.osl.saturating_sub(1);
        let gaps = ended.first_token.zip(ended.last_token).filter(|_| pauses > 0);
        let request = Request {
            request_id: self.request_id,
            x_request_id: self.x_request_id,
            model: ended.model.into(),
            input_tokens: ended.isl,
            output_tokens: ended.osl,
            cached_tokens: ended.cached,
            request_received_ms: whole_ms(now.saturating_sub(total)),
            prefill_wait_time_ms: ms(ended.received, prepared),
            prefill_time_ms: ended.first_token.map(|first| ms(prepared, first)),
            ttft_ms: ended.first_token.map(|first| ms(ended.received, first)),
            total_time_ms: total.as_secs_f64() * 1e3,
            avg_itl_ms: gaps.map(|(first, last)| ms(first, last) / pauses as f64),
            kv_hit_rate: ended.ranks.map(|_| ended.hit_rate),
            worker: ended.ranks.map(|(prefill, decode)| Workers {
                prefill_worker_id: prefill.worker.0,
                prefill_dp_rank: prefill.dp_rank,
                decode_worker_id: decode.worker.0,
                decode_dp_rank: decode.dp_rank,
            }),
            replay: self.replay,
            finish_reason_metadata: ended
                .finish
                .map(|finish| FinishReason { finish_reason: finish.as_str() }),
        };
        self.sink.put(RequestRecord {
            schema: "dynamo.request.trace.v1",
            event_type: "request_end",
            event_time_unix_ms: whole_ms(now),
            event_source: "dynamo",
            agent_context: self.session.map(|session_id| AgentContext {
                session_id,
                parent_session_id: self.parent,
                session_final: self.is_final.then_some(true),
            }),
            request,
        });
    }
}

/// The chained hash of the tokens behind the complete blocks, if there are any.
fn rest(prompt: &PromptTokens, blocks: &Blocks) -> Option<SequenceHash> {
    let behind =
        prompt.len().checked_sub(blocks.len() * blocks.cut.block_size as usize).filter(|n| *n > 0)?;
    let tail = prompt.tail();
    let tokens = match tail.len().checked_sub(behind) {
        Some(start) => &tail[start..],
        None => &prompt[prompt.len() - behind..],
    };
    let local = hash::partial_hash(tokens, blocks.seed);
    Some(hash::next_sequence_hash(blocks.sequence.last().copied(), local))
}

fn hashes<S: Serializer>(hashes: &Hashes, serializer: S) -> Result<S::Ok, S::Error> {
    let mut list =
        serializer.serialize_seq(Some(hashes.complete.len() + usize::from(hashes.rest.is_some())))?;
    for hash in hashes.complete.iter().chain(&hashes.rest) {
        list.serialize_element(&hash.0)?;
    }
    list.end()
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
