//! What is told of sessions: how they have fared, beside where they stay.

use std::time::{Duration, Instant};

use roost_kv::WorkerRank;

use super::{Entry, Table};

/// How a session has fared since it was bound, on whatever ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tale {
    /// Turns placed.
    turns: u32,
    /// Times it was bound to another rank.
    rebinds: u32,
    /// Tokens of its last prompt.
    context: u32,
    /// When it was bound where it is, seconds since the table's first commit.
    bound_at: u32,
    /// Tokens of all its prompts, and those that were expected to be cached.
    asked: u64,
    found: u64,
}

impl Tale {
    /// A turn was placed.
    pub(super) fn turn(&mut self, isl_tokens: u32, cached_tokens: u32) {
        self.turns = self.turns.saturating_add(1);
        self.context = isl_tokens;
        self.asked = self.asked.saturating_add(isl_tokens.into());
        self.found = self.found.saturating_add(cached_tokens.min(isl_tokens).into());
    }

    /// The session is bound to a rank at a time in seconds; `moved` from another one.
    pub(super) fn bound(&mut self, at: u32, moved: bool) {
        self.bound_at = at;
        self.rebinds = self.rebinds.saturating_add(moved.into());
    }
}

/// A session that is bound, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionView {
    /// Its name, or the hash of an over-long one.
    pub session: String,
    /// Where it stays.
    pub rank: WorkerRank,
    /// Running turns.
    pub running: u32,
    /// Turns placed by this frontend.
    pub turns: u32,
    /// Times it was bound to another rank.
    pub rebinds: u32,
    /// Tokens of its last prompt; 0 if only another frontend has seen one.
    pub context_tokens: u32,
    /// Part of its prompts' tokens that was expected in caches, 0 to 1; `None` without turns.
    pub hit_rate: Option<f64>,
    /// How long it has stayed there.
    pub bound_for: Duration,
    /// How long it has been without a running turn.
    pub idle: Duration,
}

/// Sessions of one look at a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sessions {
    /// Those with the longest context, the longest first.
    pub longest: Vec<SessionView>,
    /// How many were found.
    pub found: usize,
}

impl Sessions {
    /// Both together, cut to `limit`.
    pub(crate) fn merge(&mut self, other: Sessions, limit: usize) {
        self.found += other.found;
        self.longest.extend(other.longest);
        self.longest.sort_by(|a, b| b.context_tokens.cmp(&a.context_tokens).then(a.session.cmp(&b.session)));
        self.longest.truncate(limit);
    }
}

impl Table {
    /// Returns the sessions with `part` in their names among `count` slots from `from` on, and the number to go on
    /// with, if any.
    pub(crate) fn sessions(
        &self,
        now: Instant,
        part: &str,
        limit: usize,
        (from, count): (u32, usize),
    ) -> (Sessions, Option<u32>) {
        let end = (from as usize).saturating_add(count).min(self.entries.len());
        let start = (from as usize).min(end);
        let entries = self.entries[start..end].iter().filter_map(|slot| slot.entry.as_ref());
        let mut live: Vec<&Entry> = entries
            .filter(|entry| entry.committed && (entry.leases > 0 || entry.deadline > now))
            .filter(|entry| part.is_empty() || entry.id.contains(part))
            .collect();
        let found = live.len();
        live.sort_by_key(|entry| std::cmp::Reverse(entry.tale.context));
        live.truncate(limit);
        let longest = live.into_iter().map(|entry| self.view(now, entry)).collect();
        let next = (end < self.entries.len()).then(|| u32::try_from(end).unwrap_or(u32::MAX));
        (Sessions { longest, found }, next)
    }

    fn view(&self, now: Instant, entry: &Entry) -> SessionView {
        let tale = &entry.tale;
        let age = self.began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        SessionView {
            session: entry.id.to_string(),
            rank: entry.target,
            running: entry.leases,
            turns: tale.turns,
            rebinds: tale.rebinds,
            context_tokens: tale.context,
            hit_rate: (tale.asked > 0).then(|| tale.found as f64 / tale.asked as f64),
            bound_for: age.saturating_sub(Duration::from_secs(tale.bound_at.into())),
            idle: self.idle_for(now, entry),
        }
    }

    /// How long a session has been without a running turn.
    pub(super) fn idle_for(&self, now: Instant, entry: &Entry) -> Duration {
        match entry.leases {
            0 => self.ttl.saturating_sub(entry.deadline.saturating_duration_since(now)),
            _ => Duration::ZERO,
        }
    }
}
