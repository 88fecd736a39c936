//! The records that this participant has promised to keep, and who waits for them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::discovery::DiscoveryError;
use crate::discovery::orders::Reply;
use crate::record::RecordKey;

#[derive(Debug, Default)]
pub(super) struct Own {
    records: BTreeMap<RecordKey, Record>,
    /// Deletions that could not be made because the store was away.
    doomed: BTreeSet<RecordKey>,
    /// Some record was left to expire with the lease, which must therefore not be revoked.
    pub(super) abandoned: bool,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) value: Bytes,
    /// It has been written once: the key is ours.
    pub(super) created: bool,
    /// The store has this value under our lease, as far as is known.
    pub(super) stored: bool,
    reply: Option<Reply>,
}

impl Own {
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &RecordKey> {
        self.records.keys()
    }

    pub(super) fn get(&self, key: &RecordKey) -> Option<&Record> {
        self.records.get(key)
    }

    pub(super) fn promise(&mut self, key: RecordKey, value: Bytes, reply: Reply) {
        self.doomed.remove(&key);
        let created = self.records.get(&key).is_some_and(|record| record.created);
        let record = Record { value, created, stored: false, reply: Some(reply) };
        // Whoever waits for an older value learns of the newer one: it is what the store will hold.
        if let Some(reply) = self.records.insert(key, record).and_then(|old| old.reply) {
            let _ = reply.send(Ok(()));
        }
    }

    /// Breaks the promise; `None` when there was none.
    pub(super) fn withdraw(&mut self, key: &RecordKey) -> Option<Record> {
        self.records.remove(key)
    }

    /// The store has to be told later that the record is gone.
    pub(super) fn doom(&mut self, key: RecordKey) {
        self.doomed.insert(key);
    }

    pub(super) fn doomed(&self) -> Vec<RecordKey> {
        self.doomed.iter().cloned().collect()
    }

    pub(super) fn is_gone(&mut self, key: &RecordKey) {
        self.doomed.remove(key);
    }

    /// The lease was lost, and every record with it.
    pub(super) fn all_lost(&mut self) {
        self.records.values_mut().for_each(|record| record.stored = false);
        self.doomed.clear();
    }

    pub(super) fn lost(&mut self, key: &RecordKey) -> bool {
        let record = self.records.get_mut(key).filter(|record| record.stored);
        record.map(|record| record.stored = false).is_some()
    }

    pub(super) fn unstored(&self) -> Vec<RecordKey> {
        let unstored = self.records.iter().filter(|(_, record)| !record.stored);
        unstored.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn is_stored(&mut self, key: &RecordKey) {
        if let Some(record) = self.records.get_mut(key) {
            record.created = true;
            record.stored = true;
            if let Some(reply) = record.reply.take() {
                // Whoever asked may have stopped waiting.
                let _ = reply.send(Ok(()));
            }
        }
    }

    /// The store refuses the record. One that was never written is given up, others are tried again.
    pub(super) fn is_refused(&mut self, key: &RecordKey, error: DiscoveryError) {
        let Some(record) = self.records.get_mut(key) else { return };
        let reply = record.reply.take();
        if !record.created {
            self.records.remove(key);
        }
        match reply {
            Some(reply) => {
                let _ = reply.send(Err(error));
            }
            None => tracing::warn!(%key, %error, "own discovery record could not be renewed"),
        }
    }
}
