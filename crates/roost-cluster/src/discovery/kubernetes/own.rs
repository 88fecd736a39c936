//! The records that this process has promised to keep, all of which are written at once. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::discovery::DiscoveryError;
use crate::discovery::orders::Reply;
use crate::record::RecordKey;

#[derive(Debug, Default)]
pub(super) struct Own {
    wanted: BTreeMap<RecordKey, Bytes>,
    /// Left behind as by a crash: written as long as the process writes anything, and never taken back.
    abandoned: BTreeMap<RecordKey, Bytes>,
    /// What the last write that succeeded held.
    stored: BTreeMap<RecordKey, Bytes>,
    /// Who waits for the next write.
    waiting: Vec<Waiting>,
    dirty: bool,
}

#[derive(Debug)]
struct Waiting {
    key: RecordKey,
    /// A deletion is not waited for while the store is away.
    deletion: bool,
    reply: Reply,
}

/// A write that is under way.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) records: BTreeMap<RecordKey, Bytes>,
    waiting: Vec<Waiting>,
    /// There is something to write, not only something to clear away.
    dirty: bool,
}

impl Own {
    pub(super) fn put(&mut self, key: RecordKey, value: Bytes, reply: Reply) {
        self.abandoned.remove(&key);
        self.wanted.insert(key.clone(), value);
        self.waiting.push(Waiting { key, deletion: false, reply });
        self.dirty = true;
    }

    pub(super) fn delete(&mut self, key: RecordKey, reply: Reply) {
        if self.wanted.remove(&key).is_none() {
            // Not ours. Whoever asked may have stopped waiting.
            let _ = reply.send(Ok(()));
            return;
        }
        self.waiting.push(Waiting { key, deletion: true, reply });
        self.dirty = true;
    }

    pub(super) fn abandon(&mut self, key: &RecordKey) {
        if let Some((key, value)) = self.wanted.remove_entry(key) {
            self.abandoned.insert(key, value);
        }
    }

    /// Nothing more is wanted.
    pub(super) fn withdraw_all(&mut self) {
        self.dirty |= !self.wanted.is_empty();
        self.wanted.clear();
    }

    pub(super) fn dirty(&self) -> bool {
        self.dirty
    }

    /// The records have to be written again.
    pub(super) fn spoil(&mut self) {
        self.dirty = true;
    }

    /// The keys that the store should hold.
    pub(super) fn stored(&self) -> impl Iterator<Item = &RecordKey> {
        self.stored.keys()
    }

    /// Begins a write of everything.
    pub(super) fn begin(&mut self) -> Write {
        let dirty = std::mem::take(&mut self.dirty);
        let records = self.abandoned.iter().chain(&self.wanted);
        let records = records.map(|(key, value)| (key.clone(), value.clone())).collect();
        Write { records, waiting: std::mem::take(&mut self.waiting), dirty }
    }

    pub(super) fn written(&mut self, write: Write) {
        if write.dirty {
            self.stored = write.records;
        }
        for Waiting { reply, .. } in write.waiting {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(Ok(()));
        }
    }

    /// The store will not have it: what was not stored before is given up.
    pub(super) fn refused(&mut self, write: Write, reason: &str) {
        for (key, value) in &write.records {
            if self.stored.contains_key(key) || self.wanted.get(key) != Some(value) {
                continue;
            }
            self.wanted.remove(key);
        }
        for Waiting { key, reply, .. } in write.waiting {
            let _ = reply.send(Err(DiscoveryError::Refused { key, reason: reason.to_owned() }));
        }
    }

    /// The store could not be reached. Deletions are answered, writes go on waiting; all are made up for later.
    pub(super) fn failed(&mut self, write: Write, reason: &str) {
        self.dirty |= write.dirty;
        let (deletions, mut puts): (Vec<Waiting>, Vec<Waiting>) =
            write.waiting.into_iter().partition(|waiting| waiting.deletion);
        for Waiting { reply, .. } in deletions {
            let _ = reply.send(Err(DiscoveryError::Unreachable { reason: reason.to_owned() }));
        }
        puts.append(&mut self.waiting);
        self.waiting = puts;
    }
}
