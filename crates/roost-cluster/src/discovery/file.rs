//! Discovery through a directory that all participants share.
//!
//! One file per record, `ROOT/BUCKET/ESCAPED-KEY`, JSON inside. A record lives as long as its modification time is
//! younger than the time to live; owners touch theirs, every participant deletes stale ones of anybody.
//!
//! The directory is polled rather than watched with inotify: inotify instances are few (usually 128 per user, shared
//! with everything else that user runs) and do not see changes on network file systems, while a poll costs one `stat`
//! per bucket as long as nothing was created or deleted. All file work is done by one thread per handle.

mod keeper;
mod name;
mod scan;
mod store;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::orders::{CAPACITY, Command, Orders};
use super::{Discovery, DiscoveryError, Snapshot};
use crate::record::RecordKey;
use keeper::Keeper;

/// Settings of [`FileDiscovery`].
#[derive(Clone, Debug)]
pub struct FileDiscoveryConfig {
    /// The store's root directory; created when a record is put.
    pub root: PathBuf,
    /// Age at which a record counts as dead. All participants of a store must agree; Dynamo's value is 10 s.
    pub ttl: Duration,
    /// Pause between two looks at the directory while somebody watches.
    pub poll: Duration,
}

impl FileDiscoveryConfig {
    /// The settings that Dynamo 1.6 workers expect, on the store at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), ttl: Duration::from_secs(10), poll: Duration::from_millis(150) }
    }
}

/// A participant of a store in a directory.
///
/// Owns one thread. Dropping the handle deletes its records soon after; [`FileDiscovery::close`] waits for that.
#[derive(Debug)]
pub struct FileDiscovery {
    orders: Orders<SyncSender<Command>>,
}

impl FileDiscovery {
    /// Starts to take part. Nothing is written until a record is put, and the root need not exist yet.
    ///
    /// # Errors
    /// [`DiscoveryError::Io`] when the thread cannot be started.
    pub fn open(config: FileDiscoveryConfig) -> Result<Arc<Self>, DiscoveryError> {
        let (commands, inbox) = sync_channel(CAPACITY);
        let (sender, snapshot) = watch::channel(Snapshot::unread());
        let root = config.root.clone();
        let keeper = Keeper::new(config, sender);
        std::thread::Builder::new()
            .name("roost-discovery".to_owned())
            .spawn(move || keeper.run(&inbox))
            .map_err(|source| DiscoveryError::Io { action: "start the thread for", path: root, source })?;
        Ok(Arc::new(Self { orders: Orders::new(commands, snapshot) }))
    }

    /// Deletes all records of this handle and ends its thread; the handle refuses everything afterwards.
    pub async fn close(&self) {
        self.orders.close().await;
    }
}

impl Discovery for FileDiscovery {
    fn put(&self, key: RecordKey, value: Bytes) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        self.orders.put(key, value)
    }

    fn delete(&self, key: RecordKey) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        self.orders.delete(key)
    }

    fn release(&self, key: RecordKey) {
        self.orders.release(key);
    }

    fn abandon(&self, key: RecordKey) {
        self.orders.abandon(key);
    }

    fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.orders.watch()
    }
}
