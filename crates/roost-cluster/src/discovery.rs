//! Discovery backends: a small shared store of records, kept alive by those who wrote them.
//!
//! A watcher does not receive single changes but whole [`Snapshot`]s and compares them itself ([`Snapshot::diff`]).
//! That bounds memory whatever the rate of changes, loses nothing, and lets a slow watcher see only what is still
//! true. The price, a record deleted and written again between two looks shows as one change, is harmless: keys
//! carry the id of the process that wrote them.

mod endpoint;
mod etcd;
mod file;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod memory;
mod orders;
mod snapshot;
mod tls;
mod view;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

pub use etcd::{EtcdConfig, EtcdDiscovery};
pub use file::{FileDiscovery, FileDiscoveryConfig};
#[cfg(feature = "kubernetes")]
pub use kubernetes::{KubernetesConfig, KubernetesDiscovery, KubernetesMode, PodIdentity};
pub use memory::MemoryDiscovery;
pub use snapshot::{Change, Snapshot};
pub use tls::{Pem, TlsError, TlsIdentity};

use crate::record::RecordKey;

/// A store of records that several processes share.
///
/// Every record that this handle puts is kept alive by it (a lease) until it is deleted, released or abandoned, or
/// the handle is dropped. A record whose owner has gone disappears by itself after the backend's time to live.
pub trait Discovery: Send + Sync + fmt::Debug {
    /// Writes a record and keeps it alive. A record that this handle owns already is replaced.
    ///
    /// Not cancel safe: a dropped future may still write.
    ///
    /// # Errors
    /// [`DiscoveryError::Exists`] when another owner holds the key, or a failure of the store.
    fn put(&self, key: RecordKey, value: Bytes) -> BoxFuture<'_, Result<(), DiscoveryError>>;

    /// Deletes a record that this handle owns; a key that it does not own is left alone.
    ///
    /// Not cancel safe: a dropped future may still delete.
    ///
    /// # Errors
    /// A failure of the store. The record is no longer kept alive even then.
    fn delete(&self, key: RecordKey) -> BoxFuture<'_, Result<(), DiscoveryError>>;

    /// Asks for a deletion without waiting for it; for destructors. Failures are logged.
    fn release(&self, key: RecordKey);

    /// Stops keeping a record alive and leaves it to expire, as a crashed owner would.
    fn abandon(&self, key: RecordKey);

    /// Watches all buckets. The first value may be unsynced and empty; see [`Snapshot::synced`].
    fn watch(&self) -> watch::Receiver<Arc<Snapshot>>;

    /// The id that workers of this store must use as instance id, when the store prescribes one.
    fn lease_id(&self) -> Option<u64> {
        None
    }
}

/// Why a store refused.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// Somebody else holds the key.
    #[error("record {key} exists already")]
    Exists {
        /// The key.
        key: RecordKey,
    },
    /// The key cannot be stored by this backend.
    #[error("record {key} cannot be stored: {reason}")]
    Key {
        /// The key.
        key: RecordKey,
        /// What is wrong with it.
        reason: String,
    },
    /// Reading or writing failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The store cannot be set up as configured.
    #[error("{0}")]
    Config(String),
    /// The store does not answer.
    #[error("the discovery store cannot be reached: {reason}")]
    Unreachable {
        /// The last failure.
        reason: String,
    },
    /// The store answered with a refusal.
    #[error("the discovery store refuses record {key}: {reason}")]
    Refused {
        /// The key.
        key: RecordKey,
        /// What the store says.
        reason: String,
    },
    /// Too many orders wait already.
    #[error("the discovery store is behind with its orders")]
    Busy,
    /// The store's handle has been shut down.
    #[error("the discovery store is closed")]
    Closed,
}

#[cfg(test)]
mod tests;
