//! Requests that wait until a rank they may use has room for their prefill.
//!
//! Only order and bounds are decided here; whether a rank has room is the caller's knowledge. A request
//! waits in the lane of what it may use, so one that needs a full rank holds up nobody but those that need
//! the same. Every eighth turn goes to the request that has waited longest, whatever the policy prefers:
//! nothing waits longer than eight turns for each request that was there before it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use roost_kv::WorkerId;

#[cfg(test)]
mod tests;

/// Of so many turns one goes to the request that has waited longest.
const OLDEST_EVERY: u32 = 8;

/// Which of the waiting requests goes first, among those of equal strict priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePolicy {
    /// The first to come, where a priority counts as that many seconds of waiting.
    #[default]
    Fcfs,
    /// The last to come.
    Lcfs,
    /// The shortest: priority per prompt token to be computed.
    Wspt,
}

/// Options of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueConfig {
    /// Requests wait while every rank they may use has more prompt tokens to compute than this many times
    /// what its worker computes at once. `None`: none ever waits.
    pub threshold: Option<f64>,
    /// Order of the waiting requests.
    pub policy: QueuePolicy,
    /// Requests that may wait; more are refused.
    pub capacity: usize,
    /// A request that has waited this long is refused.
    pub max_wait: Duration,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            threshold: None,
            policy: QueuePolicy::default(),
            capacity: 4096,
            max_wait: Duration::from_secs(120),
        }
    }
}

/// Name of a waiting request, in order of arrival. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(u64);

/// What a request may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane {
    /// Only this worker.
    pub(crate) worker: Option<WorkerId>,
    /// Only ranks of this number.
    pub(crate) dp_rank: Option<u32>,
    /// Only workers with these properties.
    pub(crate) required: Vec<String>,
}

/// What the order of a request depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claim {
    pub(crate) isl_tokens: u32,
    /// The most prompt tokens that a rank has cached.
    pub(crate) cached_tokens: u32,
    pub(crate) strict_priority: u32,
    /// Seconds ahead of its arrival; negative counts as 0.
    pub(crate) priority: f64,
}

/// The waiting requests of one pool.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    config: QueueConfig,
    start: Option<Instant>,
    next: u64,
    tickets: BTreeMap<TicketId, Ticket>,
    lanes: BTreeMap<Lane, Waiters>,
    waiting: usize,
    called: usize,
    /// Turns since the longest waiting request had one.
    turns: u32,
    /// Requests called or given up whose holders do not know it yet.
    news: Vec<TicketId>,
    isl_tokens: u64,
    cached_tokens: u64,
}

#[derive(Debug)]
struct Ticket {
    lane: Lane,
    key: Key,
    claim: Claim,
    due: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Called,
    Late,
}

#[derive(Debug, Default)]
struct Waiters {
    by_order: BTreeSet<Key>,
    by_age: BTreeSet<TicketId>,
}

/// Smallest first.
#[derive(Clone, Copy, Debug)]
struct Key {
    strict: Reverse<u32>,
    score: f64,
    id: TicketId,
}

/// How a waiting request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not its turn yet.
    Waits,
    /// Its turn: to be placed now.
    Turn,
    /// It has waited too long, or left.
    Late,
}

/// Size of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSize {
    /// Requests waiting.
    pub requests: usize,
    /// Their prompt tokens.
    pub isl_tokens: u64,
    /// Of those, the tokens cached on some rank when they came.
    pub cached_tokens: u64,
}

impl Queue {
    pub(crate) fn new(config: QueueConfig) -> Self {
        Self { config, ..Self::default() }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.config.capacity
    }

    pub(crate) fn size(&self) -> QueueSize {
        QueueSize { requests: self.waiting, isl_tokens: self.isl_tokens, cached_tokens: self.cached_tokens }
    }

    /// Requests whose turn it is and that have not been placed yet.
    pub(crate) fn called(&self) -> usize {
        self.called
    }

    /// Tells whether nobody waits or is about to be placed.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.called == 0
    }

    /// Tells whether as many requests wait as may.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting >= self.config.capacity
    }

    /// Takes a request in; `None` when the queue is full.
    pub(crate) fn push(&mut self, now: Instant, lane: Lane, claim: Claim) -> Option<TicketId> {
        if self.is_full() {
            return None;
        }
        let id = TicketId(self.next);
        self.next += 1;
        let start = *self.start.get_or_insert(now);
        let arrival = now.saturating_duration_since(start).as_secs_f64();
        let ahead = claim.priority.max(0.0);
        let score = match self.config.policy {
            QueuePolicy::Fcfs => ahead - arrival,
            QueuePolicy::Lcfs => ahead + arrival,
            QueuePolicy::Wspt => {
                let uncached = claim.isl_tokens.saturating_sub(claim.cached_tokens).max(1);
                (1.0 + ahead) / f64::from(uncached)
            }
        };
        let key = Key { strict: Reverse(claim.strict_priority), score, id };
        let waiters = self.lanes.entry(lane.clone()).or_default();
        waiters.by_order.insert(key);
        waiters.by_age.insert(id);
        self.waiting += 1;
        self.isl_tokens += u64::from(claim.isl_tokens);
        self.cached_tokens += u64::from(claim.cached_tokens);
        let due = now.checked_add(self.config.max_wait).unwrap_or(now);
        self.tickets.insert(id, Ticket { lane, key, claim, due, state: State::Waiting });
        Some(id)
    }

    /// Calls the next request whose lane is open; `None` if no lane with waiters is.
    pub(crate) fn call(&mut self, mut is_open: impl FnMut(&Lane) -> bool) -> Option<TicketId> {
        let oldest = self.turns + 1 >= OLDEST_EVERY;
        let open = self.lanes.iter().filter(|(lane, _)| is_open(lane));
        let id = match oldest {
            true => open.filter_map(|(_, waiters)| waiters.by_age.first().copied()).min(),
            false => open.filter_map(|(_, waiters)| waiters.by_order.first()).min().map(|key| key.id),
        }?;
        self.turns = if oldest { 0 } else { self.turns + 1 };
        self.withdraw(id, State::Called);
        self.called += 1;
        self.news.push(id);
        Some(id)
    }

    /// Gives up requests that have waited too long. Returns their number.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        let late: Vec<TicketId> = self
            .tickets
            .iter()
            .take_while(|(_, ticket)| ticket.due <= now)
            .filter(|(_, ticket)| ticket.state == State::Waiting)
            .map(|(id, _)| *id)
            .collect();
        for &id in &late {
            self.withdraw(id, State::Late);
        }
        self.news.extend_from_slice(&late);
        late.len()
    }

    pub(crate) fn standing(&self, id: TicketId) -> Standing {
        match self.tickets.get(&id).map(|ticket| ticket.state) {
            Some(State::Waiting) => Standing::Waits,
            Some(State::Called) => Standing::Turn,
            Some(State::Late) | None => Standing::Late,
        }
    }

    /// The request was placed, or its client left. Without effect if done before.
    pub(crate) fn leave(&mut self, id: TicketId) {
        match self.tickets.get(&id).map(|ticket| ticket.state) {
            Some(State::Waiting) => self.withdraw(id, State::Late),
            Some(State::Called) => self.called -= 1,
            Some(State::Late) | None => {}
        }
        self.tickets.remove(&id);
    }

    /// Moves the requests called or given up since the last time to `news`.
    pub(crate) fn take_news(&mut self, news: &mut Vec<TicketId>) {
        news.append(&mut self.news);
    }

    /// Takes a waiting request out of its lane.
    fn withdraw(&mut self, id: TicketId, state: State) {
        let Some(ticket) = self.tickets.get_mut(&id) else { return };
        ticket.state = state;
        self.waiting -= 1;
        self.isl_tokens -= u64::from(ticket.claim.isl_tokens);
        self.cached_tokens -= u64::from(ticket.claim.cached_tokens);
        if let Some(waiters) = self.lanes.get_mut(&ticket.lane) {
            waiters.by_order.remove(&ticket.key);
            waiters.by_age.remove(&id);
            if waiters.by_age.is_empty() {
                self.lanes.remove(&ticket.lane);
            }
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_score = || other.score.total_cmp(&self.score);
        self.strict.cmp(&other.strict).then_with(by_score).then_with(|| self.id.cmp(&other.id))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}
