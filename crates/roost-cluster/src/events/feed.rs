//! The events of one rank, made whole: a pure state machine between a subscription and the update stream.

use std::collections::VecDeque;

use roost_kv::{KvEvent, WorkerRank};

use super::cursor::{Cursor, Step};
use super::kv::is_void;
use super::query::KvAnswer;

/// Live events that are held back during a query.
const MAX_HELD: usize = 1024;

/// One rank's event stream.
///
/// Inputs are the calls below; each returns what has to happen, in order.
#[derive(Debug)]
pub(crate) struct Feed {
    rank: WorkerRank,
    /// The worker answers queries.
    recoverable: bool,
    cursor: Cursor,
    /// The worker's whole state was received once, so that events are all that is needed from then on.
    whole: bool,
    /// Something was applied since the rank was last forgotten.
    known: bool,
    phase: Phase,
    held: VecDeque<KvEvent>,
    /// The subscription was renewed during a query: ask again for what fell into the break.
    again: bool,
    /// Recoveries given up in a row.
    given_up: u32,
    pub(crate) stats: FeedStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The subscription does not stand yet.
    New,
    /// A query is under way.
    Asking { from: Option<u64> },
    /// Events go straight through.
    Live,
    /// The same, but the state has holes and the worker does not tell; it is asked again later.
    Resting,
}

/// What a feed needs done.
#[derive(Debug, PartialEq)]
pub(crate) enum Need {
    /// Forget the rank's blocks.
    Reset,
    /// Apply events.
    Apply(Vec<KvEvent>),
    /// Query the worker; answer with [`Feed::answered`] or [`Feed::failed`]. Ends a rest.
    Ask { from: Option<u64> },
    /// Wait, the longer the more often before, and then call [`Feed::rested`].
    Rest { before: u32 },
}

/// What has happened to a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedStats {
    /// Events applied.
    pub(crate) applied: u64,
    /// Events not for this index.
    pub(crate) ignored: u64,
    /// Events seen before.
    pub(crate) stale: u64,
    /// Events of another rank than the source's.
    pub(crate) foreign: u64,
    /// Gaps noticed.
    pub(crate) gaps: u64,
    /// Held events given up for want of room.
    pub(crate) overflowed: u64,
    /// Recoveries that succeeded.
    pub(crate) recovered: u64,
    /// Recoveries given up.
    pub(crate) failed: u64,
    /// Times that the rank's blocks were forgotten because events were lost for good.
    pub(crate) forgotten: u64,
}

impl Feed {
    pub(crate) fn new(rank: WorkerRank, recoverable: bool) -> Self {
        Self {
            rank,
            recoverable,
            cursor: Cursor::default(),
            whole: false,
            known: false,
            phase: Phase::New,
            held: VecDeque::new(),
            again: false,
            given_up: 0,
            stats: FeedStats::default(),
        }
    }

    /// The subscription stands, for the first time or again.
    pub(crate) fn connected(&mut self) -> Vec<Need> {
        if !self.recoverable {
            self.phase = Phase::Live;
            return Vec::new();
        }
        if let Phase::Asking { .. } = self.phase {
            self.again = true;
            return Vec::new();
        }
        vec![self.ask_on()]
    }

    /// Events have arrived.
    pub(crate) fn received(&mut self, events: Vec<KvEvent>) -> Vec<Need> {
        let mut needs = Vec::new();
        for event in events {
            if event.rank == self.rank {
                self.held.push_back(event);
            } else {
                self.stats.foreign += 1;
            }
        }
        match self.phase {
            Phase::Live => self.drain(&mut needs, true),
            Phase::Resting => self.drain(&mut needs, false),
            Phase::New | Phase::Asking { .. } => {}
        }
        while self.held.len() > MAX_HELD {
            self.held.pop_front();
            self.stats.overflowed += 1;
        }
        needs
    }

    /// A query was answered.
    pub(crate) fn answered(&mut self, answer: KvAnswer) -> Vec<Need> {
        let Phase::Asking { from } = self.phase else { return Vec::new() };
        let before = self.cursor;
        let mut needs = Vec::new();
        match answer {
            KvAnswer::TreeDump { events, last_event_id } => {
                needs.push(Need::Reset);
                self.whole = true;
                self.apply(events, &mut needs);
                self.cursor = Cursor::at(last_event_id);
            }
            KvAnswer::Events { events, last_event_id } => {
                let new = events
                    .into_iter()
                    .filter(|event| self.cursor.step(event.event_id) != Step::Stale)
                    .collect();
                self.apply(new, &mut needs);
                self.cursor.advance(last_event_id);
            }
            KvAnswer::TooNew { newest_available, .. } if self.cursor.last() == Some(newest_available) => {}
            // The worker counts otherwise than we do: only its whole state helps.
            KvAnswer::TooNew { .. } | KvAnswer::InvalidRange { .. } if from.is_some() => {
                return vec![self.ask(None)];
            }
            KvAnswer::TooNew { .. }
            | KvAnswer::InvalidRange { .. }
            | KvAnswer::TreeDumpFailed { .. }
            | KvAnswer::Error(_) => return self.failed(),
        }
        self.stats.recovered += 1;
        self.whole |= from.is_none();
        self.given_up = 0;
        self.phase = Phase::Live;
        // An answer that did not bring us forward would be the same the next time.
        let progress = self.cursor != before;
        self.drain(&mut needs, progress);
        if std::mem::take(&mut self.again) && self.phase == Phase::Live {
            needs.push(self.ask_on());
        }
        needs
    }

    /// The query was given up. What was known may be wrong by now, and nobody says how: it is forgotten, because a rank
    /// that is credited with blocks it has lost draws requests to a cold cache. What was held is applied all the same,
    /// and events go on; after a rest the whole state is asked for.
    pub(crate) fn failed(&mut self) -> Vec<Need> {
        if !matches!(self.phase, Phase::Asking { .. }) {
            return Vec::new();
        }
        self.stats.failed += 1;
        self.again = false;
        let mut needs = Vec::new();
        self.forget(&mut needs);
        self.rest(&mut needs);
        self.drain(&mut needs, false);
        needs
    }

    /// A rest is over.
    pub(crate) fn rested(&mut self) -> Vec<Need> {
        if self.phase != Phase::Resting {
            return Vec::new();
        }
        vec![self.ask(None)]
    }

    /// True as long as events are missing for good.
    pub(crate) fn has_holes(&self) -> bool {
        self.phase == Phase::Resting
    }

    fn forget(&mut self, needs: &mut Vec<Need>) {
        self.stats.forgotten += 1;
        self.whole = false;
        self.known = false;
        needs.push(Need::Reset);
    }

    fn rest(&mut self, needs: &mut Vec<Need>) {
        self.phase = Phase::Resting;
        needs.push(Need::Rest { before: self.given_up });
        self.given_up = self.given_up.saturating_add(1);
    }

    /// Applies held events in order, up to a gap that is worth a query. A gap that cannot be filled empties the rank.
    fn drain(&mut self, needs: &mut Vec<Need>, may_ask: bool) {
        let mut ready = Vec::new();
        while let Some(next) = self.held.front().map(|event| event.event_id) {
            match self.cursor.step(next) {
                Step::Stale => {
                    self.stats.stale += 1;
                    self.held.pop_front();
                    continue;
                }
                Step::Gap { .. } => {
                    self.stats.gaps += 1;
                    self.apply(std::mem::take(&mut ready), needs);
                    if self.recoverable && may_ask {
                        needs.push(self.ask_on());
                        return;
                    }
                    if self.known {
                        self.forget(needs);
                    }
                    if self.recoverable && self.phase == Phase::Live {
                        self.rest(needs);
                    }
                }
                Step::Initial | Step::Next => {}
            }
            self.cursor.advance(next);
            ready.extend(self.held.pop_front());
        }
        self.apply(ready, needs);
    }

    fn apply(&mut self, mut events: Vec<KvEvent>, needs: &mut Vec<Need>) {
        let all = events.len();
        events.retain(|event| event.rank == self.rank);
        self.stats.foreign += (all - events.len()) as u64;
        let ours = events.len();
        events.retain(|event| !is_void(event));
        self.stats.ignored += (ours - events.len()) as u64;
        self.stats.applied += events.len() as u64;
        if !events.is_empty() {
            self.known = true;
            needs.push(Need::Apply(events));
        }
    }

    /// Asks for what comes after the cursor, or for everything as long as the state was never whole.
    fn ask_on(&mut self) -> Need {
        let next = self.cursor.last().map(|last| last + 1);
        self.ask(next.filter(|_| self.whole))
    }

    fn ask(&mut self, from: Option<u64>) -> Need {
        self.phase = Phase::Asking { from };
        Need::Ask { from }
    }
}

#[cfg(test)]
mod tests;
