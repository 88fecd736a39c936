//! Remembered turns within a budget of bytes, the longest unused going first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Turn;

#[derive(Debug)]
pub(super) struct Turns {
    budget: usize,
    bytes: usize,
    clock: u64,
    turns: HashMap<u128, Held>,
    /// Keys by the time of their last use.
    order: BTreeMap<u64, u128>,
    /// The key of each session's last turn, whatever its model.
    latest: HashMap<u128, u128>,
}

#[derive(Debug)]
struct Held {
    turn: Arc<Turn>,
    session: Option<u128>,
    bytes: usize,
    used: u64,
}

/// What a turn takes beside its own bytes.
const ENTRY_BYTES: usize = 192;

impl Turns {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            budget,
            bytes: 0,
            clock: 0,
            turns: HashMap::new(),
            order: BTreeMap::new(),
            latest: HashMap::new(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.budget > 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The turn of a key, which counts as used now.
    pub(super) fn get(&mut self, key: u128) -> Option<Arc<Turn>> {
        let held = self.turns.get_mut(&key)?;
        self.order.remove(&held.used);
        self.clock += 1;
        held.used = self.clock;
        self.order.insert(held.used, key);
        Some(Arc::clone(&held.turn))
    }

    /// The last turn of a session, whatever its model. This is no use of it.
    pub(super) fn latest(&self, session: u128) -> Option<Arc<Turn>> {
        Some(Arc::clone(&self.turns.get(self.latest.get(&session)?)?.turn))
    }

    /// Remembers a turn in place of the key's last one; returns what had to go, to be freed elsewhere. A turn that
    /// takes more than an eighth of the budget is not remembered.
    pub(super) fn insert(
        &mut self,
        key: u128,
        session: Option<u128>,
        turn: Arc<Turn>,
        bytes: usize,
    ) -> Vec<Arc<Turn>> {
        let mut gone = Vec::from_iter(self.remove(key));
        let bytes = bytes + ENTRY_BYTES;
        if bytes > self.budget / 8 {
            gone.push(turn);
            return gone;
        }
        while self.bytes + bytes > self.budget
            && let Some((_, oldest)) = self.order.pop_first()
        {
            gone.extend(self.take(oldest));
        }
        self.clock += 1;
        self.order.insert(self.clock, key);
        self.turns.insert(key, Held { turn, session, bytes, used: self.clock });
        self.latest.extend(session.map(|session| (session, key)));
        self.bytes += bytes;
        gone
    }

    pub(super) fn remove(&mut self, key: u128) -> Option<Arc<Turn>> {
        let used = self.turns.get(&key)?.used;
        self.order.remove(&used);
        self.take(key)
    }

    fn take(&mut self, key: u128) -> Option<Arc<Turn>> {
        let held = self.turns.remove(&key)?;
        self.bytes -= held.bytes;
        if let Some(session) = held.session
            && self.latest.get(&session) == Some(&key)
        {
            self.latest.remove(&session);
        }
        Some(held.turn)
    }
}
