//! What routers, indexes and planes count themselves, taken over at a scrape.

use std::collections::{BTreeSet, HashMap};

use prometheus::IntCounter;
use roost_cluster::{AnnouncerStats, ClusterStats};
use roost_kv::{IndexStats, WorkerRank};
use roost_router::{QueueSize, RebindReason, Snapshot, Stats};
use roost_telemetry::{RecordStats, spans::SpanStats};
use roost_tokenizer::CacheStats;
use roost_wire::{ClientStats, ListenerStats};

use super::queue::QueueSeries;
use super::share::Share;
use super::{WorkerType, families::Families, labels};

/// Everything that is counted elsewhere, at one moment.
#[derive(Debug, Default)]
pub struct Sample<'a> {
    /// Every pool there is.
    pub pools: Vec<PoolSample<'a>>,
    /// The request plane.
    pub client: ClientStats,
    /// Where workers call home.
    pub listener: ListenerStats,
    /// Discovery and events.
    pub cluster: ClusterStats,
    /// What was told to other frontends.
    pub announced: AnnouncerStats,
    /// Requests that wait for a thread to prepare them.
    pub prepare_waiting: usize,
    /// Requests that wait for their model to become ready.
    pub held: usize,
    /// The cache of prompt segments.
    pub segments: CacheStats,
    /// Bytes of sessions' last prompts.
    pub session_bytes: usize,
    /// The request trace.
    pub trace: RecordStats,
    /// Spans for a collector.
    pub spans: SpanStats,
}

/// The workers of one model and leg.
#[derive(Debug)]
pub struct PoolSample<'a> {
    /// Model, by its card.
    pub model: &'a str,
    /// Tells versions of the model apart that serve at the same time; their counts go into the same series.
    pub version: &'a str,
    /// Leg.
    pub worker_type: WorkerType,
    /// Namespace, component and endpoint of its workers.
    pub target: [&'a str; 3],
    /// Workers whose cache is not known from their own events.
    pub without_events: usize,
    /// Its router.
    pub router: Snapshot,
    /// Its index.
    pub index: IndexStats,
}

/// What was taken over so far. Counters elsewhere start at zero when a pool or a client is made anew; only growth is
/// added to ours.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    pools: HashMap<(Box<str>, Box<str>, WorkerType), PoolSeries>,
    client: ClientStats,
    listener: ListenerStats,
    cluster: ClusterStats,
    announced: AnnouncerStats,
    segments: CacheStats,
    trace: RecordStats,
    spans: SpanStats,
}

#[derive(Debug)]
struct PoolSeries {
    stats: Stats,
    skipped_events: u64,
    queue: QueueSeries,
    placed: IntCounter,
    rejected: [IntCounter; 4],
    turns: [IntCounter; 4],
    ended: [IntCounter; 3],
    told: [IntCounter; 3],
    untold: IntCounter,
    table_bytes: Share,
    waiting_bindings: Share,
    remote_requests: Share,
    rebinds: [IntCounter; RebindReason::ALL.len()],
    saved: IntCounter,
    lost: IntCounter,
    spread_lost: IntCounter,
    bookings_expired: IntCounter,
    worker_failures: IntCounter,
    best: IntCounter,
    selected: IntCounter,
    non_max: IntCounter,
    index_blocks: Share,
    index_residencies: Share,
    index_bytes: Share,
    index_skipped: IntCounter,
    sequences: IntCounter,
    without_events: Share,
}

impl Sampled {
    pub(super) fn take(&mut self, families: &Families, sample: &Sample<'_>) {
        let mut present: BTreeSet<(WorkerRank, WorkerType)> = BTreeSet::new();
        for pool in &sample.pools {
            for rank in &pool.router.ranks {
                present.insert((rank.rank, pool.worker_type));
                let gauges = families.workers.of(rank.rank, pool.worker_type);
                gauges.active_blocks.set(whole(rank.active_blocks));
                gauges.prefill_tokens.set(whole(rank.prefill_tokens));
                gauges.active_requests.set(i64::from(rank.active_requests));
                gauges.bindings.set(whole(rank.bindings as u64));
                gauges.busy.set(i64::from(rank.busy));
                gauges.quarantined.set(i64::from(rank.quarantined));
                gauges.draining.set(i64::from(rank.draining));
            }
            let key = (Box::from(pool.model), Box::from(pool.version), pool.worker_type);
            self.pools.entry(key).or_insert_with(|| PoolSeries::new(families, pool)).take(pool);
        }
        families.workers.retain(|key| present.contains(key));
        self.pools.retain(|(model, version, worker_type), series| {
            let is_there = sample.pools.iter().any(|pool| {
                (pool.model, pool.version, pool.worker_type) == (&**model, &**version, *worker_type)
            });
            if !is_there {
                series.gone();
            }
            is_there
        });
        self.take_client(families, &sample.client);
        self.take_listener(families, sample.listener);
        self.take_cluster(families, &sample.cluster);
        self.take_announced(families, sample.announced);
        let before = std::mem::replace(&mut self.segments, sample.segments);
        families.prompt_cache.take(&before, &sample.segments, sample.session_bytes);
        let before = std::mem::replace(&mut self.trace, sample.trace);
        let records = |of: fn(RecordStats) -> u64| growth(of(before), of(sample.trace));
        families.traced[0].inc_by(records(|stats| stats.written));
        families.traced[1].inc_by(records(|stats| stats.dropped));
        families.traced[2].inc_by(records(|stats| stats.failed));
        let before = std::mem::replace(&mut self.spans, sample.spans);
        let spans = |of: fn(SpanStats) -> u64| growth(of(before), of(sample.spans));
        families.spans[0].inc_by(spans(|stats| stats.exported));
        families.spans[1].inc_by(spans(|stats| stats.dropped));
        families.spans[2].inc_by(spans(|stats| stats.failed));
        families.prepare_waiting.set(whole(sample.prepare_waiting as u64));
        families.held.set(whole(sample.held as u64));
    }

    fn take_listener(&mut self, families: &Families, now: ListenerStats) {
        let before = std::mem::replace(&mut self.listener, now);
        let plane = &families.plane;
        plane.received_bytes.inc_by(growth(before.received_bytes, now.received_bytes));
        plane.accept_pauses.inc_by(growth(before.accept_errors, now.accept_errors));
    }

    fn take_client(&mut self, families: &Families, now: &ClientStats) {
        let before = std::mem::replace(&mut self.client, *now);
        let plane = &families.plane;
        let add =
            |counter: &IntCounter, of: fn(&ClientStats) -> u64| counter.inc_by(growth(of(&before), of(now)));
        add(&plane.calls, |stats| stats.calls);
        add(&plane.sent_bytes, |stats| stats.sent_bytes);
        add(&plane.errors, |stats| stats.connect_failures + stats.ack_timeouts + stats.disconnects);
        let ack = |result| plane.acks.with_label_values(&[result]);
        add(&ack("accepted"), |stats| stats.acks_accepted);
        add(&ack("overloaded"), |stats| stats.acks_overloaded);
        add(&ack("unavailable"), |stats| stats.acks_unavailable);
        add(&ack("refused"), |stats| stats.acks_refused);
        let deadline = |wait| plane.deadlines.with_label_values(&[wait]);
        add(&deadline("ack"), |stats| stats.ack_timeouts);
        add(&deadline("call_home"), |stats| stats.call_home_timeouts);
        add(&deadline("prologue"), |stats| stats.prologue_timeouts);
        let failure = |failure| plane.failures.with_label_values(&[failure]);
        add(&failure("connect"), |stats| stats.connect_failures);
        add(&failure("disconnect"), |stats| stats.disconnects);
        add(&failure("pool_full"), |stats| stats.pool_full);
        add(&failure("prologue"), |stats| stats.prologue_errors);
        plane.connections.set(whole(now.open_connections));
    }

    fn take_cluster(&mut self, families: &Families, now: &ClusterStats) {
        let before = std::mem::replace(&mut self.cluster, *now);
        families.ingress.take(&before, now);
        let f = &families.cluster;
        let add =
            |counter: &IntCounter, of: fn(&ClusterStats) -> u64| counter.inc_by(growth(of(&before), of(now)));
        let events = |result| f.events.with_label_values(&[result]);
        add(&events("applied"), |stats| stats.kv_events);
        add(&events("ignored"), |stats| stats.kv_events_ignored);
        add(&events("stale"), |stats| stats.kv_events_stale);
        add(&events("foreign"), |stats| stats.kv_events_foreign);
        add(&f.gaps, |stats| stats.kv_gaps);
        let recoveries = |result| f.recoveries.with_label_values(&[result]);
        add(&recoveries("succeeded"), |stats| stats.recoveries);
        add(&recoveries("failed"), |stats| stats.recoveries_failed);
        add(&f.overflows, |stats| stats.recovery_overflows);
        add(&f.late, |stats| stats.late_messages);
        add(&f.undecodable, |stats| stats.undecodable_messages);
        add(&f.bad_records, |stats| stats.bad_records);
        add(&f.forgotten, |stats| stats.ranks_forgotten);
        f.holes.set(whole(now.ranks_with_holes));
        f.lag.set(whole(now.kv_lag_ms));
        f.ambiguous.set(whole(now.ambiguous_ranks));
        f.silent.set(whole(now.workers_without_events));
        f.subscriptions.set(whole(now.subscriptions));
        f.connected.set(whole(now.connected));
        add(&f.joined, |stats| stats.joined);
        add(&f.left, |stats| stats.left);
        f.store_unreachable.set(now.store_unreachable.as_secs_f64());
    }
}

impl Sampled {
    fn take_announced(&mut self, families: &Families, now: AnnouncerStats) {
        let before = std::mem::replace(&mut self.announced, now);
        let words = |result| families.cluster.announced.with_label_values(&[result]);
        words("published").inc_by(growth(before.published, now.published));
        words("dropped").inc_by(growth(before.dropped, now.dropped));
    }
}

impl PoolSeries {
    fn new(families: &Families, pool: &PoolSample<'_>) -> Self {
        let (model, worker_type) = (pool.model, pool.worker_type.as_str());
        let phase = pool.worker_type.phase();
        let f = &families.pool;
        let pool_labels = &[model, worker_type];
        let with = |value| [model, worker_type, value];
        Self {
            stats: Stats::default(),
            skipped_events: 0,
            queue: families.queue.of(model, worker_type),
            placed: f.placed.with_label_values(pool_labels),
            rejected: ["overloaded", "other", "queue_full", "waited_too_long"]
                .map(|reason| f.rejected.with_label_values(&with(reason))),
            turns: ["hit", "new", "followed", "unbound"]
                .map(|outcome| f.turns.with_label_values(&with(outcome))),
            ended: ["expired", "evicted", "closed"].map(|reason| f.ended.with_label_values(&with(reason))),
            told: ["imported", "confirmed", "ignored"].map(|result| f.told.with_label_values(&with(result))),
            untold: f.untold.with_label_values(pool_labels),
            table_bytes: Share::of(f.table_bytes.with_label_values(pool_labels)),
            waiting_bindings: Share::of(f.waiting_bindings.with_label_values(pool_labels)),
            remote_requests: Share::of(f.remote_requests.with_label_values(pool_labels)),
            rebinds: RebindReason::ALL
                .map(|reason| f.rebinds.with_label_values(&with(labels::rebind_reason(reason)))),
            saved: f.saved.with_label_values(pool_labels),
            lost: f.lost.with_label_values(pool_labels),
            spread_lost: f.spread_lost.with_label_values(pool_labels),
            bookings_expired: f.bookings_expired.with_label_values(pool_labels),
            worker_failures: f.worker_failures.with_label_values(pool_labels),
            best: families.router.best(model, phase),
            selected: families.router.selected(model, phase),
            non_max: families.router.non_max(worker_type),
            index_blocks: Share::of(f.index_blocks.with_label_values(pool_labels)),
            index_residencies: Share::of(f.index_residencies.with_label_values(pool_labels)),
            index_bytes: Share::of(f.index_bytes.with_label_values(pool_labels)),
            index_skipped: f.index_skipped.with_label_values(pool_labels),
            sequences: families.ingress.applied(model, pool.target[0], worker_type),
            without_events: Share::of(families.ingress.mismatched(model, pool.target, worker_type)),
        }
    }

    fn take(&mut self, pool: &PoolSample<'_>) {
        let now = pool.router.stats;
        // A pool that was made anew has counted less than before: nothing of the old one is in it.
        if now.placed < self.stats.placed {
            self.stats = Stats::default();
        }
        let before = std::mem::replace(&mut self.stats, now);
        let add = |counter: &IntCounter, of: fn(&Stats) -> u64| counter.inc_by(growth(of(&before), of(&now)));
        add(&self.placed, |stats| stats.placed);
        add(&self.rejected[0], |stats| stats.rejected_overloaded);
        add(&self.rejected[1], |stats| stats.rejected_other);
        add(&self.rejected[2], |stats| stats.rejected_queue_full);
        add(&self.rejected[3], |stats| stats.rejected_waited);
        self.queue.take(&before, &now, pool.router.queue);
        add(&self.turns[0], |stats| stats.affinity_hits);
        add(&self.turns[1], |stats| stats.affinity_new);
        add(&self.turns[2], |stats| stats.affinity_followed);
        add(&self.turns[3], |stats| stats.affinity_table_full);
        add(&self.ended[0], |stats| stats.affinity_expired);
        add(&self.ended[1], |stats| stats.affinity_evicted);
        add(&self.ended[2], |stats| stats.affinity_closed);
        add(&self.told[0], |stats| stats.bindings_imported);
        add(&self.told[1], |stats| stats.bindings_confirmed);
        add(&self.told[2], |stats| stats.bindings_ignored);
        add(&self.untold, |stats| stats.outbound_dropped);
        self.table_bytes.set(whole(pool.router.binding_bytes as u64));
        self.waiting_bindings.set(whole(pool.router.waiting_bindings as u64));
        self.remote_requests.set(whole(pool.router.remote_requests as u64));
        for (counter, reason) in self.rebinds.iter().zip(RebindReason::ALL) {
            counter.inc_by(growth(before.rebinds_for(reason), now.rebinds_for(reason)));
        }
        add(&self.saved, |stats| stats.selected_cached_tokens);
        add(&self.selected, |stats| stats.selected_cached_tokens);
        add(&self.best, |stats| stats.best_cached_tokens);
        add(&self.lost, |stats| stats.best_cached_tokens.saturating_sub(stats.selected_cached_tokens));
        add(&self.spread_lost, |stats| stats.spread_lost_tokens);
        add(&self.non_max, |stats| stats.non_max_overlap_selections);
        add(&self.bookings_expired, |stats| stats.bookings_expired);
        add(&self.worker_failures, |stats| stats.worker_failures);
        add(&self.sequences, |stats| stats.sequences_applied);
        self.without_events.set(whole(pool.without_events as u64));
        self.index_blocks.set(whole(pool.index.blocks as u64));
        self.index_residencies.set(whole(pool.index.residencies as u64));
        self.index_bytes.set(whole(pool.index.bytes as u64));
        let skipped = pool.index.skipped_events;
        self.index_skipped.inc_by(growth(std::mem::replace(&mut self.skipped_events, skipped), skipped));
    }

    /// The pool is no more: its index is empty. Counters keep what they have.
    fn gone(&mut self) {
        self.queue.take(&Stats::default(), &Stats::default(), QueueSize::default());
        for gauge in [
            &mut self.table_bytes,
            &mut self.waiting_bindings,
            &mut self.remote_requests,
            &mut self.index_blocks,
            &mut self.index_residencies,
            &mut self.index_bytes,
            &mut self.without_events,
        ] {
            gauge.set(0);
        }
    }
}

/// How much a counter grew; after a restart, all it has.
pub(super) fn growth(before: u64, now: u64) -> u64 {
    now.checked_sub(before).unwrap_or(now)
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
