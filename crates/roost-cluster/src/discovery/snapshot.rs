//! What a store held at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::record::RecordKey;

/// Every record of a store at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The records, raw.
    pub records: BTreeMap<RecordKey, Bytes>,
    /// False until the store has been read once: an empty snapshot then means nothing.
    pub synced: bool,
    /// Since when the store cannot be read. The records are then the last known ones: absence of the store is not
    /// absence of the workers.
    pub unreachable_since: Option<Instant>,
}

/// One difference between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A record appeared or changed.
    Put(RecordKey, Bytes),
    /// A record disappeared.
    Delete(RecordKey),
}

impl Snapshot {
    /// What turns `before` into `self`: first all deletions, then all writes, each in key order.
    ///
    /// Key order is bucket order, so that the instances of a new worker come before its card and its event sources.
    pub fn diff(&self, before: &Snapshot) -> Vec<Change> {
        let mut changes: Vec<Change> = before
            .records
            .keys()
            .filter(|key| !self.records.contains_key(key))
            .map(|key| Change::Delete(key.clone()))
            .collect();
        changes.extend(
            self.records
                .iter()
                .filter(|(key, value)| before.records.get(key) != Some(value))
                .map(|(key, value)| Change::Put(key.clone(), value.clone())),
        );
        changes
    }

    /// An unsynced snapshot to begin with.
    pub(crate) fn unread() -> Arc<Self> {
        Arc::default()
    }
}
