//! What has happened so far.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::events::{FeedStats, Meter, SocketStats};
use crate::record::Topic;

/// Counters (growing) and gauges (as of now) of the cluster view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterStats {
    /// KV events passed on, those of dumps included.
    pub kv_events: u64,
    /// KV events of no concern: other residency domains, unknown tiers and kinds.
    pub kv_events_ignored: u64,
    /// KV events that were seen before.
    pub kv_events_stale: u64,
    /// KV events of another rank than their source's.
    pub kv_events_foreign: u64,
    /// Gaps in a rank's event numbers.
    pub kv_gaps: u64,
    /// Recoveries that succeeded, first contacts included.
    pub recoveries: u64,
    /// Recoveries given up.
    pub recoveries_failed: u64,
    /// Times that a rank's blocks were forgotten because events were lost for good.
    pub ranks_forgotten: u64,
    /// Live events given up because too many waited for a recovery.
    pub recovery_overflows: u64,
    /// Messages of workers or sources that had gone.
    pub late_messages: u64,
    /// Messages that could not be decoded.
    pub undecodable_messages: u64,
    /// Records that could not be used.
    pub bad_records: u64,
    /// Gauge: ranks with more than one event source; they are not indexed.
    pub ambiguous_ranks: u64,
    /// Gauge: ranks whose blocks are known in part only, because their worker does not answer recoveries.
    pub ranks_with_holes: u64,
    /// Gauge: age of the newest message of KV events when it was read, milliseconds, by the clocks of both sides.
    pub kv_lag_ms: u64,
    /// Gauge: workers that ought to have KV events and have none.
    pub workers_without_events: u64,
    /// ZeroMQ sockets of KV events.
    pub kv_sockets: SocketStats,
    /// ZeroMQ sockets on which others tell of what they place.
    pub sequence_sockets: SocketStats,
    /// Gauge: event publishers followed.
    pub subscriptions: u64,
    /// Gauge: event publishers that are connected.
    pub connected: u64,
    /// Workers that joined.
    pub joined: u64,
    /// Workers that left.
    pub left: u64,
    /// Gauge: for how long the store has been out of reach; zero while it can be read.
    pub store_unreachable: Duration,
}

impl ClusterStats {
    /// Takes over what subscriptions count themselves.
    pub(super) fn take(&mut self, meter: &Meter) {
        self.kv_lag_ms = meter.kv_lag_ms.load(Relaxed);
        meter.read(Topic::KvEvents, &mut self.kv_sockets);
        meter.read(Topic::ActiveSequences, &mut self.sequence_sockets);
    }

    /// Adds what a feed has counted between two moments.
    pub(super) fn add(&mut self, before: FeedStats, after: FeedStats) {
        self.kv_events += after.applied - before.applied;
        self.kv_events_ignored += after.ignored - before.ignored;
        self.kv_events_stale += after.stale - before.stale;
        self.kv_events_foreign += after.foreign - before.foreign;
        self.kv_gaps += after.gaps - before.gaps;
        self.recoveries += after.recovered - before.recovered;
        self.recoveries_failed += after.failed - before.failed;
        self.ranks_forgotten += after.forgotten - before.forgotten;
        self.recovery_overflows += after.overflowed - before.overflowed;
    }
}
