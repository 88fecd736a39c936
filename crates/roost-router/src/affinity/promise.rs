//! A session is a promise of future load: the tokens of its last prompt, fading while it is silent.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use roost_kv::WorkerRank;

/// Bounds of the time in which a silent session's promise halves.
const HALF_LIFE: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3600);

/// The promises of all sessions, summed per rank.
#[derive(Debug)]
pub(super) struct Promises {
    half_life: Duration,
    ranks: HashMap<WorkerRank, Sum, foldhash::fast::FixedState>,
}

/// One session's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    pub(super) rank: WorkerRank,
    tokens: f64,
    at: Instant,
}

/// All promises of a rank fade at the same rate, so their sum fades as one number.
#[derive(Clone, Copy, Debug)]
struct Sum {
    tokens: f64,
    at: Instant,
    sessions: usize,
}

impl Promises {
    /// Creates the sums; a promise halves in half the idle time of a session.
    pub(super) fn new(ttl: Duration) -> Self {
        let half_life = (ttl / 2).clamp(*HALF_LIFE.start(), *HALF_LIFE.end());
        Self { half_life, ranks: HashMap::default() }
    }

    /// Counts a new session that has promised nothing yet.
    pub(super) fn open(&mut self, now: Instant, rank: WorkerRank) -> Promise {
        let promise = Promise { rank, tokens: 0.0, at: now };
        self.add(now, &promise);
        promise
    }

    /// The session now promises `tokens` to `rank` instead of what it did before.
    pub(super) fn replace(&mut self, now: Instant, promise: &mut Promise, rank: WorkerRank, tokens: u32) {
        self.close(now, promise);
        *promise = Promise { rank, tokens: f64::from(tokens), at: now };
        self.add(now, promise);
    }

    /// The session's promise goes to the rank it ended up with.
    pub(super) fn settle(&mut self, now: Instant, promise: &mut Promise, rank: WorkerRank) {
        if promise.rank != rank {
            let tokens = self.value(now, promise);
            self.close(now, promise);
            *promise = Promise { rank, tokens, at: now };
            self.add(now, promise);
        }
    }

    /// The session is over.
    pub(super) fn close(&mut self, now: Instant, promise: &Promise) {
        let value = self.value(now, promise);
        let half_life = self.half_life;
        let Some(sum) = self.ranks.get_mut(&promise.rank) else { return };
        sum.fade(now, half_life);
        sum.tokens = (sum.tokens - value).max(0.0);
        sum.sessions -= 1;
        if sum.sessions == 0 {
            self.ranks.remove(&promise.rank);
        }
    }

    pub(super) fn value(&self, now: Instant, promise: &Promise) -> f64 {
        promise.tokens * fading(now, promise.at, self.half_life)
    }

    pub(super) fn tokens(&self, now: Instant, rank: WorkerRank) -> f64 {
        self.ranks.get(&rank).map_or(0.0, |sum| sum.tokens * fading(now, sum.at, self.half_life))
    }

    /// Returns what a session promises on average; for sessions of which only their place is known.
    pub(super) fn mean(&self, now: Instant) -> u32 {
        let sessions: usize = self.ranks.values().map(|sum| sum.sessions).sum();
        let tokens: f64 = self.ranks.keys().map(|rank| self.tokens(now, *rank)).sum();
        if sessions == 0 { 0 } else { (tokens / sessions as f64) as u32 }
    }

    pub(super) fn sessions(&self, rank: WorkerRank) -> usize {
        self.ranks.get(&rank).map_or(0, |sum| sum.sessions)
    }

    fn add(&mut self, now: Instant, promise: &Promise) {
        let half_life = self.half_life;
        let sum = self.ranks.entry(promise.rank).or_insert(Sum { tokens: 0.0, at: now, sessions: 0 });
        sum.fade(now, half_life);
        sum.tokens += promise.tokens;
        sum.sessions += 1;
    }
}

impl Sum {
    fn fade(&mut self, now: Instant, half_life: Duration) {
        self.tokens *= fading(now, self.at, half_life);
        self.at = self.at.max(now);
    }
}

fn fading(now: Instant, since: Instant, half_life: Duration) -> f64 {
    (-now.saturating_duration_since(since).as_secs_f64() / half_life.as_secs_f64()).exp2()
}
