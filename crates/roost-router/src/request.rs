//! What a request asks of the router, and what it gets.

use std::ops::Range;
use std::sync::Arc;

use roost_kv::{Overlap, SequenceHash, WorkerId, WorkerRank};

use crate::{AffinityOutcome, BookingId, Decision};

/// One request to place.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Name under which the decision can be looked up later.
    pub id: Option<&'a str>,
    /// Prompt length, tokens.
    pub isl_tokens: u32,
    /// Tokens per block; 0 counts as 1.
    pub block_size: u32,
    /// Hashes of the prompt's complete blocks. Kept, not copied, while the request runs.
    pub sequence: &'a Arc<[SequenceHash]>,
    /// What the ranks have cached of it.
    pub overlap: &'a Overlap,
    /// Block ranges found in a cache that all workers share.
    pub shared_cache: &'a [Range<u32>],
    /// The session the request belongs to.
    pub session: Option<&'a str>,
    /// The session that started this one (a sub-agent's caller).
    pub parent: Option<&'a str>,
    /// What the client insists on.
    pub pin: Pin,
    /// Workers not to use: those that already failed this request.
    pub exclude: &'a [WorkerId],
    /// Properties asked of the worker.
    pub constraints: Constraints<'a>,
    /// Output length the client announced, tokens.
    pub expected_output_tokens: Option<u32>,
    /// The client's priority: seconds ahead of others where requests wait.
    pub priority: i32,
    /// Where requests wait, a higher one goes before all lower ones.
    pub strict_priority: u32,
}

impl<'a> Request<'a> {
    /// Returns a request without session, pin, constraints or announced output length.
    pub fn new(
        isl_tokens: u32,
        block_size: u32,
        sequence: &'a Arc<[SequenceHash]>,
        overlap: &'a Overlap,
    ) -> Self {
        Self {
            id: None,
            isl_tokens,
            block_size,
            sequence,
            overlap,
            shared_cache: &[],
            session: None,
            parent: None,
            pin: Pin::default(),
            exclude: &[],
            constraints: Constraints::default(),
            expected_output_tokens: None,
            priority: 0,
            strict_priority: 0,
        }
    }
}

/// An explicit choice by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// Only this worker.
    pub worker: Option<WorkerId>,
    /// Only this rank number (of any worker that has it, unless `worker` is given too).
    pub dp_rank: Option<u32>,
}

impl Pin {
    /// Tells whether nothing is pinned.
    pub const fn is_none(&self) -> bool {
        self.worker.is_none() && self.dp_rank.is_none()
    }

    pub(crate) fn admits(&self, rank: WorkerRank) -> bool {
        self.worker.is_none_or(|worker| worker == rank.worker)
            && self.dp_rank.is_none_or(|dp_rank| dp_rank == rank.dp_rank)
    }
}

/// Properties (taints) asked of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constraints<'a> {
    /// The worker must have all of these.
    pub required: &'a [String],
    /// The worker is the cheaper the more of these it has, by weight.
    pub preferred: &'a [(String, f64)],
}

/// Where a request goes. Its load is booked; see [`Core::place`](crate::Core::place).
#[derive(Clone, Debug)]
pub struct Placement {
    /// The chosen worker and rank.
    pub rank: WorkerRank,
    /// Handle of the booking.
    pub booking: BookingId,
    /// Leading prompt blocks in the rank's device memory.
    pub overlap_blocks: u32,
    /// Cached blocks weighted by the tier they are in.
    pub effective_blocks: f64,
    /// Prompt tokens that need not be computed: the effective blocks in tokens.
    pub cached_tokens: u32,
    /// The same on the eligible rank that had most of the prompt; that of the session's own rank where its binding
    /// decided.
    pub best_cached_tokens: u32,
    /// What the session had to do with it.
    pub affinity: AffinityOutcome,
    /// Why.
    pub decision: Arc<Decision>,
}

/// Why a request was not placed. Nothing is booked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Workers exist, but all that could serve are overloaded. Try again later.
    #[error("all eligible workers are overloaded")]
    Overloaded,
    /// All workers are busy and as many requests wait as may. Try again later.
    #[error("the router's queue is full: {limit} requests wait")]
    QueueFull {
        /// How many may wait.
        limit: usize,
    },
    /// The request waited for room as long as it may.
    #[error("request deadline exceeded")]
    WaitedTooLong,
    /// No worker can serve: none is known, or all are excluded, failed, draining or lack a property.
    #[error("no endpoints available to route work")]
    NoWorkers,
    /// The client asked for a worker that does not exist.
    #[error("worker {worker} is not known")]
    UnknownWorker {
        /// The worker asked for.
        worker: WorkerId,
    },
    /// The client asked for a rank that the worker (or any worker) does not have.
    #[error("DP rank {dp_rank} is not served by {}", WorkerName(.worker))]
    UnknownRank {
        /// The worker asked for, if any.
        worker: Option<WorkerId>,
        /// The rank asked for.
        dp_rank: u32,
    },
    /// The client asked for a worker that is overloaded.
    #[error("pinned worker {worker} is overloaded")]
    PinOverloaded {
        /// The worker asked for.
        worker: WorkerId,
    },
    /// The client asked for a worker that cannot serve the request now.
    #[error("pinned worker {worker} is not available")]
    PinUnavailable {
        /// The worker asked for.
        worker: WorkerId,
    },
    /// The mode is [`Mode::Direct`](crate::Mode::Direct) and neither client nor session names a worker.
    #[error("direct routing needs a worker id")]
    PinRequired,
}

/// Writes the worker of a rank error.
struct WorkerName<'a>(&'a Option<WorkerId>);

impl std::fmt::Display for WorkerName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(worker) => write!(f, "worker {worker}"),
            None => f.write_str("any worker"),
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The stream was complete.
    Ok,
    /// The client left, or the request was given up.
    Cancelled,
    /// The worker failed or answered with an error.
    Failed,
}
