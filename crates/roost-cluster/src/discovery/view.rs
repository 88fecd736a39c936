//! What is believed of the store's content: pure, with the time passed in.
//!
//! After the store was out of reach, a record that is no longer there is kept for a while. Its owner may be well and only
//! have been cut off from the store like we were, and be about to write it again; were it dropped at once, an outage
//! that outlives the leases, or one that costs the store its data, would empty every frontend although all workers
//! serve.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;

use crate::record::RecordKey;

#[derive(Debug, Default)]
pub(super) struct View {
    records: BTreeMap<RecordKey, Bytes>,
    /// Records that the store does not have (any more) and that are believed in until `hold_until`.
    held: BTreeSet<RecordKey>,
    hold_until: Option<Instant>,
}

impl View {
    pub(super) fn records(&self) -> &BTreeMap<RecordKey, Bytes> {
        &self.records
    }

    /// When kept records are to be dropped.
    pub(super) fn hold_until(&self) -> Option<Instant> {
        self.hold_until
    }

    /// The value that the store itself holds, as far as is known.
    pub(super) fn stored(&self, key: &RecordKey) -> Option<&Bytes> {
        self.records.get(key).filter(|_| !self.held.contains(key))
    }

    /// From now on until then deletions are kept back.
    pub(super) fn hold(&mut self, until: Instant) {
        self.hold_until = Some(until);
    }

    /// Drops what was kept back once its time is over. True when that changed anything.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        if self.hold_until.is_none_or(|until| until > now) {
            return false;
        }
        self.hold_until = None;
        let dropped = std::mem::take(&mut self.held);
        for key in &dropped {
            self.records.remove(key);
        }
        !dropped.is_empty()
    }

    /// Takes a complete listing.
    pub(super) fn listed(&mut self, mut listing: BTreeMap<RecordKey, Bytes>) {
        self.held.clear();
        if self.hold_until.is_some() {
            for (key, value) in std::mem::take(&mut self.records) {
                if let Entry::Vacant(gone) = listing.entry(key) {
                    self.held.insert(gone.key().clone());
                    gone.insert(value);
                }
            }
        }
        self.records = listing;
    }

    /// Takes a write.
    pub(super) fn put(&mut self, key: RecordKey, value: Bytes) {
        self.held.remove(&key);
        self.records.insert(key, value);
    }

    /// Takes a deletion.
    pub(super) fn delete(&mut self, key: RecordKey) {
        if self.hold_until.is_some() && self.records.contains_key(&key) {
            self.held.insert(key);
        } else {
            self.records.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
