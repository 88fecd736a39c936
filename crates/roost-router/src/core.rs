//! The decision core of one pool: no locks, no clock, no IO. Same inputs and seed, same decisions.

use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use roost_kv::{WorkerId, WorkerRank};

use crate::affinity::{Table, Waiting};
use crate::busy::RankUse;
use crate::explain::{Candidate, Decisions};
use crate::fleet::{Fleet, Member, Report, Retired};
use crate::load::{Load, RankSlot};
use crate::popularity::Popularity;
use crate::quarantine::Standing;
use crate::queue::Queue;
use crate::replica::{Replica, SequenceStep};
use crate::{
    AffinityMode, BookingId, BusyThresholds, Config, ConfigError, Decision, End, Failure, RankSnapshot,
    Snapshot, Stats, Worker,
};

mod admission;
mod bound;
mod place;
mod preview;
mod replicate;
mod score;
#[cfg(test)]
mod tests;

pub use admission::Submitted;
pub use preview::Preview;

/// The router of one pool: one model in one role.
///
/// Every method takes the time; it must not run backwards. Nothing blocks or waits.
#[derive(Debug)]
pub struct Core {
    config: Config,
    rng: Rng,
    fleet: Fleet,
    load: Load,
    queue: Queue,
    /// `None` if affinity is off.
    affinity: Option<Table>,
    /// Bindings to workers that have not joined yet.
    waiting: Waiting,
    replica: Replica,
    popularity: Popularity,
    decisions: Decisions,
    stats: Stats,
    /// Requests placed by round robin.
    turn: u64,
    /// When quiet bookings are looked for next; set by the first [`Core::expire`].
    next_sweep: Option<Instant>,
    /// Scratch space of a decision.
    candidates: Vec<Candidate>,
    shared: Vec<u32>,
}

/// What [`Core::expire`] ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Sessions whose idle time was over.
    pub bindings: usize,
    /// Requests of other frontends of which nothing was heard.
    pub bookings: usize,
    /// Requests that waited too long for room.
    pub waiting: usize,
}

// === impl Core: set-up and workers ===

impl Core {
    /// Creates a pool without workers. `seed` determines every random choice.
    pub fn new(config: Config, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let role = config.role;
        let config = config.for_role(role);
        let ttl = config.affinity.ttl.filter(|_| config.affinity.mode != AffinityMode::Off);
        Ok(Self {
            affinity: ttl.map(|ttl| Table::new(&config.affinity, ttl)),
            waiting: Waiting::new(config.affinity.capacity),
            replica: Replica::default(),
            decisions: Decisions::new(config.decisions),
            queue: Queue::new(config.queue),
            config,
            rng: Rng::with_seed(seed),
            fleet: Fleet::default(),
            load: Load::default(),
            popularity: Popularity::default(),
            stats: Stats::default(),
            turn: 0,
            next_sweep: None,
            candidates: Vec::new(),
            shared: Vec::new(),
        })
    }

    /// Returns the options in effect.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds a worker, or takes over its changed description. It is not draining any more.
    pub fn worker_joined(&mut self, now: Instant, worker: Worker) {
        let id = worker.id;
        let retired = self.fleet.join(worker);
        self.retire(now, retired);
        let slots = self.fleet.members.get(&id).map_or(&[][..], |member| &member.slots);
        if let Some(&highest) = slots.iter().max() {
            self.load.ensure_rank(highest);
        }
        self.welcome(now, id);
        self.call_waiting(now);
    }

    /// Removes a worker with its bookings and bindings. Its running requests may end later, to no effect.
    /// Returns the number of sessions that lost their binding.
    pub fn worker_left(&mut self, now: Instant, worker: WorkerId) -> usize {
        let retired = self.fleet.leave(worker);
        let ended = self.retire(now, retired);
        self.call_waiting(now);
        ended
    }

    /// Stops giving requests to a worker; those that run go on. Joining again undoes it.
    pub fn worker_draining(&mut self, worker: WorkerId) {
        if let Some(member) = self.fleet.member_mut(worker) {
            member.draining = true;
        }
    }

    /// Records that a worker failed a request, or refused it as overloaded: it is avoided for a while.
    pub fn worker_failed(&mut self, now: Instant, worker: WorkerId, kind: Failure) {
        let Some(member) = self.fleet.member_mut(worker) else { return };
        member.quarantine.failed(now, kind, &self.config.quarantine);
        if kind != Failure::Overloaded {
            self.stats.worker_failures += 1;
        }
        self.call_waiting(now);
    }

    /// Takes over a worker's own account of a rank: KV blocks in use, and in all if it says.
    pub fn load(&mut self, now: Instant, rank: WorkerRank, used_blocks: u64, total_blocks: Option<u64>) {
        if let Some((_, slot)) = self.fleet.get(rank) {
            self.fleet.report(slot, Report { at: now, used_blocks, total_blocks });
            self.call_waiting(now);
        }
    }

    /// Returns the thresholds beyond which a rank is busy.
    pub fn busy_thresholds(&self) -> BusyThresholds {
        self.config.busy
    }

    /// Replaces the thresholds.
    pub fn set_busy_thresholds(&mut self, thresholds: BusyThresholds) -> Result<(), ConfigError> {
        thresholds.validate()?;
        self.config.busy = thresholds;
        Ok(())
    }

    fn retire(&mut self, now: Instant, retired: Retired) -> usize {
        for &(rank, _) in &retired.0 {
            for booking in self.load.on_rank(rank) {
                self.give_back(now, booking);
            }
        }
        let gone = |rank: WorkerRank| retired.0.iter().any(|(other, _)| *other == rank);
        let ended = match &mut self.affinity {
            Some(table) if !retired.0.is_empty() => table.forget_ranks(now, gone),
            _ => 0,
        };
        self.stats.rebinds[crate::RebindReason::WorkerGone.index()] += ended as u64;
        self.fleet.reuse(retired);
        ended
    }

    fn give_back(&mut self, now: Instant, id: BookingId) -> bool {
        let Some(booking) = self.load.release(id) else { return false };
        if let (Some(table), Some(hold)) = (&mut self.affinity, booking.hold) {
            if self.replica.shares_bindings()
                && let Some(event) = table.announcement(hold, booking.rank)
            {
                self.replica.binding(event);
            }
            table.release(now, hold, booking.rank);
        }
        self.replica.step(id, booking.rank, SequenceStep::Ended);
        if booking.probe
            && !booking.committed
            && let Some(member) = self.fleet.member_mut(booking.rank.worker)
        {
            member.quarantine.abandon_probe();
        }
        true
    }
}

// === impl Core: the life of a placed request ===

impl Core {
    /// The request reached its worker: its session is bound, and a worker on probation trusted.
    pub fn committed(&mut self, now: Instant, id: BookingId) {
        let Some(booking) = self.load.touch(id) else { return };
        if std::mem::replace(&mut booking.committed, true) {
            return;
        }
        let (rank, hold, probe) = (booking.rank, booking.hold, booking.probe);
        if probe && let Some(member) = self.fleet.member_mut(rank.worker) {
            member.quarantine.accepted();
        }
        if let (Some(table), Some(hold)) = (&mut self.affinity, hold)
            && let Some(reason) = table.commit(now, hold, rank)
        {
            self.stats.rebinds[reason.index()] += 1;
        }
        if let (Some(table), Some(hold)) = (&mut self.affinity, hold)
            && self.replica.shares_bindings()
            && let Some(event) = table.announcement(hold, rank)
        {
            self.replica.binding(event);
        }
    }

    /// The first output token came: the prompt has been computed. Commits too, if that was not done.
    pub fn first_token(&mut self, now: Instant, id: BookingId) {
        self.committed(now, id);
        self.load.prefill_done(id);
        if let Some(booking) = self.load.touch(id) {
            let rank = booking.rank;
            self.replica.step(id, rank, SequenceStep::PrefillCompleted);
        }
        self.call_waiting(now);
        if let Some(booking) = self.load.touch(id)
            && let Some(member) = self.fleet.member_mut(booking.rank.worker)
        {
            member.quarantine.delivered();
        }
    }

    /// `tokens` more output tokens came. A sign of life, and more blocks if the pool tracks them.
    pub fn output_tokens(&mut self, _now: Instant, id: BookingId, tokens: u32) {
        let track = self.config.track_output_blocks && self.config.track_active_blocks;
        let Some(booking) = self.load.touch(id) else { return };
        let length = |output: u64| u64::from(booking.isl_tokens) + output;
        let blocks = |output: u64| length(output).div_ceil(u64::from(booking.block_size));
        let before = blocks(booking.output_tokens);
        let output = booking.output_tokens + u64::from(tokens);
        let grown = blocks(output) - before;
        booking.output_tokens = output;
        let expected = booking.expected_output_tokens.filter(|expected| *expected > 0);
        let left = expected.map(|expected| (1.0 - output as f64 / f64::from(expected)).max(0.0));
        if track && grown > 0 {
            self.load.output_blocks(id, grown, left);
        }
    }

    /// The request is over: gives its load back and lets its session's idle time begin. Without effect if
    /// done before.
    pub fn finish(&mut self, now: Instant, id: BookingId, end: End) {
        let Some(booking) = self.load.touch(id) else { return };
        if end == End::Ok && !booking.committed {
            self.committed(now, id);
        }
        self.give_back(now, id);
        self.call_waiting(now);
    }

    /// Ends sessions whose idle time is over, requests that waited too long for room, and bookings of other frontends'
    /// requests of which nothing was heard for one to two expiry intervals. A booking of [`Core::place`] lasts until
    /// [`Core::finish`]. Call it every second or so; decisions do not depend on it.
    pub fn expire(&mut self, now: Instant) -> Expired {
        let bindings = self.affinity.as_mut().map_or(0, |table| table.expire(now));
        let mut bookings = 0;
        let due = *self.next_sweep.get_or_insert(now + self.config.booking_expiry);
        if now >= due {
            self.next_sweep = Some(now + self.config.booking_expiry);
            for id in self.load.sweep() {
                bookings += usize::from(self.give_back(now, id));
            }
            self.sweep_replica(now);
        }
        self.stats.bookings_expired += bookings as u64;
        let waiting = self.queue.expire(now);
        self.stats.rejected_waited += waiting as u64;
        self.call_waiting(now);
        Expired { bindings, bookings, waiting }
    }
}

// === impl Core: questions ===

impl Core {
    /// Returns whether sessions are bound.
    pub fn has_affinity(&self) -> bool {
        self.affinity.is_some()
    }

    /// Returns the rank a session is bound to, tentatively or not. Does not renew the binding.
    pub fn bound(&self, now: Instant, session: &str) -> Option<WorkerRank> {
        self.affinity.as_ref()?.find(now, session).map(|binding| binding.target)
    }

    /// Ends a session: its binding goes with its last running turn, at once if none runs. A further turn before that
    /// keeps it. False if it had none.
    pub fn unbind(&mut self, now: Instant, session: &str) -> bool {
        self.affinity.as_mut().is_some_and(|table| table.unbind(now, session))
    }

    /// Returns up to `limit` decisions about a request or session, the latest first.
    pub fn decisions_about(&self, name: &str, limit: usize) -> Vec<Arc<Decision>> {
        self.decisions.about(name, limit)
    }

    /// Returns up to `limit` decisions, the latest first.
    pub fn recent_decisions(&self, limit: usize) -> Vec<Arc<Decision>> {
        self.decisions.recent(limit)
    }

    /// Returns the number of decisions made, rejections included.
    pub fn decisions_made(&self) -> u64 {
        self.decisions.made()
    }

    /// Returns the counters.
    pub fn stats(&self) -> Stats {
        let ended = |table: &Table| (table.expired, table.evicted, table.closed);
        let (expired, evicted, closed) = self.affinity.as_ref().map_or((0, 0, 0), ended);
        Stats {
            affinity_expired: expired,
            affinity_evicted: evicted,
            affinity_closed: closed,
            outbound_dropped: self.replica.dropped,
            ..self.stats
        }
    }

    /// Returns counters and the state of every rank.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let members = self.fleet.members.values();
        let ranks = members.flat_map(|member| {
            member.ranks().map(|(rank, slot)| {
                let usage = self.load.usage(slot);
                let report = self.fleet.reported(now, slot, self.config.report_max_age);
                let tally = self.fleet.tally(slot);
                RankSnapshot {
                    rank,
                    bindings: self.affinity.as_ref().map_or(0, |table| table.bindings(rank)),
                    active_blocks: usage.active_blocks,
                    prefill_tokens: usage.prefill_tokens,
                    active_requests: usage.requests,
                    placed: tally.placed,
                    asked_tokens: tally.asked_tokens,
                    cached_tokens: tally.cached_tokens,
                    used_blocks: report.map(|report| report.used_blocks),
                    total_blocks: report
                        .and_then(|report| report.total_blocks)
                        .or(member.worker.total_kv_blocks),
                    busy: self.is_busy(now, member, slot),
                    quarantined: member.quarantine.standing(now) != Standing::Trusted,
                    draining: member.draining,
                }
            })
        });
        Snapshot {
            ranks: ranks.collect(),
            stats: self.stats(),
            bindings: self.affinity.as_ref().map_or(0, Table::len),
            waiting_bindings: self.waiting.len(),
            binding_bytes: self.affinity.as_ref().map_or(0, Table::bytes),
            remote_requests: self.replica.sequences.remote(),
            active_requests: self.load.len(),
            queue: self.queue.size(),
        }
    }

    fn is_busy(&self, now: Instant, member: &Member, slot: RankSlot) -> bool {
        let usage = self.load.usage(slot);
        let report = self.fleet.reported(now, slot, self.config.report_max_age);
        self.config.busy.is_busy(RankUse {
            prefill_tokens: usage.prefill_tokens,
            booked_blocks: usage.active_blocks,
            reported_blocks: report.map(|report| report.used_blocks),
            total_blocks: report.and_then(|report| report.total_blocks).or(member.worker.total_kv_blocks),
            max_batched_tokens: member.worker.max_batched_tokens,
        })
    }
}
