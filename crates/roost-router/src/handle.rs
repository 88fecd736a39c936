//! The core behind a lock, for use from many tasks. The only file with a lock.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Instant;

use parking_lot::Mutex;
use roost_kv::{WorkerId, WorkerRank};
use waiting::Wakers;

use crate::replica::{Applied, BindingEvent, Identity, Outbound, SequenceEvent};
use crate::{
    BookingId, BusyThresholds, ConfigError, Core, Decision, End, Expired, Failure, Pin, Placement, Preview,
    Rejection, Request, Role, SavedBinding, Sessions, Snapshot, Stats, Worker,
};

#[cfg(test)]
mod tests;
mod waiting;

pub use waiting::{Submission, Waiting};

/// Shared access to the [`Core`] of one pool. Cloning is cheap.
///
/// The lock is held for one decision at a time; no method waits for anything else, so all of them may be
/// called from async code.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    clock: Box<dyn Fn() -> Instant + Send + Sync>,
    outbound: OnceLock<Sink>,
    decisions: OnceLock<Trace>,
}

type Sink = Box<dyn Fn(Outbound) + Send + Sync>;

/// Who is told of decisions, and of which share of them.
struct Trace {
    share: f64,
    sink: Box<dyn Fn(Arc<Decision>) + Send + Sync>,
}

/// Bindings handled under one lock.
const CHUNK: usize = 1024;
struct State {
    core: Core,
    wakers: Wakers,
}

/// A placed request's hold on its load and its session. Dropping it without [`Lease::finish`] counts as
/// [`End::Cancelled`].
#[must_use = "dropping the lease gives the booking back"]
#[derive(Debug)]
pub struct Lease {
    router: Router,
    booking: BookingId,
    rank: WorkerRank,
    open: bool,
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}

// === impl Router ===

impl Router {
    /// Shares `core`, on the system's monotonic clock.
    pub fn new(core: Core) -> Self {
        Self::with_clock(core, Instant::now)
    }

    /// Shares `core` on another clock, as for tests with paused time. It must not run backwards.
    pub fn with_clock(core: Core, clock: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        let state = Mutex::new(State { core, wakers: Wakers::default() });
        Self {
            shared: Arc::new(Shared {
                state,
                clock: Box::new(clock),
                outbound: OnceLock::new(),
                decisions: OnceLock::new(),
            }),
        }
    }

    /// Places a request, whether ranks have room or not; see [`Core::place`].
    pub fn place(&self, request: &Request<'_>) -> Result<(Placement, Lease), Rejection> {
        let placement = self.decide(|core, now| core.place(now, request))?;
        let (booking, rank) = (placement.booking, placement.rank);
        Ok((placement, Lease { router: self.clone(), booking, rank, open: true }))
    }

    /// See [`Core::full_for`].
    pub fn full_for(&self, session: Option<&str>, pin: Pin) -> Option<Rejection> {
        self.with(|core, now| core.full_for(now, session, pin))
    }

    /// See [`Core::turned_away`].
    pub fn turned_away(&self, rejection: Rejection) {
        self.with(|core, _| core.turned_away(rejection));
    }

    /// See [`Core::preview`].
    pub fn preview(&self, request: &Request<'_>) -> Result<Preview, Rejection> {
        self.with(|core, now| core.preview(now, request))
    }

    /// See [`Core::worker_joined`].
    pub fn worker_joined(&self, worker: Worker) {
        self.with(|core, now| core.worker_joined(now, worker));
    }

    /// See [`Core::worker_left`].
    pub fn worker_left(&self, worker: WorkerId) -> usize {
        self.with(|core, now| core.worker_left(now, worker))
    }

    /// See [`Core::worker_draining`].
    pub fn worker_draining(&self, worker: WorkerId) {
        self.with(|core, _| core.worker_draining(worker));
    }

    /// See [`Core::worker_failed`].
    pub fn worker_failed(&self, worker: WorkerId, kind: Failure) {
        self.with(|core, now| core.worker_failed(now, worker, kind));
    }

    /// See [`Core::load`].
    pub fn load(&self, rank: WorkerRank, used_blocks: u64, total_blocks: Option<u64>) {
        self.with(|core, now| core.load(now, rank, used_blocks, total_blocks));
    }

    /// See [`Core::busy_thresholds`].
    pub fn busy_thresholds(&self) -> BusyThresholds {
        self.with(|core, _| core.busy_thresholds())
    }

    /// See [`Core::set_busy_thresholds`].
    pub fn set_busy_thresholds(&self, thresholds: BusyThresholds) -> Result<(), ConfigError> {
        self.with(|core, _| core.set_busy_thresholds(thresholds))
    }

    /// See [`Core::expire`].
    pub fn expire(&self) -> Expired {
        self.with(Core::expire)
    }

    /// See [`Core::has_affinity`].
    pub fn has_affinity(&self) -> bool {
        self.with(|core, _| core.has_affinity())
    }

    /// See [`Core::bound`].
    pub fn bound(&self, session: &str) -> Option<WorkerRank> {
        self.with(|core, now| core.bound(now, session))
    }

    /// See [`Core::unbind`].
    pub fn unbind(&self, session: &str) -> bool {
        self.with(|core, now| core.unbind(now, session))
    }

    /// See [`Core::decisions_about`].
    pub fn decisions_about(&self, name: &str, limit: usize) -> Vec<Arc<Decision>> {
        self.with(|core, _| core.decisions_about(name, limit))
    }

    /// Returns what the pool's workers do.
    pub fn role(&self) -> Role {
        self.with(|core, _| core.config().role)
    }

    /// See [`Core::recent_decisions`].
    pub fn recent_decisions(&self, limit: usize) -> Vec<Arc<Decision>> {
        self.with(|core, _| core.recent_decisions(limit))
    }

    /// See [`Core::stats`].
    pub fn stats(&self) -> Stats {
        self.with(|core, _| core.stats())
    }

    /// See [`Core::snapshot`].
    pub fn snapshot(&self) -> Snapshot {
        self.with(|core, now| core.snapshot(now))
    }

    /// From now on `sink` gets what other frontends are to be told; see [`Core::replicate`]. It is called outside
    /// the lock by whoever caused the event and must neither block nor call back. False if there is one already.
    pub fn replicate(&self, identity: Identity, sink: impl Fn(Outbound) + Send + Sync + 'static) -> bool {
        let is_first = self.shared.outbound.set(Box::new(sink)).is_ok();
        if is_first {
            self.with(|core, now| core.replicate(now, identity));
        }
        is_first
    }

    /// See [`Core::apply_binding`].
    pub fn apply_binding(&self, event: &BindingEvent) -> Applied {
        self.with(|core, now| core.apply_binding(now, event))
    }

    /// See [`Core::apply_sequence`].
    pub fn apply_sequence(&self, event: &SequenceEvent, teller: u64) {
        self.with(|core, now| core.apply_sequence(now, event, teller));
    }

    /// See [`Core::teller_left`].
    pub fn teller_left(&self, teller: u64) {
        self.with(|core, now| core.teller_left(now, teller));
    }

    /// See [`Core::restore`]. Takes the lock once per 1024 bindings.
    pub fn restore(&self, mut bindings: Vec<SavedBinding>) {
        while !bindings.is_empty() {
            let rest = bindings.split_off(bindings.len().min(CHUNK));
            self.with(|core, now| core.restore(now, bindings));
            bindings = rest;
        }
    }

    /// Returns all bindings; see [`Core::save`]. Takes the lock once per 1024 bindings.
    pub fn save(&self) -> Vec<SavedBinding> {
        let (mut saved, mut from) = (Vec::new(), Some(0));
        while let Some(start) = from {
            let (chunk, next) = self.with(|core, now| core.save(now, start, CHUNK));
            saved.extend(chunk);
            from = next;
        }
        saved
    }

    /// Returns the bound sessions with `part` in their names: how many, and those with the longest context. Takes the
    /// lock once per 1024 bindings.
    pub fn sessions(&self, part: &str, limit: usize) -> Sessions {
        let (mut all, mut from) = (Sessions::default(), Some(0));
        while let Some(start) = from {
            let (chunk, next) = self.with(|core, now| core.sessions(now, part, limit, (start, CHUNK)));
            all.merge(chunk, limit);
            from = next;
        }
        all
    }

    /// Has `sink` called with a share of all decisions from now on, 0 to 1, placements and rejections alike. Which ones
    /// is drawn by their number, so that the same run gives the same ones. It is called outside of the lock, by whoever
    /// asked for the decision: it must be quick and must not block. True the first time; later calls change nothing.
    pub fn trace_decisions(&self, share: f64, sink: impl Fn(Arc<Decision>) + Send + Sync + 'static) -> bool {
        self.shared.decisions.set(Trace { share, sink: Box::new(sink) }).is_ok()
    }

    /// Runs a step that may decide, and tells of its decision.
    fn decide<R>(&self, step: impl FnOnce(&mut Core, Instant) -> R) -> R {
        let Some(trace) = self.shared.decisions.get() else { return self.with(step) };
        let (result, decision) = self.with(|core, now| {
            let before = core.decisions_made();
            let result = step(core, now);
            let is_chosen = core.decisions_made() != before && is_drawn(before, trace.share);
            (result, if is_chosen { core.recent_decisions(1).pop() } else { None })
        });
        if let Some(decision) = decision {
            (trace.sink)(decision);
        }
        result
    }

    /// Runs one step under the lock. The time is read inside, so that it never runs backwards for the core.
    fn with<R>(&self, step: impl FnOnce(&mut Core, Instant) -> R) -> R {
        let (result, outbound, woken) = {
            let state = &mut *self.shared.state.lock();
            let now = (self.shared.clock)();
            let result = step(&mut state.core, now);
            (result, state.core.take_outbound(), state.wakers.take_called(&mut state.core))
        };
        if let Some(sink) = self.shared.outbound.get() {
            outbound.into_iter().for_each(sink);
        }
        woken.into_iter().for_each(Waker::wake);
        result
    }
}

/// Draws a share of numbers, evenly and always the same ones.
fn is_drawn(number: u64, share: f64) -> bool {
    let mixed = u128::from(number ^ 0x9E37_79B9_7F4A_7C15) * u128::from(0xD6E8_FEB8_6659_FD93_u64);
    let draw = ((mixed >> 64) as u64 ^ mixed as u64) >> 11;
    (draw as f64) < share * (1_u64 << 53) as f64
}

// === impl Lease ===

impl Lease {
    /// Returns where the request was placed.
    pub const fn rank(&self) -> WorkerRank {
        self.rank
    }

    /// Returns the booking.
    pub const fn booking(&self) -> BookingId {
        self.booking
    }

    /// The request reached its worker; see [`Core::committed`].
    pub fn committed(&self) {
        self.router.with(|core, now| core.committed(now, self.booking));
    }

    /// The first output token came; see [`Core::first_token`].
    pub fn first_token(&self) {
        self.router.with(|core, now| core.first_token(now, self.booking));
    }

    /// More output tokens came; see [`Core::output_tokens`].
    pub fn output_tokens(&self, tokens: u32) {
        self.router.with(|core, now| core.output_tokens(now, self.booking, tokens));
    }

    /// The worker failed this request: it is avoided for a while and the booking given back.
    pub fn worker_failed(mut self, kind: Failure) {
        self.open = false;
        self.router.with(|core, now| {
            core.worker_failed(now, self.rank.worker, kind);
            core.finish(now, self.booking, End::Failed);
        });
    }

    /// The request is over.
    pub fn finish(mut self, end: End) {
        self.close(end);
    }

    fn close(&mut self, end: End) {
        if std::mem::take(&mut self.open) {
            self.router.with(|core, now| core.finish(now, self.booking, end));
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.close(End::Cancelled);
    }
}
