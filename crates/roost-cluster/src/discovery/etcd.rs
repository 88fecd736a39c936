//! Discovery through etcd: one key per record, all of a participant's keys on one lease.
//!
//! Spoken is gRPC over the HTTP/2 client that is here anyway, with the few messages needed written as structs. That is
//! the way Dynamo's own client goes, so it works wherever that works (etcd's JSON gateway can be switched off and does
//! not know users by their certificates), and it needs neither `protoc` nor a gRPC framework of thirty packages.

mod channel;
mod keeper;
mod lease;
mod messages;
mod own;

#[cfg(test)]
mod tests;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::endpoint::Endpoint;
use super::orders::{self, CAPACITY, Command, Orders};
use super::tls::TlsIdentity;
use super::{Discovery, DiscoveryError, Snapshot};
use crate::record::RecordKey;
use keeper::Keeper;

/// etcd's client port.
const PORT: u16 = 2379;

/// Settings of [`EtcdDiscovery`].
#[derive(Clone)]
pub struct EtcdConfig {
    /// Members, `http://host:port` or `https://host:port`, tried in turn.
    pub endpoints: Vec<String>,
    /// Time after which the records of a vanished participant disappear; whole seconds, at least 2.
    pub lease_ttl: Duration,
    /// User and password.
    pub user: Option<(String, String)>,
    /// For `https`.
    pub tls: TlsIdentity,
    /// Pause between two pings on a connection that waits for answers; `None` never pings. etcd refuses to be asked
    /// more often than every 5 s.
    pub ping_interval: Option<Duration>,
    /// A connection that leaves a ping unanswered for this long is given up.
    pub ping_timeout: Duration,
    /// For how long, after the store was out of reach, records are believed in that are no longer there. Their owners
    /// need this time to notice that the store is back.
    pub hold: Duration,
}

impl EtcdConfig {
    /// What Dynamo 1.6 does, with the members at `endpoints`.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            lease_ttl: Duration::from_secs(30),
            user: None,
            tls: TlsIdentity::default(),
            ping_interval: Some(Duration::from_secs(15)),
            ping_timeout: Duration::from_secs(10),
            hold: Duration::from_secs(10),
        }
    }
}

/// A password must not appear in a log.
impl std::fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("lease_ttl", &self.lease_ttl)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .field("ping_interval", &self.ping_interval)
            .field("ping_timeout", &self.ping_timeout)
            .field("hold", &self.hold)
            .finish()
    }
}

/// A participant of a store in etcd.
///
/// Owns one task and one connection. Dropping the handle takes its records back soon after, as long as the runtime
/// runs; [`EtcdDiscovery::close`] waits for that. Abandoned records expire together with the handle's lease, which is
/// kept alive as long as the handle has other records.
#[derive(Debug)]
pub struct EtcdDiscovery {
    orders: Orders<mpsc::Sender<Command>>,
    lease: i64,
    trouble: Arc<Mutex<Option<String>>>,
}

impl EtcdDiscovery {
    /// Starts to take part; the store need not be up. Must be called on a runtime.
    ///
    /// # Errors
    /// [`DiscoveryError::Config`] for addresses that are none and for certificates that cannot be used.
    pub fn open(config: EtcdConfig) -> Result<Arc<Self>, DiscoveryError> {
        let secure = config.tls != TlsIdentity::default();
        let endpoints: Result<Vec<Endpoint>, String> =
            config.endpoints.iter().map(|text| Endpoint::parse(text.trim(), "etcd", PORT, secure)).collect();
        let endpoints = endpoints.map_err(DiscoveryError::Config)?;
        if endpoints.is_empty() {
            return Err(DiscoveryError::Config("no address of etcd is given".to_owned()));
        }
        let tls = if endpoints.iter().any(|endpoint| endpoint.tls) {
            let tls = config.tls.client_config(b"h2");
            Some(tls.map_err(|error| DiscoveryError::Config(format!("TLS towards etcd: {error}")))?)
        } else {
            None
        };
        let (commands, inbox) = mpsc::channel(CAPACITY);
        let (sender, snapshot) = watch::channel(Snapshot::unread());
        let lease = random_lease();
        let trouble = Arc::new(Mutex::new(None));
        let keeper = Keeper::new(config, endpoints, tls, lease, sender, trouble.clone());
        tokio::spawn(keeper.run(inbox));
        Ok(Arc::new(Self { orders: Orders::new(commands, snapshot), lease, trouble }))
    }

    /// Waits until the store has been read for the first time. Cancel safe.
    ///
    /// # Errors
    /// [`DiscoveryError::Unreachable`] with the last failure when `patience` is over.
    pub async fn ready(&self, patience: Duration) -> Result<(), DiscoveryError> {
        orders::first_look(self.orders.watch(), patience, || self.trouble.lock().clone()).await
    }

    /// Takes all records of this handle back and ends its task; the handle refuses everything afterwards.
    pub async fn close(&self) {
        self.orders.close().await;
    }
}

impl Discovery for EtcdDiscovery {
    /// Waits for the store as long as it is out of reach.
    fn put(&self, key: RecordKey, value: Bytes) -> BoxFuture<'_, Result<(), DiscoveryError>> {
        self.orders.put(key, value)
    }

    /// Does not wait for a store that is out of reach: that is an error, and the deletion is made up for later.
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

    /// The lease: workers in etcd carry its id, so there is one worker per handle.
    fn lease_id(&self) -> Option<u64> {
        Some(self.lease.cast_unsigned())
    }
}

/// The lease's id is chosen here rather than by etcd: it is known before the store is reached, and a lease that was
/// lost can be had again under the same id, which is the worker's identity.
fn random_lease() -> i64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 1).max(1).cast_signed()
}
