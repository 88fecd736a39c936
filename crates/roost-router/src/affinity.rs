//! Which rank a session stays with.
//!
//! A binding is tentative from the placement of the first turn until its dispatch succeeds, and other turns
//! of the session follow it at once. Each running turn holds a lease; the idle clock starts when the last
//! one ends. Bindings are hints: a full table forgets, an over-long id is hashed, nothing is refused.

use std::borrow::Cow;
use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use roost_kv::WorkerRank;

use crate::AffinityConfig;
use crate::replica::{BindingEvent, Clock, Version};
use idle::IdleList;
pub(crate) use import::Import;
pub use import::SavedBinding;
use promise::{Promise, Promises};
use tale::Tale;
pub use tale::{SessionView, Sessions};
pub(crate) use waiting::Waiting;

mod idle;
mod import;
mod promise;
mod tale;
#[cfg(test)]
mod tests;
mod waiting;

/// Longest session id kept as it is, bytes. Longer ones are known by their hash.
const MAX_ID_BYTES: usize = 256;

/// What a session had to do with a placement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AffinityOutcome {
    /// The request has no session, or affinity is off.
    #[default]
    None,
    /// First turn: the session is bound to the chosen rank once the dispatch succeeds.
    New,
    /// The session stays with its rank.
    Hit,
    /// The session's binding is still tentative and was followed.
    Followed,
    /// The session's rank could not serve; it moves to the chosen one once the dispatch succeeds.
    Rebound(RebindReason),
    /// The table is full of sessions with running turns: served without a binding.
    TableFull,
}

impl AffinityOutcome {
    /// Returns the outcome as one word.
    pub const fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::New => "new",
            Self::Hit => "hit",
            Self::Followed => "followed",
            Self::Rebound(_) => "rebound",
            Self::TableFull => "unbound",
        }
    }
}

/// Why a session had to leave its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RebindReason {
    /// The worker is no longer known.
    WorkerGone,
    /// The worker no longer has that rank.
    RankGone,
    /// The worker failed lately.
    WorkerFailed,
    /// The worker failed this very request.
    Excluded,
    /// The worker is going down.
    Draining,
    /// The rank is over a busy threshold, or its worker said that it is overloaded.
    Overloaded,
    /// The worker lacks a property the request requires.
    Unfit,
    /// The client asked for another worker or rank.
    Pinned,
    /// The rank is hot while another is idle, and the session's cache is cheap to build again.
    Hot,
}

impl RebindReason {
    /// All reasons, in the order of [`RebindReason::index`].
    pub const ALL: [Self; 9] = [
        Self::WorkerGone,
        Self::RankGone,
        Self::WorkerFailed,
        Self::Excluded,
        Self::Draining,
        Self::Overloaded,
        Self::Unfit,
        Self::Pinned,
        Self::Hot,
    ];

    /// Returns the reason's position in [`RebindReason::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the reason as a metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::WorkerGone => "worker_gone",
            Self::RankGone => "rank_gone",
            Self::WorkerFailed => "worker_failed",
            Self::Excluded => "excluded",
            Self::Draining => "draining",
            Self::Overloaded => "overloaded",
            Self::Unfit => "unfit",
            Self::Pinned => "pinned",
            Self::Hot => "hot",
        }
    }
}

/// A running turn's hold on its session's binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    slot: u32,
    generation: u32,
    /// Set if the turn goes to another rank than the session is bound to.
    moves: Option<RebindReason>,
}

/// The bindings of one pool.
#[derive(Debug)]
pub(crate) struct Table {
    ttl: Duration,
    /// The first commit: what moves are timed from.
    began: Option<Instant>,
    capacity: usize,
    hasher: foldhash::fast::RandomState,
    /// Slots by the hash of their id; the id itself is in the entry only.
    by_id: HashTable<u32>,
    entries: Vec<Slot>,
    free: Vec<u32>,
    idle: IdleList,
    promises: Promises,
    pub(crate) clock: Clock,
    /// Bindings that ended by idle time, ever.
    pub(crate) expired: u64,
    /// Idle bindings that gave way to new ones, ever.
    pub(crate) evicted: u64,
    /// Bindings whose session said that it is over, ever.
    pub(crate) closed: u64,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    id: Box<str>,
    target: WorkerRank,
    /// When the target was decided, here or by another frontend.
    version: Version,
    committed: bool,
    /// The session is over with its last running turn.
    closing: bool,
    /// When the session last left a rank, seconds since the table's first commit; 0 if never.
    moved_at: u32,
    /// Where turns go that were placed since the target could not serve, until one of them is dispatched. Rare,
    /// hence boxed.
    moving: Option<Box<Moving>>,
    leases: u32,
    /// Meaningful without leases only.
    deadline: Instant,
    promise: Promise,
    tale: Tale,
}

#[derive(Clone, Copy, Debug)]
struct Moving {
    to: WorkerRank,
    reason: RebindReason,
    turns: u32,
}

/// The state of a session's binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) target: WorkerRank,
    pub(crate) tentative: bool,
    /// How long the session has been there since it left another rank; `None` if it never did.
    pub(crate) since_move: Option<Duration>,
}

// === impl Table ===

impl Table {
    pub(crate) fn new(config: &AffinityConfig, ttl: Duration) -> Self {
        Self {
            ttl,
            began: None,
            capacity: config.capacity,
            hasher: foldhash::fast::RandomState::default(),
            by_id: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            idle: IdleList::default(),
            promises: Promises::new(ttl),
            clock: Clock::default(),
            expired: 0,
            evicted: 0,
            closed: 0,
        }
    }

    /// Returns where a session stays. Takes no lease and does not renew.
    pub(crate) fn find(&self, now: Instant, id: &str) -> Option<Binding> {
        let entry = self.entry(self.slot_of(&key(id))?)?;
        if entry.leases == 0 && entry.deadline <= now {
            return None;
        }
        let target = entry.destination();
        let moved_at = self.began.filter(|_| entry.moved_at > 0);
        let moved_at = moved_at.map(|began| began + Duration::from_secs(entry.moved_at.into()));
        Some(Binding {
            target,
            tentative: !entry.committed || entry.moving.is_some(),
            since_move: moved_at.map(|at| now.saturating_duration_since(at)),
        })
    }

    /// Takes a lease for a turn of `isl_tokens`, of which `cached_tokens` are expected there, placed on `rank`, binding the session tentatively if it is
    /// new. `moves` says why the turn is not where the session was. `None` if the table is full.
    pub(crate) fn hold(
        &mut self,
        now: Instant,
        id: &str,
        rank: WorkerRank,
        moves: Option<RebindReason>,
        (isl_tokens, cached_tokens): (u32, u32),
    ) -> Option<Hold> {
        self.expire(now);
        let key = key(id);
        let slot = match self.slot_of(&key) {
            Some(slot) => slot,
            None => self.insert(now, key.into(), rank)?,
        };
        let generation = self.entries[slot as usize].generation;
        let entry = self.entries[slot as usize].entry.as_mut()?;
        entry.leases += 1;
        entry.tale.turn(isl_tokens, cached_tokens);
        entry.closing = false;
        if entry.leases == 1 {
            self.idle.remove(slot);
        }
        let mut moves = moves.filter(|_| entry.target != rank || entry.moving.is_some());
        if !entry.committed {
            // Nothing to move from: the tentative binding itself changes.
            entry.target = rank;
            moves = None;
        } else if let Some(moving) = entry.moving.as_mut().filter(|moving| moving.to == rank) {
            moving.turns += 1;
            moves = Some(moving.reason);
        } else if let Some(reason) = moves {
            entry.moving = Some(Box::new(Moving { to: rank, reason, turns: 1 }));
        }
        self.promises.replace(now, &mut entry.promise, rank, isl_tokens);
        Some(Hold { slot, generation, moves })
    }

    /// The turn was dispatched to `rank`: the session is bound there. Returns why, if it moved.
    pub(crate) fn commit(&mut self, now: Instant, hold: Hold, rank: WorkerRank) -> Option<RebindReason> {
        let entry = self.held(hold)?;
        let reason = if entry.committed { Some(hold.moves?) } else { None };
        let moved = entry.target != rank;
        let was_bound = std::mem::replace(&mut entry.committed, true);
        entry.target = rank;
        entry.moving = None;
        let version = self.clock.next(now);
        let began = *self.began.get_or_insert(now);
        let seconds = now.saturating_duration_since(began).as_secs();
        if let Some(entry) = self.held(hold) {
            entry.version = version;
            if moved || !was_bound {
                entry.tale.bound(u32::try_from(seconds).unwrap_or(u32::MAX), moved && was_bound);
            }
            if reason.is_some() && moved {
                entry.moved_at = u32::try_from(seconds).unwrap_or(u32::MAX).max(1);
            }
        }
        self.settle(now, hold.slot);
        reason.filter(|_| moved)
    }

    /// Returns what the other frontends are to know of a turn on `rank`: nothing if its session is not bound there.
    pub(crate) fn announcement(&mut self, hold: Hold, rank: WorkerRank) -> Option<BindingEvent> {
        let entry = self.held(hold).filter(|entry| entry.committed && entry.target == rank)?;
        Some(BindingEvent {
            session_id: entry.id.to_string(),
            worker: rank.worker,
            dp_rank: Some(rank.dp_rank),
            sequence: entry.version.sequence,
            writer_id: entry.version.writer,
        })
    }

    /// The turn ended. The last lease starts the idle clock, or ends a binding that was never committed.
    pub(crate) fn release(&mut self, now: Instant, hold: Hold, rank: WorkerRank) {
        let deadline = now + self.ttl;
        let Some(entry) = self.held(hold) else { return };
        entry.leases -= 1;
        if hold.moves.is_some()
            && let Some(moving) = entry.moving.as_mut().filter(|moving| moving.to == rank)
        {
            moving.turns -= 1;
            if moving.turns == 0 {
                entry.moving = None;
            }
        }
        if entry.leases == 0 {
            if !entry.committed || entry.closing {
                self.closed += u64::from(entry.closing);
                self.forget(now, hold.slot);
                return;
            }
            entry.moving = None;
            entry.deadline = deadline;
            self.idle.push(hold.slot);
        }
        self.settle(now, hold.slot);
    }

    /// Ends a binding by name: at once, or with the last running turn unless another one begins before. False if
    /// there was none.
    pub(crate) fn unbind(&mut self, now: Instant, id: &str) -> bool {
        let Some(slot) = self.slot_of(&key(id)) else { return false };
        let Some(entry) = &mut self.entries[slot as usize].entry else { return false };
        if entry.leases > 0 {
            entry.closing = true;
        } else {
            self.closed += 1;
            self.forget(now, slot);
        }
        true
    }

    /// Ends all bindings to ranks that `gone` names. Returns their number.
    pub(crate) fn forget_ranks(&mut self, now: Instant, gone: impl Fn(WorkerRank) -> bool) -> usize {
        let slots = (0_u32..).zip(&self.entries);
        let doomed: Vec<u32> = slots
            .filter(|(_, slot)| slot.entry.as_ref().is_some_and(|entry| gone(entry.target)))
            .map(|(slot, _)| slot)
            .collect();
        doomed.iter().for_each(|&slot| self.forget(now, slot));
        doomed.len()
    }

    /// Ends bindings whose idle time is over. Returns their number.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        let mut ended = 0;
        while let Some(slot) = self.idle.first() {
            if self.entry(slot).is_some_and(|entry| entry.deadline > now) {
                break;
            }
            self.forget(now, slot);
            ended += 1;
        }
        self.expired += ended as u64;
        ended
    }

    /// Returns the tokens that the live sessions of a rank are expected to bring.
    pub(crate) fn promised_tokens(&self, now: Instant, rank: WorkerRank) -> f64 {
        self.promises.tokens(now, rank)
    }

    /// Returns what one session contributes to its rank, and that rank.
    pub(crate) fn contribution(&self, now: Instant, id: &str) -> Option<(WorkerRank, f64)> {
        let entry = self.entry(self.slot_of(&key(id))?)?;
        Some((entry.promise.rank, self.promises.value(now, &entry.promise)))
    }

    /// Returns the number of bindings of a rank, tentative ones included.
    pub(crate) fn bindings(&self, rank: WorkerRank) -> usize {
        self.promises.sessions(rank)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the memory of the table, bytes: what is allocated, the ids themselves not included.
    pub(crate) fn bytes(&self) -> usize {
        self.by_id.allocation_size()
            + self.entries.capacity() * size_of::<Slot>()
            + self.free.capacity() * size_of::<u32>()
            + self.idle.bytes()
    }

    fn slot_of(&self, key: &str) -> Option<u32> {
        let same = |slot: &u32| self.entry(*slot).is_some_and(|entry| *entry.id == *key);
        self.by_id.find(self.hasher.hash_one(key), same).copied()
    }

    fn entry(&self, slot: u32) -> Option<&Entry> {
        self.entries[slot as usize].entry.as_ref()
    }

    /// Moves a session's promise to where its next turn would go.
    fn settle(&mut self, now: Instant, slot: u32) {
        if let Some(entry) = &mut self.entries[slot as usize].entry {
            let rank = entry.destination();
            self.promises.settle(now, &mut entry.promise, rank);
        }
    }

    fn held(&mut self, hold: Hold) -> Option<&mut Entry> {
        let slot = &mut self.entries[hold.slot as usize];
        slot.entry.as_mut().filter(|_| slot.generation == hold.generation)
    }

    /// Adds an entry without leases, in the idle list. `None` if the table is full of busy ones.
    fn insert(&mut self, now: Instant, id: Box<str>, rank: WorkerRank) -> Option<u32> {
        if self.by_id.len() >= self.capacity {
            let oldest = self.idle.first()?;
            self.forget(now, oldest);
            self.evicted += 1;
        }
        let promise = self.promises.open(now, rank);
        let hash = self.hasher.hash_one(&*id);
        let entry = Entry {
            id,
            target: rank,
            version: Version::default(),
            committed: false,
            closing: false,
            moved_at: 0,
            moving: None,
            leases: 0,
            deadline: now + self.ttl,
            promise,
            tale: Tale::default(),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.entries[slot as usize].entry = Some(entry);
                slot
            }
            None => {
                self.entries.push(Slot { generation: 0, entry: Some(entry) });
                u32::try_from(self.entries.len() - 1).expect("the capacity is far below 2^32")
            }
        };
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_id.insert_unique(hash, slot, |slot| {
            entries[*slot as usize].entry.as_ref().map_or(0, |entry| hasher.hash_one(&*entry.id))
        });
        self.idle.push(slot);
        Some(slot)
    }

    fn forget(&mut self, now: Instant, slot: u32) {
        let Some(entry) = self.entries[slot as usize].entry.take() else { return };
        self.entries[slot as usize].generation = self.entries[slot as usize].generation.wrapping_add(1);
        self.promises.close(now, &entry.promise);
        if let Ok(found) = self.by_id.find_entry(self.hasher.hash_one(&*entry.id), |other| *other == slot) {
            found.remove();
        }
        self.idle.remove(slot);
        self.free.push(slot);
    }
}

impl Entry {
    /// Returns where the session's next turn would go.
    fn destination(&self) -> WorkerRank {
        self.moving.as_ref().map_or(self.target, |moving| moving.to)
    }
}

/// Returns the name a session is kept under.
fn key(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_ID_BYTES {
        return Cow::Borrowed(id);
    }
    // The control character cannot occur in a header, so no client id looks like this.
    Cow::Owned(format!("\u{1}b3:{}", blake3::hash(id.as_bytes()).to_hex()))
}
