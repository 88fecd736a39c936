//! Counters and gauges for metrics and admin pages.

use roost_kv::WorkerRank;

use crate::{QueueSize, RebindReason};

/// Counts since the start of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests submitted, retries not counted.
    pub received: u64,
    /// Requests placed.
    pub placed: u64,
    /// Requests refused because all eligible workers were overloaded.
    pub rejected_overloaded: u64,
    /// Requests that had to wait for room.
    pub queued: u64,
    /// Requests refused because too many waited already.
    pub rejected_queue_full: u64,
    /// Requests refused because they had waited too long.
    pub rejected_waited: u64,
    /// Requests refused for another reason.
    pub rejected_other: u64,
    /// Turns that stayed with their session's rank.
    pub affinity_hits: u64,
    /// First turns.
    pub affinity_new: u64,
    /// Turns that followed a binding that was still tentative.
    pub affinity_followed: u64,
    /// Sessions served without a binding because the table was full of busy ones.
    pub affinity_table_full: u64,
    /// Bindings ended by idle time.
    pub affinity_expired: u64,
    /// Idle bindings that gave way to new ones.
    pub affinity_evicted: u64,
    /// Bindings ended because their session said that it is over.
    pub affinity_closed: u64,
    /// Bindings taken over from other frontends or from before a restart, those that waited for their worker
    /// included.
    pub bindings_imported: u64,
    /// Bindings of other frontends that confirmed what was known.
    pub bindings_confirmed: u64,
    /// Bindings of other frontends that lost against what was known, or could not be used.
    pub bindings_ignored: u64,
    /// Events for other frontends that were dropped.
    pub outbound_dropped: u64,
    /// Sessions moved, by [`RebindReason::index`].
    pub rebinds: [u64; RebindReason::ALL.len()],
    /// Cached prompt tokens on the best rank that was scored, summed over placements. Where a session's
    /// binding decides, that is its rank alone.
    pub best_cached_tokens: u64,
    /// Cached prompt tokens on the chosen rank.
    pub selected_cached_tokens: u64,
    /// Cached prompt tokens given up because sessions are spread by the load they promise.
    pub spread_lost_tokens: u64,
    /// Placements on another rank than the one with the most of the prompt cached.
    pub non_max_overlap_selections: u64,
    /// Placements without any cached block on any rank.
    pub no_overlap_decisions: u64,
    /// Bookings of other frontends' requests dropped because nothing was heard of them.
    pub bookings_expired: u64,
    /// Steps of other frontends' requests that were taken over.
    pub sequences_applied: u64,
    /// Failures reported of workers, overload answers not included.
    pub worker_failures: u64,
}

impl Stats {
    /// Returns the number of sessions moved for one reason.
    pub const fn rebinds_for(&self, reason: RebindReason) -> u64 {
        self.rebinds[reason.index()]
    }
}

/// The pool at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counts since the start.
    pub stats: Stats,
    /// Live bindings, tentative ones included.
    pub bindings: usize,
    /// Bindings kept until their worker joins.
    pub waiting_bindings: usize,
    /// Memory of the table of bindings, bytes, the ids not included.
    pub binding_bytes: usize,
    /// Running requests, those of other frontends included.
    pub active_requests: usize,
    /// Of those, the ones that other frontends placed.
    pub remote_requests: usize,
    /// Requests that wait for room.
    pub queue: QueueSize,
    /// The ranks, sorted.
    pub ranks: Vec<RankSnapshot>,
}

/// One rank at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankSnapshot {
    /// The rank.
    pub rank: WorkerRank,
    /// Sessions bound to it.
    pub bindings: usize,
    /// Blocks in use by running requests.
    pub active_blocks: u64,
    /// Prompt tokens still to be computed.
    pub prefill_tokens: u64,
    /// Running requests.
    pub active_requests: u32,
    /// Requests placed since it joined.
    pub placed: u64,
    /// Prompt tokens of those.
    pub asked_tokens: u64,
    /// Of those tokens, the ones that were expected in its cache.
    pub cached_tokens: u64,
    /// Blocks in use, as its worker reports; `None` without a recent report.
    pub used_blocks: Option<u64>,
    /// Blocks it has, as its worker reports or its card says.
    pub total_blocks: Option<u64>,
    /// Over a busy threshold.
    pub busy: bool,
    /// Its worker failed or refused lately and is avoided.
    pub quarantined: bool,
    /// Its worker is going down.
    pub draining: bool,
}
