//! The one seam of the worker side.

use std::fmt;
use std::pin::Pin;

use futures_core::Stream;
use roost_kv::{KvEventData, Tier};
use roost_wire::message::{DynamoError, EngineOutput, EngineRequest, Reason};
use tokio::sync::watch;

use crate::{Cancel, EngineCard};

/// The answer of an engine: items in order, each with zero or more new tokens.
pub type OutputStream = Pin<Box<dyn Stream<Item = Result<EngineOutput, EngineError>> + Send>>;

/// The KV-cache changes of one data-parallel rank, in the order in which they happened.
pub type KvChanges = Pin<Box<dyn Stream<Item = KvChange> + Send>>;

/// An inference engine as a worker sees it.
///
/// Implementations are the mock engine of this crate and adapters to real engines. A frontend may also
/// hold one in process and use it without the plane.
pub trait Engine: Send + Sync + fmt::Debug + 'static {
    /// What to register. The same value for the life of the engine.
    fn card(&self) -> &EngineCard;

    /// Starts one request and returns its answer.
    ///
    /// Does not wait: whatever takes time happens behind the stream, and so do errors, as its last item.
    ///
    /// - **Order.** Items come in the order of their tokens. The last one carries a `finish_reason`,
    ///   except on prefill engines. After the end or an error the stream yields nothing more.
    /// - **Back-pressure.** The engine buffers a bounded number of items; when the caller does not poll,
    ///   the request stalls and others go on.
    /// - **Cancellation.** Dropping the stream aborts the request and frees what it holds. The same
    ///   happens when `context.cancel` is killed; on a stop the engine ends after its current step. A
    ///   cancelled stream ends with or without an item of finish reason `cancelled`.
    fn generate(&self, request: EngineRequest, context: EngineContext) -> OutputStream;

    /// Subscribes to the KV-cache changes of a rank; `None` when the rank is unknown or publishes none.
    ///
    /// The stream starts with the present content of the cache and is then complete: an engine that
    /// lost changes yields [`KvChange::CLEARED`] and the content anew. It is bounded by that same rule
    /// when the subscriber is slow. One subscriber per rank: a new one ends the stream of the old one.
    fn kv_changes(&self, dp_rank: u32) -> Option<KvChanges>;

    /// The load of each rank, in the order of [`EngineCard::ranks`]; the receiver sees the latest value.
    fn load(&self) -> watch::Receiver<Vec<RankLoad>>;
}

/// What accompanies a request into the engine.
#[derive(Debug, Clone)]
pub struct EngineContext {
    /// Request id: unique among the requests in flight, the same on both legs of a split request.
    pub id: String,
    /// Cancellation of this request.
    pub cancel: Cancel,
}

impl EngineContext {
    /// Makes a context that nobody has cancelled.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), cancel: Cancel::new() }
    }
}

/// One change of a rank's KV cache: an event that has neither number nor worker yet.
///
/// Stored blocks carry the chained hash as the engine's name unless the engine has names of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvChange {
    /// The tier that changed.
    pub tier: Tier,
    /// What changed.
    pub data: KvEventData,
}

impl KvChange {
    /// Everything is gone, in every tier.
    pub const CLEARED: Self = Self { tier: Tier::Device, data: KvEventData::Cleared };

    /// A change in device memory.
    pub fn device(data: KvEventData) -> Self {
        Self { tier: Tier::Device, data }
    }
}

/// The load of one data-parallel rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RankLoad {
    /// The rank.
    pub dp_rank: u32,
    /// Requests that are admitted and not yet finished.
    pub running_requests: u64,
    /// Requests that wait for admission.
    pub waiting_requests: u64,
    /// Blocks held by running requests.
    pub active_blocks: u64,
    /// Prompt tokens admitted or waiting that are not yet prefilled.
    pub active_prefill_tokens: u64,
    /// Blocks in use: held or cached.
    pub used_blocks: u64,
    /// Capacity in blocks.
    pub total_blocks: u64,
}

/// Why an engine ended a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The request cannot be served as it is; the text may be shown to the client.
    #[error("invalid request: {0}")]
    InvalidRequest(String),
    /// The request cannot be served as it is; the text is for the operator only.
    #[error("request rejected: {0}")]
    Rejected(String),
    /// The engine is at capacity; another worker may serve the request.
    #[error("engine at capacity")]
    Overloaded,
    /// The engine is going down; another worker may serve the request.
    #[error("engine is shutting down")]
    ShuttingDown,
    /// The engine cannot be reached; another worker may serve the request.
    #[error("engine unavailable: {0}")]
    Unavailable(String),
    /// The engine failed; the text is for the operator only.
    #[error("engine failed: {0}")]
    Failed(String),
}

impl EngineError {
    /// The error as frontends expect it from a worker.
    pub fn on_the_wire(self) -> DynamoError {
        match self {
            EngineError::InvalidRequest(text) => DynamoError::invalid_argument(text),
            EngineError::Rejected(text) => DynamoError::new(Reason::BackendInvalidArgument, text),
            EngineError::Overloaded => DynamoError::new(Reason::WorkerOverloaded, "engine at capacity"),
            EngineError::ShuttingDown => DynamoError::new(Reason::EngineShutdown, "engine is shutting down"),
            EngineError::Unavailable(text) => DynamoError::new(Reason::BackendUnavailable, text),
            EngineError::Failed(text) => DynamoError::new(Reason::BackendUnknown, text),
        }
    }
}
