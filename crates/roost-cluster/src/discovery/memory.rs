//! Discovery inside one process: for tests, for the demo and for workers that run in the frontend's process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Discovery, DiscoveryError, Snapshot};
use crate::record::RecordKey;

/// One participant of a store that lives in this process.
///
/// Records disappear when their owner is dropped. Abandoned records stay until [`MemoryDiscovery::expire`]: there is
/// no clock, so that tests decide when a crashed worker is noticed.
#[derive(Debug)]
pub struct MemoryDiscovery {
    store: Arc<Store>,
    owner: u64,
}

#[derive(Debug)]
struct Store {
    records: Mutex<BTreeMap<RecordKey, Owned>>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    owners: AtomicU64,
}

#[derive(Debug)]
struct Owned {
    /// `None` once abandoned.
    owner: Option<u64>,
    value: Bytes,
}

impl MemoryDiscovery {
    /// Creates an empty store and its first participant.
    pub fn new() -> Arc<Self> {
        let empty = Snapshot { synced: true, ..Snapshot::default() };
        let store = Store {
            records: Mutex::default(),
            snapshot: watch::Sender::new(Arc::new(empty)),
            owners: AtomicU64::new(1),
        };
        Arc::new(Self { store: Arc::new(store), owner: 0 })
    }

    /// Adds a participant with records of its own.
    pub fn participant(&self) -> Arc<Self> {
        let owner = self.store.owners.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { store: self.store.clone(), owner })
    }

    /// Removes all abandoned records of the store, as if their time had run out.
    pub fn expire(&self) {
        self.store.change(|records| records.retain(|_, owned| owned.owner.is_some()));
    }
}

impl Store {
    fn change<R>(&self, act: impl FnOnce(&mut BTreeMap<RecordKey, Owned>) -> R) -> R {
        let mut records = self.records.lock();
        let result = act(&mut records);
        let now = records.iter().map(|(key, owned)| (key.clone(), owned.value.clone())).collect();
        // Published under the lock, so that snapshots come in the order of the changes.
        self.snapshot.send_replace(Arc::new(Snapshot {
            records: now,
            synced: true,
            unreachable_since: None,
        }));
        result
    }

    fn remove(&self, key: &RecordKey, owner: u64) {
        self.change(|records| {
            if records.get(key).is_some_and(|owned| owned.owner == Some(owner)) {
                records.remove(key);
            }
        });
    }
}

impl Discovery for MemoryDiscovery {
    fn put(&self, key: RecordKey, value: Bytes) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        let result = self.store.change(|records| match records.get(&key) {
            Some(owned) if owned.owner != Some(self.owner) => Err(DiscoveryError::Exists { key }),
            _ => {
                records.insert(key, Owned { owner: Some(self.owner), value });
                Ok(())
            }
        });
        future::ready(result).boxed()
    }

    fn delete(&self, key: RecordKey) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        self.store.remove(&key, self.owner);
        future::ready(Ok(())).boxed()
    }

    fn release(&self, key: RecordKey) {
        self.store.remove(&key, self.owner);
    }

    fn abandon(&self, key: RecordKey) {
        self.store.change(|records| {
            if let Some(owned) = records.get_mut(&key).filter(|owned| owned.owner == Some(self.owner)) {
                owned.owner = None;
            }
        });
    }

    fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.store.snapshot.subscribe()
    }
}

impl Drop for MemoryDiscovery {
    fn drop(&mut self) {
        self.store.change(|records| records.retain(|_, owned| owned.owner != Some(self.owner)));
    }
}
