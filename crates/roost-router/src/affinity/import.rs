//! Bindings that come from elsewhere: told by another frontend, or read from a file after a restart.

use std::time::{Duration, Instant};

use roost_kv::WorkerRank;

use super::{Table, key};
use crate::replica::{Applied, Version};

/// One binding from elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Import<'a> {
    pub(crate) id: &'a str,
    pub(crate) target: WorkerRank,
    /// The other frontend knows the worker only, not the rank.
    pub(crate) any_rank: bool,
    pub(crate) version: Version,
    /// How long it has been idle.
    pub(crate) idle: Duration,
    /// Tokens of its last prompt, if known.
    pub(crate) promised_tokens: Option<u32>,
}

/// A binding as a restart needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedBinding {
    /// The session, as the table names it.
    pub session: String,
    /// Where it lives.
    pub rank: WorkerRank,
    /// How long it has been idle; 0 while a turn runs.
    pub idle: Duration,
    /// Tokens it is expected to bring again.
    pub promised_tokens: u32,
    /// Logical time of the write.
    pub sequence: u64,
    /// The frontend that made the binding.
    pub writer_id: u64,
}

impl Table {
    /// Takes a binding over unless what is known is better.
    pub(crate) fn import(&mut self, now: Instant, import: &Import<'_>) -> Applied {
        self.clock.saw(import.version);
        let Some(left) = self.ttl.checked_sub(import.idle).filter(|left| !left.is_zero()) else {
            return Applied::IgnoredConflict;
        };
        let key = key(import.id);
        let Some(slot) = self.slot_of(&key) else {
            let Some(slot) = self.insert(now, key.into(), import.target) else {
                return Applied::IgnoredUnusable;
            };
            self.adopt(now, slot, import, left);
            return Applied::Inserted;
        };
        let Some(entry) = self.entry(slot) else { return Applied::IgnoredUnusable };
        if !entry.committed {
            return Applied::IgnoredInitializing;
        }
        let same = match import.any_rank {
            true => entry.target.worker == import.target.worker,
            false => entry.target == import.target,
        };
        if entry.leases == 0 && entry.deadline <= now {
            self.adopt(now, slot, import, left);
            return Applied::ReplacedExpired;
        }
        if same && import.version >= entry.version {
            self.refresh(slot, import.version, now + left);
            return Applied::Refreshed;
        }
        if same || import.version <= entry.version {
            return Applied::IgnoredConflict;
        }
        self.adopt(now, slot, import, left);
        Applied::ReplacedNewer
    }

    /// Returns up to `limit` bindings from the slot number `from` on, and the number to go on with, if any.
    pub(crate) fn save(&self, now: Instant, from: u32, limit: usize) -> (Vec<SavedBinding>, Option<u32>) {
        let end = (from as usize).saturating_add(limit).min(self.entries.len());
        let start = (from as usize).min(end);
        let entries = self.entries[start..end].iter().filter_map(|slot| slot.entry.as_ref());
        let live = entries.filter(|entry| entry.committed && (entry.leases > 0 || entry.deadline > now));
        let saved = live.map(|entry| SavedBinding {
            session: entry.id.to_string(),
            rank: entry.target,
            idle: self.idle_for(now, entry),
            promised_tokens: self.promises.value(now, &entry.promise) as u32,
            sequence: entry.version.sequence,
            writer_id: entry.version.writer,
        });
        let next = (end < self.entries.len()).then(|| u32::try_from(end).unwrap_or(u32::MAX));
        (saved.collect(), next)
    }

    /// The session lives where the import says; turns that run elsewhere go on there.
    fn adopt(&mut self, now: Instant, slot: u32, import: &Import<'_>, left: Duration) {
        let known = self.entry(slot).is_some_and(|entry| entry.committed);
        let began = *self.began.get_or_insert(now);
        let seconds = u32::try_from(now.saturating_duration_since(began).as_secs()).unwrap_or(u32::MAX);
        if let Some(entry) = &mut self.entries[slot as usize].entry {
            let (moved, was_bound) = (entry.target != import.target, entry.committed);
            entry.committed = true;
            entry.target = import.target;
            if moved || !was_bound {
                entry.tale.bound(seconds, moved && was_bound);
            }
            entry.deadline = now + left;
        }
        let tokens = import.promised_tokens.or_else(|| (!known).then(|| self.promises.mean(now)));
        if let (Some(tokens), Some(entry)) = (tokens, &mut self.entries[slot as usize].entry) {
            self.promises.replace(now, &mut entry.promise, import.target, tokens);
        }
        self.settle(now, slot);
        self.refresh(slot, import.version, now + left);
    }

    fn refresh(&mut self, slot: u32, version: Version, deadline: Instant) {
        let Some(entry) = &mut self.entries[slot as usize].entry else { return };
        entry.version = version;
        if entry.leases == 0 {
            entry.deadline = entry.deadline.max(deadline);
            self.idle.remove(slot);
            self.idle.push(slot);
        }
    }
}
